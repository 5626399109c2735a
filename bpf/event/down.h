/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A channel's `down` segment in the kernel: looking it up, checking its owner, and the kernel
 * side's own state of it.
 *
 * The segment belongs to its application, which may write anything there at any time: a call is
 * copied once before it is checked, positions are masked, and their difference is bounded. Wrong
 * values affect only the application's own calls.
 */
#ifndef ECALLS_DOWN_H
#define ECALLS_DOWN_H

#include "maps.h"
#include "order.h"

/* A `down` segment. All have the same size, so that a lookup takes few instructions. */
struct down_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_DOWN_ELEMENTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct ecalls_downcall));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__array(values, struct down_segment);
} downs SEC(".maps");

/* Line 1 of struct ecalls_down, a separate element. */
struct down_counts {
	u64 front;
	u64 handled;
	u64 refused;
	u64 drains;
};
_Static_assert(__builtin_offsetof(struct ecalls_down, front) == sizeof(struct ecalls_downcall) &&
		       __builtin_offsetof(struct ecalls_down, drains) ==
			       sizeof(struct ecalls_downcall) +
				       __builtin_offsetof(struct down_counts, drains),
	       "line 1 of the header is element 1");

#define DOWN_LOCKED 0x1u /* called under a scheduler lock: start no timer, no thread */

/* One downcall, copied from its source. */
struct downcall {
	u32 channel; /* id, checked */
	u32 op;
	u32 how; /* DOWN_* */
	u32 pad;
	u64 a;
	u64 b;
	u64 c;
};

/* The kernel side's state of one channel's calls. Never mapped by an application. */
struct down_state {
	struct bpf_timer timer; /* ECALLS_OP_DELAY */
	u32 ready;		/* 1: that timer is initialized */
	u32 armed; /* channel for which it runs, 0: none; a second call must not postpone it */
	u32 lock;  /* 1: a CPU drains the channel's deferred calls */
	u32 pad;
	u32 timers; /* timers that the channel `timers_of` owns */
	u32 timers_of;
	/* Of the current drain; they belong to the holder of the lock. */
	u32 handled;
	u32 refused;
	u64 latest; /* cells taken and not yet handled */
	u64 taken;  /* the cell from which `call` was taken; 0: the ring */
	struct downcall call;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__type(value, struct down_state);
} down_states SEC(".maps");

/* A channel that belongs to the caller. */
struct down {
	struct ecalls_channel *channel;
	struct ecalls_down *head; /* its line 0 */
	void *segment;
	u32 index;
};

static __always_inline bool down_find(struct down *d, u32 id) {
	u32 zero = 0;

	d->index = ECALLS_ID_INDEX(id);
	d->channel = bpf_map_lookup_elem(&channels, &d->index);
	if (!d->channel || *(volatile u32 *)&d->channel->state != ECALLS_STATE_ACTIVE ||
	    d->channel->id != id)
		return false;
	d->segment = bpf_map_lookup_elem(&downs, &d->index);
	if (!d->segment)
		return false;
	d->head = bpf_map_lookup_elem(d->segment, &zero);
	return d->head;
}

/* Finds the channel and checks that the calling process owns it. */
static __always_inline bool down_open(struct down *d, u32 id) {
	struct task_struct *task = bpf_get_current_task_btf();

	return down_find(d, id) && d->channel->owner == (u32)task->tgid &&
	       (!d->channel->owner_start ||
		d->channel->owner_start == task->group_leader->start_boottime);
}

static __always_inline bool down_waits(struct down *d, u64 front) {
	return *(volatile u64 *)&d->head->back != front || *(volatile u64 *)&d->head->latest;
}

static __always_inline struct down_counts *down_counts_of(struct down *d) {
	u32 one = 1;

	return bpf_map_lookup_elem(d->segment, &one);
}

static __always_inline u32 call_channel(u64 call) {
	return call >> 32;
}

static __always_inline u32 call_op(u64 call) {
	return call & 0xffff;
}

/* Stores a result in the caller's frame. */
static __always_inline void frame_put(struct down *d, u64 call, s64 result) {
	u32 frame = (call >> 16) & 0xffff, element = ECALLS_DOWN_FRAMES + frame;
	struct ecalls_downcall *place;

	if (frame >= ECALLS_FRAMES)
		return;
	place = bpf_map_lookup_elem(d->segment, &element);
	if (!place)
		return;
	*(volatile s64 *)&place->result = result;
	order_stores();
	*(volatile u64 *)&place->sequence += 1;
}

#endif
