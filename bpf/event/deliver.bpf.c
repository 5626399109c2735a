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
#define PUT_FAR 1
#include "raise.h"
#include "filter.h"
#include "queue_timer.h"
#include "process.h"
#include "reap.h"
#include "shared.h"
#include "pinned.h"
#include "lib/select.h"

#define DISPATCH_CALLS 24 /* tail calls after which a run ends at the next subscription */

static __always_inline void dispatch_chain(void *ctx, struct current *c, u32 index) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);

	if (!s || !n)
		return;
	__sync_fetch_and_add(&n->offered, 1);
	run_chain(ctx, c, s, index, 0);
}

/* Goes to the one subscription whose turn it is (bpf/lib/select.h), if there is any. Positions are
 * counted on from one list to the next. */
__noinline int wake_one(u32 service) {
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct current *c = current_cpu();
	u32 turn, base = 0, first = 0;
	struct match m;

	if (!s || !c)
		return 0;
	m = match_of(&c->event);
	turn = s->next;
	for (u32 i = c->zero; lib_again(i, MATCH_ROUNDS); i++) {
		i ^= c->zero;
		u32 row = m.next;
		match_list(service, row, &m);
		u64 from_turn = select_from(m.mask, base, turn);
		u64 candidates = from_turn ? from_turn : m.mask;
		if (from_turn || (m.mask && !c->walk.one)) {
			u32 at = bits_lowest(candidates) & (SELECT_MAX - 1);
			c->walk.row = row;
			c->walk.list = m.list;
			c->walk.at = at;
			c->walk.one = 1;
			first = base + at;
		}
		base += SELECT_MAX;
		if (from_turn || !m.next || i >= MATCH_ROUNDS)
			break;
	}
	s->next = first + 1;
	return c->walk.one;
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
		run_chain(ctx, c, s, index, chain);
	/* After the signal has been sent, so that later signals do not overtake it. */
	chain_waited(s, index, chain, flags);
}

/* Delivers the current event or, with `again`, the rest of it. Returns false if it stopped before
 * the last subscription. */
__noinline int deliver_event(void *ctx __arg_ctx, struct current *c, u32 again) {
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
		c->walk.audience = 0;
		if (*(volatile u32 *)&s->own)
			c->walk.audience = audience_of(service, c->event.target, c->event.uid);
		walk_begin(c, s->active & 1);
		if (c->event.target == ECALLS_TARGET_WAKE_ONE && !wake_one(service))
			c->walk.at = ECALLS_SUBSCRIBERS_MAX;
	}
	if (!walk_lists(ctx, c, DISPATCH_CALLS, dispatch_chain))
		return 0;
	if (!c->walk.offered) {
		__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NO_SUBSCRIBER], 1);
		if (c->walk.direct)
			__sync_fetch_and_add(&n->raised, 1);
	}
	return 1;
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(deliver, int nonce) {
	struct current *c = current_cpu();
	u32 again, direct;

	if (!c || (nonce != TRIGGER_DIRECT && nonce != TRIGGER_DRAIN))
		return 0;
	direct = c->direct;
	if (direct >= DIRECT_FILTERS) {
		c->direct = 0;
		if (direct == DIRECT_RUN)
			return filter_run(ctx, c, c->walk.sole);
		return direct == DIRECT_SOLE ? offer_sole(ctx, c) : walk_filters(ctx, c);
	}
	again = c->left;
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
			rest_load(c);
		}
		if (!again)
			c->walk.direct = direct;
		direct = 0;
		given = 0;
		if (!deliver_event(ctx, c, again)) {
			c->left = 1;
			return 0;
		}
		again = 0;
	}
	/* An interrupt that queues an event in between sets it itself. */
	c->waits = 0;
	barrier();
	if (queue_waits(cpu))
		c->waits = 1;
	barrier();
	c->busy = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
