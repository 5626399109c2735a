/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data of an event beyond its record (abi/event.h): up to 1984 bytes, and those of an
 * application beyond even these.
 *
 * The event that a CPU delivers has them behind its record, in `current`, so that handlers see all
 * data in one piece. While an event is queued they are in a place of its CPU's (`rests`), whose
 * number is in the upper half of the event's `sequence`. It moves with the event from queue to
 * queue; whoever takes an event from the queues, or finds it dropped, releases it.
 *
 *	rest_read()	from memory, into a place or `current`
 *	rest_keep()	from `current` into a place, before the current event is queued
 *	rest_load()	from a place into `current`, after an event was taken from a queue
 *
 * An application's event may have up to ECALLS_DATA_LARGE bytes. Those beyond ECALLS_DATA_MAX stay
 * in the memory of the task that raises it (`far` of `current`) until they are copied to the
 * readers' rings (memory.h), by the same raise: such an event is never queued, nor is a chain with
 * it. So large data are copied once, and handlers see the first ECALLS_DATA_MAX bytes. At the end
 * of the raise the address is forgotten, so that it is never read from another process's memory.
 *
 * Invariant: the words behind the data, up to the end of the last entry (REST_ENTRY_WORDS), are 0:
 * whole entries are copied to readers, and no data of a former event is.
 *
 * Failures: if the CPU has no free place, the event with so much data whose deadline is the latest
 * is dropped (ECALLS_DROP_SIZE; displace.h). The last quarter of the places is not for users'
 * raises, so that they never keep out the kernel's own events.
 */
#ifndef ECALLS_EVENT_REST_H
#define ECALLS_EVENT_REST_H

#include "lib/bits.h"
#include "maps.h"

/* The places: RESTS per CPU, set by the loader. */
#define RESTS 128u
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RESTS);
	__type(key, u32);
	__type(value, struct rest);
} rests SEC(".maps");

/* A CPU's places that are in use. Its contexts take them, every CPU releases them. */
#define REST_USE_WORDS (RESTS / 32)
struct rest_use {
	u32 taken[REST_USE_WORDS]; /* a bit for each, changed atomically */
	u32 pad[12];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs, set by the loader */
	__type(key, u32);
	__type(value, struct rest_use);
} rest_uses SEC(".maps");

#define REST_TRIES 8 /* places that an interrupt of this CPU may take first */

static __always_inline u32 rest_place(const struct ecalls_event *e) {
	return e->sequence >> 32;
}

static __always_inline void rest_place_set(struct ecalls_event *e, u32 place) {
	e->sequence = (u32)e->sequence | (u64)place << 32;
}

static __always_inline struct rest *rest_at(u32 place) {
	u32 index = place - 1;

	return bpf_map_lookup_elem(&rests, &index);
}

/* Takes a place of this CPU: returns its number, 0: none is free. */
__noinline u32 rest_take(u32 of_user) {
	u32 cpu = bpf_get_smp_processor_id(), zero = 0, words;
	struct rest_use *use = bpf_map_lookup_elem(&rest_uses, &cpu);
	struct current *c = bpf_map_lookup_elem(&current_events, &zero);
	u32 word, free, bit;

	if (!use || !c)
		return 0;
	words = of_user ? REST_USE_WORDS - 1 : REST_USE_WORDS;
	word = c->zero;
	for (u32 i = 0; lib_again(i, REST_TRIES + REST_USE_WORDS); i++) {
		word ^= c->zero;
		if (word >= words)
			break;
		free = ~*(volatile u32 *)&use->taken[word & (REST_USE_WORDS - 1)];
		if (!free) {
			word++;
			continue;
		}
		bit = bits_lowest(free);
		if (!(__sync_fetch_and_or(&use->taken[word & (REST_USE_WORDS - 1)], 1u << bit) &
		      1u << bit))
			return 1 + cpu * RESTS + word * 32 + bit;
	}
	return 0;
}

__noinline int rest_give(u32 place) {
	u32 index = place - 1, cpu = index / RESTS, at = index % RESTS;
	struct rest_use *use = bpf_map_lookup_elem(&rest_uses, &cpu);

	if (!place || !use)
		return 0;
	__sync_fetch_and_and(&use->taken[at / 32 & (REST_USE_WORDS - 1)], ~(1u << at % 32));
	return 0;
}

