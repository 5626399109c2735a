/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An event (ECalls-05 §3): the record that a service raises, the queue orders, the dispatcher
 * delivers and an application reads. Every record has the same size, so that an entry of a ring, a
 * slot and an entry of the queue have one layout, and a copy has a constant bound.
 *
 * The record holds the first ECALLS_DATA_INLINE bytes of the data. The rest, if there is any, is in
 * further entries of 256 bytes behind the record, in the ring or in its slot: the first word of
 * each is 0, so that no data is ever taken for a record's `sequence`; 31 words of data follow.
 * While the event is queued, the rest is in a place of its own (bpf/event/rest.h). So only large
 * events cost more: with up to 40 bytes of data two cache lines are written and read, with up to
 * 168 bytes four, and for each further 248 bytes four more.
 *
 * Writers: the service sets service, kind, type, target, flags, priority, deadline, release, size
 * and data; raise() sets id, raise_ns, pid, tid, uid and cpu; the dispatcher sets subscription and
 * sequence.
 */
#ifndef ECALLS_EVENT_H
#define ECALLS_EVENT_H

#include "version.h"

/* Special values of `target`. Values from 0 on are the process (tgid) that receives the event;
 * values below these two mean ALL. */
#define ECALLS_TARGET_ALL (-1)	    /* every subscription of the service */
#define ECALLS_TARGET_WAKE_ONE (-2) /* one of them, in turn (round robin) */

/* `flags` as the raiser gives them. */
#define ECALLS_EVENT_CPU 0x1u /* request event-aware scheduling of its sink (abi/coop.h) */

/* `flags` that only the kernel side sets. */
#define ECALLS_EVENT_RESUME 0x100u /* continue the chain of one subscription, at `action` */
#define ECALLS_EVENT_SOFT 0x400u   /* deadline_ns is the subscriptions' earliest: order, no limit */
#define ECALLS_EVENT_THREAD 0x200u /* the chain's next handler must run in a thread */
#define ECALLS_EVENT_VOID 0x800u   /* in a ring: its data could not be read; a reader skips it */
/* Its subscription coalesces: until this event is read, it stands for further ones, which are only
 * counted. */
#define ECALLS_EVENT_COALESCES 0x1000u
/* It was a frame of another host, which `pid` and `tid` name: no process of this one raised it. */
#define ECALLS_EVENT_HOST 0x2000u

/* Only while the event is queued, in the upper bits of `flags`: the row of abi/user.h in whose
 * `queued` the event counts; 0: none. */
#define ECALLS_EVENT_USER_SHIFT 24u

struct ecalls_event {
	ecalls_u64 sequence;	/* ring: position + 1 once complete; slots: odd while written */
	ecalls_u64 id;		/* unique per core: cpu << 48 | count */
	ecalls_u64 raise_ns;	/* time of the raise */
	ecalls_u64 deadline_ns; /* absolute; 0: none. A later event is discarded and counted */
	ecalls_u64 release_ns;	/* absolute; 0: at once. The event is not delivered before */
	ecalls_u32 service;	/* index of the service */
	ecalls_u32 kind;	/* kind of event, 0..31, per service; see abi/service.h */
	ecalls_u32 type;	/* the typed slot of the event (fd, timer number, ...) */
	ecalls_s32 target;	/* process id, or ECALLS_TARGET_* */
	ecalls_u32 flags;	/* ECALLS_EVENT_* */
	ecalls_u32 priority;	/* the priority slot of the event; 0 is the most urgent */
	/* The raising process and thread: the current one; for timers, deferred calls, sockets
	 * and sched the process concerned. For a socket that is the process that registered it
	 * (then tid = pid). 0: none is known. With ECALLS_EVENT_HOST the lower and the upper half
	 * of the sending host (abi/wire.h), for which the kernel side has counted the frame; as
	 * the event's process, subscriptions are then compared with 0. */
	ecalls_u32 pid;
	ecalls_u32 tid;
	/* The user of that process; 0 if its real, effective and saved user differ, because a
	 * setuid program acts on behalf of another user than its caller. */
	ecalls_u32 uid;
	ecalls_u32 cpu;		 /* CPU on which it was raised */
	ecalls_u32 size;	 /* bytes of data, at most ECALLS_DATA_LARGE */
	ecalls_u32 subscription; /* in a ring or slot: id of the subscription that received it */
	ecalls_u64 data[ECALLS_DATA_INLINE / 8];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_event) == 256, "a record is 256 bytes");

/* Bytes of data in a further entry, and the entries that an event with `size` bytes takes. */
#define ECALLS_ENTRY_DATA 248u
#define ECALLS_ENTRIES(size)                                                                       \
	((size) <= ECALLS_DATA_INLINE ? 1u                                                         \
				      : 1u + ((size) - ECALLS_DATA_INLINE + ECALLS_ENTRY_DATA -    \
					      1u) / ECALLS_ENTRY_DATA)
ECALLS_STATIC_ASSERT(ECALLS_ENTRIES(ECALLS_DATA_MAX) == 9, "the record and 8 entries");

#endif
