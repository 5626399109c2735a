/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Load balancing: whether a CPU takes a thread that waits for another CPU.
 *
 * The load of a CPU is the sum of the weights of the threads that want it. They divide the part of
 * the CPU that promised windows and real-time threads leave, by weight, and a thread migrates to
 * where its part is larger: a CPU takes it if its own load, even with the thread, is less than that
 * of the other CPU.
 * After a move both loads are less than the larger one was before, so the moves come to an end.
 *
 * Threads whose weights cannot be divided equally among the CPUs take turns: a thread for which the
 * move makes no great difference migrates from time to time, for the benefit of the threads that
 * remain on the fuller CPU. So each of three equal threads on two CPUs has two thirds of a CPU.
 *
 * The thresholds of the two moves differ, because weights change a little all the time with the
 * sums of their control groups: otherwise such a thread would move at every look.
 *
 * A thread that is taken runs at once. So it must be near its turn where it waits: otherwise a
 * light thread that migrates often would have a turn each time, which may be many times its share.
 */
#ifndef ECALLS_SCHED_BALANCE_H
#define ECALLS_SCHED_BALANCE_H

#include "window.h"

#define BALANCE_STAYS 0u
#define BALANCE_ROTATES 1u /* if no thread was taken for some time */
#define BALANCE_TAKES 2u
#define BALANCE_SOON                                                                               \
	50u /* periods: a thread that is taken for good must have its turn within them */

/* The load of one CPU. */
struct balance_load {
	ecalls_u64 weight; /* of the threads that want it, waiting or running */
	ecalls_u64 left;   /* part of the CPU, in 2^20ths, that windows and others leave */
};

/* `used`: by promised windows, and by whom this policy does not schedule (away.h). */
LIB_INLINE struct balance_load balance_load(ecalls_u64 weight, ecalls_u64 used) {
	ecalls_u64 least = WINDOW_WHOLE / 64; /* a CPU never counts as having less left */
	struct balance_load load = {.weight = weight, .left = least};

	if (used < WINDOW_WHOLE - least)
		load.left = WINDOW_WHOLE - used;
	return load;
}

/* Whether a CPU with load `mine` takes a thread of this weight, which waits on a CPU with load
 * `theirs`. Sums of weights are less than 2^42, so that no product overflows. */
LIB_INLINE ecalls_u32 balance_wants(const struct balance_load *mine,
				    const struct balance_load *theirs, ecalls_u64 weight) {
	ecalls_u64 there = theirs->weight * mine->left;

	if ((mine->weight + weight + weight / 4) * theirs->left < there)
		return BALANCE_TAKES;
	if ((mine->weight + weight / 2) * theirs->left < there)
		return BALANCE_ROTATES;
	return BALANCE_STAYS;
}

/* One CPU compares itself with another one. */
struct balance_look {
	struct balance_load mine;
	struct balance_load theirs;
	ecalls_u64 vtime; /* the least virtual time of the other CPU */
	ecalls_u64 period_ns;
	ecalls_u32 wanted; /* BALANCE_TAKES; BALANCE_ROTATES when a rotation is due */
	ecalls_u32 pad;
};

/* Whether the CPU takes a thread of this weight that waits on the other one. */
LIB_GLOBAL int balance_takes(const struct balance_look *look LIB_NONNULL, ecalls_u64 vtime,
			     ecalls_u64 weight) {
	ecalls_u32 wants = balance_wants(&look->mine, &look->theirs, weight);
	ecalls_u64 soon_ns = look->period_ns * (wants == BALANCE_TAKES ? BALANCE_SOON : 1);
	ecalls_u64 there = look->theirs.weight ? look->theirs.weight : 1;

	return wants >= look->wanted &&
	       !vtime_before(look->vtime + soon_ns * VTIME_WEIGHT / there, vtime);
}

#endif
