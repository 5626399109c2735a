/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dispatcher: takes events in order of their deadlines, discards those that are late, and
 * offers each one to the subscriptions that want it (ECalls-05 §3.1). walk.h finds these
 * subscriptions, action.h runs the actions of each.
 *
 * It is one program on the tracepoint bpf_trigger_tp, fired by raise(), by a queue's timer
 * (queue_timer.h, part of this object) and by the kernel threads. The kernel never runs the program
 * inside itself on one CPU, and preemption is off; so the dispatcher alone uses its CPU's element
 * of `current_events`. The kernel allows 33 tail calls per run and skips the rest silently; so
 * after DISPATCH_CALLS handlers the dispatcher stops where it is (`left`), and its caller fires it
 * again.
 *
 * Failures: an event or a chain that is late, that no subscription wants, or whose user's quota is
 * used up is counted with that reason (account.h); nothing here waits.
 *
 * With the dispatcher comes everything else that each core has from its first moment on (process.h,
 * reap.h, shared.h, pinned.h): libbpf reads the kernel's types anew for each object, which takes
 * longer than the kernel's verifier takes for a small program.
 */
#include "raise.h"
#include "walk.h"
#include "action.h"
#include "queue_timer.h"
#include "process.h"
#include "reap.h"
#include "shared.h"
#include "pinned.h"

#define DISPATCH_CALLS 24 /* tail calls after which a run ends at the next subscription */

/* Steps for one event: one per subscription, and one per list. */
#define OFFERS_MAX (ECALLS_SUBSCRIBERS_MAX + ECALLS_AUDIENCE_MAX + MATCH_ROUNDS)

/* The time from which relative deadlines count: when the event was raised, or its release time if
 * that is later. */
static __always_inline u64 due_ns(const struct ecalls_event *e) {
	return e->release_ns > e->raise_ns ? e->release_ns : e->raise_ns;
}

/* The deadline that holds for a subscription: the earlier of the event's and the subscription's
 * own; 0: none. */
static __always_inline u64 deadline_for(const struct ecalls_subscription *s,
					const struct ecalls_event *e, u64 deadline_ns) {
	u64 own_ns = s->deadline_ns ? due_ns(e) + s->deadline_ns : 0;

	if (!own_ns || (deadline_ns && deadline_ns < own_ns))
		return deadline_ns;
	return own_ns;
}

/* Offers the current event to one subscription, with the deadline that holds for it. */
static __always_inline void offer(void *ctx, struct current *c, u32 index) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);
	u64 deadline_ns = c->event.deadline_ns;
	u32 flags = c->event.flags;
	u64 limit_ns;

	if (!s || !n || !match_still(s, c->event.service, c->event.uid))
		return;
	__sync_fetch_and_add(&n->offered, 1);
	limit_ns = deadline_for(s, &c->event, flags & ECALLS_EVENT_SOFT ? 0 : deadline_ns);
	if (is_late(limit_ns, c->now_ns)) {
		count_late(s, n);
		fate_note(&c->event, s->id, FATE(ECALLS_FATE_LATE, 0, ECALLS_STAGE_OFFER, 0));
		return;
	}
	if (s->user && !user_offer(s->user, c->now_ns)) {
		drop_for_subscription(index, s->channel, ECALLS_DROP_QUOTA, false);
		fate_note(&c->event, s->id,
			  FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, ECALLS_STAGE_OFFER, 0));
		return;
	}
	c->event.deadline_ns = limit_ns;
	c->event.flags = flags & ~ECALLS_EVENT_SOFT;
	run_chain(ctx, index, 0);
	c->event.deadline_ns = deadline_ns;
	c->event.flags = flags;
}

/* Offers the current event to the subscriptions that `mask` still holds, then to the lists behind.
 * False: it stopped, because the tail calls of this run are used up. */
static __always_inline bool offer_all(void *ctx, struct current *c) {
	for (u32 i = 0; lib_again(i, OFFERS_MAX); i++) {
		u64 mask = c->walk.mask;
		if (!mask && !c->walk.next_row)
			return true;
		if (!mask) {
			match_next(c);
			continue;
		}
		if (c->calls >= DISPATCH_CALLS)
			return false;
		u32 at = bits_lowest(mask);
		c->walk.mask = mask & (mask - 1);
		offer(ctx, c, match_index(c->event.service, c->walk.row, c->walk.list, at));
	}
	return !c->walk.mask && !c->walk.next_row;
}

