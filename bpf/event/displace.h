/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Earliest deadline first among the places for large data (rest.h), as it is among the entries of a
 * queue (lib/queue.h): if an event that is to be queued finds no place on its CPU, the event with
 * the latest deadline gives up its own, provided that this is later than the new one's.
 *
 * It is searched for in the CPU's queue: what waits for a kernel thread or a signal keeps its
 * place. An event of a user displaces only events of that user, so that nobody's deadlines keep out
 * what others raise. The displaced event is dropped with the reason SIZE, like one that finds no
 * place. Chains that go on later displace nothing.
 */
#ifndef ECALLS_EVENT_DISPLACE_H
#define ECALLS_EVENT_DISPLACE_H

#include "account.h"
#include "request.h"

#define DISPLACE_HELD 0x80000000u /* of a place in a heap: in that of the held events */

/* The deadline of an entry of one of a queue's heaps. */
static __always_inline u64 displace_key(const struct heap_entry *entry, u32 held) {
	return held ? entry->tie : entry->key;
}

/* Whether an entry's event may give up its place for one of `user`. */
static __always_inline bool displace_may(const struct queue_cell *cell,
					 const struct heap_entry *entry, u32 cpu, u32 user) {
	const struct ecalls_event *e = &cell->event[heap_at(entry->slot)];
	u32 place = rest_place(e);

	return place && (place - 1) / RESTS == cpu && (!user || (e->flags & USER_FLAGS) == user);
}

/* Where in one of the two heaps of a CPU's queue (queue_heap()) the event with the latest deadline
 * is that is later than `key` and may give up its place, from 1; 0: there is none. Reads without
 * the lock. */
__noinline u32 displace_find(u32 cpu, u64 key, u32 user, u32 held) {
	struct queue_cell *cell = queue_cell(cpu);
	u32 i, best = 0;
	struct heap *h;

	if (!cell)
		return 0;
	h = queue_heap(&cell->queue, held);
	i = 1 ^ h->zero;
	best ^= h->zero;
	for (u32 round = 0; lib_again(round, HEAP_ENTRIES); round++) {
		if (i > *(volatile u32 *)&h->count)
			break;
		const struct heap_entry *entry = &h->entry[heap_at(i)];
		u64 its = displace_key(entry, held);
		if (its > key && displace_may(cell, entry, cpu, user)) {
			key = its;
			best = i ^ h->zero;
		}
		i++;
		i ^= h->zero;
	}
	return best;
}

/* Takes the event at place `at` of a heap from the queue if it still may give up its own place,
 * which is returned. */
__noinline u32 displace_take(u32 cpu, u64 key, u32 user, u32 at, struct evicted *lost) {
	struct queue_cell *cell = queue_cell(cpu);
	u32 held = at & DISPLACE_HELD, place = 0;
	const struct heap_entry *entry;
	unsigned long flags;
	struct heap *h;

	if (!cell || !lost)
		return 0;
	at = heap_at(at);
	h = queue_heap(&cell->queue, !!held);
	entry = &h->entry[at];
	if (queue_lock(cell, &flags))
		return 0;
	if (at <= h->count && displace_key(entry, held) > key &&
	    displace_may(cell, entry, cpu, user)) {
		u32 slot = heap_at(entry->slot);
		evicted_fill(lost, &cell->event[slot]);
		place = lost->rest;
		heap_remove(h, at);
		queue_give_slot(&cell->queue, slot);
	}
	queue_unlock(cell, &flags);
	return place;
}

/* Of the events that displace_find() finds, the later one's place, with DISPLACE_HELD; 0: none. */
__noinline u32 displace_latest(u32 cpu, u64 key, u32 user) {
	struct queue_cell *cell = queue_cell(cpu);
	u32 ready = displace_find(cpu, key, user, 0), held = displace_find(cpu, key, user, 1);

	if (cell && held &&
	    (!ready || cell->queue.held.entry[heap_at(held)].tie >
			       cell->queue.ready.entry[heap_at(ready)].key))
		return held | DISPLACE_HELD;
	return ready;
}

/* Frees a place for an event of this CPU with these flags. Returns 1 if one is free now. Functions
 * of their own, so that each is verified once, and its callers' stack suffices. */
__noinline int displace(u32 cpu, u64 deadline_ns, u32 flags) {
	struct current *c = current_cpu();
	struct evicted *lost;
	u32 at, place;

	at = c && deadline_ns ? displace_latest(cpu, deadline_ns, flags & USER_FLAGS) : 0;
	if (!at)
		return 0;
	lost = evicted_begin(c);
	place = displace_take(cpu, deadline_ns, flags & USER_FLAGS, at, lost);
	if (place) {
		user_unqueue(lost->flags);
		rest_give(place);
		account_drop(lost, ECALLS_DROP_SIZE);
	}
	evicted_end(c);
	return place != 0;
}

/* raise_rest_queued() for an event that may displace another one. */
static __always_inline int raise_rest_placed(struct ecalls_event *e, const struct raise *r,
					     u32 cpu) {
	int result = raise_rest_queued(e, r);

	if (!result && !rest_place(e) && displace(cpu, e->deadline_ns, e->flags))
		result = raise_rest_queued(e, r);
	return result;
}

#endif
