/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fuzz target of the small pure algorithms: the token bucket (bpf/lib/bucket.h), the histogram and
 * wake-one, on arbitrary words. The sanitizers look for undefined shifts and overflows of an index;
 * the checks are what each header promises for every input. Run: tests/fuzz/run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/lib/bucket.h"
#include "bpf/lib/histogram.h"
#include "bpf/lib/sample.h"
#include "bpf/lib/select.h"

static void require(_Bool holds, const char *text) {
	if (holds)
		return;
	fprintf(stderr, "bucket_fuzz: %s\n", text);
	abort();
}

static void check_bucket(ecalls_u64 tat, ecalls_u64 now_ns, ecalls_u64 interval_ns,
			 ecalls_u64 burst) {
	ecalls_u64 next = 0, after = 0;
	_Bool allowed = bucket_next(tat, now_ns, interval_ns, burst, &next);

	require(allowed || interval_ns != 0, "refused without a limit");
	require(!allowed || next >= tat, "an allowed event moved the word back");
	require(allowed || next <= tat, "a refused event moved the word on");
	require(!allowed || interval_ns == 0 || next > now_ns || now_ns == ~0ull,
		"an allowed event was not accounted for");
	if (!allowed) {
		require(!bucket_next(next, now_ns, interval_ns, burst, &after),
			"allowed at once after a refusal");
		require(after == next, "the word does not settle");
	}
}

static void check_histogram(ecalls_u64 value) {
	ecalls_u32 bucket = histogram_bucket(value);

	require(bucket < HISTOGRAM_BUCKETS, "a bucket out of range");
	require(histogram_lower(bucket) <= value, "a value below its bucket");
	require(bucket == HISTOGRAM_BUCKETS - 1 || value < histogram_lower(bucket + 1),
		"a value above its bucket");
}

static void check_select(ecalls_u64 matching, ecalls_u32 count, ecalls_u32 turn) {
	ecalls_u32 limit = count < SELECT_MAX ? count : SELECT_MAX;
	ecalls_u32 i = select_one(matching, count, turn);

	if (i == SELECT_NONE) {
		require(limit == 0 || (matching << (SELECT_MAX - limit)) == 0,
			"a match was missed");
		return;
	}
	require(i < limit && (matching >> i & 1), "selected one that does not match");
	for (ecalls_u32 j = turn % limit; j != i; j = (j + 1) % limit)
		require(!(matching >> j & 1), "one that was due earlier was passed over");
}

int LLVMFuzzerTestOneInput(const ecalls_u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const ecalls_u8 *data, size_t size) {
	ecalls_u64 word[4] = {};

	memcpy(word, data, size < sizeof(word) ? size : sizeof(word));
	check_bucket(word[0], word[1], word[2], word[3]);
	check_histogram(word[0]);
	check_select(word[0], (ecalls_u32)word[1], (ecalls_u32)word[2]);
	require(sample_takes(word[0], word[1]) == (word[1] < 2 || word[0] % word[1] == 0),
		"sampling");
	return 0;
}
