/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which subscriptions want an event: of the service's list, then of the audience of the event's
 * target or user (abi/audience.h). An event that is delivered goes through the lists by itself
 * (walk.h). For all else (the account of a drop, the next one in turn, the caller of a raise) one
 * function searches one list and determines the next one; it is verified once.
 *
 *	struct match m = {attributes};
 *	do {
 *		row = m.next;
 *		match_list(service, row, &m);
 *		... m.mask, positions in that list; match_index() returns each index ...
 *	} while (m.next, at most MATCH_ROUNDS times);
 *
 * The host may change a list between the search and the use of the positions.
 */
#ifndef ECALLS_MATCH_H
#define ECALLS_MATCH_H

#include "queue.h"
#include "lib/bits.h"

/* Lists that are searched for one event: the service's, and the rows of an audience. */
#define MATCH_ROUNDS (1u + ECALLS_AUDIENCE_MAX / ECALLS_SUBSCRIBERS_MAX)

/* Whether a subscription wants an event with these attributes. */
static __always_inline bool subscription_matches(const struct ecalls_subscription *s, u32 service,
						 u32 kind, s32 target, u32 pid, u32 uid) {
	u32 kinds = s->kinds, only = s->pid;

	if (*(volatile const u32 *)&s->state != ECALLS_STATE_ACTIVE || s->service != service)
		return false;
	if (target >= 0 && s->receiver != (u32)target)
		return false;
	if (s->scope == ECALLS_SCOPE_OWN && s->owner_uid != uid)
		return false;
	return (!kinds || kinds >> (kind & 31) & 1) && (!only || only == pid);
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

/* Notes the positions of a list whose subscriptions match. They are kept in memory, where the
 * verifier does not tell one result from another. */
static __always_inline void match_each(const u32 *list, u32 count, u32 service, struct match *m,
				       u32 zero) {
	for (u32 i = zero; lib_again(i, ECALLS_SUBSCRIBERS_MAX); i++) {
		i ^= zero;
		if (i >= count || i >= ECALLS_SUBSCRIBERS_MAX)
			break;
		u32 index = list[i & (ECALLS_SUBSCRIBERS_MAX - 1)];
		struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
		if (!s)
			break;
		if (subscription_matches(s, service, m->kind, m->target, m->pid, m->uid))
			*(volatile u64 *)&m->mask |= 1ull << (i & 63);
	}
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
		match_each(a->list, a->count, service, m, c->zero);
		m->next = *(volatile u32 *)&a->next;
		return 0;
	}
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	if (!s)
		return 0;
	u32 list = s->active & 1;
	m->list = list;
	match_each(s->list[list], s->count[list], service, m, c->zero);
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

/* The attributes of an event that subscriptions are compared with. */
static __always_inline struct match match_of(const struct ecalls_event *e) {
	return (struct match){
		.kind = e->kind,
		.target = e->target,
		.pid = event_process(e),
		.uid = e->uid,
	};
}

/* The number of subscriptions of a service that match such an event of user `uid` now. */
__noinline int subscribers(u32 service, u32 kind, s32 target, u32 pid, u32 uid) {
	struct match m = {.kind = kind, .target = target, .pid = pid, .uid = uid};
	u32 found = 0;

	for (u32 i = 0; lib_again(i, MATCH_ROUNDS); i++) {
		match_list(service, m.next, &m);
		found += bits_count(m.mask);
		if (!m.next || i >= MATCH_ROUNDS)
			break;
	}
	return target == ECALLS_TARGET_WAKE_ONE ? found != 0 : found;
}

#endif
