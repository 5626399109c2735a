/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way of the current event through the lists of subscriptions: the service's own list first,
 * then the rows of its audience. Each subscription that wants the event gets it before the next one
 * is looked at.
 *
 * There are three walkers. The dispatcher (deliver.bpf.c) runs chains of actions, with a context by
 * which it calls handlers. raise() itself walks if no subscription has more to do than one put into
 * memory (`plain`): then an event needs neither the queue nor the dispatcher, and this is what
 * makes a raise cheap. If there are filters in E-code as well, the third one (filter.h) walks,
 * which needs no queue either. Where the only list has one subscription, the last two do not walk
 * but offer the event to it. All have set `busy`, so nothing else on this CPU uses the current
 * event.
 *
 * The dispatcher may stop between two subscriptions and go on in a later run; so the position is
 * kept in struct current. A list does not change while a program may read it, and the row of a
 * subscription that has ended is not given to another one before that.
 *
 * Failures: an event that is late for a subscription, that is beyond its user's rate, or for which
 * its memory has no room, is counted with that reason.
 */
#ifndef ECALLS_EVENT_WALK_H
#define ECALLS_EVENT_WALK_H

#include "memory.h"

/* What the dispatcher does with a subscription that is not plain. */
typedef void (*walk_chain)(void *ctx, struct current *c, u32 index);

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
	n->dispatched++;
}

/* The dispatcher has found the first subscription that wants the current event. */
__noinline int dispatch(struct current *c) {
	struct ecalls_service_count *n;
	struct ecalls_service *s;
	u32 service;

	if (!c)
		return 0;
	service = c->event.service;
	s = bpf_map_lookup_elem(&services, &service);
	n = count_of_service(service);
	if (!s || !n)
		return 0;
	if (!(c->event.flags & ECALLS_EVENT_SOFT) && is_late(c->event.deadline_ns, c->now_ns)) {
		__sync_fetch_and_add(&n->late, 1);
		if (c->walk.direct)
			__sync_fetch_and_add(&n->raised, 1);
	} else if (c->walk.direct) {
		n->direct++;
	} else {
		count_dispatch(n, c);
	}
	/* See sched/traced.h. */
	if (c->now_ns >> TRACE_TIME_SHIFT < s->traced)
		bpf_modify_return_test_tp(TRIGGER_TRACE);
	return 0;
}

/* Counts an event that a subscription wants and does not get: late, or with `quota` beyond its
 * user's rate. */
static __always_inline int offer_refused(struct current *c, u32 index, u32 quota) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);

	if (!s || !n || !c)
		return 0;
	c->event.deadline_ns = c->walk.deadline_ns;
	c->event.flags = c->walk.flags;
	__sync_fetch_and_add(&n->offered, 1);
	if (quota) {
		drop_for_subscription(index, s->channel, ECALLS_DROP_QUOTA, false);
		fate_note(&c->event, s->id,
			  FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, ECALLS_STAGE_OFFER, 0));
	} else {
		count_late(s, n);
		fate_note(&c->event, s->id, FATE(ECALLS_FATE_LATE, 0, ECALLS_STAGE_OFFER, 0));
	}
	return 0;
}

/* The rest of a put into a plain subscription's memory that did more than store the event, or
 * less. */
static __always_inline int offer_stored(struct current *c, u32 index, int result) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);

	if (!s || !n || !c)
		return 0;
	if (result < 0) {
		u32 reason = -result - 1;
		drop_for_subscription(index, s->plain, reason, true);
		fate_note(&c->event, s->id,
			  FATE(ECALLS_FATE_DROPPED, reason & 0xff, ECALLS_STAGE_CHAIN,
			       s->actions - 1));
		return 0;
	}
	n->direct++;
	if (result & (MEMORY_REPLACED | MEMORY_COALESCED)) {
		drop_for_subscription(index, s->channel, memory_reason(result), false);
		__sync_fetch_and_sub(&n->delivered, 1);
	}
	if (result & MEMORY_ASLEEP && memory_wake(s->plain))
		n->wakes++;
	return 0;
}

/* Whether the subscription gets the current event, with the deadline that holds for it. What it
 * wants and does not get is counted. */
