/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The idle CPUs, and threads for them.
 *
 * A CPU is idle once it has found no thread, here or elsewhere. It looks again only if it is
 * kicked. So whatever enters a queue from which another CPU may take it kicks an idle CPU: not only
 * a thread that wakes, for which the kernel has looked for an idle CPU already, but also one that
 * makes way for a thread that is bound to its CPU, or for a real-time thread.
 *
 * A CPU that looks while a thread is being inserted can miss that thread. It then waits for a turn
 * of its own CPU at most: when it stops again, it is shown again.
 */
#ifndef ECALLS_SCHED_IDLE_H
#define ECALLS_SCHED_IDLE_H

#include "place.h"
#include "timer.h"

/* The CPUs that have found no thread since one ran there: a bit each. A CPU sets its own bit before
 * it looks at the others' queues, and any CPU that kicks it clears the bit. */
struct {
	u64 cpus[CPUS_MAX / 64];
} idle SEC(".bss.idle");

/* Whether there is an idle CPU. */
static __always_inline bool idle_is_any(void) {
	for (u32 word = 0; word < CPUS_MAX / 64; word++) {
		if (word * 64 >= setting.cpus)
			break;
		if (*(volatile u64 *)&idle.cpus[word])
			return true;
	}
	return false;
}

/* A CPU is about to look for a thread that waits elsewhere. */
static __always_inline void idle_begins(u32 cpu) {
	struct sched_places *places = places_of(cpu);

	if (!places)
		return;
	places->idle = 1;
	__sync_fetch_and_or(&idle.cpus[cpu / 64 & (CPUS_MAX / 64 - 1)], sched_bit(cpu & 63));
}

/* A thread runs on it. */
static __always_inline void idle_ends(u32 cpu, struct sched_places *places) {
	if (!places->idle)
		return;
	places->idle = 0;
	__sync_fetch_and_and(&idle.cpus[cpu / 64 & (CPUS_MAX / 64 - 1)], ~sched_bit(cpu & 63));
}

/* Whether a thread may run on an idle CPU, and no real-time thread has that. */
static __always_inline bool idle_suits(const struct task_struct *p, u32 cpu) {
	const struct rq *there = bpf_per_cpu_ptr(&runqueues, cpu);

	return there && !there->rt.rt_nr_running && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Kicks an idle CPU for a thread. */
__noinline int idle_kick(struct task_struct *p __arg_trusted) {
	/* This program itself disables migration for the current thread. */
	if (p->migration_disabled > (p == bpf_get_current_task_btf() ? 1 : 0))
		return 0;
	for (u32 word = sched_zero; lib_again(word, CPUS_MAX / 64); word++) {
		if (word * 64 >= setting.cpus)
			break;
		u64 left = *(volatile u64 *)&idle.cpus[word & (CPUS_MAX / 64 - 1)];
		for (u32 round = sched_zero; left && lib_again(round, SCHED_ENTITIES); round++) {
			u32 bit = sched_next(&left), cpu = word * 64 + bit;
			if (!idle_suits(p, cpu))
				continue;
			__sync_fetch_and_and(&idle.cpus[word & (CPUS_MAX / 64 - 1)],
					     ~sched_bit(bit));
			kick((s32)cpu, SCX_NUMBER(scx_kick_flags, SCX_KICK_IDLE));
			return 1;
		}
	}
	return 0;
}

/* Whether a thread may run on other CPUs. */
static __always_inline bool is_free(struct task_struct *p) {
	return ((struct task_struct___scx *)p)->nr_cpus_allowed > 1;
}

/* A thread goes into the queue of its CPU: an idle one may take it from there. */
static __always_inline void idle_shows(struct task_struct *p) {
	if (is_free(p) && idle_is_any())
		idle_kick(p);
}

#endif
