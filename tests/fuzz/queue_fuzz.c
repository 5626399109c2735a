/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fuzz target of the event queue (bpf/lib/queue.h): the input is a program of queue operations,
 * three bytes each, run against the queue and against a plain list of what must be in it.
 *
 *	byte 0	bits 0-1: push, release, pop, let time pass; bits 2-7: how often (1..64)
 *	byte 1	deadline of the first push, release time at 2 bits (see time_of), or the time to
 *pass
 *	byte 2	how deadline and release time change with each further push
 *
 * After each single operation all invariants of check.h hold, and the result is the one the list
 * gives. At the end everything that is left comes out. Run: tests/fuzz/run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <stddef.h>

#define HEAP_ENTRIES 128u /* soon full, and yet more than QUEUE_RELEASE_MAX */
#include "tests/algorithms/check.h"

struct event {
	ecalls_u64 key; /* the deadline as the queue compares it */
	ecalls_u64 release_ns;
	ecalls_u64 order;
	_Bool used;
	_Bool held;
};

struct model {
	struct event event[HEAP_ENTRIES]; /* by slot */
	ecalls_u32 count;
	ecalls_u64 raised;
	ecalls_u64 now_ns;
};

static struct queue queue;
static struct model model;

static void require(_Bool holds, const char *text) {
	if (holds)
		return;
	fprintf(stderr, "queue_fuzz: %s\n", text);
	abort();
}

static void require_sound(void) {
	const char *wrong = check_queue(&queue);

	require(!wrong, wrong);
	require(queue.ready.count + queue.held.count == model.count, "an event is lost or doubled");
}

/* Whether slot a's event goes before slot b's among the ready ones. */
static _Bool ready_before(ecalls_u32 a, ecalls_u32 b) {
	const struct event *x = &model.event[a], *y = &model.event[b];

	return x->key < y->key || (x->key == y->key && x->order < y->order);
}

/* Whether slot a's event is due before slot b's among the held ones. */
static _Bool due_before(ecalls_u32 a, ecalls_u32 b) {
	const struct event *x = &model.event[a], *y = &model.event[b];

	return x->release_ns < y->release_ns || (x->release_ns == y->release_ns && x->key < y->key);
}

/* The slot that is first in an order among the held or the ready events; -1: there is none. */
static int first(_Bool held, _Bool (*before)(ecalls_u32, ecalls_u32)) {
	int best = -1;

	for (ecalls_u32 i = 0; i < HEAP_ENTRIES; i++) {
		if (!model.event[i].used || model.event[i].held != held)
			continue;
		if (best < 0 || before(i, (ecalls_u32)best))
			best = (int)i;
	}
	return best;
}

static ecalls_u64 latest_key(void) {
	ecalls_u64 key = 0;

	for (ecalls_u32 i = 0; i < HEAP_ENTRIES; i++) {
		if (model.event[i].used && model.event[i].key > key)
			key = model.event[i].key;
	}
	return key;
}

static void push(ecalls_u64 deadline_ns, ecalls_u64 release_ns) {
	ecalls_u64 key = deadline_ns ? deadline_ns : QUEUE_NO_DEADLINE;
	_Bool full = model.count == QUEUE_CAPACITY;
	ecalls_u64 latest = latest_key();
	ecalls_u32 slot = ~0u;
	int result = queue_push(&queue, deadline_ns, release_ns, model.now_ns, &slot);

	if (result == QUEUE_REFUSED) {
		require(full && latest <= key, "refused, but not the latest");
		return;
	}
	require(slot < QUEUE_CAPACITY, "a slot out of range");
	if (result == QUEUE_REPLACED) {
		require(full && model.event[slot].used, "replaced an event that did not wait");
		require(latest > key, "replaced by an event that is not earlier");
		require(model.event[slot].key == latest, "replaced, but not the latest");
	} else {
		require(result == QUEUE_PUSHED && !full, "an unknown result");
		require(!model.event[slot].used, "a slot is given out twice");
		model.count++;
	}
	model.event[slot] = (struct event){
		.key = key,
		.release_ns = release_ns,
		.order = model.raised++,
		.used = 1,
		.held = release_ns > model.now_ns,
	};
}

/* Which of several events with equal release time and deadline becomes ready first is open, so the
 * queue says which are still held, and none of those may be due before one that was released. */
static int release(void) {
	int moved = queue_release(&queue, model.now_ns);
	_Bool still[HEAP_ENTRIES] = {};
	int left = 0, last = -1;

	for (ecalls_u32 i = 1; i <= queue.held.count; i++)
		still[heap_at((ecalls_u32)queue.held.entry[i].slot)] = 1;
	for (ecalls_u32 i = 0; i < HEAP_ENTRIES; i++) {
		struct event *e = &model.event[i];

		if (!e->used || !e->held || still[i])
			continue;
		require(e->release_ns <= model.now_ns, "released before its time");
		if (last < 0 || due_before((ecalls_u32)last, i))
			last = (int)i;
		e->held = 0;
		left++;
	}
	require(left == moved, "the number released is not the number that left");
	require(moved <= (int)QUEUE_RELEASE_MAX, "released more than the limit");
	int due = first(1, due_before);

	if (due < 0)
		return moved;
	require(last < 0 || !due_before((ecalls_u32)due, (ecalls_u32)last),
		"released before one due earlier");
	require(moved == (int)QUEUE_RELEASE_MAX || model.event[due].release_ns > model.now_ns,
		"held longer than its release time");
	return moved;
}

static _Bool pop(void) {
	int expected = first(0, ready_before);
	ecalls_u32 slot = ~0u;

	if (queue_pop(&queue, &slot)) {
		require(expected < 0, "a ready event was not found");
		return 0;
	}
	require(expected == (int)slot, "not the earliest deadline");
	model.event[slot].used = 0;
	model.count--;
	return 1;
}

static void require_next_release(void) {
	int due = first(1, due_before);

	require(queue_next_release(&queue) == (due < 0 ? 0 : model.event[due].release_ns),
		"the next release is wrong");
}

/* A byte as a time: the lower half is near now, the upper half reaches every magnitude. */
static ecalls_u64 time_of(ecalls_u8 byte) {
	if (byte < 128)
		return byte;
	if (byte == 255)
		return ~0ull;
	return (ecalls_u64)(byte & 1 ? 3 : 2) << ((byte - 128) / 2);
}

static void step(const ecalls_u8 *byte) {
	ecalls_u8 deadline = byte[1], release_at = byte[2];

	for (ecalls_u32 times = 0; times <= byte[0] >> 2; times++) {
		switch (byte[0] & 3) {
		case 0:
			push(time_of(deadline), time_of(release_at));
			deadline += byte[2] | 1;
			release_at += byte[1];
			break;
		case 1:
			release();
			break;
		case 2:
			pop();
			break;
		default:
			model.now_ns += time_of(byte[1]) >> (byte[2] & 63);
			break;
		}
		require_sound();
		require_next_release();
	}
}

int LLVMFuzzerTestOneInput(const ecalls_u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const ecalls_u8 *data, size_t size) {
	queue = (struct queue){};
	model = (struct model){};
	for (size_t i = 0; i + 3 <= size; i += 3)
		step(data + i);
	model.now_ns = ~0ull;
	while (release() > 0)
		require_sound();
	while (pop())
		require_sound();
	require(model.count == 0, "an event never came out");
	return 0;
}
