/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A histogram of 64 counters: the bucket of a value, and the lower bound of a bucket.
 *
 * Two buckets per power of two: each octave 2^e .. 2^(e+1) is cut in the middle.
 *	bucket	0  1  2	 3  4  5  6   7	  8  ..	   62	     63
 *	from	0  1  2	 3  4  6  8  12	 16  ..	 2^31  3 * 2^30
 * Values below 4 have a bucket each. Bucket 63 begins at 3 * 2^30 (3.2 s in nanoseconds) and has no
 * end: it also takes what is above 2^32. A caller whose values are larger shifts them right first,
 * and the reader shifts the bounds left.
 *
 * Error. A value is at least its bucket's lower bound and less than 1.5 times that. The middle of a
 * bucket (histogram_middle) differs from the value by at most 25 %, except in bucket 63.
 *
 * The bucket is computed without a loop or a table; the verifier sees one path and a result below
 * HISTOGRAM_BUCKETS.
 */
#ifndef ECALLS_HISTOGRAM_H
#define ECALLS_HISTOGRAM_H

#include "bits.h"

#define HISTOGRAM_BUCKETS 64u
#define HISTOGRAM_VALUE_MAX 0xffffffffull /* larger values count as this one */

/* The bucket of a value: its two leading binary digits (2 or 3) and two for each digit behind them.
 * A value below 2 has no two digits and is its own bucket; the 2 in the logarithm makes it so. */
LIB_INLINE ecalls_u32 histogram_bucket(ecalls_u64 value) {
	ecalls_u32 behind;

	if (value > HISTOGRAM_VALUE_MAX)
		value = HISTOGRAM_VALUE_MAX;
	behind = bits_log2(value | 2) - 1;
	return (2 * behind + (ecalls_u32)(value >> behind)) & (HISTOGRAM_BUCKETS - 1u);
}

/* The smallest value of a bucket. */
LIB_INLINE ecalls_u64 histogram_lower(ecalls_u32 bucket) {
	bucket &= HISTOGRAM_BUCKETS - 1u;
	if (bucket < 2)
		return bucket;
	return (2ull | (bucket & 1)) << (bucket / 2 - 1);
}

/* The value that represents a bucket: the middle of its bounds, rounded down. Bucket 63, which has
 * no upper bound, is treated as if it ended at 2^32. */
LIB_INLINE ecalls_u64 histogram_middle(ecalls_u32 bucket) {
	ecalls_u64 lower = histogram_lower(bucket);

	bucket &= HISTOGRAM_BUCKETS - 1u;
	if (bucket < 4)
		return lower;
	return lower + ((1ull << (bucket / 2 - 1)) - 1) / 2;
}

#endif
