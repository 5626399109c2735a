/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The begin of a turn: the policy, the load, the quota and the statistics are told of it, and the
 * thread gets its slice, and its CPU a timer if the kernel's tick is too coarse to end that.
 *
 * sched_running and sched_dispatch call this. Most turns are of plain threads on CPUs without
 * entities, under no quota (`is_usual`): these take a shorter path, as in the other operations.
 */
#ifndef ECALLS_SCHED_BEGIN_H
#define ECALLS_SCHED_BEGIN_H

#include "quota.h"
#include "wish.h"

/* The usual case: virtual time alone concerns a thread and its CPU, and the thread is where it was
 * before. */
static __always_inline bool is_usual(const struct sched_task *t, u32 cpu,
				     const struct sched_cpu *c) {
	return sched_is_plain(c) && t->cpu == cpu && t->ready &&
	       !(t->limited | t->parked | t->bound);
}

/* Starts a new turn of a task that has the CPU. */
__noinline int begin(struct task_struct *p __arg_trusted, struct sched_task *t LIB_NONNULL, u32 cpu,
		     struct sched_cpu *c LIB_NONNULL, u64 now) {
	u64 slice;

	t->plain.weight = share_weight(t);
	if (sched_is_plain(c)) {
		turn_start_plain(c, c->running == SCHED_PLAIN ? 0 : &t->plain, now);
		c->plain.weight = t->plain.weight;
	} else if (t->entity < SCHED_ENTITIES) {
		turn_start(c, t->entity, 0, now);
		weigh(t, c, false);
	} else {
		turn_start(c, who_is(t), c->running == who_is(t) ? &c->plain : &t->plain, now);
		c->plain.weight = t->plain.weight;
	}
	load_settle(t, c);
	if (t->limited)
		quota_begins(t, c, now);
	slice = c->limit_ns > now ? c->limit_ns - now : 1;
	task_set_slice(p, slice);
	if (t->entity < SCHED_ENTITIES) {
		count_turn(t, now);
		tell(t, c, now);
		window_tell(t, c);
		sink_looks(t);
	}
	if (is_fine(c) || t->limited || slice < setting.options.period_ns)
		set_timer(cpu, c, now);
	return 0;
}

/* `begin` in the usual case, for a thread that did not have the CPU before. */
static __always_inline void begin_usual(struct task_struct *p, struct sched_task *t, u32 cpu,
					struct sched_cpu *c, u64 now) {
	u64 slice;

	if (t->share)
		t->plain.weight = share_weight(t);
	turn_start_plain(c, &t->plain, now);
	if (t->comes)
		fair_woke(c);
	t->comes = COMES_BACK;
	if (t->loaded != t->plain.weight || t->loaded_cpu != cpu)
		load_settle(t, c);
	if (t->limited)
		quota_begins(t, c, now);
	slice = c->limit_ns > now ? c->limit_ns - now : 1;
	task_set_slice(p, slice);
	if (t->limited || slice < setting.options.period_ns)
		set_timer(cpu, c, now);
}

#endif
