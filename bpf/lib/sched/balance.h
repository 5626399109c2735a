/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Balance: whether a CPU takes a thread that waits for another one.
 *
 * A CPU carries the weights of the threads that want it, and what promised windows leave of it is
 * theirs. So a thread has the weight's part of that, and goes where it has more: a CPU takes it if
 * it carries less than the other one, even with the thread. As each move makes the fuller CPU
 * lighter than the other one becomes, they come to an end.
 *
 * Threads that do not divide by the CPUs take turns: a thread for which it makes no great
 * difference goes to and fro from time to time, for the sake of those who are left on the fuller
 * CPU. So of three equal threads on two CPUs each has two thirds.
 *
 * Between the two is room, for weights change a little all the time as their control groups' sums
 * do: else such a thread would move at every look.
 *
 * Who is taken runs at once. So it must soon be its turn where it waits: else a light thread that
 * goes to and fro had a turn each time, which may be many times its share.
 */
#ifndef ECALLS_SCHED_BALANCE_H
#define ECALLS_SCHED_BALANCE_H

#include "window.h"

#define BALANCE_STAYS 0u
#define BALANCE_ROTATES 1u /* if no thread was taken for a while */
#define BALANCE_TAKES 2u
#define BALANCE_SOON                                                                               \
	50u /* periods: a turn then is soon enough for a thread that is taken for good */

/* What one CPU carries. */
struct balance_load {
	ecalls_u64 weight; /* of the threads that want it, waiting or running */
	ecalls_u64 left;   /* of the CPU, in 2^20ths: what promised windows leave */
};

LIB_INLINE struct balance_load balance_load(ecalls_u64 weight, ecalls_u64 promised_share) {
	ecalls_u64 least = WINDOW_WHOLE / 64; /* no CPU is quite without */
	struct balance_load load = {.weight = weight, .left = least};

	if (promised_share < WINDOW_WHOLE - least)
		load.left = WINDOW_WHOLE - promised_share;
	return load;
}

/* Whether a CPU that carries `mine` takes a thread of this weight, which waits where `theirs` is.
 * Sums of weights are less than 2^42, so that nothing overflows. */
LIB_INLINE ecalls_u32 balance_wants(const struct balance_load *mine,
				    const struct balance_load *theirs, ecalls_u64 weight) {
	ecalls_u64 there = theirs->weight * mine->left;

	if ((mine->weight + weight + weight / 4) * theirs->left < there)
		return BALANCE_TAKES;
	if ((mine->weight + weight / 2) * theirs->left < there)
		return BALANCE_ROTATES;
	return BALANCE_STAYS;
}

/* One CPU looks at another one. */
struct balance_look {
	struct balance_load mine;
	struct balance_load theirs;
	ecalls_u64 vtime; /* the least there */
	ecalls_u64 period_ns;
	ecalls_u32 wanted; /* BALANCE_TAKES, or BALANCE_ROTATES when it is time for that */
	ecalls_u32 pad;
};

/* Whether it takes a thread of this weight that waits there. */
LIB_INLINE _Bool balance_takes(const struct balance_look *look, ecalls_u64 vtime,
			       ecalls_u64 weight) {
	ecalls_u32 wants = balance_wants(&look->mine, &look->theirs, weight);
	ecalls_u64 soon_ns = look->period_ns * (wants == BALANCE_TAKES ? BALANCE_SOON : 1);
	ecalls_u64 there = look->theirs.weight ? look->theirs.weight : 1;

	return wants >= look->wanted &&
	       !vtime_before(look->vtime + soon_ns * VTIME_WEIGHT / there, vtime);
}

#endif
