/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a service gives to raise(): the event's properties, and the address of the data that are
 * beyond its record (rest.h).
 *
 * Those data are read once, in raise(): into `current` if the event is delivered at once, into a
 * place of this CPU's if it is queued. Failures: -EFAULT if they are not in memory now.
 */
#ifndef ECALLS_EVENT_REQUEST_H
#define ECALLS_EVENT_REQUEST_H

#include "rest.h"

/* Flags of raise(), in addition to ECALLS_EVENT_CPU and ECALLS_EVENT_HOST. */
#define RAISE_LOCKED 0x10000u	  /* called under a scheduler lock: start no timer, no thread */
#define RAISE_QUEUED 0x20000u	  /* always through the queue (measurements, tests) */
#define RAISE_METERED 0x80000u	  /* charged to the rate of `user`: a call of an application */
#define RAISE_NO_PID 0x40000u	  /* no process is known: `pid` is 0, `uid` is given */
#define RAISE_REST_USER 0x100000u /* `rest` is in the current task's memory */

struct raise {
	u32 service;
	u32 kind;
	u32 type;
	u32 priority;
	s32 target;
	u32 flags;
	u32 size;	 /* bytes of data in use */
	u32 pid;	 /* process that raises; 0: the current one; with ECALLS_EVENT_HOST, */
	u32 tid;	 /* and only then: as in the event */
	u32 uid;	 /* with pid or RAISE_NO_PID: its user, as in identity.h */
	u32 user;	 /* row of abi/user.h in which it is counted while queued; 0: in none */
	u64 deadline_ns; /* absolute, 0: the subscriptions' own */
	u64 release_ns;	 /* absolute, 0: at once */
	u64 rest;	 /* address of the data beyond ECALLS_DATA_INLINE bytes; 0: none */
};

/* Whether the caller gives the event's process; else it is the current one. */
static __always_inline bool is_given(const struct raise *r) {
	return r->pid || r->flags & RAISE_NO_PID;
}

/* Whether the event has more data than its record holds. Services whose events never have any pay
 * nothing: their `rest` is the constant 0. */
static __always_inline bool raise_has_rest(const struct raise *r) {
	return r->rest && r->size > ECALLS_DATA_INLINE;
}

/* Whether some of them stay in the memory of the task that raises it (rest.h). */
static __always_inline bool raise_is_far(const struct raise *r) {
	return r->flags & RAISE_REST_USER && r->size > ECALLS_DATA_MAX;
}

/* The most data that an event may have, if the caller gives the first `bytes`. */
static __always_inline u32 raise_max(const struct raise *r, u32 bytes) {
	if (!r->rest)
		return bytes;
	return r->flags & RAISE_REST_USER && !r->release_ns ? ECALLS_DATA_LARGE : ECALLS_DATA_MAX;
}

/* Reads the rest of an event that is delivered at once. */
static __always_inline int raise_rest(struct current *c, const struct raise *r) {
	if (!(r->flags & RAISE_REST_USER))
		return rest_read(&c->rest, r->size, r->rest, false);
	if (raise_is_far(r))
		rest_far(c, r->rest);
	return rest_read_current(r->size, r->rest);
}

/* Reads the rest of an event that will be queued into a place. Returns 0, also if there is no place
 * (queue_add() drops the event then), or -EFAULT. */
static __always_inline int raise_rest_queued(struct ecalls_event *e, const struct raise *r) {
	struct rest *to;
	int place;

	if (r->flags & RAISE_REST_USER) {
		place = rest_read_place(r->size, r->rest, !!r->user);
		if (place < 0)
			return place;
	} else {
		place = rest_take(!!r->user);
		to = rest_at(place);
		if (to)
			rest_read(to, r->size, r->rest, false);
	}
	rest_place_set(e, place);
	return 0;
}

#endif
