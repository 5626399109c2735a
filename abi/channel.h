/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A channel: the pair of shared memory segments between one application and the kernel side
 * (ECalls-01 §2.3, ECalls-05 §3.2), and the descriptor its owner sleeps on.
 *
 * `up` carries events to the application, `down` (abi/downcall.h) carries its calls to the kernel.
 * Only the application that owns them maps both, read-write: whatever it writes can corrupt only
 * its own channel, and the kernel side treats every value that it reads there as untrusted (masked
 * index, saturated difference).
 *
 * `up` is an array of 256-byte elements:
 *   element 0     struct ecalls_up, the header
 *   element 1     struct ecalls_lost, the losses by reason
 *   elements 2-3  64 counters of the histogram handler
 *   elements 4..  `capacity` entries of a ring, or `capacity` slots of `width` entries each
 *
 * Ring (layout RING): an event takes n = ECALLS_ENTRIES(size) entries in a row, one if it has at
 * most 168 bytes of data. The kernel moves `back` from p to p + n by a compare-and-exchange if then
 * back - front does not exceed the capacity: so an entry has one writer, and none before its last
 * event was read. It writes the entries p % capacity, and so on
 * around the end, and completes the event by storing sequence = p + 1 in the first one. The reader
 * owns `front`: the event at front is complete when the sequence there is front + 1; it copies the
 * event, computes n from the copy, and stores front + n. Behind that store is a full barrier if the
 * event has ECALLS_EVENT_COALESCES: what happened before its reader looks is not raised again, and
 * what happens afterwards finds that it was read.
 *
 * Slots (layout SLOTS): bit i of pattern says slot i holds an event. The kernel sets it, the reader
 * clears it, both by atomic operations. Which slot: ECALLS_SLOT_*. An event with more data than its
 * slot has entries for is dropped (ECALLS_DROP_SIZE).
 *
 * Sleeping: the reader stores sleeping = 1, checks for events once more, and waits on the
 * descriptor. A producer that has completed an event and finds sleeping = 1 exchanges it for 0 and
 * wakes the reader. Both store before they load (full barriers), so one of them sees the other's
 * store: no wake-up is lost, and a reader that is awake costs no wake-up. A reader may bound the
 * wake-ups that it causes: it stores wake_at and wake_by_ns before `sleeping`.
 */
#ifndef ECALLS_CHANNEL_H
#define ECALLS_CHANNEL_H

#include "event.h"

#define ECALLS_LAYOUT_RING 0u
#define ECALLS_LAYOUT_SLOTS 1u

/* ECalls-01 §2.3: the three uses of a slot layout. */
#define ECALLS_SLOT_FREE 0u	/* the next free slot; none free: the event is dropped */
#define ECALLS_SLOT_PRIORITY 1u /* slot = event.priority; still full: the event is dropped */
#define ECALLS_SLOT_TYPE 2u	/* slot = event.type; still full: the new event replaces the old */
/* The same, but still full: the old event tells enough, and the new one is only counted. For events
 * that say that there is something to read: what is not read yet is not raised again. */
#define ECALLS_SLOT_READY 3u

#define ECALLS_UP_EVENTS 4u	   /* element of the first event */
#define ECALLS_UP_HISTOGRAM 2u	   /* element of the first histogram counter */
#define ECALLS_CAPACITY_MIN 64u	   /* entries of a ring; a power of two */
#define ECALLS_CAPACITY_MAX 65536u /* the same */
#define ECALLS_SLOTS_MAX 1024u	   /* slots of a slot layout */
#define ECALLS_WAKE_BYTES 4096u	   /* size of the wake descriptor's buffer */

struct ecalls_up {
	/* line 0: written by the kernel side, read by the application */
	ecalls_u64 flag;     /* events stored since the channel exists; never decremented */
	ecalls_u64 back;     /* ring: next position to take; exchanged by the kernel side's CPUs */
	ecalls_u32 version;  /* ECALLS_ABI_VERSION; written once by the host */
	ecalls_u32 layout;   /* ECALLS_LAYOUT_*; written once by the host */
	ecalls_u32 capacity; /* entries of a ring, or slots; written once by the host */
	ecalls_u32 slot_use; /* ECALLS_SLOT_*; written once by the host */
	ecalls_u32 channel;  /* id of the channel; written once by the host */
	ecalls_u32 width;    /* entries of a slot; ring: 1; written once by the host */
	ecalls_u32 pad0[6];
	/* line 1: written by the application, read by the kernel side (sleeping: exchanged by both)
	 * */
	ecalls_u64 front;    /* ring: next position to read */
	ecalls_u64 sleeping; /* 1: wake me */
	/* With sleeping: only when `flag` has come to wake_at (0: at once), or an event has a
	 * deadline before wake_by_ns, until which the reader sleeps at most. */
	ecalls_u64 wake_at;
	ecalls_u64 wake_by_ns;
	ecalls_u64 pad1[4];
	/* lines 2 and 3: bits set by the kernel side, cleared by the application, atomically */
	ecalls_u64 pattern[ECALLS_SLOTS_MAX / 64];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_up) == 256, "the header is one element");

