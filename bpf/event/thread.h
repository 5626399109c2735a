/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel handler threads (ECalls-05 §3.1.3): chains that go on in the context of a kernel thread,
 * which may sleep.
 *
 * A chain that reaches such an action is queued, earliest deadline first, in the threads' queue (the
 * last element of `queues`), and one of THREADS work items is started. The kernel's workqueue keeps
 * the threads ready and grows and shrinks their number as needed. thread.bpf.c is what they run.
 *
 * Under a scheduler lock no work can be started; then the chain waits in the queue until the pump, a
 * timer that runs while such a subscription exists, starts one.
 */
#ifndef ECALLS_THREAD_H
#define ECALLS_THREAD_H

#include "account.h"

#define THREADS 8u /* work items: handlers that run (or sleep) at the same time */

struct thread {
	struct bpf_wq work;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym __weak;

/* Starts the next work item in turn. */
static __always_inline void thread_start(u32 turn) {
	u32 at = turn & (THREADS - 1);
	struct thread *t = bpf_map_lookup_elem(&threads, &at);

	if (t)
		bpf_wq_start(&t->work, 0);
}

/* Queues the current event's chain, to go on at `action` in a thread. 0, or -1: it was dropped. */
__noinline int thread_add(u32 subscription_id, u32 action) {
	struct current *c = current_cpu();
	u32 sequence, flags, subscription;
	struct evicted lost = {};
	u64 release_ns;
	int result;

	if (!c)
		return -1;
	flags = c->event.flags;
	subscription = c->event.subscription;
	sequence = c->event.sequence;
	c->event.flags = flags | ECALLS_EVENT_RESUME;
	c->event.subscription = subscription_id;
	c->event.sequence = action;
	release_ns = c->event.release_ns;
	c->event.release_ns = 0;
	u64 next_ns = 0;
	result = queue_add(cpus, &c->event, c->now_ns, &lost, &next_ns);
	c->event.release_ns = release_ns;
	c->event.flags = flags;
	c->event.subscription = subscription;
	c->event.sequence = sequence;
	if (result == QUEUE_REFUSED)
		return -1;
	if (result == QUEUE_REPLACED)
		account_drop(&lost, ECALLS_DROP_THREAD_FULL);
	if (!c->locked)
		thread_start((u32)c->raised);
	return 0;
}

#endif
