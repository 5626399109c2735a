/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time: the time for which a thread has run, scaled by 100 / weight. Threads of equal
 * virtual time have had CPU time in proportion to their weights.
 *
 * This file has only the arithmetic; fair.h, group.h and window.h define which threads and groups
 * have a virtual time.
 *
 * Virtual times are compared by the sign of their difference, so that they may wrap around. The
 * comparison is correct while the two lie within 2^63 of each other: 292 years of a thread with
 * weight 100, 2.9 years of a thread with the least weight.
 */
#ifndef ECALLS_SCHED_VTIME_H
#define ECALLS_SCHED_VTIME_H

#include "../portable.h"
#include "abi/version.h"

#define VTIME_WEIGHT 100u /* weight of nice 0; the kernel's range is 1 to 10,000 */
#define VTIME_KERNEL 11u  /* nice 10: the least one of a kernel thread */

LIB_INLINE _Bool vtime_before(ecalls_u64 a, ecalls_u64 b) {
	return (ecalls_s64)(a - b) < 0;
}

LIB_INLINE ecalls_u64 vtime_later(ecalls_u64 a, ecalls_u64 b) {
	return vtime_before(a, b) ? b : a;
}

/* The weight with which a thread counts. A kernel thread works for others, and holds locks that
 * they want while it waits: khugepaged, which has nice 19, the lock of a program's whole memory.
 * With the weight of that it would wait for 100 turns of each thread that computes. */
LIB_INLINE ecalls_u32 vtime_weight(ecalls_u32 weight, _Bool is_kernel) {
	return is_kernel && weight < VTIME_KERNEL ? VTIME_KERNEL : weight;
}

/* The increase of a thread's virtual time while it runs for `ns`. */
LIB_INLINE ecalls_u64 vtime_advance(ecalls_u64 ns, ecalls_u32 weight) {
	return ns * VTIME_WEIGHT / (weight ? weight : 1);
}

/* A thread begins to wait: its virtual time is at least the least one (Coop §3.2: use it or lose
 * it). */
LIB_INLINE ecalls_u64 vtime_place(ecalls_u64 least, ecalls_u64 vtime) {
	return vtime_later(least, vtime);
}

/* A thread migrates to another CPU: how far it is ahead of the least virtual time stays the same; a
 * thread that is behind begins at the least one. */
LIB_INLINE ecalls_u64 vtime_move(ecalls_u64 vtime, ecalls_u64 from_least, ecalls_u64 to_least) {
	return vtime_before(vtime, from_least) ? to_least : to_least + (vtime - from_least);
}

#endif