static __always_inline void count_dispatch(struct ecalls_service_count *n,
					   const struct current *c) {
	u32 service = c->event.service, bucket;
	struct ecalls_service_latency *l = bpf_map_lookup_elem(&latencies, &service);
	u64 from_ns = due_ns(&c->event);
	u64 took_ns;

	took_ns = c->now_ns > from_ns ? c->now_ns - from_ns : 0;
	bucket = took_ns >> 32 ? ECALLS_LATENCY_BUCKETS - 1 : bits_log2(took_ns | 1);
	if (l)
		l->count[bucket & (ECALLS_LATENCY_BUCKETS - 1)]++;
	n->latency_ns += took_ns;
	if (took_ns > n->latency_ns_max)
		n->latency_ns_max = took_ns;
	__sync_fetch_and_add(&n->dispatched, 1);
}

/* Goes on with a chain after a thread, a signal or an upcall. From here on the event looks as it
 * did when it was raised. If the subscription's row has been given to another one, the chain has no
 * receiver any more. */
static __always_inline void resume(void *ctx, struct current *c) {
	u32 index = ECALLS_ID_INDEX(c->event.subscription), flags = c->event.flags;
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);
	u32 chain = (u32)c->event.sequence;

	if (!s || !n || s->id != c->event.subscription)
		return;
	c->event.flags = flags & ~(ECALLS_EVENT_RESUME | ECALLS_EVENT_THREAD);
	chain &= ~CHAIN_IN_THREAD;
	if (flags & ECALLS_EVENT_THREAD)
		chain |= CHAIN_IN_THREAD;
	if (s->state != ECALLS_STATE_ACTIVE)
		chain_closed(s, index, chain, &c->event);
	else if (is_late(c->event.deadline_ns, c->now_ns))
		chain_late(s, chain, n, &c->event);
	else
		run_chain(ctx, index, chain);
	/* After the signal has been sent, so that later signals do not overtake it. */
	chain_waited(s, index, chain, flags);
}

/* Delivers the current event or, with `again`, the rest of it. Returns false if it stopped before
 * the last subscription. */
__noinline int deliver_event(void *ctx __arg_ctx, u32 again) {
	struct current *c = current_cpu();

	if (!c)
		return 1;
	if (c->event.flags & ECALLS_EVENT_RESUME) {
		resume(ctx, c);
		return 1;
	}
	u32 service = c->event.service;
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct ecalls_service_count *n = count_of_service(service);
	if (!s || !n || c->event.subscription != registration(s, service))
		return 1;
	if (!again) {
		bool late = !(c->event.flags & ECALLS_EVENT_SOFT) &&
			    is_late(c->event.deadline_ns, c->now_ns);
		if (!match_all(c)) {
			__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NO_SUBSCRIBER], 1);
			return 1;
		}
		if (c->event.target == ECALLS_TARGET_WAKE_ONE)
			wake_one(service);
		if (late)
			__sync_fetch_and_add(&n->late, 1);
		else
			count_dispatch(n, c);
		/* See sched/traced.h. */
		if (c->now_ns >> TRACE_TIME_SHIFT < s->traced)
			bpf_modify_return_test_tp(TRIGGER_TRACE);
	}
	return offer_all(ctx, c);
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(deliver, int nonce) {
	struct current *c = current_cpu();
	u32 again, direct;

	if (!c || (nonce != TRIGGER_DIRECT && nonce != TRIGGER_DRAIN))
		return 0;
	again = c->left;
	direct = c->direct;
	if (!again && !direct && c->busy)
		return 0;
	c->busy = 1;
	c->left = 0;
	c->direct = 0;
	c->calls = 0;
	c->runs++;
	u32 cpu = bpf_get_smp_processor_id();
	u32 given = again || direct, expired = c->expired;
	c->expired = 0;
	if (expired && expired - 1 != cpu && expired - 1 < cpus)
		queue_adopt(expired - 1, cpu);
	for (u32 i = 0; lib_again(i, DISPATCH_EVENTS); i++) {
		if (!given) {
			if (i >= DISPATCH_EVENTS || c->calls >= DISPATCH_CALLS)
				break;
			/* What has been held may be due: queue_take() makes it ready. */
			if (!expired && !queue_waits(cpu))
				break;
			expired = 0;
			if (i || !c->fresh)
				c->now_ns = bpf_ktime_get_ns();
			if (queue_take(cpu, c->now_ns, &c->event))
				break;
			queue_taken(&c->event);
		}
		given = 0;
		if (!deliver_event(ctx, again)) {
			c->left = 1;
			return 0;
		}
		again = 0;
	}
	barrier();
	c->busy = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
