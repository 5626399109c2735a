/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that are certainly next (fair_is_next in lib/sched/fair.h): a plain thread that begins to
 * wait while no other one does, and is not ahead of the thread that runs. It goes into the CPU's
 * local dispatch queue at once, from which the kernel takes it without asking us: asking takes 800
 * instructions of a switch, as many as all of its other operations together. These threads are
 * usual where two threads hand a CPU to each other, by yields, pipes or futexes.
 *
 * No other CPU can take a thread from a local queue. So a thread that wakes goes there only if it
 * is bound to the CPU anyway. One that yields goes there, too, but not
 *
 *	- for NEXT_SHOWN_NS after another CPU wanted to take it (next_ask), or a real-time thread
 *	  has taken the CPU (next_yields). An idle CPU that asks also ends the turn of the thread
 *	  that runs, which then waits in the CPU's queue, and is woken for it (next_shows).
 *	- if the CPU has not compared its load with another one's for NEXT_LOOK_NS: it does so when
 *	  the kernel asks it whom to run.
 *
 * Where there are entities or quotas, no thread is next. A thread that is next when its CPU gets an
 * entity has one turn.
 *
 * The number of these threads is in sched_places, and each of them has a flag. Another CPU changes
 * them if the kernel moves a waiting thread there.
 */
#ifndef ECALLS_SCHED_NEXT_H
#define ECALLS_SCHED_NEXT_H

#include "place.h"
#include "timer.h"

#define NEXT_LOOK_NS 1000000u
#define NEXT_SHOWN_NS 4000000u

/* Whether a thread may run on other CPUs. */
static __always_inline bool next_is_free(struct task_struct *p) {
	return ((struct task_struct___scx *)p)->nr_cpus_allowed > 1;
}

/* A thread no longer waits in the local queue. */
static __always_inline void next_leaves(struct sched_task *t) {
	struct sched_places *places = t->next ? places_of(t->cpu) : 0;

	t->next = 0;
	if (places)
		__sync_fetch_and_add(&places->nexts, -1);
}

/* Puts a thread into the local queue if it is next; `woken`: it has woken, and goes before those
 * that are there. If it `preempts`, it ends the turn of the thread that runs. */
static __always_inline bool next_takes(struct task_struct *p, struct sched_task *t, u32 cpu,
				       struct sched_cpu *c, u64 slice, u64 enq_flags, u64 now,
				       bool woken, bool preempts) {
	struct sched_places *places = places_of(cpu);
	bool is_free = next_is_free(p);

	if (!places || c->quotas || (woken && is_free) ||
	    !fair_is_next(c, &t->plain, places->nexts, woken))
		return false;
	/* The thread that was chosen came from another CPU: the others that wait are all here. */
	if (!woken && places->took)
		return false;
	if (is_free && now < places->shown_ns)
		return false;
	if (setting.cpus > 1 && now >= places->look_ns + NEXT_LOOK_NS)
		return false;
	if (woken)
		enq_flags |= SCX_NUMBER(scx_enq_flags, SCX_ENQ_HEAD);
	if (preempts) {
		SCHED_COUNT(cpu, preempted);
		enq_flags |= SCX_NUMBER(scx_enq_flags, SCX_ENQ_PREEMPT);
	}
	t->next = 1;
	__sync_fetch_and_add(&places->nexts, 1);
	places->is_free = is_free;
	SCHED_COUNT(cpu, chosen[ECALLS_WHY_FAIR]);
	scx_bpf_dsq_insert(p, SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice, enq_flags);
	return true;
}

/* Another CPU would take a thread that is next here; `is_idle`: at once. */
static __always_inline void next_ask(u32 cpu, u32 other, struct sched_places *theirs, bool is_idle,
				     u64 now) {
	if (!*(volatile u32 *)&theirs->nexts || !theirs->is_free)
		return;
	theirs->shown_ns = now + NEXT_SHOWN_NS;
	if (!is_idle)
		return;
	theirs->asker = cpu + 1;
	kick((s32)other, SCX_NUMBER(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* A real-time thread has taken the CPU from a plain one: the threads that wait are for the other
 * CPUs. One that is next here enters the CPU's queue. */
static __always_inline void next_yields(u32 cpu, u64 now) {
	struct sched_places *places = places_of(cpu);

	if (!places)
		return;
	places->shown_ns = now + NEXT_SHOWN_NS;
	if (places->nexts && bpf_ksym_exists(scx_bpf_reenqueue_local___v2___own))
		scx_bpf_reenqueue_local___v2___own();
}

/* A thread has gone into the queue of its CPU: an idle CPU that asked may take it. */
static __always_inline void next_shows(struct task_struct *p, u32 cpu) {
	struct sched_places *places = places_of(cpu);
	u32 asker = places ? places->asker : 0;

	if (!asker || !next_is_free(p))
		return;
	places->asker = 0;
	kick((s32)asker - 1, SCX_NUMBER(scx_kick_flags, SCX_KICK_IDLE));
}

#endif
