/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups (Coop §3.1): their threads share a virtual time, and importance divides what it brings.
 *
 * Outside, a group is like one thread: its virtual time advances while any member runs, at the
 * weight of all runnable members together. So it gets what they would get one by one.
 *
 * Inside, the thread with the least importance value goes first: that number is the members' own,
 * such as the frames shown so far, and the scheduler only compares it. A member that has published
 * none (a plain one, or one that an event woke, or a demoted one) has a virtual time within the
 * group, and goes first while that is less than the one of the member with the least importance.
 * So neither kind starves the other: whoever runs moves its own virtual time on, and there are
 * finitely many.
 */
#ifndef ECALLS_SCHED_GROUP_H
#define ECALLS_SCHED_GROUP_H

#include "fair.h"

/* A member becomes runnable. The first one puts the group where a waking thread is put. */
LIB_INLINE void group_enter(struct sched_cpu *cpu, ecalls_u32 group, ecalls_u32 weight) {
	struct sched_entity *g = sched_entity(cpu, group);

	if (g->members == 0) {
		g->vtime = fair_place(cpu->vtime, g->vtime);
		cpu->runnable |= sched_bit(group);
	}
	g->members++;
	g->weight += weight;
}

/* A member is no longer runnable. */
LIB_INLINE void group_exit(struct sched_cpu *cpu, ecalls_u32 group, ecalls_u32 weight) {
	struct sched_entity *g = sched_entity(cpu, group);

	if (g->members == 0)
		return;
	g->members--;
	g->weight = g->members && g->weight > weight ? g->weight - weight : 0;
	if (g->members == 0)
		cpu->runnable &= ~sched_bit(group);
}

/* The runnable members of a group that are entities. */
LIB_INLINE ecalls_u64 group_members(struct sched_cpu *cpu, ecalls_u32 group) {
	ecalls_u64 left = cpu->inside & cpu->runnable, members = 0;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		if (cpu->entity[i].group == group)
			members |= sched_bit(i);
	}
	return members;
}

/* The least importance that the other members have published, waiting or not; SCHED_NEVER if none
 * has (Coop §3.1: what coop_poll returns). */
LIB_CALL ecalls_u64 group_least_importance(struct sched_cpu *cpu, ecalls_u32 except) {
	ecalls_u32 group = sched_entity(cpu, except)->group;
	ecalls_u64 left = cpu->inside & ~sched_bit(except), least = SCHED_NEVER;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		struct sched_entity *e = sched_entity(cpu, sched_next(&left));
		if (e->group == group && e->importance < least)
			least = e->importance;
	}
	return least;
}

/* Of some members, the one with the least importance, or if `plain` the one without importance that
 * has the least virtual time; SCHED_NOBODY if there is none. */
LIB_INLINE ecalls_u32 group_best(struct sched_cpu *cpu, ecalls_u64 left, _Bool plain) {
	ecalls_u32 best = SCHED_NOBODY;
	ecalls_u64 least = 0;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		struct sched_entity *e = sched_entity(cpu, i);
		ecalls_u64 key = plain ? e->vtime : e->importance;
		if ((e->importance == SCHED_NEVER) != plain)
			continue;
		if (best == SCHED_NOBODY || (plain ? fair_before(key, least) : key < least)) {
			best = i ^ cpu->zero;
			least = key;
		}
	}
	return best;
}

/* Of two members, who goes first by virtual time within the group. The group itself stands for its
 * first plain thread; `*vtime` is the first's, and becomes the chosen one's. */
LIB_INLINE ecalls_u32 group_earlier(ecalls_u32 first, ecalls_u64 *vtime, ecalls_u32 other,
				    ecalls_u64 other_vtime) {
	if (first != SCHED_NOBODY && !fair_before(other_vtime, *vtime))
		return first;
	*vtime = other_vtime;
	return other;
}

/* Which member of a runnable group goes first: an entity, or the group's index for the first of its
 * plain threads, the running one included. */
LIB_CALL ecalls_u32 group_first(struct sched_cpu *cpu, ecalls_u32 group) {
	struct sched_entity *g = sched_entity(cpu, group);
	ecalls_u64 members = group_members(cpu, group), vtime = 0;
	ecalls_u32 important = group_best(cpu, members, 0);
	ecalls_u32 first = SCHED_NOBODY, other = group_best(cpu, members, 1);

	if (important != SCHED_NOBODY)
		first = group_earlier(first, &vtime, important,
				      sched_entity(cpu, important)->vtime);
	if (other != SCHED_NOBODY)
		first = group_earlier(first, &vtime, other, sched_entity(cpu, other)->vtime);
	if (g->queued)
		first = group_earlier(first, &vtime, group, g->head_vtime);
	if (cpu->running == group)
		first = group_earlier(first, &vtime, group, cpu->plain.vtime);
	if (first != SCHED_NOBODY)
		g->inner_vtime = fair_later(g->inner_vtime, vtime);
	return first;
}

#endif
