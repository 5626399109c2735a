/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes the inline functions of bpf/lib callable from the tests: a table of pointers, whose name is
 * TABLE, so that the same source can be linked more than once with different sizes. src/lib.rs
 * mirrors the table, field by field.
 */
#include <stddef.h>
#include "check.h"
#include "bpf/lib/bucket.h"
#include "bpf/lib/sample.h"
#include "bpf/lib/histogram.h"
#include "bpf/lib/select.h"
#include "bpf/lib/frame.h"
#include "bpf/lib/window.h"
#include "bpf/lib/activation.h"
#include "bpf/lib/guard.h"

struct table {
	size_t heap_size;
	int (*heap_push)(struct heap *, ecalls_u64, ecalls_u64, ecalls_u64);
	int (*heap_pop)(struct heap *, struct heap_entry *);
	void (*heap_remove)(struct heap *, ecalls_u32);
	ecalls_u32 (*heap_last_by_key)(struct heap *);
	ecalls_u32 (*heap_last_by_tie)(struct heap *);
	ecalls_u32 (*heap_count)(const struct heap *);
	struct heap_entry (*heap_entry)(const struct heap *, ecalls_u32);
	const char *(*check_heap)(const struct heap *);
	size_t queue_size;
	ecalls_u32 queue_capacity;
	ecalls_u32 queue_release_max;
	int (*queue_push)(struct queue *, ecalls_u64, ecalls_u64, ecalls_u64, ecalls_u32 *);
	int (*queue_release)(struct queue *, ecalls_u64);
	int (*queue_pop)(struct queue *, ecalls_u32 *);
	int (*queue_remove)(struct queue *, ecalls_u32, ecalls_u32 *);
	ecalls_u64 (*queue_next_release)(const struct queue *);
	const struct heap *(*queue_held)(const struct queue *);
	const char *(*check_queue)(const struct queue *);
	ecalls_u64 bucket_interval_max_ns;
	ecalls_u64 bucket_burst_max;
	ecalls_u64 bucket_skew_ns;
	_Bool (*bucket_next)(ecalls_u64, ecalls_u64, ecalls_u64, ecalls_u64, ecalls_u64 *);
	_Bool (*budget_left)(ecalls_u64, ecalls_u64);
	ecalls_u64 (*budget_next)(ecalls_u64, ecalls_u64, ecalls_u64, ecalls_u64);
	_Bool (*sample_takes)(ecalls_u64, ecalls_u64);
	ecalls_u32 (*histogram_bucket)(ecalls_u64);
	ecalls_u64 (*histogram_lower)(ecalls_u32);
	ecalls_u64 (*histogram_middle)(ecalls_u32);
	ecalls_u32 (*select_one)(ecalls_u64, ecalls_u32, ecalls_u32);
	ecalls_u64 (*select_from)(ecalls_u64, ecalls_u32, ecalls_u32);
	ecalls_u32 (*bits_count)(ecalls_u64);
	ecalls_u32 (*bits_lowest)(ecalls_u64);
	ecalls_u32 (*bits_log2)(ecalls_u64);
	int (*window_take)(struct ecalls_window *, ecalls_u64, ecalls_u64, ecalls_u64);
	ecalls_u64 (*window_missing)(const struct ecalls_window *);
	ecalls_u64 window_silence_ns;
	int (*frame_check)(const struct ecalls_wire *, ecalls_u32);
	int (*activation_block)(struct ecalls_activations *, ecalls_u32);
	ecalls_u64 (*guard_wait)(struct guard_pace *, const struct guard_look *, ecalls_u64);
	_Bool (*guard_refuses)(_Bool, ecalls_u64, ecalls_u64, ecalls_u64);
};

static ecalls_u32 heap_count(const struct heap *h) {
	return h->count;
}

static struct heap_entry heap_get(const struct heap *h, ecalls_u32 i) {
	return h->entry[heap_at(i)];
}

static const struct heap *queue_held(const struct queue *q) {
	return &q->held;
}

const struct table TABLE = {
	.heap_size = sizeof(struct heap),
	.heap_push = heap_push,
	.heap_pop = heap_pop,
	.heap_remove = heap_remove,
	.heap_last_by_key = heap_last_by_key,
	.heap_last_by_tie = heap_last_by_tie,
	.heap_count = heap_count,
	.heap_entry = heap_get,
	.check_heap = check_heap,
	.queue_size = sizeof(struct queue),
	.queue_capacity = QUEUE_CAPACITY,
	.queue_release_max = QUEUE_RELEASE_MAX,
	.queue_push = queue_push,
	.queue_release = queue_release,
	.queue_pop = queue_pop,
	.queue_remove = queue_remove,
	.queue_next_release = queue_next_release,
	.queue_held = queue_held,
	.check_queue = check_queue,
	.bucket_interval_max_ns = BUCKET_INTERVAL_MAX_NS,
	.bucket_burst_max = BUCKET_BURST_MAX,
	.bucket_skew_ns = BUCKET_SKEW_NS,
	.bucket_next = bucket_next,
	.budget_left = budget_left,
	.budget_next = budget_next,
	.sample_takes = sample_takes,
	.histogram_bucket = histogram_bucket,
	.histogram_lower = histogram_lower,
	.histogram_middle = histogram_middle,
	.select_one = select_one,
	.select_from = select_from,
	.bits_count = bits_count,
	.bits_lowest = bits_lowest,
	.bits_log2 = bits_log2,
	.window_take = window_take,
	.window_missing = window_missing,
	.window_silence_ns = WINDOW_SILENCE_NS,
	.frame_check = frame_check,
	.activation_block = activation_block,
	.guard_wait = guard_wait,
	.guard_refuses = guard_refuses,
};
