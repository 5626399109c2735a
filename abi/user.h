/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A user of the core: what the processes of one uid may use, and what they use now.
 *
 * Subscriptions, channels and application services name their user by the index of a row of the
 * map `users`. Row 0 is for whom nothing is limited (root, and programs that host the core
 * themselves); a limit of 0 is none. The host writes the limits, word by word, and may change them
 * at any time; the kernel side takes them as they are at each event.
 *
 * A rate is a bucket of one word (bpf/lib/bucket.h): `burst` at once, then `per_s` in each second.
 * What goes beyond is refused at once: an offer is dropped as QUOTA, a raise returns -EDQUOT.
 * Timers have a rate of their own, far below that of raises: they expire in an interrupt, which
 * takes its time from whoever runs there.
 *
 * A row may be given to another uid once nothing names it; `queued` and `timers` are true at every
 * moment and are never set by the host.
 */
#ifndef ECALLS_USER_H
#define ECALLS_USER_H

#include "version.h"

struct ecalls_user {
	/* line 0: written by the host */
	ecalls_u32 state;	     /* ECALLS_STATE_*: ACTIVE or FREE; host only */
	ecalls_u32 uid;		     /* whose row it is; row 0: nobody's */
	ecalls_u64 up_per_s;	     /* events offered to its subscriptions */
	ecalls_u64 raise_per_s;	     /* events it raises by calls and by timers */
	ecalls_u64 handler_ns_per_s; /* time of its kernel handlers; a tenth of it at once */
	ecalls_u32 up_burst;	     /* at most 65536; 0 counts as 1 */
	ecalls_u32 raise_burst;	     /* at most 65536; 0 counts as 1 */
	ecalls_u32 queued_max;	     /* events and chains of its that may wait in queues */
	ecalls_u32 timers_max;	     /* timers of its channels */
	ecalls_u64 timer_per_s;	     /* times that its timers are set, or expire again */
	ecalls_u32 timer_burst;	     /* at most 65536; 0 counts as 1 */
	ecalls_u32 pad0;
	/* line 1: written by the kernel side, as all below */
	ecalls_u64 up_tat;	 /* bucket of up_per_s */
	ecalls_u64 offered;	 /* offers to its subscriptions, those refused included */
	ecalls_u64 up_throttled; /* of them refused */
	ecalls_u64 pad1[5];
	/* line 2 */
	ecalls_u64 raise_tat;	     /* bucket of raise_per_s */
	ecalls_u64 raised;	     /* raises, those refused included */
	ecalls_u64 raise_throttled;  /* of them refused for their rate */
	ecalls_u64 queue_throttled;  /* events and chains refused because queued_max waited */
	ecalls_u64 timers_throttled; /* timers refused because it had timers_max */
	ecalls_u32 queued;	     /* events and chains that wait now */
	ecalls_u32 timers;	     /* timers that its channels have set, or had when they ended */
	ecalls_u64 timer_tat;	     /* bucket of timer_per_s */
	ecalls_u64 timer_throttled;  /* settings refused, and expiries put off, for their rate */
	/* line 3 */
	ecalls_u64 handler_tat; /* bucket of handler_ns_per_s */
	ecalls_u64 handler_ns;	/* time that its kernel handlers took; counted while limited */
	ecalls_u64 handler_throttled; /* runs of handlers refused */
	ecalls_u64 pad3[5];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_user) == 256, "user");

#endif
