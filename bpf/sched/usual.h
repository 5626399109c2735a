/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The path of most turns: of plain threads under no quota, on a CPU without entities. Of a thread
 * switch these are most of what our operations cost, so each of them does only what such a turn
 * needs, and looks up what it needs once:
 *
 *	- A thread that stops and stays ready enters its queue next: the kernel calls enqueue right
 *	  after stopping. So usual_stops decides where it goes, and usual_waits inserts it there by
 *	  its address, without its data.
 *	- The thread that runs next begins at the time at which the last one stopped, if that one is
 *	  still the kernel's current thread: then no other one has had the CPU since (usual_now).
 *	- The kernel reports no yield: it ends the slice (has_yielded). If nobody waits, and nothing
 *	  was named since the turn began, which would be looked at (`bindings`), the turn goes on.
 *
 * The addresses are compared, never used. One of them is forgotten when its thread ends or leaves
 * this scheduler's class: another thread may have that address later, and a real-time thread can
 * have the CPU for long.
 */
#ifndef ECALLS_SCHED_USUAL_H
#define ECALLS_SCHED_USUAL_H

#include "begin.h"
#include "task.h"

/* Virtual time alone concerns a thread and its CPU, and the thread is where it was before. */
static __always_inline bool is_usual(const struct sched_task *t, u32 cpu,
				     const struct sched_cpu *c) {
	return sched_is_plain(c) && t->cpu == cpu && t->ready &&
	       !(t->limited | t->parked | t->bound);
}

static __always_inline bool has_slice(const struct task_struct *p) {
	return ((const struct task_struct___scx *)(const void *)p)->scx.slice;
}

/* Whether the plain or ordinary thread that runs has yielded: its slice has ended before its time,
 * and not for another thread. */
static __always_inline bool has_yielded(const struct task_struct *p,
					const struct sched_places *places,
					const struct sched_cpu *c, u64 now) {
	if (c->running != SCHED_PLAIN && !fair_is_ordinary(c, c->running))
		return false;
	return !has_slice(p) && now < c->limit_ns && !*(volatile u64 *)&places->ended;
}

/* The time at which a thread gets the CPU. */
static __always_inline u64 usual_now(u32 cpu, const struct sched_here *here) {
	u64 current = (u64)bpf_get_current_task_btf();

	if (here->places.last == current && cpu == bpf_get_smp_processor_id())
		return here->cpu.charged_ns;
	return now_ns();
}

/* `begin` for a thread that did not have the CPU before. */
static __always_inline void usual_runs(struct task_struct *p, struct sched_task *t, u32 cpu,
				       struct sched_here *here) {
	u64 now = usual_now(cpu, here), slice;
	struct sched_cpu *c = &here->cpu;

	if (t->next) {
		next_goes(t, &here->places);
		next_shows(&here->places, now);
	}
	here->places.bindings = t->bindings;
	if (t->share)
		t->plain.weight = share_weight(t);
	turn_start_plain(c, &t->plain, now);
	if (t->comes)
		fair_woke(c);
	t->comes = COMES_BACK;
	if (t->loaded != t->plain.weight || t->loaded_cpu != cpu)
		load_settle(t, c);
	/* The control group has a quota since now. */
	if (t->limited)
		quota_begins(t, c, now);
	slice = c->limit_ns > now ? c->limit_ns - now : 1;
	task_set_slice(p, slice);
	if (!t->limited && slice >= setting.options.period_ns)
		return;
	/* If the timer expires no later, there is nothing to ask the policy. */
	if (!here->timer.at_ns || here->timer.at_ns > c->limit_ns)
		set_timer(cpu, c, now);
}

/* A plain thread gives its CPU to a real-time one. With the rest of its slice, the kernel would
 * keep the plain thread for this CPU, where no other CPU can take it; without, it enters its queue.
 */
static __always_inline void let_go(struct task_struct *p, u32 cpu, bool runnable, u64 now) {
	const struct task_struct___scx *scx = (void *)p;
	const struct rq *there = bpf_this_cpu_ptr(&runqueues);

	if (runnable && scx->scx.slice)
		task_set_slice(p, 0);
	else if (!there->rt.rt_nr_running)
		return;
	next_yields(cpu, now);
}

static __always_inline void usual_stops(struct task_struct *p, struct sched_task *t, u32 cpu,
					struct sched_here *here, bool runnable, u64 now) {
	struct sched_places *places = &here->places;
	struct sched_cpu *c = &here->cpu;

	if (runnable && has_yielded(p, places, c, now))
		turn_yield(c);
	turn_stop_plain(c, runnable, now);
	t->since_ns = now;
	t->plain.vtime = c->plain.vtime;
	t->plain.brief = c->plain.brief;
	t->plain.slept = c->plain.slept;
	let_go(p, cpu, runnable, now);
	places->last = (u64)p;
	if (p->flags & PF_EXITING) {
		bequeath(p, t, c);
		places->last = 0;
	}
	if (!runnable)
		return;
	places->stopped = (u64)p;
	places->goes = next_is(p, t, c, places, false, now);
	if (places->goes)
		next_comes(p, t, cpu, places);
}

/* The thread that has stopped enters its queue. It gets its slice when it runs. */
static __always_inline bool usual_waits(struct task_struct *p, u32 cpu, struct sched_here *here,
					u64 enq_flags) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice = FAIR_TURN_NS;

	if (here->places.stopped != (u64)p || enq_flags)
		return false;
	here->places.stopped = 0;
	if (here->places.goes) {
		scx_bpf_dsq_insert(p, local, slice, 0);
		return true;
	}
	idle_shows(p);
	scx_bpf_dsq_insert_vtime(p, QUEUE_PLAIN(cpu), slice, here->cpu.plain.vtime, 0);
	return true;
}

/* Whether the turn of `prev` goes on, which has yielded while nobody waits, and has named nothing
 * since its turn began. If somebody waits, the next choice is told that it has yielded. */
static __always_inline bool usual_goes_on(struct task_struct *prev, struct sched_here *here,
					  u64 now) {
	struct sched_cpu *c = &here->cpu;
	volatile u64 *changes;

	if (!has_yielded(prev, &here->places, c, now) || turn_yield(c) || c->quotas)
		return false;
	changes = coop_changes_at();
	if (!changes || here->places.bindings != *changes)
		return false;
	task_set_slice(prev, c->limit_ns - now);
	return true;
}

#endif
