/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The shared memory action: puts an event into a channel's `up` segment (abi/channel.h tells the
 * protocol) and wakes the reader if, and only if, it said that it sleeps.
 *
 * The segment belongs to its application, which may have written anything there: positions are masked
 * by the capacity that the kernel side keeps for itself, and a lie can only spoil that one segment.
 */
#ifndef ECALLS_MEMORY_H
#define ECALLS_MEMORY_H

#include "account.h"

#define MEMORY_PUT 0
#define MEMORY_REPLACED 1 /* put, over an event that was not read */
#define MEMORY_DROPPED(reason) (-(int)(reason)-1)

static __always_inline struct ecalls_channel *channel_active(u32 id) {
	u32 index = ECALLS_ID_INDEX(id);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);

	if (!ch || ch->id != id || *(volatile u32 *)&ch->state != ECALLS_STATE_ACTIVE)
		return 0;
	return ch;
}

static __always_inline void put_words(struct ecalls_event *place, const struct ecalls_event *e,
				      u32 subscription) {
	const u64 *a = (const u64 *)e;
	u64 *b = (u64 *)place;

#pragma unroll
	for (int i = 1; i < 11 + SMALL_DATA_WORDS; i++)
		b[i] = a[i];
	if (e->size > SMALL_DATA_WORDS * 8) {
#pragma unroll
		for (int i = 11 + SMALL_DATA_WORDS; i < 11 + DATA_WORDS; i++)
			b[i] = a[i];
	}
	place->subscription = subscription;
}

static __always_inline int ring_put(void *up, struct ecalls_up *head, const struct ecalls_channel *ch,
				    const struct ecalls_event *e, u32 subscription) {
	u32 capacity = ch->capacity;
	u64 used = *(volatile u64 *)&head->back - *(volatile u64 *)&head->front;

	if (used >= capacity || used + cpus >= capacity)
		return MEMORY_DROPPED(ECALLS_DROP_RING_FULL);
	u64 position = __sync_fetch_and_add(&head->back, 1);
	u32 element = ECALLS_UP_EVENTS + (u32)(position & (capacity - 1));
	struct ecalls_event *place = bpf_map_lookup_elem(up, &element);
	if (!place)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	put_words(place, e, subscription);
	head->flag = position + 1;
	/* A full barrier: the event is complete before its number, the number before `sleeping`. */
	__sync_lock_test_and_set(&place->sequence, position + 1);
	return MEMORY_PUT;
}

/* The first slot whose bit is clear, or capacity. */
static __always_inline u32 free_slot(const struct ecalls_up *head, u32 capacity) {
	for (u32 w = 0; lib_again(w, ECALLS_SLOTS_MAX / 64); w++) {
		if (w >= ECALLS_SLOTS_MAX / 64 || w * 64 >= capacity)
			break;
		u64 free = ~*(volatile const u64 *)&head->pattern[w & (ECALLS_SLOTS_MAX / 64 - 1)];
		if (!free)
			continue;
		u64 bit = free & -free;
		u32 at = 0;
#pragma unroll
		for (int shift = 32; shift; shift >>= 1) {
			if (bit >> shift) {
				bit >>= shift;
				at += shift;
			}
		}
		return w * 64 + at;
	}
	return capacity;
}

/* Slots are written by one CPU at a time: odd `sequence` marks a slot that is being written. */
static __always_inline int slot_write(void *up, u32 slot, const struct ecalls_event *e,
				      u32 subscription) {
	u32 element = ECALLS_UP_EVENTS + slot;
	struct ecalls_event *place = bpf_map_lookup_elem(up, &element);
	u64 sequence;

	if (!place)
		return -1;
	sequence = *(volatile u64 *)&place->sequence & ~1ull;
	if (__sync_val_compare_and_swap(&place->sequence, sequence, sequence + 1) != sequence)
		return -1;
	put_words(place, e, subscription);
	__sync_lock_test_and_set(&place->sequence, sequence + 2);
	return 0;
}

static __always_inline int slots_put(void *up, struct ecalls_up *head, const struct ecalls_channel *ch,
				     const struct ecalls_event *e, u32 subscription) {
	u32 use = ch->slot_use, capacity = ch->capacity;
	u32 slot = use == ECALLS_SLOT_TYPE	? e->type
		   : use == ECALLS_SLOT_PRIORITY ? e->priority
						 : free_slot(head, capacity);

	if (slot >= capacity || slot >= ECALLS_SLOTS_MAX)
		return MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);
	u64 *word = &head->pattern[(slot / 64) & (ECALLS_SLOTS_MAX / 64 - 1)];
	u64 bit = 1ull << (slot & 63);
	if (use != ECALLS_SLOT_TYPE && (*(volatile u64 *)word & bit))
		return MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);
	/* Another CPU may be writing the same slot now: its event is as new as this one. */
	if (slot_write(up, slot, e, subscription))
		return MEMORY_DROPPED(use == ECALLS_SLOT_TYPE ? ECALLS_DROP_REPLACED
							      : ECALLS_DROP_SLOT_FULL);
	u64 before = __sync_fetch_and_or(word, bit);
	__sync_fetch_and_add(&head->flag, 1);
	return before & bit ? MEMORY_REPLACED : MEMORY_PUT;
}

/* Puts an event into a channel. MEMORY_*. */
__noinline int memory_put(u32 channel, const struct ecalls_event *e, u32 subscription) {
	struct ecalls_channel *ch = channel_active(channel);
	u32 index = ECALLS_ID_INDEX(channel), zero = 0;
	void *up = bpf_map_lookup_elem(&ups, &index);
	struct ecalls_up *head;

	if (!ch || !up || !e)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	head = bpf_map_lookup_elem(up, &zero);
	if (!head)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	if (ch->layout == ECALLS_LAYOUT_SLOTS)
		return slots_put(up, head, ch, e, subscription);
	return ring_put(up, head, ch, e, subscription);
}

/* Wakes the reader if it sleeps. True: a wake-up was paid for. */
__noinline int memory_wake(u32 channel) {
	u32 index = ECALLS_ID_INDEX(channel), zero = 0;
	void *up = bpf_map_lookup_elem(&ups, &index);
	struct ecalls_up *head = up ? bpf_map_lookup_elem(up, &zero) : 0;
	u64 token = 1;
	void *wake;

	if (!head || !*(volatile u64 *)&head->sleeping)
		return 0;
	if (!__sync_lock_test_and_set(&head->sleeping, 0))
		return 0;
	wake = bpf_map_lookup_elem(&wakes, &index);
	if (!wake)
		return 0;
	bpf_ringbuf_output(wake, &token, sizeof(token), BPF_RB_FORCE_WAKEUP);
	return 1;
}

#endif
