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
 *	- while a CPU is idle, or for NEXT_SHOWN_NS after another CPU wanted to take it (next_ask),
 *	  or a real-time thread has taken the CPU (next_yields). An idle CPU that asks also ends the
 *	  turn of the thread that runs, which then waits in the CPU's queue (idle.h), as do those
 *	  that are next after the one that runs then (next_shows).
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

#include "idle.h"

#define NEXT_LOOK_NS 1000000u
#define NEXT_SHOWN_NS 4000000u

/* A thread no longer waits in the local queue of its CPU, which has these places. */
static __always_inline void next_goes(struct sched_task *t, struct sched_places *places) {
	t->next = 0;
	if (places)
		__sync_fetch_and_add(&places->nexts, -1);
}

static __always_inline void next_leaves(struct sched_task *t) {
	if (t->next)
		next_goes(t, places_of(t->cpu));
}

/* Whether a thread is next that begins to wait; `woken`: it has woken. */
static __always_inline bool next_is(struct task_struct *p, const struct sched_task *t,
				    const struct sched_cpu *c, const struct sched_places *places,
				    bool woken, u64 now) {
	bool may_leave = is_free(p);

	if (c->quotas || (woken && may_leave) || !fair_is_next(c, &t->plain, places->nexts, woken))
		return false;
	/* The thread that was chosen came from another CPU: the others that wait are all here. */
	if (!woken && places->took)
		return false;
	if (may_leave && (now < places->shown_ns || idle_is_any()))
		return false;
	return setting.cpus == 1 || now < places->look_ns + NEXT_LOOK_NS;
}

/* A thread that is next goes into the local queue. */
static __always_inline void next_comes(struct task_struct *p, struct sched_task *t, u32 cpu,
				       struct sched_places *places) {
	t->next = 1;
	if (!__sync_fetch_and_add(&places->nexts, 1))
		places->is_free = 0;
	places->is_free |= is_free(p);
	SCHED_COUNT(cpu, chosen[ECALLS_WHY_FAIR]);
}

/* Puts a thread that has woken into the local queue if it is next, before those that are there. If
 * it `preempts`, it ends the turn of the thread that runs. */
static __always_inline bool next_takes(struct task_struct *p, struct sched_task *t, u32 cpu,
				       struct sched_cpu *c, u64 slice, u64 enq_flags, u64 now,
				       bool preempts) {
	struct sched_places *places = places_of(cpu);

	if (!places || !next_is(p, t, c, places, true, now))
		return false;
	next_comes(p, t, cpu, places);
	enq_flags |= SCX_NUMBER(scx_enq_flags, SCX_ENQ_HEAD);
	if (preempts) {
		SCHED_COUNT(cpu, preempted);
		places->ended = 1;
		enq_flags |= SCX_NUMBER(scx_enq_flags, SCX_ENQ_PREEMPT);
	}
	scx_bpf_dsq_insert(p, SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice, enq_flags);
	return true;
}

/* Another CPU would take a thread that is next here; `is_idle`: at once. 0: there is none. */
static __always_inline bool next_ask(u32 other, struct sched_places *theirs, bool is_idle,
				     u64 now) {
	if (!*(volatile u32 *)&theirs->nexts || !theirs->is_free)
		return false;
	theirs->shown_ns = now + NEXT_SHOWN_NS;
	if (is_idle)
		kick_off((s32)other, theirs);
	return true;
}

/* A thread that was next runs. If an idle CPU has asked for those behind it, they enter this CPU's
 * queue, from which the idle one takes them. */
static __always_inline void next_shows(struct sched_places *places, u64 now) {
	if (!places->nexts || !places->is_free || now >= places->shown_ns || !idle_is_any())
		return;
	places->is_free = 0;
	if (bpf_ksym_exists(scx_bpf_reenqueue_local___v2___own))
		scx_bpf_reenqueue_local___v2___own();
}

/* The thread that runs here goes on for now, although the CPU has asked another one: its turn ends
 * soon, to look again what waits there. */
static __always_inline void next_hurries(struct sched_cpu *c, struct sched_places *places,
					 u64 now) {
	if (places->asked)
		turn_shorten(c, now + NEXT_LOOK_NS);
	places->asked = 0;
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

#endif
