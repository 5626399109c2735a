/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The shared memory action: stores an event in a channel's `up` segment (abi/channel.h defines the
 * protocol) and wakes the reader if, and only if, it has announced that it sleeps.
 *
 * The segment belongs to its application, which may write anything there: positions are masked by
 * the capacity that the kernel side keeps itself, and wrong values affect only that segment.
 */
#ifndef ECALLS_MEMORY_H
#define ECALLS_MEMORY_H

#include "lib/bits.h"
#include "account.h"
#include "order.h"

#define MEMORY_PUT 0
#define MEMORY_REPLACED 1 /* stored, over an event that was not read */
#define MEMORY_ASLEEP 2	  /* with one of these: the reader sleeps, memory_wake() is due */
#define MEMORY_DROPPED(reason) (-(int)(reason) - 1)

static __always_inline struct ecalls_channel *channel_active(u32 id) {
	u32 index = ECALLS_ID_INDEX(id);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);

	if (!ch || *(volatile u32 *)&ch->id != id ||
	    *(volatile u32 *)&ch->state != ECALLS_STATE_ACTIVE)
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

static __always_inline int ring_put(void *up, struct ecalls_up *head,
				    const struct ecalls_channel *ch, const struct ecalls_event *e,
				    u32 subscription) {
	/* `front` is read first: it never exceeds a `back` that is read after it. */
	u64 front = *(volatile u64 *)&head->front, used;
	u32 capacity = ch->capacity;

	order_loads();
	used = *(volatile u64 *)&head->back - front;

	if (used >= capacity || used + cpus >= capacity)
		return MEMORY_DROPPED(ECALLS_DROP_RING_FULL);
	u64 position = __sync_fetch_and_add(&head->back, 1);
	u32 element = ECALLS_UP_EVENTS + (u32)(position & (capacity - 1));
	struct ecalls_event *place = bpf_map_lookup_elem(up, &element);
	if (!place)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	put_words(place, e, subscription);
	__sync_fetch_and_add(&head->flag, 1);
	/* A full barrier: the event is complete before its number, and the number before
	 * `sleeping`. */
	__sync_lock_test_and_set(&place->sequence, position + 1);
	return MEMORY_PUT;
}

/* A word of the bit pattern. The mask is hidden from the compiler; the verifier requires it. */
static __always_inline u64 *pattern_word(struct ecalls_up *head, u32 slot) {
	u32 at = slot / 64 & (ECALLS_SLOTS_MAX / 64 - 1);

	barrier_var(at);
	return &head->pattern[at];
}

/* The first slot whose bit is clear, or capacity. */
static __always_inline u32 free_slot(struct ecalls_up *head, u32 capacity) {
	for (u32 slot = 0; lib_again(slot / 64, ECALLS_SLOTS_MAX / 64); slot += 64) {
		u64 free;
		if (slot >= capacity || slot >= ECALLS_SLOTS_MAX)
			break;
		free = ~*(volatile u64 *)pattern_word(head, slot);
		if (free)
			return slot + bits_lowest(free);
	}
	return capacity;
}

/* Stores an event in a slot. An odd `sequence` claims the slot for one CPU. The order matters:
 * claim the slot, check its bit again (another CPU may have filled it since it was selected),
 * write, set the bit, and store the even number last, so that a reader that sees the bit sees at
 * least the odd number. */
static __always_inline int slot_put(void *up, struct ecalls_up *head, u32 use, u32 slot,
				    const struct ecalls_event *e, u32 subscription) {
	u32 element = ECALLS_UP_EVENTS + slot;
	struct ecalls_event *place = bpf_map_lookup_elem(up, &element);
	u64 *word = pattern_word(head, slot);
	u64 bit = 1ull << (slot & 63), before, unread;

	if (!place)
		return MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);
	before = *(volatile u64 *)&place->sequence & ~1ull;
	if (__sync_val_compare_and_swap(&place->sequence, before, before + 1) != before)
		/* Another CPU is writing this slot. By type: that CPU's event is as new as this
		 * one. */
		return MEMORY_DROPPED(use == ECALLS_SLOT_TYPE ? ECALLS_DROP_REPLACED
							      : ECALLS_DROP_SLOT_FULL);
	if (use != ECALLS_SLOT_TYPE && (*(volatile u64 *)word & bit)) {
		__sync_lock_test_and_set(&place->sequence, before);
		return MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);
	}
	put_words(place, e, subscription);
	unread = __sync_fetch_and_or(word, bit) & bit;
	/* A full barrier: the event is complete before its number, and the number before
	 * `sleeping`. */
	__sync_lock_test_and_set(&place->sequence, before + 2);
	__sync_fetch_and_add(&head->flag, 1);
	return unread ? MEMORY_REPLACED : MEMORY_PUT;
}

#define SLOT_TRIES 4 /* free slots that other CPUs may take first before the event is dropped */

static __always_inline int slots_put(void *up, struct ecalls_up *head,
				     const struct ecalls_channel *ch, const struct ecalls_event *e,
				     u32 subscription) {
	struct current *c = current_cpu();
	u32 use = ch->slot_use, capacity = ch->capacity, zero = c ? c->zero : 0;
	int result = MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);

	if (use != ECALLS_SLOT_FREE) {
		u32 slot = use == ECALLS_SLOT_TYPE ? e->type : e->priority;
		if (slot >= capacity || slot >= ECALLS_SLOTS_MAX)
			return result;
		return slot_put(up, head, use, slot, e, subscription);
	}
	for (u32 i = 0; lib_again(i, SLOT_TRIES); i++) {
		i ^= zero;
		u32 slot = free_slot(head, capacity);
		if (i >= SLOT_TRIES || slot >= capacity || slot >= ECALLS_SLOTS_MAX)
			break;
		result = slot_put(up, head, use, slot, e, subscription);
		if (result >= 0)
			break;
	}
	return result;
}

/* Stores an event in a channel. Returns MEMORY_*. */
__noinline int memory_put(u32 channel, const struct ecalls_event *e, u32 subscription) {
	u32 index = ECALLS_ID_INDEX(channel), zero = 0;
	/* The segment is looked up first, then its owner: a row that is given to another channel
	 * meanwhile gets that channel's id first. */
	void *up = bpf_map_lookup_elem(&ups, &index);
	struct ecalls_channel *ch;
	struct ecalls_up *head;
	int result;

	order_loads();
	ch = channel_active(channel);
	if (!ch || !up || !e)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	head = bpf_map_lookup_elem(up, &zero);
	if (!head)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	if (ch->layout == ECALLS_LAYOUT_SLOTS)
		result = slots_put(up, head, ch, e, subscription);
	else
		result = ring_put(up, head, ch, e, subscription);
	if (result >= 0 && *(volatile u64 *)&head->sleeping)
		result |= MEMORY_ASLEEP;
	return result;
}

/* Wakes the reader if it sleeps. Returns true if a wake-up was sent. */
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
	if (!bpf_ringbuf_output(wake, &token, sizeof(token), BPF_RB_FORCE_WAKEUP))
		return 1;
	/* `wake` is full of wake-ups that the reader has not cleared, and so readable; or the
	 * kernel could not take its lock in time. The next event wakes the reader. */
	*(volatile u64 *)&head->sleeping = 1;
	return 0;
}

#endif
