/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Readiness that is told once: an event for one subscription alone, whose slots are of use READY
 * (abi/channel.h) and hold an event that was not read, is counted instead of raised. So a source
 * that becomes ready again and again costs little until its reader comes.
 *
 * A service that gives the process and the user of its events (struct raise) asks here before it
 * fills in their data. What is not decided here (other subscriptions, a user's rate, a reader that
 * sleeps), the put into memory decides likewise.
 */
#ifndef ECALLS_EVENT_READY_H
#define ECALLS_EVENT_READY_H

#include "memory.h"
#include "request.h"

/* Counts the event for the subscription, if it has been told. Returns 1 if so. It gets the parts of
 * struct raise by value, since clang would otherwise keep the whole in memory for the callers. */
__noinline int ready_told(u32 index, u32 service_kind, u32 type, s32 target, u64 pid_uid) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);

	if (!s || !s->ready || s->user)
		return 0;
	if (!subscription_matches(s, service_kind >> 5, service_kind & 31, target, pid_uid >> 32,
				  (u32)pid_uid))
		return 0;
	if (!memory_is_told(s->ready, type))
		return 0;
	drop_for_subscription(index, s->channel, ECALLS_DROP_REPLACED, true);
	return 1;
}

/* Whether the event adds nothing to what the only subscription of its service has been told. It is
 * counted then, and need not be raised. */
static __always_inline bool ready_is_told(const struct ecalls_service *s, const struct raise *r) {
	u32 list = *(volatile const u32 *)&s->active & 1;
	struct ecalls_service_count *n;

	if (!*(volatile const u32 *)&s->ready || s->count[list] != 1 ||
	    *(volatile const u32 *)&s->own)
		return false;
	n = count_of_service(r->service);
	if (!n || !ready_told(s->list[list][0], r->service << 5 | (r->kind & 31), r->type,
			      r->target, (u64)r->pid << 32 | r->uid))
		return false;
	__sync_fetch_and_add(&n->raised, 1);
	__sync_fetch_and_add(&n->dropped[ECALLS_DROP_REPLACED], 1);
	return true;
}

#endif
