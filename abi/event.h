/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an event is (ECalls-05 §3): the record that a service raises, the queue orders, the
 * dispatcher delivers and an application reads. One record has one size, so that a ring entry, a
 * slot and a place in the queue are the same thing and a copy has a constant bound.
 *
 * Writers: the service fills service, kind, type, target, flags, priority, deadline, release, size
 * and data; raise stamps id, raise_ns, pid, tid, uid and cpu; deliver sets subscription and
 * sequence.
 */
#ifndef ECALLS_EVENT_H
#define ECALLS_EVENT_H

#include "version.h"

/* Special values of `target`; a value from 0 on is the process (tgid) that shall receive the event.
 * Smaller ones mean ALL. */
#define ECALLS_TARGET_ALL (-1)	    /* every subscription of the service */
#define ECALLS_TARGET_WAKE_ONE (-2) /* one of them, in turn (round robin) */

/* `flags` as the raiser gives them. */
#define ECALLS_EVENT_CPU 0x1u /* ask for event-aware scheduling of its sink (abi/coop.h) */

/* `flags` that only the kernel side sets. */
#define ECALLS_EVENT_RESUME 0x100u /* go on with one subscription's chain, at `action` */
#define ECALLS_EVENT_SOFT 0x400u   /* deadline_ns is the subscriptions' earliest: order, no limit */
#define ECALLS_EVENT_THREAD 0x200u /* the chain's next handler was asked to run in a thread */

/* In a queue only, in the upper bits of `flags`: the row of abi/user.h in whose `queued` the event
 * counts; 0: in none. */
#define ECALLS_EVENT_USER_SHIFT 24u

struct ecalls_event {
	ecalls_u64 sequence;	/* ring: position + 1 once complete; slots: odd while written */
	ecalls_u64 id;		/* unique per core: cpu << 48 | count */
	ecalls_u64 raise_ns;	/* when it was raised */
	ecalls_u64 deadline_ns; /* absolute; 0: none. Later than this it is discarded and counted */
	ecalls_u64 release_ns;	/* absolute; 0: at once. Not delivered before */
	ecalls_u32 service;	/* index of the service */
	ecalls_u32 kind;	/* what happened, 0..31, per service; see abi/service.h */
	ecalls_u32 type;	/* which typed slot it belongs to (fd, timer number, ...) */
	ecalls_s32 target;	/* process id, or ECALLS_TARGET_* */
	ecalls_u32 flags;	/* ECALLS_EVENT_* */
	ecalls_u32 priority;	/* which priority slot it belongs to; 0 is the most urgent */
	/* Who raised it: the current process and thread; for timers, deferred calls, sockets and
	 * sched the process concerned, which for a socket is the one that registered it (then
	 * tid = pid). */
	ecalls_u32 pid;
	ecalls_u32 tid;
	/* Its user; 0 if its real, effective and saved user differ: what a setuid program does is
	 * not its caller's. */
	ecalls_u32 uid;
	ecalls_u32 cpu;	 /* CPU on which it was raised */
	ecalls_u32 size; /* bytes of data in use, at most ECALLS_DATA_MAX */
	ecalls_u32
		subscription; /* in a ring or slot: id of the subscription it was delivered for */
	ecalls_u64 data[ECALLS_DATA_MAX / 8];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_event) == 256, "an event is 256 bytes");

#endif
