/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A user of the core: the limits and the current use of the processes of one uid.
 *
 * Subscriptions, channels and application services name their user by the index of a row of the
 * map `users`. Row 0 is for users without limits (root, and programs that host the core
 * themselves); a limit of 0 means none. The host writes the limits, word by word, and may change
 * them at any time; the kernel side reads the current limits at each event.
 *
 * A rate is a token bucket of one word (bpf/lib/bucket.h): `burst` at once, then `per_s` in each
 * second. An event with more than 168 bytes of data counts as often as it has entries
 * (ECALLS_ENTRIES of abi/event.h), that is, once more for each further 248 bytes. Uses beyond the
 * rate are refused at once: an offer is dropped as QUOTA, a raise returns -EDQUOT. Timers have a
 * rate of their own, far below that of raises: they expire in an interrupt,
 * which takes CPU time from the thread that it interrupts.
 *
 * A row may be given to another uid once no object names it; `queued` and `timers` are exact at
 * every moment and are never set by the host.
 */
#ifndef ECALLS_USER_H
#define ECALLS_USER_H

#include "version.h"

struct ecalls_user {
	/* line 0: written by the host */
	ecalls_u32 state;	     /* ECALLS_STATE_*: ACTIVE or FREE; host only */
	ecalls_u32 uid;		     /* the user of this row; unused in row 0 */
	ecalls_u64 up_per_s;	     /* events offered to its subscriptions */
	ecalls_u64 raise_per_s;	     /* events it raises by calls and by timers */
	ecalls_u64 handler_ns_per_s; /* time of its kernel handlers; a tenth of it at once */
	ecalls_u32 up_burst;	     /* at most 65536; 0 counts as 1 */
	ecalls_u32 raise_burst;	     /* at most 65536; 0 counts as 1 */
	ecalls_u32 queued_max;	     /* its events and chains that may wait in queues */
	ecalls_u32 timers_max;	     /* timers of its channels */
	ecalls_u64 timer_per_s;	     /* settings and repeated expiries of its timers */
	ecalls_u32 timer_burst;	     /* at most 65536; 0 counts as 1 */
	ecalls_u32 pad0;
	/* line 1: written by the kernel side, as all below */
	ecalls_u64 up_tat;	 /* bucket of up_per_s */
	ecalls_u64 offered;	 /* offers to its subscriptions, refused ones included */
	ecalls_u64 up_throttled; /* refused offers */
	ecalls_u64 pad1[5];
	/* line 2 */
	ecalls_u64 raise_tat;	     /* bucket of raise_per_s */
	ecalls_u64 raised;	     /* raises, refused ones included */
	ecalls_u64 raise_throttled;  /* raises refused for their rate */
	ecalls_u64 queue_throttled;  /* events and chains refused because queued_max waited */
	ecalls_u64 timers_throttled; /* timers refused because it had timers_max */
	ecalls_u32 queued;	     /* events and chains that wait now */
	ecalls_u32 timers;	     /* timers that its channels have set, or had when they ended */
	ecalls_u64 timer_tat;	     /* bucket of timer_per_s */
	ecalls_u64 timer_throttled;  /* settings refused and expiries postponed for their rate */
	/* line 3 */
	ecalls_u64 handler_tat; /* bucket of handler_ns_per_s */
	ecalls_u64 handler_ns;	/* time that its kernel handlers took; counted while limited */
	ecalls_u64 handler_throttled; /* runs of handlers refused */
	ecalls_u64 pad3[5];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_user) == 256, "user");

#endif
