/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups (Coop §3.1): their threads share a virtual time, and importance divides what it brings.
 *
 * Outside, a group is like one thread: its virtual time advances while any member runs, at the
 * weight of all runnable members together. So it gets what they would get one by one.
 *
 * Inside, the thread with the least importance value goes first: that number is the members' own,
 * such as the frames shown so far, and the scheduler only compares it. What one of these gets says
 * nothing of what it is due, since importance divides it. So within the group they have one virtual
 * time together, at the weight of those of them that are runnable.
 *
 * A member that has published no importance (a plain one, or one that an event woke, or a demoted
 * one) has a virtual time of its own within the group, and goes first while that is less than the
 * one that the others share. Who is demoted begins where they are then. So neither kind starves the
 * other, and nobody waits for what another has had too little by importance.
 */
#ifndef ECALLS_SCHED_GROUP_H
#define ECALLS_SCHED_GROUP_H

#include "fair.h"

/* A runnable member has an importance from now on. The first one begins where new ones do. */
LIB_INLINE void group_share(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i), *g = sched_entity(cpu, e->group);

	if (g->shared_weight == 0)
		g->shared_vtime = vtime_place(g->inner_vtime, g->shared_vtime);
	g->shared_weight += e->weight;
}

/* It has none any more, and owes what they owe together; or it is no longer runnable. */
LIB_INLINE void group_unshare(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i), *g = sched_entity(cpu, e->group);

	g->shared_weight = g->shared_weight > e->weight ? g->shared_weight - e->weight : 0;
	e->vtime = vtime_later(e->vtime, g->shared_vtime);
}

/* Whether a thread is a member, and divides by importance what its group gets. */
LIB_INLINE _Bool group_shares(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i);

	return e->group < SCHED_ENTITIES && e->importance != SCHED_NEVER;
}

/* A thread publishes its importance, or that it has none; it has been charged up to now. */
LIB_INLINE void group_publish(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 importance) {
	_Bool shared = group_shares(cpu, i), runnable = sched_in(cpu->runnable, i);

	sched_entity(cpu, i)->importance = importance;
	if (runnable && shared && !group_shares(cpu, i))
		group_unshare(cpu, i);
	if (runnable && !shared && group_shares(cpu, i))
		group_share(cpu, i);
}

/* A member becomes runnable. The first one puts the group where a waking thread is put. */
LIB_INLINE void group_enter(struct sched_cpu *cpu, ecalls_u32 group, ecalls_u32 weight) {
	struct sched_entity *g = sched_entity(cpu, group);

	if (g->members == 0) {
		g->vtime = vtime_place(cpu->vtime, g->vtime);
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
LIB_GLOBAL ecalls_u64 group_least_importance(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 except) {
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
		if (best == SCHED_NOBODY || (plain ? vtime_before(key, least) : key < least)) {
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
	if (first != SCHED_NOBODY && !vtime_before(other_vtime, *vtime))
		return first;
	*vtime = other_vtime;
	return other;
}

/* Which member of a runnable group goes first: an entity, or the group's index for the first of its
 * plain threads, the running one included. */
LIB_GLOBAL ecalls_u32 group_first(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 group) {
	struct sched_entity *g = sched_entity(cpu, group);
	ecalls_u64 members = group_members(cpu, group), vtime = 0;
	ecalls_u32 important = group_best(cpu, members, 0);
	ecalls_u32 first = SCHED_NOBODY, other = group_best(cpu, members, 1);

	if (important != SCHED_NOBODY)
		first = group_earlier(first, &vtime, important, g->shared_vtime);
	if (other != SCHED_NOBODY)
		first = group_earlier(first, &vtime, other, sched_entity(cpu, other)->vtime);
	if (g->queued)
		first = group_earlier(first, &vtime, group, g->head_vtime);
	if (cpu->running == group)
		first = group_earlier(first, &vtime, group, cpu->plain.vtime);
	if (first != SCHED_NOBODY)
		g->inner_vtime = vtime_later(g->inner_vtime, vtime);
	return first;
}

#endif