/* Releases the place of an event that was taken from the queues. */
static __always_inline void rest_drop(struct ecalls_event *e) {
	if (!rest_place(e))
		return;
	rest_give(rest_place(e));
	rest_place_set(e, 0);
}

/* The bytes of an event with `size` bytes of data that are beyond its record. */
static __always_inline u32 rest_bytes(u32 size) {
	u32 bytes = size > ECALLS_DATA_INLINE ? size - ECALLS_DATA_INLINE : 0;

	return bytes < sizeof(struct rest) ? bytes : sizeof(struct rest);
}

/* Reads the rest of `size` bytes of data at `address`: of the current task's memory, or of the
 * kernel's. Returns 0 or an error: it is not in memory now. Inline, because a global function takes
 * no address of the kernel's. */
static __always_inline int rest_read(struct rest *to, u32 size, u64 address, bool of_user) {
	u32 bytes = rest_bytes(size), last;

	last = (bytes - 1) / ECALLS_ENTRY_DATA * REST_ENTRY_WORDS;
	barrier_var(last);
	if (last > REST_WORDS - REST_ENTRY_WORDS)
		return -EINVAL;
	u64 *end = &to->word[last];
#pragma unroll
	for (int i = 0; i < REST_ENTRY_WORDS; i++)
		end[i] = 0;
	barrier_var(bytes);
	if (bytes > sizeof(*to))
		return -EINVAL;
	if (of_user)
		return bpf_probe_read_user(to, bytes, (const void *)address);
	return bpf_probe_read_kernel(to, bytes, (const void *)address);
}

/* The same from the current task's memory: into `current`, or into a place, whose number it returns
 * (0: none is free). They cost their callers no stack. */
__noinline int rest_read_current(u32 size, u64 address) {
	u32 zero = 0;
	struct current *c = bpf_map_lookup_elem(&current_events, &zero);

	return c && !rest_read(&c->rest, size, address, true) ? 0 : -EFAULT;
}

__noinline int rest_read_place(u32 size, u64 address, u32 of_user) {
	u32 place = rest_take(of_user);
	struct rest *to = rest_at(place);

	if (!to)
		return 0;
	if (!rest_read(to, size, address, true))
		return place;
	rest_give(place);
	return -EFAULT;
}

/* The current event's data beyond its record are at `address`, which this task may read. */
static __always_inline void rest_far(struct current *c, u64 address) {
	c->far = address + sizeof(struct rest);
	c->far_task = (u64)bpf_get_current_task_btf();
}

/* Copies the rest of `size` bytes of data, by whole entries. */
__noinline int rest_copy(struct rest *to, const struct rest *from, u32 size) {
	u32 bytes =
		(rest_bytes(size) + ECALLS_ENTRY_DATA - 1) / ECALLS_ENTRY_DATA * ECALLS_ENTRY_DATA;

	if (!to || !from)
		return -EINVAL;
	barrier_var(bytes);
	if (bytes > sizeof(*to))
		return -EINVAL;
	return bpf_probe_read_kernel(to, bytes, from);
}

/* Before the current event is queued: copies its rest into a place, if it has one. Without a free
 * place the event has none, and queue_add() drops it. */
static __always_inline void rest_keep(struct current *c, u32 of_user) {
	struct rest *to;
	u32 place;

	if (c->event.size <= ECALLS_DATA_INLINE || c->event.size > ECALLS_DATA_MAX)
		return;
	place = rest_take(of_user);
	to = rest_at(place);
	if (!to)
		return;
	rest_copy(to, &c->rest, c->event.size);
	rest_place_set(&c->event, place);
}

/* Not inline, so that it costs the dispatcher no stack. */
__noinline int rest_load_current(void) {
	u32 zero = 0;
	struct current *c = bpf_map_lookup_elem(&current_events, &zero);
	struct rest *from;

	if (!c)
		return 0;
	from = rest_at(rest_place(&c->event));
	if (from)
		rest_copy(&c->rest, from, c->event.size);
	rest_drop(&c->event);
	return 0;
}

/* After an event was taken from a queue, to be delivered. */
static __always_inline void rest_load(struct current *c) {
	if (c->event.size > ECALLS_DATA_INLINE)
		rest_load_current();
}

#endif
