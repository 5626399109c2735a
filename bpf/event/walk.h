/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The walk through the lists of subscriptions that want the current event: the service's own list
 * first, then its audience's. The dispatcher (deliver.bpf.c) calls all functions here.
 *
 * match_list() (match.h) looks through one list; here the dispatcher goes from list to list. struct
 * current holds where it is: the current list (`row`, `list`), the positions in that list to which
 * the event is still to be offered (`mask`), and the list behind it (`next_row`). match_all()
 * counts the subscriptions that want the event and takes the first list that has one; match_next()
 * takes the next list. wake_one() keeps a single subscription of all lists, by round robin.
 *
 * The dispatcher may stop between two subscriptions and go on in a later run; so the position is
 * kept per CPU, and not on the stack. The host may write a list anew in between: offer() checks
 * each subscription again (match_still).
 */
#ifndef ECALLS_EVENT_WALK_H
#define ECALLS_EVENT_WALK_H

#include "match.h"
#include "lib/select.h"

/* The attributes of an event that subscriptions are compared with. */
static __always_inline struct match match_of(const struct ecalls_event *e) {
	return (struct match){
		.kind = e->kind,
		.target = e->target,
		.pid = e->pid,
		.uid = e->uid,
	};
}

/* Removes data about other users' threads from an event. The audiences come after the service's own
 * list, and a subscription in an audience may only see data of its own user. */
static __always_inline void hide_others(struct ecalls_event *e) {
	struct ecalls_sched_event *sched = (void *)e->data;

	if (e->service == ECALLS_SERVICE_SCHED)
		sched->previous = 0;
}

/* Makes the list `row` the current one. */
static __always_inline void take_list(struct current *c, u32 row, const struct match *m) {
	if (row)
		hide_others(&c->event);
	c->walk.row = row;
	c->walk.list = m->list;
	c->walk.mask = m->mask;
	c->walk.next_row = m->next;
}

/* Looks through all lists, counts the subscriptions that want the current event, and makes the
 * first list that has one the current list. False: no subscription wants the event. */
static __always_inline bool match_all(struct current *c) {
	struct match m = match_of(&c->event);
	u32 service = c->event.service, offered = 0;

	for (u32 i = c->zero; lib_again(i, MATCH_ROUNDS); i++) {
		i ^= c->zero;
		u32 row = m.next;
		match_list(service, row, &m);
		if (m.mask && !offered)
			take_list(c, row, &m);
		offered += bits_count(m.mask);
		if (!m.next || i >= MATCH_ROUNDS)
			break;
	}
	c->walk.offered = offered;
	return offered;
}

/* Narrows what match_all() found down to the one subscription whose turn it is (bpf/lib/select.h).
 * Positions are counted on from one list to the next. */
__noinline int wake_one(u32 service) {
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct current *c = current_cpu();
	u32 turn, base = 0, first = 0;
	struct match m;

	if (!s || !c)
		return 0;
	m = match_of(&c->event);
	turn = s->next;
	c->walk.mask = 0;
	for (u32 i = c->zero; lib_again(i, MATCH_ROUNDS); i++) {
		i ^= c->zero;
		u32 row = m.next;
		match_list(service, row, &m);
		u64 from_turn = select_from(m.mask, base, turn);
		u64 candidates = from_turn ? from_turn : m.mask;
		if (from_turn || (m.mask && !c->walk.mask)) {
			u32 at = bits_lowest(candidates) & (SELECT_MAX - 1);
			take_list(c, row, &m);
			c->walk.mask = 1ull << at;
			first = base + at;
		}
		base += SELECT_MAX;
		if (from_turn || !m.next || i >= MATCH_ROUNDS)
			break;
	}
	s->next = first + 1;
	c->walk.next_row = 0;
	c->walk.offered = !!c->walk.mask;
	return 0;
}

/* Makes the next list of the current event's audience the current one. */
static __always_inline void match_next(struct current *c) {
	struct match m = match_of(&c->event);
	u32 row = c->walk.next_row;

	match_list(c->event.service, row, &m);
	take_list(c, row, &m);
}

#endif
