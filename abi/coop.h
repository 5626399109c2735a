/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Cooperative polling: what a thread and the scheduler tell each other (Coop §3.1).
 *
 * The paper's system call coop_poll(group, timer, best_effort) is a slot of two lines in memory
 * that the thread owns, and a system call that every kernel has:
 *
 *   1. The thread writes line 0: its next release time and its importance, polls + 1, flags
 *      POLLING.
 *   2. It yields (sched_yield) if it has best-effort work or its release is due; else it sleeps
 *      until its release.
 *   3. When it runs again, line 1 holds what the call returns. It clears POLLING.
 *
 * Line 0 is written by the thread alone and read by the scheduler when the thread yields, sleeps,
 * wakes or is chosen: whatever it holds then is what the thread says, true or not. Line 1 is
 * written by the scheduler alone, just before the thread runs, so that the thread reads it at rest;
 * only the counts and the state may also change at other times, each by one whole store. Nothing
 * tears: every field is aligned and stored at once. The switch between the two sides is a full
 * barrier.
 *
 * The counter: a poll has been answered if answered is polls' low half. If it is not when the
 * thread runs again, then no scheduler looks at this slot (any more), and line 1 means nothing.
 *
 * A slot without a scheduler is all zeroes in line 1.
 *
 * Windows (ECalls-05 §4.1). A thread asks for one by ECALLS_OP_WINDOW and a yield. The second half
 * of line 0 is the scheduler's, too: there it says what it answers, and counts the periods. A wish
 * has been answered if window_wishes has moved. If it has not when the thread runs again, there is
 * no scheduler.
 *
 * Children. A process may hand a slot of its own to a child of the same user (ECALLS_OP_HAND),
 * which need not know of it: it yields once, and then may become another program. The parent reads
 * the slot; nobody writes the thread's part of line 0. It ends with the child, or when that takes a
 * slot itself; once the parent has ended, the child loses it when it moves to another CPU.
 */
#ifndef ECALLS_COOP_H
#define ECALLS_COOP_H

#include "version.h"

/* As release_ns, next_release_ns, slice_end_ns: no such time. As importance, least_importance: no
 * best-effort work. */
#define ECALLS_COOP_NONE (~0ull)

/* Groups that a channel's threads may name: 1 to this; those of one user with the same number are
 * the same group. */
#define ECALLS_COOP_GROUPS 0xffffu

#define ECALLS_COOP_POLLING 0x1u /* the thread yields or sleeps in a poll: no other sleep counts */

/* Argument c of ECALLS_OP_COOP. */
#define ECALLS_COOP_SINK 0x1u /* the thread reads the channel's events: it is their sink */

/* What the scheduler takes the thread for (Coop §3.2, policing). */
#define ECALLS_COOP_UNBOUND 0u	   /* nothing: no thread is bound to this slot */
#define ECALLS_COOP_COOPERATIVE 1u /* cooperative */
#define ECALLS_COOP_DEMOTED 2u	   /* fair like everybody, until its next poll */
#define ECALLS_COOP_NO_PLACE 3u	   /* a plain one: its CPU's table, or its user's part, is full */

/* What a window may be: x of y periods may be missed. */
#define ECALLS_WINDOW_PERIOD_MIN_NS 100000ull
#define ECALLS_WINDOW_PERIOD_MAX_NS 10000000000ull
#define ECALLS_WINDOW_Y_MAX 1024u
#define ECALLS_WINDOW_WHOLE (1ull << 20) /* a whole CPU, as window_left counts */

/* Argument c of ECALLS_OP_WINDOW. */
#define ECALLS_WINDOW(x, y, flags)                                                                 \
	((ecalls_u64)(flags) << 32 | (ecalls_u64)(y) << 16 | (ecalls_u64)(x))
#define ECALLS_WINDOW_CONSERVING 0x1u /* beyond its service it shares what is left, as fair */

/* What the scheduler answers. */
#define ECALLS_WINDOW_NONE 0u	    /* it has no window */
#define ECALLS_WINDOW_REFUSED 1u    /* nor has it got one: the CPU, or its user's part, is full */
#define ECALLS_WINDOW_UNPROMISED 2u /* admitted without guarantee */
#define ECALLS_WINDOW_PROMISED 3u   /* at least y - x of y periods will be served */
#define ECALLS_WINDOW_NO_PLACE 4u   /* refused, as the state says: ECALLS_COOP_NO_PLACE */

struct ecalls_coop {
	/* line 0: written by the thread */
	ecalls_u64 release_ns; /* release time of its earliest timer; past: due; NONE: no timer */
	ecalls_u64 importance; /* least user virtual time of its best-effort events, or NONE */
	ecalls_u64 polls;      /* polls so far */
	ecalls_u32 flags;      /* ECALLS_COOP_POLLING */
	ecalls_u32 pad0;
	/* written by the scheduler */
	ecalls_u16 window; /* ECALLS_WINDOW_NONE, REFUSED, UNPROMISED, PROMISED or NO_PLACE */
	ecalls_u16 window_wishes; /* answered, the low part */
	ecalls_u32 window_left;	  /* of the CPU, when it answered, for windows of this user */
	ecalls_u64 met;	   /* periods of the window that were served. In a group, where nobody has a
			   window: CPU time of the group's members, ns */
	ecalls_u64 missed; /* that were not */
	ecalls_u64 violated; /* that were not, though x of its window had been missed already */
	/* line 1: written by the scheduler */
	ecalls_u64 next_release_ns; /* earliest release of all other cooperative threads, or NONE */
	ecalls_u64 least_importance; /* least importance of the others of its group, or NONE */
	ecalls_u64 slice_end_ns;     /* when it is to poll again; past: after what is due */
	ecalls_u64 dispatch_ns;	     /* when it was given the CPU */
	ecalls_u64 overran;	     /* demotions: ran past its slice and the slack */
	ecalls_u64 slept;	     /* demotions: slept other than in a poll */
	ecalls_u64 ahead;	     /* demotions: virtual time too far beyond the least */
	ecalls_u32 state;	     /* ECALLS_COOP_UNBOUND, COOPERATIVE, DEMOTED or NO_PLACE */
	ecalls_u32 answered;	     /* low half of the last polls that was seen */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_coop) == 128, "two lines");

#endif
