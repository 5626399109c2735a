/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A bounded binary min-heap of (key, tie, slot), ordered by key and, where keys are equal, by tie.
 *
 * The queue (queue.h) keeps two of them: waiting events by deadline, held events by release time.
 * The tie makes the order total, so that events with equal deadlines keep the order in which they
 * were raised. Nothing in here allocates, locks or calls; the caller holds the queue's lock.
 *
 * Entry 1 is the root; children of i are 2i and 2i + 1; entry 0 is unused.
 *
 * Verifier: `zero` is always 0 and is XORed into a loop-carried index, which makes the verifier
 * forget the index's range, so that the states of a loop converge (verified in about 2 ms; without
 * it the verifier walks all paths and gives up). Each use masks the index instead.
 */
#ifndef ECALLS_HEAP_H
#define ECALLS_HEAP_H

#include "abi/version.h"
#include "portable.h"

/* A power of two, at most 1024; one entry less can be stored. Tests use smaller heaps, which are
 * soon full. */
#ifndef HEAP_ENTRIES
#define HEAP_ENTRIES 1024u
#endif
#define HEAP_CAPACITY (HEAP_ENTRIES - 1u)
#define HEAP_DEPTH 11u /* more than log2(HEAP_ENTRIES) */

struct heap_entry {
	ecalls_u64 key;
	ecalls_u64 tie;
	ecalls_u64 slot;
};

struct heap {
	ecalls_u32 count;
	ecalls_u32 zero; /* always 0, see above */
	struct heap_entry entry[HEAP_ENTRIES];
};

LIB_INLINE ecalls_u32 heap_at(ecalls_u32 i) {
	return i & (HEAP_ENTRIES - 1u);
}

LIB_INLINE _Bool heap_before(ecalls_u64 key, ecalls_u64 tie, const struct heap_entry *b) {
	return key < b->key || (key == b->key && tie < b->tie);
}

/* Moves the hole at `i` towards the root until `e` fits, and puts it there. */
LIB_INLINE void heap_up(struct heap *h, ecalls_u32 i, ecalls_u64 key, ecalls_u64 tie,
			ecalls_u64 slot) {
	i ^= h->zero;
	for (ecalls_u32 round = 0; lib_again(round, HEAP_DEPTH); round++) {
		if (i <= 1)
			break;
		struct heap_entry *parent = &h->entry[heap_at(i >> 1)];
		if (!heap_before(key, tie, parent))
			break;
		struct heap_entry *hole = &h->entry[heap_at(i)];
		hole->key = parent->key;
		hole->tie = parent->tie;
		hole->slot = parent->slot;
		i >>= 1;
		i ^= h->zero;
	}
	struct heap_entry *place = &h->entry[heap_at(i)];
	place->key = key;
	place->tie = tie;
	place->slot = slot;
}

/* Moves the hole at `i` towards the leaves until the given entry fits, and puts it there. */
LIB_INLINE void heap_down(struct heap *h, ecalls_u32 i, ecalls_u64 key, ecalls_u64 tie,
			  ecalls_u64 slot) {
	ecalls_u32 count = h->count;

	i ^= h->zero;
	for (ecalls_u32 round = 0; lib_again(round, HEAP_DEPTH); round++) {
		ecalls_u32 c = i * 2;
		if (c > count)
			break;
		struct heap_entry *child = &h->entry[heap_at(c)];
		if (c < count) {
			struct heap_entry *other = &h->entry[heap_at(c + 1)];
			if (heap_before(other->key, other->tie, child)) {
				child = other;
				c++;
			}
		}
		if (!heap_before(child->key, child->tie,
				 &(struct heap_entry){.key = key, .tie = tie}))
			break;
		struct heap_entry *hole = &h->entry[heap_at(i)];
		hole->key = child->key;
		hole->tie = child->tie;
		hole->slot = child->slot;
		i = c;
		i ^= h->zero;
	}
	struct heap_entry *place = &h->entry[heap_at(i)];
	place->key = key;
	place->tie = tie;
	place->slot = slot;
}

/* Adds an entry. 0, or -1 when the heap is full. */
LIB_INLINE int heap_push(struct heap *h, ecalls_u64 key, ecalls_u64 tie, ecalls_u64 slot) {
	ecalls_u32 i = h->count + 1;

	if (i > HEAP_CAPACITY)
		return -1;
	h->count = i;
	heap_up(h, i, key, tie, slot);
	return 0;
}

/* Takes the first entry. 0, or -1 when the heap is empty. */
LIB_INLINE int heap_pop(struct heap *h, struct heap_entry *first) {
	ecalls_u32 n = h->count;

	if (n == 0 || n > HEAP_CAPACITY)
		return -1;
	first->key = h->entry[1].key;
	first->tie = h->entry[1].tie;
	first->slot = h->entry[1].slot;
	h->count = n - 1;
	if (n > 1) {
		struct heap_entry *last = &h->entry[heap_at(n)];
		heap_down(h, 1, last->key, last->tie, last->slot);
	}
	return 0;
}

/* Removes the entry at index `i` (1..count), wherever it is in the order. */
LIB_INLINE void heap_remove(struct heap *h, ecalls_u32 i) {
	ecalls_u32 n = h->count;

	if (i == 0 || i > n || n > HEAP_CAPACITY)
		return;
	h->count = n - 1;
	if (i == n)
		return;
	struct heap_entry last = h->entry[heap_at(n)];
	struct heap_entry *hole = &h->entry[heap_at(i)];
	if (heap_before(last.key, last.tie, hole))
		heap_up(h, i, last.key, last.tie, last.slot);
	else
		heap_down(h, i, last.key, last.tie, last.slot);
}

/* Index of the entry that sorts last by key, 0 when empty. It is a leaf, so half of the heap is
 * searched: some 500 entries; this happens only in a full queue. */
LIB_INLINE ecalls_u32 heap_last_by_key(struct heap *h) {
	ecalls_u32 n = h->count, best = 0;
	ecalls_u64 key = 0, tie = 0;
	ecalls_u32 i = n / 2 + 1;

	i ^= h->zero;
	for (ecalls_u32 round = 0; lib_again(round, HEAP_ENTRIES); round++) {
		if (i > n)
			break;
		struct heap_entry *e = &h->entry[heap_at(i)];
		if (best == 0 ||
		    !heap_before(e->key, e->tie, &(struct heap_entry){.key = key, .tie = tie})) {
			best = i;
			key = e->key;
			tie = e->tie;
			best ^= h->zero;
		}
		i++;
		i ^= h->zero;
	}
	return best;
}

/* Index of the entry with the largest tie, 0 when empty: searches all entries. */
LIB_INLINE ecalls_u32 heap_last_by_tie(struct heap *h) {
	ecalls_u32 n = h->count, best = 0;
	ecalls_u64 tie = 0;
	ecalls_u32 i = 1;

	i ^= h->zero;
	for (ecalls_u32 round = 0; lib_again(round, HEAP_ENTRIES); round++) {
		if (i > n)
			break;
		struct heap_entry *e = &h->entry[heap_at(i)];
		if (best == 0 || e->tie >= tie) {
			best = i;
			tie = e->tie;
			best ^= h->zero;
		}
		i++;
		i ^= h->zero;
	}
	return best;
}

#endif
