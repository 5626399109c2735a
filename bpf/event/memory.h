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
#define MEMORY_REPLACED 1  /* stored, over an event that was not read */
#define MEMORY_ASLEEP 2	   /* with one of these: the reader sleeps, memory_wake() is due */
#define MEMORY_COALESCED 4 /* not stored: one that was not read stands for it */
#define MEMORY_DROPPED(reason) (-(int)(reason) - 1)

/* The reason that is counted for one of REPLACED and COALESCED. */
static __always_inline u32 memory_reason(int result) {
	return result & MEMORY_COALESCED ? ECALLS_DROP_COALESCED : ECALLS_DROP_REPLACED;
}

/* Looks a channel that is in use up. `index`: that of its id. */
static __always_inline struct ecalls_channel *channel_at(const u32 *index, u32 id) {
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, index);

	if (!ch || *(volatile u32 *)&ch->id != id ||
	    *(volatile u32 *)&ch->state != ECALLS_STATE_ACTIVE)
		return 0;
	return ch;
}

/* The segment of a channel that is in use. It is looked up first, then its owner: a row that is
 * given to another channel meanwhile gets that channel's id first. */
static __always_inline void *segment_of(u32 id, struct ecalls_channel **ch) {
	u32 index = ECALLS_ID_INDEX(id);
	void *up = bpf_map_lookup_elem(&ups, &index);

	order_loads();
	*ch = channel_at(&index, id);
	return *ch ? up : 0;
}

/* For whom an event is stored. */
struct put {
	u32 channel;
	u32 subscription;
};

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

/* Copies the current event's data beyond its record into the entries behind it: entry i of it is
 * the one of position (position + i) & mask. Their first words are 0 (abi/event.h). By itself,
 * because memory_put() would make the verifier walk it on each path that leads here. */
__noinline int put_rest(u32 channel, u32 position, u32 mask) {
	struct current *c = current_cpu();
	struct ecalls_channel *ch;
	void *up = segment_of(channel, &ch);
	u32 at;

	if (!c || !up)
		return 0;
	at = c->zero;
	position++;
	for (u32 round = 0; lib_again(round, REST_WORDS / REST_ENTRY_WORDS);) {
		u32 element = ECALLS_UP_EVENTS + (position & mask);
		u64 *place = bpf_map_lookup_elem(up, &element);
		if (!place || at * 8 >= rest_bytes(*(volatile u32 *)&c->event.size) ||
		    at > REST_WORDS - REST_ENTRY_WORDS)
			break;
		place[0] = 0;
#pragma unroll
		for (int word = 0; word < REST_ENTRY_WORDS; word++)
			place[1 + word] = c->rest.word[at + word];
		position = (position + 1) ^ c->zero;
		at = (at + REST_ENTRY_WORDS) ^ c->zero;
	}
	return 0;
}

/* 1: events may have data in their raiser's memory. Only the dispatcher meets such an event, since
 * raise() delivers no application's by itself (RAISE_PLAIN). */
#ifndef PUT_FAR
#define PUT_FAR 0
#endif

/* The same for the data that are in the memory of the task that raises. Returns 0 or an error: they
 * could not be read, or another task delivers the rest of this event. */
static __noinline int put_far(void *up, u32 position, u32 mask) {
	struct current *c = current_cpu();
	u32 bytes, at, i;

	if (!c || c->far_task != (u64)bpf_get_current_task_btf())
		return -EFAULT;
	bytes = c->event.size - ECALLS_DATA_MAX;
	at = c->zero;
	i = ECALLS_ENTRIES(ECALLS_DATA_MAX) ^ c->zero;
	for (u32 round = 0; lib_again(round, ECALLS_ENTRIES(ECALLS_DATA_LARGE));) {
		u32 element = ECALLS_UP_EVENTS + ((position + i) & mask), left = bytes - at;
		u64 *place;

		if (at >= bytes)
			return 0;
		place = bpf_map_lookup_elem(up, &element);
		if (!place)
			return -EFAULT;
		place[0] = 0;
		if (left > ECALLS_ENTRY_DATA)
			left = ECALLS_ENTRY_DATA;
		if (bpf_probe_read_user(place + 1, left, (const void *)(c->far + at)))
			return -EFAULT;
		i = (i + 1) ^ c->zero;
		at = (at + ECALLS_ENTRY_DATA) ^ c->zero;
	}
	return -EFAULT;
}

#define RING_TRIES 64 /* of taking positions that other CPUs may take first */

#define RING_FULL 1  /* the reader has not kept up */
#define RING_AGAIN 2 /* another CPU took positions at the same time */

/* Takes `entries` positions of a ring, if at most `room` are in use. `front` is read first, so that
 * it does not exceed `back`. */
static __always_inline int ring_try(struct ecalls_up *head, u32 room, u32 entries, u64 *position) {
	u64 front = *(volatile u64 *)&head->front, back;

	order_loads();
	back = *(volatile u64 *)&head->back;
	if (back - front > room)
		return RING_FULL;
	*position = back;
	return __sync_val_compare_and_swap(&head->back, back, back + entries) == back ? 0
										      : RING_AGAIN;
}

