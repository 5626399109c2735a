/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups (Coop §3.1): their threads share a virtual time, and importance divides their CPU time.
 *
 * Towards other threads a group is like one thread: its virtual time advances while any member
 * runs, at the weight of all runnable members together. So the group gets the sum of the shares
 * that its members would get one by one.
 *
 * Within a group, the thread with the least importance value runs first: the members define that
 * number, such as the frames shown so far, and the scheduler only compares it. The CPU time that
 * one of them gets does not show what it is due, since importance divides the time. So these
 * members have one common virtual time within the group, at the weight of the runnable ones.
 *
 * A member that has published no importance (a plain one, one that an event woke, or a demoted one)
 * has a virtual time of its own within the group, and runs first while that is less than the common
 * one. A demoted thread begins at the common one. So neither kind starves the other, and no thread
 * waits because importance has given another one too little.
 */
#ifndef ECALLS_SCHED_GROUP_H
#define ECALLS_SCHED_GROUP_H

#include "fair.h"

/* A runnable member now has an importance. The first such member begins where new members do. */
LIB_INLINE void group_share(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i), *g = sched_entity(cpu, e->group);

	if (g->shared_weight == 0)
		g->shared_vtime = vtime_place(g->inner_vtime, g->shared_vtime);
	g->shared_weight += e->weight;
}

/* A runnable member has no importance any more, or is no longer runnable: it keeps the debt of the
 * common virtual time. */
LIB_INLINE void group_unshare(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i), *g = sched_entity(cpu, e->group);

	g->shared_weight = g->shared_weight > e->weight ? g->shared_weight - e->weight : 0;
	e->vtime = vtime_later(e->vtime, g->shared_vtime);
}

/* Whether a thread is a member that importance gives its part of the group's time. */
LIB_INLINE _Bool group_shares(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i);

	return e->group < SCHED_ENTITIES && e->importance != SCHED_NEVER;
}

/* A thread publishes its importance, or that it has none; the caller has charged it up to now. */
LIB_INLINE void group_publish(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 importance) {
	_Bool shared = group_shares(cpu, i), runnable = sched_in(cpu->runnable, i);

	sched_entity(cpu, i)->importance = importance;
	if (runnable && shared && !group_shares(cpu, i))
		group_unshare(cpu, i);
	if (runnable && !shared && group_shares(cpu, i))
		group_share(cpu, i);
}

/* A member becomes runnable. The first one gives the group the virtual time of a waking thread. */
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

/* Of some members, the one with the least importance; if `plain`, the one with the least virtual
 * time of those without importance; SCHED_NOBODY if there is none. */
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

/* Of two members, the one that runs first by virtual time within the group. The group's index means
 * its first plain thread; `*vtime` is that of `first`, and is set to that of the result. */
LIB_INLINE ecalls_u32 group_earlier(ecalls_u32 first, ecalls_u64 *vtime, ecalls_u32 other,
				    ecalls_u64 other_vtime) {
	if (first != SCHED_NOBODY && !vtime_before(other_vtime, *vtime))
		return first;
	*vtime = other_vtime;
	return other;
}

/* The member of a runnable group that runs first: an entity, or the group's index for the first of
 * its plain threads, including the running one. */
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
