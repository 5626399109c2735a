/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A rate limit in one 64-bit word: the generic cell rate algorithm (GCRA), a token bucket that
 * needs no refill and no second field.
 *
 * The word is the theoretical arrival time (tat): when the next event would come, did events come
 * exactly one interval apart. An event is allowed if it is early by at most burst - 1 intervals,
 * and moves tat one interval on. A quiet time leaves tat behind now, where it counts as now: the
 * burst is full again, and never more than full. So, over any time T, at most burst + T / interval
 * events.
 *
 * The function is pure. Several CPUs share a bucket like this, without a lock:
 *	tat = bucket;
 *	allowed = bucket_next(tat, now, interval, burst, &next);
 *	if (next != tat && !compare_and_swap(&bucket, tat, next))
 *		try again a bounded number of times, then count the event as refused
 * A new bucket is 0: full.
 *
 * Time. A `now` that is behind another CPU's by less than BUCKET_SKEW_NS is only stricter: the
 * bound above holds with T up to the latest `now` seen. A tat further ahead than these settings and
 * that skew can explain stems from other settings or another clock: the event is refused and tat
 * comes back to the furthest place that the settings allow, so that the next event is at most one
 * interval away. Sums stop at the end of time (2^64 ns) instead of wrapping.
 *
 * Limits: an interval counts as at most BUCKET_INTERVAL_MAX_NS, a burst as at most
 * BUCKET_BURST_MAX, so that their product fits and no division is needed. Callers refuse larger
 * settings of users.
 */
#ifndef ECALLS_BUCKET_H
#define ECALLS_BUCKET_H

#include "abi/version.h"
#include "portable.h"

#define BUCKET_INTERVAL_MAX_NS (1ull << 47) /* 39 hours */
#define BUCKET_BURST_MAX (1ull << 16)
#define BUCKET_SKEW_NS 1000000000ull /* clocks of one host differ by less */

LIB_INLINE ecalls_u64 bucket_later(ecalls_u64 time_ns, ecalls_u64 span_ns) {
	ecalls_u64 sum = time_ns + span_ns;

	return sum < time_ns ? ~0ull : sum;
}

/* Whether an event may pass now, and the bucket's next word (in each case; it may be unchanged).
 * `interval_ns` 0: everything passes. `burst`: how many may come at once; 0 counts as 1. */
LIB_INLINE _Bool bucket_next(ecalls_u64 tat, ecalls_u64 now_ns, ecalls_u64 interval_ns,
			     ecalls_u64 burst, ecalls_u64 *next_tat) {
	ecalls_u64 interval = interval_ns, early = 0, early_max;

	*next_tat = tat;
	if (interval == 0)
		return 1;
	if (interval > BUCKET_INTERVAL_MAX_NS)
		interval = BUCKET_INTERVAL_MAX_NS;
	if (burst > BUCKET_BURST_MAX)
		burst = BUCKET_BURST_MAX;
	if (burst == 0)
		burst = 1;
	early_max = (burst - 1) * interval;
	if (tat > now_ns)
		early = tat - now_ns;
	if (early <= early_max) {
		*next_tat = bucket_later(now_ns + early, interval);
		return 1;
	}
	if (early > early_max + interval + BUCKET_SKEW_NS)
		*next_tat = now_ns + early_max + interval;
	return 0;
}

/*
 * A budget of time in the same sort of word: what was used is charged afterwards, as the time in
 * which the budget grows by as much. While the word is at most BUDGET_AHEAD_NS ahead of now,
 * something is left; so a tenth of a second's budget may be used at once, and over any time T at
 * most the budget of T + BUDGET_AHEAD_NS, and what the last user took too much.
 */
#define BUDGET_AHEAD_NS 100000000ull
#define BUDGET_USED_MAX_NS 1000000000ull /* of one charge; more counts as this */

LIB_INLINE _Bool budget_left(ecalls_u64 tat, ecalls_u64 now_ns) {
	return tat <= bucket_later(now_ns, BUDGET_AHEAD_NS);
}

/* The word after `used_ns` were used, of a budget of `per_second` ns in each second (0 as 1).
 * Rounded up, so that many small charges do not get more than one large one. */
LIB_INLINE ecalls_u64 budget_next(ecalls_u64 tat, ecalls_u64 now_ns, ecalls_u64 used_ns,
				  ecalls_u64 per_second) {
	ecalls_u64 used = used_ns < BUDGET_USED_MAX_NS ? used_ns : BUDGET_USED_MAX_NS;
	ecalls_u64 from = tat > now_ns ? tat : now_ns;
	ecalls_u64 whole = used * 1000000000ull, rate = per_second ? per_second : 1;
	ecalls_u64 grows_in = whole / rate;

	return bucket_later(from, grows_in * rate < whole ? grows_in + 1 : grows_in);
}

#endif