/* The same until it is decided. Nearly always the first attempt does: it needs no loop. */
static __always_inline int ring_take(struct ecalls_up *head, u32 room, u32 entries, u64 *position) {
	int result = ring_try(head, room, entries, position);
	struct current *c = result == RING_AGAIN ? current_cpu() : 0;

	if (!c)
		return result;
	for (u32 i = 0; result == RING_AGAIN && lib_again(i, RING_TRIES); i++) {
		i ^= c->zero;
		if (i >= RING_TRIES)
			break;
		result = ring_try(head, room, entries, position);
	}
	return result;
}

/* The entry of a ring at a position. */
static __always_inline struct ecalls_event *ring_place(void *up, u32 capacity, u64 position) {
	u32 element = ECALLS_UP_EVENTS + (u32)(position & (capacity - 1));

	return bpf_map_lookup_elem(up, &element);
}

/* The entry that was taken is complete. */
static __always_inline void ring_done(struct ecalls_up *head, struct ecalls_event *place,
				      u64 position) {
	__sync_fetch_and_add(&head->flag, 1);
	/* A full barrier: the event is complete before its number, and the number before
	 * `sleeping`. */
	__sync_lock_test_and_set(&place->sequence, position + 1);
}

/* Whether a ring holds an event of a subscription that was not read. Its reader moves `front`
 * beyond the event and then looks what there is. Between what the new event tells and this function
 * is a full barrier, the count of raised events: so either the reader finds it, or it is stored. */
static __always_inline bool ring_is_unread(struct ecalls_up *head,
					   const struct ecalls_subscription *s) {
	return *(volatile u64 *)&head->front < *(volatile u64 *)&s->stored;
}

/* The row of a subscription that coalesces; NULL: it does not. */
static __always_inline struct ecalls_subscription *coalescing(const struct ecalls_event *e,
							      u32 subscription) {
	u32 index = ECALLS_ID_INDEX(subscription);

	return e->flags & ECALLS_EVENT_COALESCES ? bpf_map_lookup_elem(&subscriptions, &index) : 0;
}

static __always_inline int ring_put(void *up, struct ecalls_up *head,
				    const struct ecalls_channel *ch, const struct ecalls_event *e,
				    const struct put *put) {
	struct ecalls_subscription *s = coalescing(e, put->subscription);
	u32 capacity = ch->capacity, entries = ECALLS_ENTRIES(e->size);
	u64 position;

	if (s && ring_is_unread(head, s))
		return MEMORY_COALESCED;
	if (entries > capacity)
		return MEMORY_DROPPED(ECALLS_DROP_SIZE);
	if (ring_take(head, capacity - entries, entries, &position))
		return MEMORY_DROPPED(ECALLS_DROP_RING_FULL);
	struct ecalls_event *place = ring_place(up, capacity, position);
	if (!place)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	put_words(place, e, put->subscription);
	if (entries > 1)
		put_rest(put->channel, (u32)position, capacity - 1);
	if (PUT_FAR && e->size > ECALLS_DATA_MAX && put_far(up, (u32)position, capacity - 1)) {
		place->flags |= ECALLS_EVENT_VOID;
		__sync_lock_test_and_set(&place->sequence, position + 1);
		return MEMORY_DROPPED(ECALLS_DROP_SIZE);
	}
	ring_done(head, place, position);
	if (s)
		*(volatile u64 *)&s->stored = position + 1;
	return MEMORY_PUT;
}

/* A word of the bit pattern. The mask is hidden from the compiler; the verifier requires it. */
static __always_inline u64 *pattern_word(struct ecalls_up *head, u32 slot) {
	u32 at = slot / 64 & (ECALLS_SLOTS_MAX / 64 - 1);

	barrier_var(at);
	return &head->pattern[at];
}

/* The first slot whose bit is clear, or capacity. */
static __always_inline u32 free_slot(struct ecalls_up *head, u32 capacity, u32 zero) {
	for (u32 slot = 0; lib_again(slot / 64, ECALLS_SLOTS_MAX / 64); slot += 64) {
		u64 free;
		slot ^= zero;
		if (slot >= capacity || slot >= ECALLS_SLOTS_MAX)
			break;
		free = ~*(volatile u64 *)pattern_word(head, slot);
		if (free)
			return slot + bits_lowest(free);
	}
	return capacity;
}

/* Read anew each time, so that the verifier does not walk the rest once for each use. */
static __always_inline u32 slot_use(const struct ecalls_channel *ch) {
	return *(volatile const u32 *)&ch->slot_use;
}

/* Stores an event in a slot. An odd `sequence` claims the slot for one CPU. The order matters:
 * claim the slot, check its bit again (another CPU may have filled it since it was selected),
 * write, set the bit, and store the even number last, so that a reader that sees the bit sees at
 * least the odd number. */
