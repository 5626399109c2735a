/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Downcalls: how an application calls a kernel service (ECalls-01 §2.3.1).
 *
 * fast      a cheap system call that runs a non-blocking handler at once (prctl with our option)
 * deferred  a store into `down`; handled at the next fast call, after a delay, or before the
 *           caller is next scheduled; in batches, or only the latest
 * generic   by service name; may block. A program that hosts the core runs a BPF program for it
 *           (BPF_PROG_RUN); other programs use a fast call (ECALLS_OP_CALL), and get that BPF
 *           program only where the kernel has no fast call
 *
 * `down` is an array of 64-byte elements, mapped by the one application that owns the channel:
 *   elements 0-3    struct ecalls_down, the header
 *   elements 4-67   one frame per calling thread: where a fast call leaves its result
 *   elements 68-83  latest-value cells
 *   elements 84..   the ring of deferred calls
 *   the last 32     16 slots for cooperative polling (abi/coop.h)
 */
#ifndef ECALLS_DOWNCALL_H
#define ECALLS_DOWNCALL_H

#include "version.h"

#define ECALLS_PRCTL 0x45430001	 /* prctl option of a fast call */
#define ECALLS_SETSOCKOPT 0x4543 /* level and option name of a fast call by setsockopt */

/*
 * prctl(ECALLS_PRCTL, ECALLS_CALL(channel, frame, op), a, b, c) or, where the kernel has nothing
 * better, setsockopt on any socket, whose value are the 8-byte words {ECALLS_CALL(...), a, b, c}.
 *
 * The result is in the caller's frame: `result` is set and `sequence` is incremented. If `sequence`
 * has not changed, the call was not accepted: the channel does not belong to this process, or there
 * is no core. With the mechanism `security` a result of 1..0x7fffffff is prctl's own return value,
 * and the frame is not written.
 */
#define ECALLS_CALL(channel, frame, op)                                                            \
	(((ecalls_u64)(channel) << 32) | ((ecalls_u64)(frame) << 16) | (ecalls_u64)(op))

#define ECALLS_OP_NOP 0u    /* drains the deferred calls, nothing else. Result: calls drained */
#define ECALLS_OP_GETPID 1u /* Result: the caller's process id (ECalls-01 §3.1's test call) */
#define ECALLS_OP_SET 2u    /* a: attribute number, b: value. Sets an attribute of the channel */
#define ECALLS_OP_GET 3u    /* a: attribute number. Result: its value */
#define ECALLS_OP_RAISE                                                                            \
	4u /* a: service | kind << 16, b: target, c: data word. Raises an event of
				 an application service. Result: subscriptions offered, or -errno */
#define ECALLS_OP_RESUME                                                                           \
	5u /* a: subscription, b: ring position, c: action to go on with. After a
				 user handler: the rest of the chain */
#define ECALLS_OP_TIMER                                                                            \
	6u /* a: timer number, b: expiry ns (0: cancel), c: period ns (0: once, else at
			      least 50000); both at most 2^62 */
#define ECALLS_OP_DELAY 7u /* arms the deferred calls' timer (ECALLS_DEFER_DELAY) */
#define ECALLS_OP_CALL                                                                             \
	8u /* a: address of a struct ecalls_generic with op RAISE. The generic call by way of the
			      fast one. Result: as of RAISE; -EFAULT: not in memory now */
#define ECALLS_OP_COOP                                                                             \
	9u /* a: slot, b: group, c: ECALLS_COOP_SINK, _TIMED or 0. Binds the calling thread to a
			      slot of this channel (abi/coop.h), by which it polls; group 0: none.
			      Never deferred. Result: 0 */
#define ECALLS_OP_WINDOW                                                                           \
	10u /* a: period ns (0: no window any more), b: service time ns, c: ECALLS_WINDOW(..).
			      The calling thread, bound to a slot of this channel in no group,
			      wants that window at its next yield (abi/coop.h). Never deferred.
			      Result: 0 */
