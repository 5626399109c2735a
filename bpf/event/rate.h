/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Taking from a token bucket (bpf/lib/bucket.h) that several CPUs share.
 */
#ifndef ECALLS_RATE_H
#define ECALLS_RATE_H

#include "kernel.h"
#include "lib/bucket.h"

#define RATE_TRIES 4 /* compare-and-swaps; a caller that loses all of them is refused */
#define SECOND_NS 1000000000ull

/* Takes one event from a bucket that has one more in each interval, if possible. `zero` hides from
 * the verifier what differs from path to path (lib/portable.h). */
__noinline int interval_takes(u64 *bucket, u64 now_ns, u64 interval_ns, u64 burst) {
	u64 zero = lib_zero(now_ns);

	if (!bucket)
		return false;
	for (u32 i = 0; lib_again(i, RATE_TRIES); i++) {
		i ^= zero;
		if (i >= RATE_TRIES)
			break;
		u64 tat = *(volatile u64 *)bucket, next = tat;
		u64 allowed = bucket_next(tat, now_ns, interval_ns, burst, &next) ^ zero;
		next ^= zero;
		if (next == tat || __sync_val_compare_and_swap(bucket, tat, next) == tat)
			return allowed;
	}
	return false;
}

static __always_inline bool rate_takes(u64 *bucket, u64 now_ns, u64 per_second, u64 burst) {
	return per_second && interval_takes(bucket, now_ns, SECOND_NS / per_second, burst);
}

/* Takes time that was used from a budget. */
static __always_inline void budget_takes(u64 *bucket, u64 now_ns, u64 used_ns, u64 per_second) {
	for (u32 i = 0; i < RATE_TRIES; i++) {
		u64 tat = *(volatile u64 *)bucket;
		u64 next = budget_next(tat, now_ns, used_ns, per_second);
		if (__sync_val_compare_and_swap(bucket, tat, next) == tat)
			return;
	}
}

#endif
