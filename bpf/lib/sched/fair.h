/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fair share (Coop §3.2): the CPU goes to the least virtual time.
 *
 * A thread's virtual time is the time it has run, at 100 / weight of the real one. So threads of
 * equal virtual time have had CPU time in proportion to their weights. The CPU knows the least of
 * the runnable ones; who comes or comes back begins no earlier than there. It neither pays for the
 * time it was away nor has saved it up.
 *
 * Virtual times are compared by the sign of their difference, so that they may wrap around. That is
 * right while those compared lie within 2^63 of each other: 292 years of a thread with weight 100,
 * 2.9 years of the lightest.
 */
#ifndef ECALLS_SCHED_FAIR_H
#define ECALLS_SCHED_FAIR_H

#include "window.h"

#define FAIR_WEIGHT 100u /* of nice 0; the kernel's range is 1 to 10,000 */

LIB_INLINE _Bool fair_before(ecalls_u64 a, ecalls_u64 b) {
	return (ecalls_s64)(a - b) < 0;
}

LIB_INLINE ecalls_u64 fair_later(ecalls_u64 a, ecalls_u64 b) {
	return fair_before(a, b) ? b : a;
}

/* How far a thread's virtual time goes while it runs for `ns`. */
LIB_INLINE ecalls_u64 fair_advance(ecalls_u64 ns, ecalls_u32 weight) {
	return ns * FAIR_WEIGHT / (weight ? weight : 1);
}

/* A thread begins to wait: not before the least virtual time (Coop §3.2: use it or lose it). */
LIB_INLINE ecalls_u64 fair_place(ecalls_u64 least, ecalls_u64 vtime) {
	return fair_later(least, vtime);
}

/* A thread goes to another CPU, and takes along how far ahead it was, or that it was not. */
LIB_INLINE ecalls_u64 fair_move(ecalls_u64 vtime, ecalls_u64 from_least, ecalls_u64 to_least) {
	return fair_before(vtime, from_least) ? to_least : to_least + (vtime - from_least);
}

/* How many threads want this CPU. */
LIB_INLINE ecalls_u64 fair_count(const struct sched_cpu *cpu) {
	ecalls_u64 count = cpu->queue.count + bits_count(cpu->runnable & ~cpu->groups);
	ecalls_u64 groups = cpu->runnable & cpu->groups;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (groups == 0)
			break;
		count += cpu->entity[sched_next(&groups)].queued;
	}
	if (cpu->running == SCHED_PLAIN || sched_in(cpu->groups, cpu->running))
		count++;
	return count;
}

/* The time slice (Coop §3.2): each of N threads once per period, but not too short. */
LIB_INLINE ecalls_u64 fair_slice(const struct sched_cpu *cpu) {
	ecalls_u64 count = fair_count(cpu);
	ecalls_u64 slice = count > 1 ? cpu->options.period_ns / count : cpu->options.period_ns;

	return slice < cpu->options.slice_min_ns ? cpu->options.slice_min_ns : slice;
}

/* The virtual time by which the running thread, or its group, is judged. */
LIB_INLINE ecalls_u64 fair_running_vtime(struct sched_cpu *cpu) {
	struct sched_entity *e = sched_entity(cpu, cpu->running);

	if (cpu->running >= SCHED_ENTITIES)
		return cpu->plain.vtime;
	return e->group < SCHED_ENTITIES ? sched_entity(cpu, e->group)->vtime : e->vtime;
}

/* A member of a group that has published an importance pays with the others that have (group.h). */
LIB_INLINE void fair_charge_shared(struct sched_entity *group, ecalls_u64 ns) {
	group->shared_vtime += fair_advance(ns, group->shared_weight);
}

/* The running thread pays for the time since it was charged last; its group as well. What a thread
 * gets by its window it has been promised, and does not pay for. */
LIB_INLINE void fair_charge(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 ns = now_ns > cpu->charged_ns ? now_ns - cpu->charged_ns : 0;
	ecalls_u32 group = SCHED_NOBODY;

	cpu->charged_ns += ns;
	if (cpu->running == SCHED_NOBODY)
		return;
	if (cpu->running == SCHED_PLAIN || sched_in(cpu->groups, cpu->running)) {
		cpu->plain.vtime += fair_advance(ns, cpu->plain.weight);
		group = cpu->running;
	} else {
		struct sched_entity *e = sched_entity(cpu, cpu->running);
		group = e->group;
		if (group < SCHED_ENTITIES && e->importance != SCHED_NEVER)
			fair_charge_shared(sched_entity(cpu, group), ns);
		else if (!cpu->claims)
			e->vtime += fair_advance(ns, e->weight);
		if (sched_in(cpu->windowed, cpu->running))
			window_charge(cpu, cpu->running, ns);
	}
	if (group < SCHED_ENTITIES) {
		struct sched_entity *g = sched_entity(cpu, group);
		g->vtime += fair_advance(ns, g->weight);
		g->ran_ns += ns;
	}
	if (cpu->on_server)
		cpu->server.served_ns += ns;
}

/* The entity outside of groups (a thread or a group) with the least virtual time, SCHED_NOBODY if
 * none of `set` is runnable. Of equals, the first in the table. */
LIB_INLINE ecalls_u32 fair_first(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 left = set & cpu->runnable & ~cpu->inside, least = 0;
	ecalls_u32 best = SCHED_NOBODY;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		ecalls_u64 vtime = cpu->entity[i].vtime;
		if (best == SCHED_NOBODY || fair_before(vtime, least)) {
			best = i ^ cpu->zero;
			least = vtime;
		}
	}
	return best;
}

/* What the caller says of the plain threads that wait. */
LIB_INLINE void fair_note(struct sched_cpu *cpu, const struct sched_queue *queue) {
	cpu->queue.vtime = queue->vtime;
	cpu->queue.count = queue->count;
}

/* One more of them waits, until the caller tells of all. */
LIB_INLINE void fair_queue(struct sched_cpu *cpu, ecalls_u64 vtime) {
	if (!cpu->queue.count || fair_before(vtime, cpu->queue.vtime))
		cpu->queue.vtime = vtime;
	cpu->queue.count++;
}

/* Charges who runs, and brings the CPU's least virtual time up to date. Threads with a window do
 * not count: theirs stands still while their window serves them. */
LIB_CALL int fair_update(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	_Bool any = cpu->running != SCHED_NOBODY && !sched_in(cpu->windowed, cpu->running);
	ecalls_u64 least;
	ecalls_u32 first;

	fair_charge(cpu, now_ns);
	first = fair_first(cpu, ~cpu->windowed);
	cpu->first = first;
	least = fair_running_vtime(cpu);
	if (first != SCHED_NOBODY) {
		ecalls_u64 vtime = sched_entity(cpu, first)->vtime;
		least = !any || fair_before(vtime, least) ? vtime : least;
		any = 1;
	}
	if (cpu->queue.count) {
		least = !any || fair_before(cpu->queue.vtime, least) ? cpu->queue.vtime : least;
		any = 1;
	}
	if (any)
		cpu->vtime = fair_later(cpu->vtime, least);
	return 0;
}

#endif
