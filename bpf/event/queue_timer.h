/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timer of each CPU's queue: it delivers what was held until its release time, and what a raise
 * could not deliver.
 *
 * The loader runs queue_setup once per CPU, which makes the timer; raise.h arms it
 * (arm_queue_timer). When it expires, it fires the dispatcher, which has been verified with the
 * queue's functions already, and arms itself for the next event that is held. The timer of a CPU
 * that was switched off expires on another CPU, where the dispatcher moves what is due to that
 * CPU's queue first (queue_adopt): so no event stays behind.
 *
 * Failures: what cannot be delivered now is tried again RETRY_NS later.
 */
#ifndef ECALLS_EVENT_QUEUE_TIMER_H
#define ECALLS_EVENT_QUEUE_TIMER_H

#include "raise.h"

/* Moves the events that are due in the queue of `from`, a CPU that was switched off, to the queue
 * of `cpu`, where its timer has expired. */
__noinline int queue_adopt(u32 from, u32 cpu) {
	struct queue_cell *cell = queue_cell(from);
	struct current *c = current_cpu();
	u64 now_ns = bpf_ktime_get_ns(), next_ns;
	u32 level;

	if (!cell || !c)
		return 0;
	level = *(volatile u32 *)&c->nesting;
	for (u32 i = 0; level < NESTED_EVENTS && lib_again(i, DISPATCH_EVENTS); i++) {
		if (i >= DISPATCH_EVENTS)
			break;
		c->nesting = level + 1;
		barrier();
		if (!queue_take(from, now_ns, &c->nested[level]))
			raise_queued(&c->nested[level], cpu, now_ns);
		barrier();
		c->nesting = level;
	}
	next_ns = *(volatile u64 *)&cell->queue.held.entry[1].key;
	if (queue_waits(from))
		arm_queue_timer(from, bpf_ktime_get_ns() + RETRY_NS);
	else if (*(volatile u32 *)&cell->queue.held.count)
		arm_queue_timer(from, next_ns);
	return 0;
}

/* The timer has expired: lets the dispatcher deliver the events that are due (`expired`), and arms
 * the timer for the next event that is held. */
static int queue_timer_expired(void *map, u32 *key, struct queue_timer *t) {
	u32 cpu = bpf_get_smp_processor_id();
	struct queue_cell *cell = queue_cell(cpu);
	struct current *c = current_cpu();
	u32 missed;
	u64 next_ns;

	if (!cell || !c)
		return 0;
	*(volatile u32 *)&c->expired = *key + 1;
	bpf_modify_return_test_tp(TRIGGER_DRAIN);
	/* Else it has interrupted a delivery on this CPU, and will not be heard. */
	missed = *(volatile u32 *)&c->expired;
	c->expired = 0;
	drain(cpu, 0);
	next_ns = *(volatile u64 *)&cell->queue.held.entry[1].key;
	if (missed && *key != cpu)
		arm_queue_timer(*key, bpf_ktime_get_ns() + RETRY_NS);
	/* Events that could not be delivered now must not wait for the next release. */
	if (missed || c->left || queue_waits(cpu))
		arm_queue_timer(cpu, bpf_ktime_get_ns() + RETRY_NS);
	else if (*(volatile u32 *)&cell->queue.held.count)
		arm_queue_timer(cpu, next_ns);
	return 0;
}

struct cpu_argument {
	u32 cpu;
};

/* Makes the timer of a CPU. */
SEC("syscall")
int queue_setup(struct cpu_argument *a) {
	u32 cpu = a->cpu;
	struct queue_timer *t = bpf_map_lookup_elem(&queue_timers, &cpu);

	if (!t || cpu > cpus)
		return -EINVAL;
	if (bpf_timer_init(&t->timer, &queue_timers, CLOCK_MONOTONIC))
		return -EBUSY;
	return bpf_timer_set_callback(&t->timer, queue_timer_expired);
}

#endif