#define ECALLS_OP_HAND                                                                             \
	11u /* a: a child process. The slot, the group and the window of the calling thread become
			       those of the child's first thread at its next yield (abi/coop.h).
			       Never deferred. Result: 0; -ESRCH: there is no such process;
			       -ECHILD: it is no child of this one */
#define ECALLS_OPS 12u

#define ECALLS_ATTRIBUTES 32u /* attributes of a channel, read by kernel handlers */

/* RAISE by name: deadline_us and release_us are times of CLOCK_MONOTONIC, not relative to now. */
#define ECALLS_RAISE_ABSOLUTE 0x2u

/* Times at which deferred calls are handled, in addition to the next fast call. */
#define ECALLS_DEFER_DELAY 0x1u	 /* at most channel.delay_ns after ECALLS_OP_DELAY */
#define ECALLS_DEFER_SWITCH 0x2u /* before the caller is next scheduled */

#define ECALLS_DOWN_FRAMES 4u
#define ECALLS_FRAMES 64u
#define ECALLS_DOWN_LATEST 68u
#define ECALLS_LATEST 16u
#define ECALLS_DOWN_RING 84u
#define ECALLS_DOWN_CAPACITY 1024u
#define ECALLS_DOWN_COOP (ECALLS_DOWN_RING + ECALLS_DOWN_CAPACITY)
#define ECALLS_COOP_SLOTS 16u
#define ECALLS_DOWN_ELEMENTS (ECALLS_DOWN_COOP + 2 * ECALLS_COOP_SLOTS)
#define ECALLS_DRAIN_MAX 64u /* deferred calls handled at a time */

struct ecalls_down {
	/* line 0: written by the application */
	ecalls_u64 back;   /* next position of the ring to write */
	ecalls_u64 latest; /* bit i: latest-value cell i was written since it was taken */
	ecalls_u64 pad0[6];
	/* line 1: written by the kernel side */
	ecalls_u64 front;   /* next position of the ring to handle */
	ecalls_u64 handled; /* deferred calls handled */
	ecalls_u64 refused; /* deferred calls whose handler refused them */
	ecalls_u64 drains;  /* batches that were handled: handled / drains is their mean size */
	ecalls_u64 pad1[4];
	ecalls_u64 pad2[16];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_down) == 256, "the header is four elements");

struct ecalls_downcall {
	ecalls_u32 op;
	ecalls_u32 pad;
	ecalls_u64 argument[3];
	ecalls_s64 result;   /* frames: written by the kernel side */
	ecalls_u64 sequence; /* frames: incremented with each result */
	ecalls_u64 pad1[2];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_downcall) == 64, "downcall");

/* Argument and result of the generic call (a BPF syscall program's context). With ECALLS_OP_CALL
 * the result is in the caller's frame. */
struct ecalls_generic {
	char service[ECALLS_NAME_MAX]; /* name of the service; for op NOP..: may be empty */
	ecalls_u32 op;
	ecalls_u32 channel;	/* id, or 0 */
	ecalls_s32 target;	/* RAISE */
	ecalls_u32 kind;	/* RAISE */
	ecalls_u32 type;	/* RAISE */
	ecalls_u32 flags;	/* RAISE: ECALLS_EVENT_CPU, ECALLS_RAISE_ABSOLUTE */
	ecalls_u32 priority;	/* RAISE */
	ecalls_u32 size;	/* RAISE: bytes of data, at most ECALLS_DATA_LARGE */
	ecalls_u64 deadline_us; /* RAISE: from release (or now) on, or ABSOLUTE; 0: none */
	ecalls_u64 release_us;	/* RAISE: from now on, or ABSOLUTE; 0: at once */
	ecalls_u64 argument[3];
	ecalls_s64 result;
	/* RAISE: address of the bytes beyond ECALLS_DATA_INLINE, in the caller's memory. They are
	 * read while the call runs; -EFAULT: they are not in memory now, -EAGAIN: more than
	 * ECALLS_DATA_MAX cannot be delivered now. Nothing was raised then: call again. */
	ecalls_u64 rest;
	ecalls_u64 data[ECALLS_DATA_INLINE / 8];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_generic) == 288, "generic call");

#endif
