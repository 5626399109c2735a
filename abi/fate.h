/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Fates: records of the events that were not delivered (`ecalls explain`).
 *
 * The kernel side writes a note for each late, dropped or filtered event, where that happens; a
 * delivered event has no such cost. There is a ring of ECALLS_FATES notes per CPU: element
 * cpu * ECALLS_FATES + (position % ECALLS_FATES) of the map `fates`, in which the newest note
 * replaces the oldest one. So the notes are incomplete: they hold the latest losses only, whereas
 * the counters hold all. Refusals because of a limit, and events filtered by handlers, are noted at
 * most once in ECALLS_FATE_SELDOM_NS each per CPU, so that a user who floods does not overwrite the
 * notes of others, and a filter costs nothing. Events filtered with a reason are noted separately
 * from events filtered without one.
 *
 * Reading: copy the element if its sequence is not 0, and use the copy if the sequence is still
 * the same. Only the host reads it.
 */
#ifndef ECALLS_FATE_H
#define ECALLS_FATE_H

#include "version.h"

#define ECALLS_FATES 1024u	       /* notes per CPU; a power of two */
#define ECALLS_FATE_SELDOM_NS 1000000u /* between two notes about limits, or about filters */

#define ECALLS_FATE_LATE 1u	    /* its deadline had passed */
#define ECALLS_FATE_DROPPED 2u	    /* see `reason` */
#define ECALLS_FATE_FILTERED 3u	    /* a kernel handler ended the chain */
#define ECALLS_FATE_FILTERED_FOR 4u /* the same by drop() of E-code, with its `reason` */

/* Where it happened. */
#define ECALLS_STAGE_RAISE 1u /* before it became an event: it has no id */
#define ECALLS_STAGE_QUEUE 2u /* in a queue, or on the way into one */
#define ECALLS_STAGE_OFFER 3u /* when it was offered to a subscription */
#define ECALLS_STAGE_TIMER 5u /* when a timer expired: it has no id */
#define ECALLS_STAGE_CHAIN 4u /* in a subscription's chain, at `action` */

struct ecalls_fate {
	ecalls_u64 sequence; /* position + 1 once complete; 0: being written, or never used */
	ecalls_u64 event;    /* its id; 0: it had none */
	ecalls_u64 when_ns;
	ecalls_u64 raise_ns;
	ecalls_u64 release_ns;
	ecalls_u64 deadline_ns;	 /* as it held for the subscription */
	ecalls_u32 subscription; /* id; 0: all subscriptions that matched */
	ecalls_u32 uid;		 /* of the event */
	ecalls_u32 pid;		 /* of the event */
	ecalls_u16 service;
	ecalls_u8 kind;
	ecalls_u8 what;	  /* ECALLS_FATE_LATE, .. */
	ecalls_u8 reason; /* DROPPED: ECALLS_DROP_*; FILTERED_FOR: what drop() was given */
	ecalls_u8 stage;  /* ECALLS_STAGE_RAISE, .. */
	ecalls_u8 action;
	ecalls_u8 pad[5];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_fate) == 72, "fate");

#endif