static __always_inline bool offer_wanted(struct current *c, const struct ecalls_subscription *s,
					 u32 index, bool dispatches) {
	const struct ecalls_event *e = &c->event;
	u64 limit_ns;
	u32 flags;

	if (!subscription_matches(s, e->service, e->kind, e->target, event_process(e), e->uid))
		return false;
	if (!c->walk.offered++ && dispatches)
		dispatch(c);
	flags = c->walk.flags;
	limit_ns = flags & ECALLS_EVENT_SOFT ? 0 : c->walk.deadline_ns;
	if (limit_ns | s->deadline_ns) {
		limit_ns = deadline_for(s, e, limit_ns);
		if (is_late(limit_ns, c->now_ns)) {
			offer_refused(c, index, 0);
			return false;
		}
	}
	if (s->user && !user_offer(s->user, c->now_ns, ECALLS_ENTRIES(e->size))) {
		offer_refused(c, index, 1);
		return false;
	}
	c->event.deadline_ns = limit_ns;
	c->event.flags = (flags & ~ECALLS_EVENT_SOFT) | s->event_flags;
	return true;
}

/* Offers the current event to a subscription. Returns 1 if the subscription's chain is to run; 0:
 * all is done. Only walkers write `direct`, and they do not nest on a CPU. */
__noinline int offer(struct current *c, u32 index, bool dispatches) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n;
	int result;

	if (!s || !c || !offer_wanted(c, s, index, dispatches))
		return 0;
	if (!s->plain || s->actions != 1 || c->walk.flags & ECALLS_EVENT_CPU)
		return 1;
	result = memory_put(s->plain, &c->event, s->id);
	if (result != MEMORY_PUT)
		return offer_stored(c, index, result);
	n = count_of(index);
	if (n)
		n->direct++;
	return 0;
}

/* Walks through one list from the current position on. Returns false if it stopped before the end,
 * because the handlers that one run may call are used up. */
static __always_inline bool walk_list(void *ctx, struct current *c, const u32 *list, u32 count,
				      u32 calls_max, walk_chain chain) {
	for (u32 i = c->walk.at; lib_again(i, ECALLS_SUBSCRIBERS_MAX); i++) {
		i ^= c->zero;
		if (i >= count || i >= ECALLS_SUBSCRIBERS_MAX)
			return true;
		if (calls_max && c->calls >= calls_max) {
			c->walk.at = i;
			return false;
		}
		barrier_var(i);
		u32 index = list[i & (ECALLS_SUBSCRIBERS_MAX - 1)];
		if (offer(c, index, calls_max != 0))
			chain(ctx, c, index);
		if (c->walk.one)
			return true;
	}
	return true;
}

/* Removes data about other users' threads from an event. The audiences come after the service's own
 * list, and a subscription in an audience may only see data of its own user. */
static __always_inline void hide_others(struct ecalls_event *e) {
	struct ecalls_sched_event *sched = (void *)e->data;

	if (e->service == ECALLS_SERVICE_SCHED)
		sched->previous = 0;
}

/* Walks through all lists from the current position on. Returns false if it stopped; `calls_max` 0:
 * it never does. */
static __always_inline bool walk_lists(void *ctx, struct current *c, u32 calls_max,
				       walk_chain chain) {
	for (u32 i = c->zero; lib_again(i, MATCH_ROUNDS); i++) {
		u32 row = c->walk.row, service = c->event.service, count, next;
		const u32 *list;
		i ^= c->zero;
		if (i >= MATCH_ROUNDS)
			break;
		if (row) {
			struct ecalls_audience *a = bpf_map_lookup_elem(&audience_rows, &row);
			if (!a)
				break;
			hide_others(&c->event);
			list = a->list;
			count = a->count;
			next = *(volatile u32 *)&a->next;
		} else {
			struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
			u32 half = c->walk.list & 1;
			if (!s)
				break;
			list = s->list[half];
			count = s->count[half];
			next = c->walk.audience;
		}
		if (!walk_list(ctx, c, list, count, calls_max, chain))
			return false;
		if (!next || c->walk.one)
			break;
		c->walk.row = next;
		c->walk.at = 0;
	}
	return true;
}

/* Puts the current event before the first subscription; `walk.audience` is known. */
static __always_inline void walk_begin(struct current *c, u32 list) {
	c->walk.row = 0;
	c->walk.list = list;
	c->walk.at = 0;
	c->walk.one = 0;
	c->walk.offered = 0;
	c->walk.flags = c->event.flags;
	c->walk.deadline_ns = c->event.deadline_ns;
}

/* A subscription that is not plain has begun just now, and gets the next event. */
static __always_inline void plain_chain(void *ctx, struct current *c, u32 index) {
}

/* raise()'s own way. Returns the number of subscriptions to which the event was offered. */
__noinline int walk_plain(struct current *c) {
	if (!c)
		return 0;
	walk_lists(0, c, 0, plain_chain);
	return c->walk.offered;
}

#endif
