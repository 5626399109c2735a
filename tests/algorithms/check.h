/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The invariants of heap.h and queue.h, checked as a whole: after each step of the property tests
 * and of the fuzz target. Each function returns 0, or a text that names what does not hold.
 */
#ifndef ECALLS_TEST_CHECK_H
#define ECALLS_TEST_CHECK_H

#include "bpf/lib/queue.h"

static inline const char *check_heap(const struct heap *h) {
	if (h->zero != 0)
		return "heap: zero is not 0";
	if (h->count > HEAP_CAPACITY)
		return "heap: more entries than places";
	for (ecalls_u32 i = 2; i <= h->count; i++) {
		const struct heap_entry *e = &h->entry[i];

		if (heap_before(e->key, e->tie, &h->entry[i / 2]))
			return "heap: an entry sorts before its parent";
	}
	return 0;
}

/* Notes that a slot was seen; a slot that is out of range or was seen before is an error. */
static inline const char *check_slot(const struct queue *q, ecalls_u8 *seen, ecalls_u32 slot) {
	if (slot >= q->started)
		return "queue: a slot that was never given out";
	if (seen[slot])
		return "queue: a slot is in two places";
	seen[slot] = 1;
	return 0;
}

static inline const char *check_queue(const struct queue *q) {
	ecalls_u8 seen[HEAP_ENTRIES] = {};
	const char *wrong = check_heap(&q->ready);

	if (!wrong)
		wrong = check_heap(&q->held);
	if (!wrong && q->started > QUEUE_CAPACITY)
		wrong = "queue: more slots than places";
	if (!wrong && q->free_count + q->ready.count + q->held.count != q->started)
		wrong = "queue: a slot is in no place";
	if (wrong)
		return wrong;
	for (ecalls_u32 i = 0; i < q->free_count && !wrong; i++)
		wrong = check_slot(q, seen, q->free[i]);
	for (ecalls_u32 i = 1; i <= q->ready.count && !wrong; i++) {
		wrong = check_slot(q, seen, (ecalls_u32)q->ready.entry[i].slot);
		if (!wrong && q->ready.entry[i].tie >= q->order)
			wrong = "queue: a ready event from the future";
	}
	for (ecalls_u32 i = 1; i <= q->held.count && !wrong; i++) {
		wrong = check_slot(q, seen, heap_at((ecalls_u32)q->held.entry[i].slot));
		if (!wrong && q->held.entry[i].slot / HEAP_ENTRIES >= q->order)
			wrong = "queue: a held event from the future";
		if (!wrong && q->held.entry[i].key == 0)
			wrong = "queue: a held event without a release time";
	}
	return wrong;
}

#endif
