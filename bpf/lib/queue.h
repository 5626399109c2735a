/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The event queue (ECalls-05 §3.1): earliest deadline first, with release times, bounded.
 *
 * One queue per CPU and one for the kernel threads. Events sit in numbered slots of an array that
 * the caller owns; the queue hands out slot numbers and orders them:
 *   ready  by (deadline, order of raising)   events that may be delivered now
 *   held   by (release time, deadline)       events that may not be delivered yet
 * An event without a deadline sorts after all that have one, in the order of raising. A held event
 * keeps its number in that order (above the slot number in its entry) until it is ready.
 *
 * A full queue drops the event with the latest deadline, either the new one or a queued one
 * (queue_push says which), so an urgent event is never refused for the sake of a less urgent one.
 *
 * Invariant: every slot below `started` is in exactly one of free[], ready, held. The caller holds
 * the queue's lock.
 */
#ifndef ECALLS_QUEUE_H
#define ECALLS_QUEUE_H

#include "heap.h"

#define QUEUE_CAPACITY HEAP_CAPACITY
#define QUEUE_NO_DEADLINE (~0ull)
#define QUEUE_RELEASE_MAX 64u /* held events that become ready in one call */

#define QUEUE_PUSHED 0	 /* the event has a slot */
#define QUEUE_REPLACED 1 /* the same, and the slot's former event was dropped */
#define QUEUE_REFUSED 2	 /* the new event was the latest: it was dropped */

struct queue {
	ecalls_u32 free_count;
	ecalls_u32 started; /* slots that were ever given out: 0..started - 1 */
	ecalls_u64 order;   /* events ever queued */
	union {
		struct {
			struct heap ready;
			struct heap held;
		};
		struct heap heap[2]; /* the same */
	};
	ecalls_u32 free[HEAP_ENTRIES];
};

/* One of the two heaps. The verifier does not learn which, so it walks what follows once. */
LIB_INLINE struct heap *queue_heap(struct queue *q, ecalls_u32 held) {
	return &q->heap[(held ^ q->ready.zero) & 1];
}

LIB_INLINE ecalls_u64 queue_key(ecalls_u64 deadline_ns) {
	return deadline_ns ? deadline_ns : QUEUE_NO_DEADLINE;
}

/* Unused slots are given out in order; returned slots come from the stack free[]. */
LIB_INLINE int queue_take_slot(struct queue *q, ecalls_u32 *slot) {
	if (q->free_count > 0) {
		ecalls_u32 i = q->free_count - 1;
		q->free_count = i;
		*slot = heap_at(q->free[heap_at(i)]);
		return 0;
	}
	if (q->started < QUEUE_CAPACITY) {
		*slot = heap_at(q->started);
		q->started++;
		return 0;
	}
	return -1;
}

LIB_INLINE void queue_give_slot(struct queue *q, ecalls_u32 slot) {
	ecalls_u32 i = q->free_count;

	if (i >= QUEUE_CAPACITY)
		return;
	q->free[heap_at(i)] = slot;
	q->free_count = i + 1;
}

/* Frees the slot of the ready or held event with the latest deadline, if it is later than `key`.
 * Not inline: only a full queue needs it. */
LIB_CALL int queue_evict(struct queue *q, ecalls_u64 key, ecalls_u32 *slot) {
	ecalls_u32 ready = heap_last_by_key(&q->ready);
	ecalls_u32 held = heap_last_by_tie(&q->held);
	ecalls_u64 ready_key = ready ? q->ready.entry[heap_at(ready)].key : 0;
	ecalls_u64 held_key = held ? q->held.entry[heap_at(held)].tie : 0;

	if (ready_key <= key && held_key <= key)
		return -1;
	struct heap *h = queue_heap(q, ready_key < held_key);
	ecalls_u32 last = ready_key < held_key ? held : ready;
	*slot = heap_at(h->entry[heap_at(last)].slot);
	heap_remove(h, last);
	return 0;
}

/* Finds a slot for an event and orders it; the caller then writes the event into *slot, still
 * holding the lock. With QUEUE_REPLACED, *slot still holds the event that was dropped. */
LIB_INLINE int queue_push(struct queue *q, ecalls_u64 deadline_ns, ecalls_u64 release_ns,
			  ecalls_u64 now_ns, ecalls_u32 *slot) {
	ecalls_u64 key = queue_key(deadline_ns);
	ecalls_u64 order;
	int result = QUEUE_PUSHED;

	if (queue_take_slot(q, slot)) {
		if (queue_evict(q, key, slot))
			return QUEUE_REFUSED;
		result = QUEUE_REPLACED;
	}
	order = q->order++;
	if (release_ns > now_ns)
		heap_push(&q->held, release_ns, key, order * HEAP_ENTRIES + *slot);
	else
		heap_push(&q->ready, key, order, *slot);
	return result;
}

/* Makes held events ready whose release time has come. Returns their number (at most
 * QUEUE_RELEASE_MAX). */
LIB_CALL int queue_release(struct queue *q, ecalls_u64 now_ns) {
	ecalls_u32 moved = 0;

	moved ^= q->held.zero;
	for (ecalls_u32 round = 0; lib_again(round, QUEUE_RELEASE_MAX); round++) {
		struct heap_entry e = {};
		if (moved >= QUEUE_RELEASE_MAX || q->held.count == 0 ||
		    q->held.entry[1].key > now_ns)
			break;
		if (heap_pop(&q->held, &e))
			break;
		heap_push(&q->ready, e.tie, e.slot / HEAP_ENTRIES, heap_at(e.slot));
		moved++;
		moved ^= q->held.zero;
	}
	return moved;
}

/* Takes the ready event with the earliest deadline; the caller copies it, still holding the lock,
 * and the slot is free again. Returns 0, or -1 when none is ready. */
LIB_INLINE int queue_pop(struct queue *q, ecalls_u32 *slot) {
	struct heap_entry first = {};

	if (heap_pop(&q->ready, &first))
		return -1;
	*slot = heap_at(first.slot);
	queue_give_slot(q, *slot);
	return 0;
}

/* Takes the ready event at place `at` of the heap (1..count), regardless of the order; otherwise as
 * queue_pop(). */
LIB_CALL int queue_remove(struct queue *q, ecalls_u32 at, ecalls_u32 *slot) {
	if (at == 0 || at > q->ready.count)
		return -1;
	*slot = heap_at(q->ready.entry[heap_at(at)].slot);
	heap_remove(&q->ready, at);
	queue_give_slot(q, *slot);
	return 0;
}

/* The release time of the next held event; 0 when none is held. */
LIB_INLINE ecalls_u64 queue_next_release(const struct queue *q) {
	return q->held.count ? q->held.entry[1].key : 0;
}

#endif
