/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sequence window of a source of frames: which of them arrive for the first time, which are
 * duplicates, which are too old, and how many are missing (struct ecalls_window of abi/lane.h).
 *
 * The last 64 numbers below the highest one have a bit each. A frame within this window is fresh or
 * a duplicate, in whatever order they arrive; an older one is stale, since nothing tells the two
 * apart any more. Frames are expected from the first one that has arrived on:
 *	missing = former + (highest - first + 1) - fresh
 * where `former` has the numbers expected in earlier epochs. A frame that arrives later than others
 * reduces `missing` again.
 *
 * A source that opens its channel again begins a new epoch, and its numbers begin again. Epochs are
 * times of the source's clock, so a smaller one belongs to a frame that was under way for long, or
 * is replayed. It is stale, unless the source has been silent for WINDOW_SILENCE_NS: then its clock
 * was set back. Without this rule, a host whose clock starts at 1970 after each boot would never be
 * heard again.
 *
 * Failures: who can forge frames can shift a window, and so exclude their source from the channel:
 * the lane is for networks whose hosts are trusted. Callers hold the lock of the source.
 */
#ifndef ECALLS_WINDOW_H
#define ECALLS_WINDOW_H

#include "abi/lane.h"
#include "portable.h"

#define WINDOW_FRESH 0
#define WINDOW_DUPLICATE 1
#define WINDOW_STALE 2

#define WINDOW_BITS 64u
#define WINDOW_SILENCE_NS 10000000000ull

/* Frames that should have arrived and have not. */
LIB_INLINE ecalls_u64 window_missing(const struct ecalls_window *w) {
	if (!w->epoch)
		return 0;
	return w->former + (w->highest - w->first + 1) - w->fresh;
}

LIB_INLINE int window_begin(struct ecalls_window *w, ecalls_u64 epoch, ecalls_u64 sequence,
			    ecalls_u64 now_ns) {
	if (w->epoch)
		w->former += w->highest - w->first + 1;
	w->epoch = epoch;
	w->first = sequence;
	w->highest = sequence;
	w->seen = 1;
	w->fresh++;
	w->last_ns = now_ns;
	return WINDOW_FRESH;
}

LIB_INLINE int window_stale(struct ecalls_window *w) {
	w->stale++;
	return WINDOW_STALE;
}

/* Takes a frame of the current epoch. */
LIB_INLINE int window_shift(struct ecalls_window *w, ecalls_u64 sequence) {
	ecalls_u64 distance;

	if (sequence > w->highest) {
		distance = sequence - w->highest;
		w->seen = distance < WINDOW_BITS ? w->seen << distance : 0;
		w->seen |= 1;
		w->highest = sequence;
		return WINDOW_FRESH;
	}
	distance = w->highest - sequence;
	if (distance >= WINDOW_BITS)
		return WINDOW_STALE;
	if (w->seen >> distance & 1)
		return WINDOW_DUPLICATE;
	w->seen |= 1ull << distance;
	if (sequence < w->first)
		w->first = sequence;
	return WINDOW_FRESH;
}

/* Takes the frame with this number, not 0, of this epoch, not 0: returns WINDOW_*. */
LIB_INLINE int window_take(struct ecalls_window *w, ecalls_u64 epoch, ecalls_u64 sequence,
			   ecalls_u64 now_ns) {
	int result;

	if (epoch > w->epoch)
		return window_begin(w, epoch, sequence, now_ns);
	if (epoch < w->epoch) {
		if (now_ns - w->last_ns < WINDOW_SILENCE_NS || now_ns < w->last_ns)
			return window_stale(w);
		return window_begin(w, epoch, sequence, now_ns);
	}
	result = window_shift(w, sequence);
	if (result == WINDOW_STALE)
		return window_stale(w);
	if (result == WINDOW_DUPLICATE) {
		w->duplicate++;
		return WINDOW_DUPLICATE;
	}
	w->fresh++;
	w->last_ns = now_ns;
	return WINDOW_FRESH;
}

#endif
