/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The load of a CPU: the sum of the weights of the threads that want it, plain ones and entities,
 * waiting or running. Balancing compares it (lib/sched/balance.h).
 *
 * A thread stores its part of the sum, and the CPU where it is counted. So the sum always equals
 * the stored parts, and cannot drift: code that moves a thread, changes its weight or its kind, or
 * ends it, calls load_settle to correct the part; an unreported change is corrected when the thread
 * runs next. A thread's part is changed under its run queue's lock; the sum, which may be another
 * CPU's, by atomic additions.
 *
 * A member of a group counts for itself, since a group has the weights of its members together. A
 * thread with a promised window counts by the window (by what it leaves of the CPU), and by its
 * weight only if it also shares the time that claims leave. Real-time threads are not scheduled by
 * us: the CPU time that they take counts instead (lib/sched/away.h). A kernel thread that is bound
 * to a CPU counts as any other plain thread.
 */
#ifndef ECALLS_SCHED_LOAD_H
#define ECALLS_SCHED_LOAD_H

#include "place.h"
#include "lib/sched/balance.h"

static __always_inline void load_add(u32 cpu, u64 change) {
	struct sched_places *places = places_of(cpu);

	if (places)
		__sync_fetch_and_add(&places->load, change);
}

/* A thread may have become ready, gone to sleep, changed its weight, or migrated. */
static __always_inline void load_settle(struct sched_task *t, const struct sched_cpu *c) {
	u32 weight = t->ready ? t->plain.weight : 0, before = t->loaded, cpu = t->loaded_cpu;

	if (sched_in(c->promised & ~c->conserving, t->entity))
		weight = 0;
	if (weight == before && (cpu == t->cpu || !weight))
		return;
	t->loaded = weight;
	t->loaded_cpu = t->cpu;
	if (cpu != t->cpu) {
		load_add(cpu, -(u64)before);
		before = 0;
	}
	load_add(t->cpu, (u64)weight - before);
}

/* The sum of a CPU, which may change while it is read; the same holds below. */
static __always_inline u64 load_of_cpu(u32 cpu) {
	const struct sched_places *places = places_of(cpu);

	return places ? *(volatile u64 *)&places->load : 0;
}

static __always_inline struct balance_load load_of(const struct sched_places *places,
						   const struct sched_cpu *c, u64 now) {
	return balance_load(*(volatile u64 *)&places->load, c->promised_share + away_share(c, now));
}

#endif
