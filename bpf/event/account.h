/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounting: every loss has a reason, a counter, and a count in the channel's memory.
 *
 * Two equations hold whenever no event is queued, and tests check them after every run:
 *   service       raised  = dispatched + late + sum(dropped)
 *   subscription  offered = delivered + filtered + late + sum(dropped)
 *
 * Service counters are written in every context, also nested on one CPU, so they are atomic
 * although they are per CPU. Subscription counters are written by the dispatcher, which does not
 * nest; they are written atomically where a kernel thread or a signal's verdict may write them too.
 */
#ifndef ECALLS_ACCOUNT_H
#define ECALLS_ACCOUNT_H

#include "fate.h"
#include "match.h"

static __always_inline struct ecalls_service_count *count_of_service(u32 service) {
	return bpf_map_lookup_elem(&service_counts, &service);
}

static __always_inline struct ecalls_subscription_count *count_of(u32 subscription) {
	return bpf_map_lookup_elem(&sub_counts, &subscription);
}

/* An element of a channel's `up` segment; NULL if the channel's row belongs to another channel by
 * now, because a subscription may outlive its channel. */
static __always_inline void *up_element(u32 channel_id, u32 element) {
	u32 index = ECALLS_ID_INDEX(channel_id);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);
	void *up;

	if (!channel_id || !ch || *(volatile u32 *)&ch->id != channel_id)
		return 0;
	up = bpf_map_lookup_elem(&ups, &index);
	return up ? bpf_map_lookup_elem(up, &element) : 0;
}

/* The registration number of an application service's row; 0: built in. A queued event carries it
 * as `subscription`. If the row has been registered anew, the event's service is gone, and so are
 * its subscriptions. */
static __always_inline u32 registration(const struct ecalls_service *s, u32 service) {
	return service < ECALLS_SERVICE_USER ? 0 : *(volatile const u32 *)&s->parameter;
}

/* The counters that the owner of a channel reads in its memory. */
static __always_inline struct ecalls_lost *lost_of(u32 channel_id) {
	return up_element(channel_id, 1);
}

/* An action of a subscription. barrier_var() hides the mask from the compiler, which would
 * otherwise remove it and increment a pointer instead; the verifier requires the mask. */
static __always_inline const struct ecalls_action *action_of(const struct ecalls_subscription *s,
							     u32 action) {
	barrier_var(action);
	action &= ECALLS_ACTIONS_MAX - 1;
	barrier_var(action);
	return &s->action[action];
}

/* Counts a drop for a subscription. `offered`: the event also counts as offered now. */
__noinline int drop_for_subscription(u32 index, u32 channel, u32 reason, bool offered) {
	struct ecalls_subscription_count *n = count_of(index);
	struct ecalls_lost *lost = lost_of(channel);

	if (reason >= ECALLS_DROP_REASONS)
		return 0;
	/* The verifier has lost the bound of `reason`; the padding after the last counter
	 * absorbs any value. */
	barrier_var(reason);
	reason &= 15;
	if (n) {
		if (offered)
			__sync_fetch_and_add(&n->offered, 1);
		__sync_fetch_and_add(&n->dropped[reason], 1);
	}
	if (lost)
		__sync_fetch_and_add(&lost->dropped[reason], 1);
	return 0;
}

static __always_inline bool is_late(u64 deadline_ns, u64 now_ns) {
	return deadline_ns && now_ns > deadline_ns;
}

static __always_inline void count_late(const struct ecalls_subscription *s,
				       struct ecalls_subscription_count *n) {
	struct ecalls_lost *lost = lost_of(s->channel);

	__sync_fetch_and_add(&n->late, 1);
	if (lost)
		__sync_fetch_and_add(&lost->late, 1);
}

/* A chain that continues later is queued as an event with ECALLS_EVENT_RESUME; its `sequence` holds
 * the action to continue with, and the outcome of the actions before it. */
#define CHAIN_ACTION (ECALLS_ACTIONS_MAX - 1u)
#define CHAIN_DELIVERED 0x100u
#define CHAIN_IN_THREAD 0x200u /* the action runs in a thread now and need not wait */
#define CHAIN_DROPPED_SHIFT 16u

static __always_inline u32 chain_at(u32 action, const struct outcome *o) {
	return action | (o->delivered ? CHAIN_DELIVERED : 0) | o->dropped << CHAIN_DROPPED_SHIFT;
}

static __always_inline struct outcome chain_outcome(u32 chain) {
	return (struct outcome){
		.delivered = !!(chain & CHAIN_DELIVERED),
		.dropped = chain >> CHAIN_DROPPED_SHIFT & 0xff,
	};
}

/* The fate of a chain that a handler ended. The reason of drop() is a number of the E-code
 * program. */
static __always_inline u32 filter_fate(const struct outcome *o, u32 action) {
	u32 what = o->said ? ECALLS_FATE_FILTERED_FOR : ECALLS_FATE_FILTERED;
	u32 reason = o->said ? o->said - 1 : 0;

	return FATE(what, reason & 0xff, ECALLS_STAGE_CHAIN, action);
}

/* Counts a chain at its end, unless it continues elsewhere. `e`: its event, recorded if it is lost;
 * `action`: where; `now_ns`: about when; 0: recorded already. */