/* Reasons for lost events. The same numbers index every counter of the core. */
#define ECALLS_DROP_QUEUE_FULL 0u /* the queue was full and this deadline was the latest */
#define ECALLS_DROP_RING_FULL 1u  /* the reader did not keep up */
#define ECALLS_DROP_SLOT_FULL 2u /* no free slot, the priority's slot still full, or no such slot */
#define ECALLS_DROP_REPLACED 3u	 /* a newer event took its typed slot before it was read */
#define ECALLS_DROP_SIGNAL_LIMIT 4u   /* the receiver's RLIMIT_SIGPENDING was reached */
#define ECALLS_DROP_SIGNAL_IGNORED 5u /* the receiver ignores that signal */
#define ECALLS_DROP_TARGET_GONE 6u    /* the receiver has exited, or may not be signalled */
#define ECALLS_DROP_THREAD_FULL                                                                    \
	7u /* the queue of the kernel threads, or of waiting signals, was full */
#define ECALLS_DROP_CHANNEL_GONE 8u   /* the channel was closed, or the subscription ended */
#define ECALLS_DROP_NO_HANDLER 9u     /* the chain named a handler that is not registered */
#define ECALLS_DROP_NO_SUBSCRIBER 10u /* no subscription, or none of the target; per service */
#define ECALLS_DROP_NESTED 11u /* nested too deeply in other raises on one CPU; per service */
#define ECALLS_DROP_QUOTA 12u  /* its user has reached a limit (abi/user.h) */
#define ECALLS_DROP_SIZE 13u   /* no place for data of this size, or it could not be read */
/* An older event was not read yet and stands for it: slots of use READY, and subscriptions that
 * coalesce (ECALLS_EVENT_COALESCES). */
#define ECALLS_DROP_COALESCED 14u
#define ECALLS_DROP_REASONS 15u

/* The kernel side counts losses next to the data, so that a reader sees them without a call: each
 * action that could not deliver to this channel, also if the chain delivered elsewhere; and whole
 * events of subscriptions that report to this channel. */
struct ecalls_lost {
	ecalls_u64 late; /* discarded because the deadline had passed */
	ecalls_u64 dropped[ECALLS_DROP_REASONS];
	ecalls_u64 filtered; /* ended by a handler */
	ecalls_u64 pad[15];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lost) == 256, "the counters are one element");

/* A state word of channels, subscriptions and services. */
#define ECALLS_STATE_FREE 0u
#define ECALLS_STATE_SETUP 1u /* being filled by the host, ignored by the kernel side */
#define ECALLS_STATE_ACTIVE 2u
#define ECALLS_STATE_DEAD 3u /* the owner has exited or closed; the host reclaims it */

/* The kernel side's own view of a channel. Never mapped by an application. */
struct ecalls_channel {
	ecalls_u32 state; /* ECALLS_STATE_*: host, or DEAD by the kernel side at the owner's exit */
	ecalls_u32 id;	  /* index | generation << 12 */
	ecalls_u32 owner; /* process id of the application */
	ecalls_u32 uid;	  /* its user */
	ecalls_u32 layout;
	ecalls_u32 capacity;
	ecalls_u32 slot_use;
	ecalls_u32 defer;	/* ECALLS_DEFER_* of abi/downcall.h */
	ecalls_u64 owner_start; /* start time of the owner (since boot, ns), against pid reuse */
	ecalls_u64 delay_ns;	/* with ECALLS_DEFER_DELAY: how long calls may wait */
	ecalls_u32 user;	/* row of abi/user.h that is charged for its raises */
	ecalls_u32 width;	/* entries of a slot; ring: 1 */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_channel) == 56, "channel");

/* An id is an index below 1 << 12 and a generation above; 0 is never an id. */
#define ECALLS_ID_BITS 12u
#define ECALLS_ID_INDEX(id) ((id) & ((1u << ECALLS_ID_BITS) - 1u))

#endif