static __always_inline int slot_put(void *up, struct ecalls_up *head,
				    const struct ecalls_channel *ch, u32 slot,
				    const struct ecalls_event *e, const struct put *put) {
	u32 element = ECALLS_UP_EVENTS + slot * ch->width;
	struct ecalls_event *place = bpf_map_lookup_elem(up, &element);
	u64 *word = pattern_word(head, slot);
	u64 bit = 1ull << (slot & 63), before, unread;

	if (!place)
		return MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);
	before = *(volatile u64 *)&place->sequence & ~1ull;
	if (__sync_val_compare_and_swap(&place->sequence, before, before + 1) != before)
		/* Another CPU is writing this slot. By type: that CPU's event is as new as this
		 * one. */
		return MEMORY_DROPPED(slot_use(ch) == ECALLS_SLOT_READY	 ? ECALLS_DROP_COALESCED
				      : slot_use(ch) == ECALLS_SLOT_TYPE ? ECALLS_DROP_REPLACED
									 : ECALLS_DROP_SLOT_FULL);
	if (slot_use(ch) != ECALLS_SLOT_TYPE && (*(volatile u64 *)word & bit)) {
		__sync_lock_test_and_set(&place->sequence, before);
		return slot_use(ch) == ECALLS_SLOT_READY ? MEMORY_COALESCED
							 : MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);
	}
	put_words(place, e, put->subscription);
	if (e->size > ECALLS_DATA_INLINE)
		put_rest(put->channel, element - ECALLS_UP_EVENTS, ~0u);
	unread = __sync_fetch_and_or(word, bit) & bit;
	/* A full barrier: the event is complete before its number, and the number before
	 * `sleeping`. */
	__sync_lock_test_and_set(&place->sequence, before + 2);
	__sync_fetch_and_add(&head->flag, 1);
	return unread ? MEMORY_REPLACED : MEMORY_PUT;
}

/* Whether a slot of use READY holds an event that was not read. Its reader clears the bit and then
 * looks what there is: as both access the word by a read-modify-write, a reader that clears the bit
 * after this function has seen it finds whatever happened before. */
static __always_inline bool slot_is_unread(struct ecalls_up *head, u32 slot) {
	return __sync_fetch_and_add(pattern_word(head, slot), 0) & 1ull << (slot & 63);
}

#define SLOT_TRIES 4 /* free slots that other CPUs may take first before the event is dropped */

static __always_inline int slots_put(void *up, struct ecalls_up *head,
				     const struct ecalls_channel *ch, const struct ecalls_event *e,
				     const struct put *put) {
	struct current *c = current_cpu();
	u32 capacity = ch->capacity, zero = c ? c->zero : 0;
	int result = MEMORY_DROPPED(ECALLS_DROP_SLOT_FULL);

	if (ECALLS_ENTRIES(e->size) > ch->width)
		return MEMORY_DROPPED(ECALLS_DROP_SIZE);
	for (u32 i = 0; lib_again(i, SLOT_TRIES); i++) {
		i ^= zero;
		u32 slot = slot_use(ch) == ECALLS_SLOT_FREE	  ? free_slot(head, capacity, zero)
			   : slot_use(ch) == ECALLS_SLOT_PRIORITY ? e->priority
								  : e->type;
		if (i >= SLOT_TRIES || slot >= capacity || slot >= ECALLS_SLOTS_MAX)
			break;
		if (slot_use(ch) == ECALLS_SLOT_READY && slot_is_unread(head, slot))
			return MEMORY_COALESCED;
		result = slot_put(up, head, ch, slot, e, put) ^ zero;
		if (result >= 0 || slot_use(ch) != ECALLS_SLOT_FREE)
			break;
	}
	return result;
}

/* Whether a reader that sleeps is to be woken for this event, which is stored. */
static __always_inline bool wake_is_due(struct ecalls_up *head, u64 deadline_ns) {
	u64 at;

	/* The bounds were stored before `sleeping`. */
	order_loads();
	at = *(volatile u64 *)&head->wake_at;
	return !at || *(volatile u64 *)&head->flag >= at ||
	       (deadline_ns && deadline_ns < *(volatile u64 *)&head->wake_by_ns);
}

/* Stores an event in a channel. Returns MEMORY_*. */
__noinline int memory_put(u32 channel, const struct ecalls_event *e, u32 subscription) {
	const struct put put = {.channel = channel, .subscription = subscription};
	struct ecalls_channel *ch;
	struct ecalls_up *head;
	u32 zero = 0;
	void *up = segment_of(channel, &ch);
	int result;

	if (!up || !e)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	head = bpf_map_lookup_elem(up, &zero);
	if (!head)
		return MEMORY_DROPPED(ECALLS_DROP_CHANNEL_GONE);
	if (ch->layout == ECALLS_LAYOUT_SLOTS)
		result = slots_put(up, head, ch, e, &put);
	else
		result = ring_put(up, head, ch, e, &put);
	if (result >= 0 && *(volatile u64 *)&head->sleeping && wake_is_due(head, e->deadline_ns))
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