static __always_inline void settle(const struct outcome *o, const struct ecalls_subscription *s,
				   u32 index, struct ecalls_subscription_count *n,
				   const struct ecalls_event *e, u32 action, u64 now_ns) {
	struct ecalls_lost *lost;
	struct current *c;

	if (o->pending)
		return;
	if (o->delivered || (!o->dropped && !o->filtered)) {
		__sync_fetch_and_add(&n->delivered, 1);
		__sync_fetch_and_add(&n->partial, !!o->dropped);
		return;
	}
	if (o->dropped) {
		drop_for_subscription(index, 0, o->dropped - 1, false);
		if (e)
			fate_note(e, s->id,
				  FATE(ECALLS_FATE_DROPPED, o->dropped - 1, ECALLS_STAGE_CHAIN,
				       action));
		return;
	}
	/* Only here, because the stack is nearly used up where `e` is 0. */
	c = e ? current_cpu() : 0;
	if (c && fate_filtered(c, o->said, now_ns))
		fate_note(e, s->id, filter_fate(o, action));
	__sync_fetch_and_add(&n->filtered, 1);
	lost = lost_of(s->channel);
	if (lost)
		__sync_fetch_and_add(&lost->filtered, 1);
}

/* Counts a chain that cannot continue, and whose earlier actions may have delivered. */
static __always_inline void chain_drop(const struct ecalls_subscription *s, u32 index, u32 chain,
				       u32 reason) {
	struct ecalls_subscription_count *n = count_of(index);
	struct ecalls_lost *lost = lost_of(s->channel);
	struct outcome o = chain_outcome(chain);

	o.dropped = reason + 1;
	if (n)
		settle(&o, s, index, n, 0, 0, 0);
	if (lost && reason < ECALLS_DROP_REASONS)
		__sync_fetch_and_add(&lost->dropped[reason], 1);
}

static __always_inline void chain_late(const struct ecalls_subscription *s, u32 chain,
				       struct ecalls_subscription_count *n,
				       const struct ecalls_event *e) {
	if (chain & CHAIN_DELIVERED) {
		__sync_fetch_and_add(&n->delivered, 1);
		return;
	}
	count_late(s, n);
	fate_note(e, s->id, FATE(ECALLS_FATE_LATE, 0, ECALLS_STAGE_CHAIN, chain & CHAIN_ACTION));
}

/* Counts a chain that was to continue, but whose subscription has ended. */
static __always_inline void chain_closed(const struct ecalls_subscription *s, u32 index, u32 chain,
					 const struct ecalls_event *e) {
	drop_for_subscription(index, 0, ECALLS_DROP_CHANNEL_GONE, false);
	fate_note(e, s->id,
		  FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_CHANNEL_GONE, ECALLS_STAGE_CHAIN,
		       chain & CHAIN_ACTION));
}

/* The number of a subscription's signals that wait for their receiver (signal.h): the first word of
 * the action's state. */
static __always_inline u64 *signals_waiting(u32 index, u32 action) {
	u32 at = index * ECALLS_ACTIONS_MAX + (action & CHAIN_ACTION);
	struct handler_state *state = bpf_map_lookup_elem(&handler_states, &at);

	return state ? &state->word[0] : 0;
}

/* A chain that may have waited to send a signal has sent it, or never will. */
static __always_inline void chain_waited(const struct ecalls_subscription *s, u32 index, u32 chain,
					 u32 flags) {
	u32 action = chain & CHAIN_ACTION;
	u64 *waiting = signals_waiting(index, action);

	if (waiting && flags & ECALLS_EVENT_THREAD &&
	    action_of(s, action)->kind == ECALLS_ACTION_SIGNAL)
		__sync_fetch_and_sub(waiting, 1);
}

/* Counts the drop of an event for the subscriptions that match in the list `row`, and clears
 * m->mask. The mask stays in memory: as a variable it would make each round a new state for the
 * verifier, too many of them before Linux 6.15. */
__noinline int drop_for_matches(u32 service, u32 row, struct match *m, u32 reason) {
	struct current *c = current_cpu();

	if (!c || !m)
		return 0;
	for (u32 i = c->zero; lib_again(i, ECALLS_SUBSCRIBERS_MAX); i++) {
		u64 mask = *(volatile u64 *)&m->mask;
		i ^= c->zero;
		if (!mask || i >= ECALLS_SUBSCRIBERS_MAX)
			break;
		u32 index = match_index(service, row, m->list, bits_lowest(mask));
		struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
		*(volatile u64 *)&m->mask = mask & (mask - 1);
		if (s)
			drop_for_subscription(index, s->channel, reason, true);
	}
	return 0;
}

/* An event was dropped before it was offered: counts it for its service and for all matching
 * subscriptions. If it was a chain that was to continue, it is counted for the chain's subscription
 * only. */
__noinline int account_drop(struct evicted *v, u32 reason) {
	if (!v || reason >= ECALLS_DROP_REASONS)
		return 0;
	fate_evicted(v, FATE(ECALLS_FATE_DROPPED, reason, ECALLS_STAGE_QUEUE, 0));
	if (v->flags & ECALLS_EVENT_RESUME) {
		u32 index = ECALLS_ID_INDEX(v->subscription);
		struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
		if (s && s->id == v->subscription) {
			chain_waited(s, index, v->chain, v->flags);
			chain_drop(s, index, v->chain, reason);
		}
		return 0;
	}
	u32 service = v->service;
	struct ecalls_service_count *total = count_of_service(service);
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	if (!total || !s || v->subscription != registration(s, service))
		return 0;
	__sync_fetch_and_add(&total->dropped[reason], 1);
	for (u32 i = 0; lib_again(i, MATCH_ROUNDS); i++) {
		u32 row = v->match.next;
		match_list(service, row, &v->match);
		drop_for_matches(service, row, &v->match, reason);
		if (!v->match.next || i >= MATCH_ROUNDS)
			break;
	}
	return 0;
}

#endif
