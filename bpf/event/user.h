/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The limits of a user (abi/user.h): charging for use, and refusal when one is used up.
 *
 *   user_offer()	an event offered to one of its subscriptions
 *   user_raise()	an event that it raises; both count an event as often as it has entries
 *   user_handler_*()	the time of a kernel handler
 *   user_queue()	a place in a queue
 *   user_timer()	a timer
 *   user_expiry()	setting a timer, and each further expiry
 *
 * An event carries its user's row in the upper bits of its `flags` as long as it occupies a place
 * in a queue. Code that removes it from the queues, or finds it dropped, releases the place; moving
 * it between queues keeps the place.
 *
 * Row 0 has no limits. `queued` and `timers` are also counted while they have no limit, so that
 * they are correct when they get one. Every function may be called in every context.
 */
#ifndef ECALLS_EVENT_USER_H
#define ECALLS_EVENT_USER_H

#include "maps.h"
#include "rate.h"

#define USER_FLAGS (~0u << ECALLS_EVENT_USER_SHIFT)

static __always_inline struct ecalls_user *user_of(u32 row) {
	return row ? bpf_map_lookup_elem(&users, &row) : 0;
}

/* Whether a row still belongs to this user, for references that the host does not know. */
static __always_inline bool user_is(u32 row, u32 uid) {
	struct ecalls_user *u = user_of(row);

	return !row || (u && u->uid == uid && *(volatile u32 *)&u->state == ECALLS_STATE_ACTIVE);
}

/* Takes an event of that many entries (abi/event.h) from a rate of events with one, which is not
 * 0. */
static __always_inline bool user_takes(u64 *bucket, u64 now_ns, u64 per_s, u32 burst, u32 entries) {
	u64 interval_ns = SECOND_NS / per_s;

	if (entries > 1) {
		interval_ns *= entries;
		burst /= entries;
	}
	return interval_takes(bucket, now_ns, interval_ns, burst);
}

/* Returns 1 if an event of that many entries may be offered; 0: the limit is reached. */
__noinline int user_offer(u32 row, u64 now_ns, u32 entries) {
	struct ecalls_user *u = user_of(row);
	u64 per_s;

	if (!u)
		return 1;
	__sync_fetch_and_add(&u->offered, 1);
	per_s = *(volatile u64 *)&u->up_per_s;
	if (!per_s || user_takes(&u->up_tat, now_ns, per_s, u->up_burst, entries))
		return 1;
	__sync_fetch_and_add(&u->up_throttled, 1);
	return 0;
}

/* Returns 1 if an event of that many entries may be raised; 0: the limit is reached. */
__noinline int user_raise(u32 row, u64 now_ns, u32 entries) {
	struct ecalls_user *u = user_of(row);
	u64 per_s;

	if (!u)
		return 1;
	__sync_fetch_and_add(&u->raised, 1);
	per_s = *(volatile u64 *)&u->raise_per_s;
	if (!per_s || user_takes(&u->raise_tat, now_ns, per_s, u->raise_burst, entries))
		return 1;
	__sync_fetch_and_add(&u->raise_throttled, 1);
	return 0;
}

/* The start of a handler of a user whose handlers have a budget. Returns 0 if it has none; 1 if it
 * is used up, and the handler must not run. */
__noinline u64 user_handler_begin(u32 row) {
	struct ecalls_user *u = user_of(row);
	u64 now_ns;

	if (!u || !*(volatile u64 *)&u->handler_ns_per_s)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (budget_left(*(volatile u64 *)&u->handler_tat, now_ns))
		return now_ns;
	__sync_fetch_and_add(&u->handler_throttled, 1);
	return 1;
}

/* The handler that began at `begin_ns` has ended. */
__noinline int user_handler_end(u32 row, u64 begin_ns) {
	struct ecalls_user *u = user_of(row);
	u64 now_ns = bpf_ktime_get_ns(), used_ns;

	if (!u)
		return 0;
	used_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
	__sync_fetch_and_add(&u->handler_ns, used_ns);
	budget_takes(&u->handler_tat, begin_ns, used_ns, u->handler_ns_per_s);
	return 0;
}

/* A place in a queue: returns the bits for the event's flags, 0 for row 0; USER_FULL: no place. */
#define USER_FULL 1
__noinline int user_queue(u32 row) {
	struct ecalls_user *u = user_of(row);
	u32 before, max;

	if (!u)
		return 0;
	before = __sync_fetch_and_add(&u->queued, 1);
	max = *(volatile u32 *)&u->queued_max;
	if (!max || before < max)
		return row << ECALLS_EVENT_USER_SHIFT;
	__sync_fetch_and_sub(&u->queued, 1);
	__sync_fetch_and_add(&u->queue_throttled, 1);
	return USER_FULL;
}

/* Releases the place that these flags denote. */
static __always_inline void user_unqueue(u32 flags) {
	struct ecalls_user *u = user_of(flags >> ECALLS_EVENT_USER_SHIFT);

	if (u)
		__sync_fetch_and_sub(&u->queued, 1);
}

/* Returns 1 if a timer may be set, or continue after its expiry; 0: the limit is reached. */
__noinline int user_expiry(u32 row, u64 now_ns) {
	struct ecalls_user *u = user_of(row);
	u64 per_s;

	if (!u)
		return 1;
	per_s = *(volatile u64 *)&u->timer_per_s;
	if (!per_s || rate_takes(&u->timer_tat, now_ns, per_s, u->timer_burst))
		return 1;
	__sync_fetch_and_add(&u->timer_throttled, 1);
	return 0;
}

/* Counts a timer. Returns false if the user's limit is reached. */
static __always_inline bool user_timer(u32 row) {
	struct ecalls_user *u = user_of(row);
	u32 before, max;

	if (!u)
		return true;
	before = __sync_fetch_and_add(&u->timers, 1);
	max = *(volatile u32 *)&u->timers_max;
	if (!max || before < max)
		return true;
	__sync_fetch_and_sub(&u->timers, 1);
	return false;
}

static __always_inline void user_timer_end(u32 row) {
	struct ecalls_user *u = user_of(row);

	if (u)
		__sync_fetch_and_sub(&u->timers, 1);
}

static __always_inline void user_timer_refused(u32 row) {
	struct ecalls_user *u = user_of(row);

	if (u)
		__sync_fetch_and_add(&u->timers_throttled, 1);
}

#endif
