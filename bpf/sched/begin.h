/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The begin of a turn: the policy, the load, the quota and the statistics are told of it, and the
 * thread gets its slice, and its CPU a timer if the kernel's tick is too coarse to end that.
 *
 * sched_running and sched_dispatch call this. Most turns take a shorter path (usual.h).
 */
#ifndef ECALLS_SCHED_BEGIN_H
#define ECALLS_SCHED_BEGIN_H

#include "quota.h"
#include "wish.h"

/* Starts a new turn of a task that has the CPU. */
__noinline int begin(struct task_struct *p __arg_trusted, struct sched_task *t LIB_NONNULL, u32 cpu,
		     struct sched_cpu *c LIB_NONNULL, u64 now) {
	struct sched_places *places = places_of(cpu);
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
	if (places)
		next_hurries(c, places, now);
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

#endif
