/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wake-one (ECalls-05 §3): which one of the subscribers that match an event receives it.
 *
 * Bit i of `matching` says that subscriber i matches. `turn` is the subscriber whose turn it is;
 * the first match from there on, around the end of the list, is selected. The caller then stores
 * the result + 1 as the next turn. So the matching subscribers are served in turn, however many do
 * not match: a subscriber that always matches waits for at most count - 1 others. A turn that only
 * counted events would not achieve this: of two matches out of six, the one that follows the gap
 * would receive five of six events.
 *
 * Two CPUs may read the same turn and select the same subscriber: one receives two events in a row,
 * but none is lost. A turn beyond the list (it has become shorter, or turn is count) is taken
 * modulo count.
 *
 * No loop: two masks and one search for a bit. Where several lists follow one another, the caller
 * goes through them with select_from().
 */
#ifndef ECALLS_SELECT_H
#define ECALLS_SELECT_H

#include "bits.h"

#define SELECT_MAX 64u	/* subscribers; the same as ECALLS_SUBSCRIBERS_MAX */
#define SELECT_NONE 64u /* no subscriber matches */

ECALLS_STATIC_ASSERT(SELECT_MAX == ECALLS_SUBSCRIBERS_MAX, "one bit per subscriber");

/* The bits of `matching` whose position is not before `turn`; bit 0 has position `base`. For
 * consecutive lists: the first bit of the first list that has one is next, and if none has, the
 * first of all. */
LIB_INLINE ecalls_u64 select_from(ecalls_u64 matching, ecalls_u32 base, ecalls_u32 turn) {
	ecalls_u32 skip = turn > base ? turn - base : 0;

	return skip < SELECT_MAX ? matching & (~0ull << (skip & (SELECT_MAX - 1))) : 0;
}

/* Index of the subscriber to wake, below `count`, or SELECT_NONE. Bits from `count` on are ignored,
 * as is a count above SELECT_MAX. */
LIB_INLINE ecalls_u32 select_one(ecalls_u64 matching, ecalls_u32 count, ecalls_u32 turn) {
	ecalls_u64 from_turn;

	if (count == 0)
		return SELECT_NONE;
	if (count > SELECT_MAX)
		count = SELECT_MAX;
	matching &= ~0ull >> (SELECT_MAX - count);
	from_turn = select_from(matching, 0, turn % count);
	return bits_lowest(from_turn ? from_turn : matching);
}

#endif
