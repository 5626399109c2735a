/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds the subscriptions that match an event: in the service's list, then in the audience of the
 * event's target or user (abi/audience.h). One function searches one list and determines the next
 * one; it is verified once, and all callers (the dispatcher, the account of a drop, the caller of a
 * raise) share it.
 *
 *	struct match m = {attributes};
 *	do {
 *		row = m.next;
 *		match_list(service, row, &m);
 *		... m.mask, positions in that list; match_index() returns each index ...
 *	} while (m.next, at most MATCH_ROUNDS times);
 *
 * The host may change a list between the search and the use of the positions. So the dispatcher
 * checks each subscription again (match_still).
 */
#ifndef ECALLS_MATCH_H
#define ECALLS_MATCH_H

#include "queue.h"
#include "lib/bits.h"

/* Lists that are searched for one event: the service's, and the rows of an audience. */
#define MATCH_ROUNDS (1u + ECALLS_AUDIENCE_MAX / ECALLS_SUBSCRIBERS_MAX)

/* Whether a subscription matches this event: 1 or 0, without a branch, so that the verifier does
 * not split a loop over subscriptions into one path per result. */
static __always_inline u64 subscription_matches(const struct ecalls_subscription *s, u32 service,
						const struct match *m) {
	u64 differs = *(volatile const u32 *)&s->state ^ ECALLS_STATE_ACTIVE;
	u64 no_kinds = ((u64)s->kinds - 1) >> 63;
	u64 no_pid = ((u64)s->pid - 1) >> 63;
	u64 kind_wanted = (s->kinds >> (m->kind & 31) & 1) | no_kinds;

	differs |= s->service ^ service;
	differs |= (u64)(s->owner_uid ^ m->uid) * (s->scope & ECALLS_SCOPE_OWN);
	differs |= (u64)(s->pid ^ m->pid) * (1 - no_pid);
	differs |= (u64)(s->receiver ^ (u32)m->target) * (1 - ((u32)m->target >> 31));
	barrier_var(differs);
	return ((differs - 1) >> 63) & kind_wanted;
}

/* First row of the audience of an event; 0: there is none. */
static __always_inline u32 audience_find(u32 service, s32 target, u32 uid) {
	struct ecalls_audience_key key = {
		.service = service,
		.sort = target >= 0 ? ECALLS_AUDIENCE_PID : ECALLS_AUDIENCE_UID,
		.who = target >= 0 ? (u32)target : uid,
	};
	u32 *row = bpf_map_lookup_elem(&audiences, &key);

	return row ? *(volatile u32 *)row : 0;
}

__noinline int audience_of(u32 service, s32 target, u32 uid) {
	return audience_find(service, target, uid);
}

/* Positions of a list whose subscriptions match. */
static __always_inline u64 match_each(const u32 *list, u32 count, u32 service,
				      const struct match *m, u32 zero) {
	u64 mask = zero;

	for (u32 i = zero; lib_again(i, ECALLS_SUBSCRIBERS_MAX); i++) {
		i ^= zero;
		if (i >= count || i >= ECALLS_SUBSCRIBERS_MAX)
			break;
		u32 index = list[i & (ECALLS_SUBSCRIBERS_MAX - 1)];
		struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
		if (!s)
			break;
		mask |= subscription_matches(s, service, m) << (i & 63);
	}
	return mask;
}

/* Searches the list `row`, as m->next gives it, and determines the next one. */
__noinline int match_list(u32 service, u32 row, struct match *m) {
	struct current *c = current_cpu();

	if (!m || !c)
		return 0;
	m->mask = 0;
	m->next = 0;
	if (row) {
		struct ecalls_audience *a = bpf_map_lookup_elem(&audience_rows, &row);
		if (!a)
			return 0;
		m->mask = match_each(a->list, a->count, service, m, c->zero);
		m->next = *(volatile u32 *)&a->next;
		return 0;
	}
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	if (!s)
		return 0;
	u32 list = s->active & 1;
	m->list = list;
	m->mask = match_each(s->list[list], s->count[list], service, m, c->zero);
	if (*(volatile u32 *)&s->own)
		m->next = audience_find(service, m->target, m->uid);
	return 0;
}

/* Index of the subscription at a position of that list; too large if there is none. */
static __always_inline u32 match_index(u32 service, u32 row, u32 list, u32 at) {
	at &= ECALLS_SUBSCRIBERS_MAX - 1;
	barrier_var(at);
	at &= ECALLS_SUBSCRIBERS_MAX - 1;
	if (row) {
		struct ecalls_audience *a = bpf_map_lookup_elem(&audience_rows, &row);
		return a ? a->list[at] : ECALLS_SUBSCRIPTIONS_MAX;
	}
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	return s ? s->list[list & 1][at] : ECALLS_SUBSCRIPTIONS_MAX;
}

/* Whether a subscription may see an event of this service and user: its row may have been given to
 * another subscription after the search. */
static __always_inline bool match_still(const struct ecalls_subscription *s, u32 service, u32 uid) {
	return s->service == service && (s->scope != ECALLS_SCOPE_OWN || s->owner_uid == uid);
}

#endif
