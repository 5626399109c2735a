/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel handler threads (ECalls-05 §3.1.3): chains that continue in the context of a kernel
 * thread, which may sleep.
 *
 * A chain that reaches such an action is queued, earliest deadline first, in the threads' queue,
 * and one of THREADS work items is started. The kernel's workqueue provides the threads and adjusts
 * their number. thread.bpf.c holds their work.
 *
 * Under a scheduler lock no work can be started; then the chain waits in the queue until the pump,
 * a timer that runs while such a subscription exists, starts one.
 */
#ifndef ECALLS_THREAD_H
#define ECALLS_THREAD_H

#include "account.h"

#define THREADS 8u /* work items: the number of handlers that can run (or sleep) at the same time */

/* A work item. The kernel never runs one item twice at the same time, so the fields after `work`
 * belong to the thread that runs it; others only read them. */
struct thread {
	struct bpf_wq work;
	struct ecalls_event event; /* the event of its chain */
	u32 runs;		   /* 1: running, or asleep in a handler */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym __weak;

/* Starts a work item: the next idle one in turn, so that a handler that sleeps does not delay
 * others; if none is idle, the next in turn. */
static __always_inline void thread_start(u32 turn) {
	struct thread *chosen = 0;

#pragma unroll
	for (u32 i = 0; i < THREADS; i++) {
		u32 at = (turn + i) & (THREADS - 1);
		struct thread *t = bpf_map_lookup_elem(&threads, &at);
		if (t && (!chosen || (*(volatile u32 *)&chosen->runs && !t->runs)))
			chosen = t;
	}
	if (chosen)
		bpf_wq_start(&chosen->work, 0);
}

/* The result of chain_add() for a chain that was not queued, like MEMORY_DROPPED,
 * SIGNAL_DROPPED. */
#define CHAIN_DROPPED(reason) (-(int)(reason) - 1)

/* Queues the current event's chain on queue `index`, to continue as `chain` says. Returns 0, or
 * dropped: there is no room and this event's deadline is the latest, or the user's quota of queued
 * events is used up. */
__noinline int chain_add(u32 index, u32 subscription_id, u32 chain, u32 flags) {
	u32 at = ECALLS_ID_INDEX(subscription_id);
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &at);
	struct current *c = current_cpu();
	u32 sequence, before, subscription;
	struct evicted *lost;
	u64 release_ns;
	int result, place = 0;

	if (!c || !s)
		return CHAIN_DROPPED(ECALLS_DROP_THREAD_FULL);
	if (s->user)
		place = user_queue(s->user);
	if (place == USER_FULL)
		return CHAIN_DROPPED(ECALLS_DROP_QUOTA);
	before = c->event.flags;
	subscription = c->event.subscription;
	sequence = c->event.sequence;
	c->event.flags = before | flags | (u32)place;
	c->event.subscription = subscription_id;
	c->event.sequence = chain;
	rest_keep(c, s->user);
	release_ns = c->event.release_ns;
	c->event.release_ns = 0;
	lost = evicted_begin(c);
	result = queue_add(index, &c->event, c->now_ns, lost);
	c->event.release_ns = release_ns;
	c->event.flags = before;
	c->event.subscription = subscription;
	c->event.sequence = sequence;
	if (result == QUEUE_REPLACED)
		account_drop(lost, ECALLS_DROP_THREAD_FULL);
	evicted_end(c);
	if (result == QUEUE_UNPLACED)
		return CHAIN_DROPPED(ECALLS_DROP_SIZE);
	return result == QUEUE_REFUSED ? CHAIN_DROPPED(ECALLS_DROP_THREAD_FULL) : 0;
}

/* Queues the current event's chain to continue in a thread. Returns 0, or dropped as above. */
static __always_inline int thread_add(struct current *c, u32 subscription_id, u32 chain) {
	int result = chain_add(QUEUE_THREADS, subscription_id, chain, ECALLS_EVENT_RESUME);

	if (!c->locked)
		thread_start((u32)c->raised);
	return result;
}

#endif
