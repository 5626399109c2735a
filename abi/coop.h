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
 * Only the thread writes line 0; the scheduler reads it when the thread yields, sleeps, wakes or is
 * chosen. The scheduler uses the values that it finds then, whether they are true or not. Only the
 * scheduler writes line 1, just before the thread runs, so that line 1 does not change while the
 * thread reads it; only the counts and the state can also change at other times, each by one store.
 * No field tears: every field is aligned and written by one store. The context switch between the
 * two sides is a full barrier.
 *
 * The counter: a poll has been answered if `answered` equals the low half of `polls`. If they
 * differ when the thread runs again, no scheduler reads this slot (any more), and line 1 is
 * invalid.
 *
 * A slot without a scheduler is all zeroes in line 1.
 *
 * Windows (ECalls-05 §4.1). A thread asks for one by ECALLS_OP_WINDOW and a yield. The scheduler
 * also writes the second half of line 0: its answer, and the counts of periods. A request has been
 * answered if window_wishes has changed. If it has not when the thread runs again, there is no
 * scheduler.
 *
 * Children. A process may hand a slot of its own to a child of the same user (ECALLS_OP_HAND),
 * which need not know of it: the child yields once, and then may execute another program. The
 * parent reads the slot; no process writes the thread's part of line 0. The hand-over ends with the
 * child, or when the child names a slot itself; once the parent has ended, the child loses the slot
 * when it migrates to another CPU.
 */
#ifndef ECALLS_COOP_H
#define ECALLS_COOP_H

#include "version.h"

/* In release_ns, next_release_ns and slice_end_ns: no such time. In importance and
 * least_importance: no best-effort work. */
#define ECALLS_COOP_NONE (~0ull)

/* Groups that a channel's threads may name: 1 to this; those of one user with the same number are
 * the same group. */
#define ECALLS_COOP_GROUPS 0xffffu

#define ECALLS_COOP_POLLING 0x1u /* the thread yields or sleeps in a poll: no other sleep counts */

/* Argument c of ECALLS_OP_COOP. */
#define ECALLS_COOP_SINK 0x1u /* the thread reads the channel's events: it is their sink */
#define ECALLS_COOP_TIMED                                                                          \
	0x2u /* once handed to a child: each timed sleep of the child's threads, \
				  and of its descendants', ends with a release that is due */

/* How the scheduler treats the thread (Coop §3.2, policing). */
#define ECALLS_COOP_UNBOUND 0u	   /* nothing: no thread is bound to this slot */
#define ECALLS_COOP_COOPERATIVE 1u /* cooperative */
#define ECALLS_COOP_DEMOTED 2u	   /* a fair thread, until its next poll */
#define ECALLS_COOP_NO_PLACE 3u /* a plain thread: its CPU's table, or its user's part, is full */

/* Limits of a window: x of y periods may be missed. */
#define ECALLS_WINDOW_PERIOD_MIN_NS 100000ull
#define ECALLS_WINDOW_PERIOD_MAX_NS 10000000000ull
#define ECALLS_WINDOW_Y_MAX 1024u
#define ECALLS_WINDOW_WHOLE (1ull << 20) /* a whole CPU, as window_left counts */

/* Argument c of ECALLS_OP_WINDOW. */
#define ECALLS_WINDOW(x, y, flags)                                                                 \
	((ecalls_u64)(flags) << 32 | (ecalls_u64)(y) << 16 | (ecalls_u64)(x))
#define ECALLS_WINDOW_CONSERVING 0x1u /* after its service it shares the rest fairly */

/* The scheduler's answers. */
#define ECALLS_WINDOW_NONE 0u	    /* the thread has no window */
#define ECALLS_WINDOW_REFUSED 1u    /* refused: the CPU, or its user's part, is full */
#define ECALLS_WINDOW_UNPROMISED 2u /* admitted without guarantee */
#define ECALLS_WINDOW_PROMISED 3u   /* at least y - x of y periods will be served */
#define ECALLS_WINDOW_NO_PLACE 4u   /* refused: the state is ECALLS_COOP_NO_PLACE */

struct ecalls_coop {
	/* line 0: written by the thread */
	ecalls_u64 release_ns; /* release time of its earliest timer; past: due; NONE: no timer */
	ecalls_u64 importance; /* least user virtual time of its best-effort events, or NONE */
	ecalls_u64 polls;      /* polls so far */
	ecalls_u32 flags;      /* ECALLS_COOP_POLLING */
	ecalls_u32 pad0;
	/* written by the scheduler */
	ecalls_u16 window; /* ECALLS_WINDOW_NONE, REFUSED, UNPROMISED, PROMISED or NO_PLACE */
	ecalls_u16 window_wishes; /* requests answered, the low part */
	ecalls_u32 window_left;	  /* CPU left for windows of this user, at the answer */
	ecalls_u64 met;	     /* periods of the window that were served. In a group, which has no
			   windows: CPU time of the group's members, ns */
	ecalls_u64 missed;   /* periods that were not served */
	ecalls_u64 violated; /* missed periods after x of its window had been missed */
	/* line 1: written by the scheduler */
	ecalls_u64 next_release_ns; /* earliest release of all other cooperative threads, or NONE */
	ecalls_u64 least_importance; /* least importance of the others of its group, or NONE */
	ecalls_u64 slice_end_ns;     /* when it must poll again; past: after its due work */
	ecalls_u64 dispatch_ns;	     /* when it received the CPU */
	ecalls_u64 overran;	     /* demotions: ran past its slice and the slack */
	ecalls_u64 slept;	     /* demotions: slept other than in a poll */
	ecalls_u64 ahead;	     /* demotions: virtual time too far beyond the least */
	ecalls_u32 state;	     /* ECALLS_COOP_UNBOUND, COOPERATIVE, DEMOTED or NO_PLACE */
	ecalls_u32 answered;	     /* low half of the last polls that was seen */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_coop) == 128, "two lines");

#endif
