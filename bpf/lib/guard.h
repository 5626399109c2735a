/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rule of the guard against overload (ECalls-01 §3.4): whether a server gets one more
 * connection.
 *
 * Two criteria, each with two thresholds, all derived from the one target that the user gives:
 *   - the wait ahead: the connections that the server has not accepted yet, times the server's
 *     pace, i.e. what a connection would wait that came now. Of handshakes at most as many count
 *     as are queued: those of a flood never end, and the server does not wait for them;
 *   - the age: how long the connection at the head of the queue has waited already.
 * Refusing begins when both are above their upper thresholds, and ends when one is below its lower
 * one. A burst that the server takes in time has a wait but no age; one old connection behind which
 * nobody waits has an age but no wait.
 *
 * The pace is the time between two accepts. It is measured only while the queue was never empty: an
 * idle server accepts as slowly as connections come, and that says nothing about it. A server that
 * has stopped accepting is as slow as the time since it last did.
 *
 * Callers on several CPUs may run at once without a lock: a lost update of the pace costs one
 * sample.
 */
#ifndef ECALLS_GUARD_H
#define ECALLS_GUARD_H

#include "abi/version.h"
#include "portable.h"

#define GUARD_SAMPLE_NS 100000000ull	    /* a sample of the pace is complete after this time, */
#define GUARD_SAMPLE_ACCEPTS 8		    /* or this number of accepts */
#define GUARD_ELAPSED_MAX_NS 60000000000ull /* a pace is at most this */
#define GUARD_FORGET_NS 1000000000ull	    /* without a look the pace is unknown again */

/* What the queue looks like when a connection comes. */
struct guard_look {
	ecalls_u64 now_ns;
	ecalls_u64 age_ns;   /* 0: the queue is empty */
	ecalls_u64 accepted; /* by the server, in total */
	ecalls_u64 queued;   /* connections that wait to be accepted */
	ecalls_u64 begun;    /* handshakes, which will be queued when they end */
};

struct guard_pace {
	ecalls_u64 pace_ns;	   /* 0: unknown */
	ecalls_u64 begin_ns;	   /* of the present sample; 0: there is none */
	ecalls_u64 begin_accepted; /* when it began */
	ecalls_u64 last_ns;	   /* the last look at a queue that was not empty: when it was, */
	ecalls_u64 last_accepted;  /* and what it found */
	ecalls_u64 last_queued;
};

/* Learns from a look; returns the wait ahead. `tick_ns` is the error of ages. */
LIB_INLINE ecalls_u64 guard_wait(struct guard_pace *pace, const struct guard_look *look,
				 ecalls_u64 tick_ns) {
	ecalls_u64 accepts, elapsed_ns, sample_ns, pace_ns = pace->pace_ns;
	ecalls_u64 begun = look->begun < look->queued ? look->begun : look->queued;
	ecalls_u64 waiting = look->queued + begun;
	_Bool never_empty;

	if (!look->age_ns) {
		/* What was seen to be idle is in no sample, even if the next look is wrong by
		 * one: a connection is queued a moment before it is established. */
		pace->begin_ns = 0;
		return 0;
	}
	/* Not all that were queued at the last look were accepted, or the head was there then. */
	never_empty = look->accepted - pace->last_accepted < pace->last_queued ||
		      look->now_ns - look->age_ns + tick_ns <= pace->last_ns;
	if (look->now_ns > pace->last_ns + GUARD_FORGET_NS)
		pace_ns = pace->pace_ns = 0;
	pace->last_ns = look->now_ns;
	pace->last_accepted = look->accepted;
	pace->last_queued = look->queued;
	if (!pace->begin_ns || !never_empty || look->accepted < pace->begin_accepted) {
		pace->begin_ns = look->now_ns;
		pace->begin_accepted = look->accepted;
		return waiting * pace_ns;
	}
	accepts = look->accepted - pace->begin_accepted;
	/* Another CPU may have begun the sample after this look. */
	elapsed_ns = look->now_ns > pace->begin_ns ? look->now_ns - pace->begin_ns : 0;
	if (elapsed_ns > GUARD_ELAPSED_MAX_NS)
		elapsed_ns = GUARD_ELAPSED_MAX_NS;
	if (accepts && (elapsed_ns >= GUARD_SAMPLE_NS || accepts >= GUARD_SAMPLE_ACCEPTS)) {
		sample_ns = elapsed_ns / accepts;
		pace_ns = pace_ns ? (pace_ns + sample_ns) / 2 : sample_ns;
		pace->pace_ns = pace_ns;
		pace->begin_ns = look->now_ns;
		pace->begin_accepted = look->accepted;
		return waiting * pace_ns;
	}
	sample_ns = elapsed_ns / (accepts + 1);
	return waiting * (sample_ns > pace_ns ? sample_ns : pace_ns);
}

/* Whether to refuse, given whether the last one was refused. */
LIB_INLINE _Bool guard_refuses(_Bool refused, ecalls_u64 wait_ns, ecalls_u64 age_ns,
			       ecalls_u64 target_ns) {
	if (refused)
		return wait_ns >= target_ns / 2 && age_ns >= target_ns / 8;
	return wait_ns > target_ns && age_ns > target_ns / 4;
}

#endif
