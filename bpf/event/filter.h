/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Filters: subscriptions with one handler in E-code before their one put into memory.
 *
 * If a service has no other chains, raise() fires the dispatcher's program with DIRECT_FILTERS, and
 * the walk below does all that the dispatcher would do for the current event, without what only
 * other chains need: the queue, a run that stops in between, and continues. A subscription that is
 * alone, whatever its chain, needs neither, because a chain has fewer handlers than a run may call:
 * it gets the event likewise (DIRECT_SOLE).
 *
 * What a handler may do besides, rarely, is left to the functions of all chains: requests
 * (ecode.h), a deferral, an absent program, a user's budget.
 */
#ifndef ECALLS_FILTER_H
#define ECALLS_FILTER_H

#include "action.h"
#include "walk.h"

/* The handler has ended the chain, or not even run. */
static __always_inline void filter_ended(struct current *c, const struct ecalls_subscription *s,
					 u32 index, struct ecalls_subscription_count *n,
					 int result) {
	struct outcome *o = &c->outcome;
	struct ecalls_lost *lost;

	if (result == HANDLER_MISSING)
		delivery(o, MEMORY_DROPPED(ECALLS_DROP_NO_HANDLER), s->channel);
	if (o->pending | o->dropped) {
		__sync_fetch_and_add(&n->offered, 1);
		settle(o, s, index, n, &c->event, 0, c->now_ns);
		return;
	}
	n->stopped++;
	if (fate_filtered(c, o->said, c->now_ns))
		fate_note(&c->event, s->id, filter_fate(o, 0));
	lost = lost_of(s->channel);
	if (lost)
		__sync_fetch_and_add(&lost->filtered, 1);
}

/* Runs a filter, and stores the event if it passes. */
static __always_inline int filter_apply(void *ctx, struct current *c,
					const struct ecalls_subscription *s, u32 index,
					struct ecalls_subscription_count *n) {
	int result;

	if (s->user) {
		__sync_fetch_and_add(&n->offered, 1);
		return run_chain(ctx, c, s, index, 0);
	}
	c->call.subscription = index;
	c->call.action = 0;
	c->outcome = (struct outcome){};
	n->handlers++;
	result = call_program(ctx, c, s, index, 0);
	if (result != HANDLER_CONTINUE) {
		filter_ended(c, s, index, n, result);
		return 0;
	}
	result = memory_put(s->plain, &c->event, s->id);
	ecode_restore(c);
	if (result >= 0 && c->signal.subscription == index + 1)
		c->signal.shared = 1;
	if (result != MEMORY_PUT)
		return offer_stored(c, index, result);
	n->direct++;
	return 0;
}

/* The same in a walk. */
__noinline int filter_run(void *ctx __arg_ctx, struct current *c, u32 index) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);

	/* Another chain has begun just now, and gets the next event. */
	if (!c || !s || !n || !s->plain || s->actions != 2)
		return 0;
	return filter_apply(ctx, c, s, index, n);
}

static __always_inline void filter_chain(void *ctx, struct current *c, u32 index) {
	filter_run(ctx, c, index);
}

/* Offers the current event, which is before the first subscription, to all. */
__noinline int walk_filters(void *ctx __arg_ctx, struct current *c) {
	if (!c)
		return 0;
	walk_lists(ctx, c, 0, filter_chain);
	return 0;
}

/* Offers the current event to the only subscription that may want it: a filter, another chain. */
__noinline int offer_sole(void *ctx __arg_ctx, struct current *c) {
	u32 index = c ? c->walk.sole : 0;
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);

	if (!c || !s || !n)
		return 0;
	if (s->plain && s->actions == 1)
		return offer(c, index, false);
	if (!offer_wanted(c, s, index, false))
		return 0;
	if (s->plain && s->actions == 2)
		return filter_apply(ctx, c, s, index, n);
	__sync_fetch_and_add(&n->offered, 1);
	return run_chain(ctx, c, s, index, 0);
}

#endif
