/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records of the events that were not delivered (abi/fate.h). Written where the loss happens, in
 * any context; never for an event that is delivered.
 */
#ifndef ECALLS_EVENT_FATE_H
#define ECALLS_EVENT_FATE_H

#include "identity.h"
#include "queue.h"

/* Whether to record that a handler ended a chain, `said` with a reason. This is the normal work of
 * filters, so it must cost little, and must not overwrite the records of losses. */
static __always_inline bool fate_filtered(struct current *c, bool said, u64 now_ns) {
	u64 *last_ns = said ? &c->fate.said_ns : &c->fate.filtered_ns;

	if (now_ns - *last_ns < ECALLS_FATE_SELDOM_NS)
		return false;
	*last_ns = now_ns;
	return true;
}

/* Outcome, reason, stage and action in one word. */
#define FATE(what, reason, stage, action)                                                          \
	((u32)(what) | (u32)(reason) << 8 | (u32)(stage) << 16 | (u32)(action) << 24)

/* This CPU's next record, claimed but not yet written; NULL for a record about limits so soon after
 * another one. */
static __always_inline struct ecalls_fate *fate_place(u32 fate, u64 now_ns, u64 *position) {
	struct ecalls_fate *place;
	struct current *c;
	u32 zero = 0, at;

	c = bpf_map_lookup_elem(&current_events, &zero);
	if (!c)
		return 0;
	if ((fate >> 8 & 0xff) == ECALLS_DROP_QUOTA) {
		if (now_ns - c->fate.quota_ns < ECALLS_FATE_SELDOM_NS)
			return 0;
		c->fate.quota_ns = now_ns;
	}
	*position = __sync_fetch_and_add(&c->fate.count, 1);
	at = bpf_get_smp_processor_id() * ECALLS_FATES + (*position & (ECALLS_FATES - 1));
	place = bpf_map_lookup_elem(&fates, &at);
	if (place)
		/* A full barrier: no reader takes the new contents for those of the former
		 * record. */
		__sync_lock_test_and_set(&place->sequence, 0);
	return place;
}

/* Writes the identity of an event; the caller writes the times, then calls fate_finish(). */
static __always_inline void fate_write(struct ecalls_fate *place, u32 service, u32 kind, u32 pid,
				       u32 uid, u32 fate) {
	place->pid = pid;
	place->uid = uid;
	place->service = service;
	place->kind = kind;
	place->what = fate & 0xff;
	place->reason = fate >> 8 & 0xff;
	place->stage = fate >> 16 & 0xff;
	place->action = fate >> 24;
}

static __always_inline u64 fate_deadline(u32 flags, u64 deadline_ns) {
	return flags & ECALLS_EVENT_SOFT ? 0 : deadline_ns;
}

static __always_inline void fate_finish(struct ecalls_fate *place, u64 position) {
	__sync_lock_test_and_set(&place->sequence, position + 1);
}

/* Records the fate of an event for one subscription. */
__noinline int fate_note(const struct ecalls_event *e, u32 subscription, u32 fate) {
	u64 now_ns = bpf_ktime_get_ns(), position = 0;
	struct ecalls_fate *place = fate_place(fate, now_ns, &position);

	if (!place || !e)
		return 0;
	fate_write(place, e->service, e->kind, event_process(e), e->uid, fate);
	place->event = e->id;
	place->when_ns = now_ns;
	place->raise_ns = e->raise_ns;
	place->release_ns = e->release_ns;
	place->deadline_ns = fate_deadline(e->flags, e->deadline_ns);
	place->subscription = subscription;
	fate_finish(place, position);
	return 0;
}

/* The same for an event that was displaced from a queue: for all matching subscriptions, or for the
 * one whose chain it was. */
__noinline int fate_evicted(const struct evicted *v, u32 fate) {
	u64 now_ns = bpf_ktime_get_ns(), position = 0;
	struct ecalls_fate *place = fate_place(fate, now_ns, &position);

	if (!place || !v)
		return 0;
	fate_write(place, v->service, v->match.kind, v->match.pid, v->match.uid, fate);
	place->event = v->id;
	place->when_ns = now_ns;
	place->raise_ns = v->raise_ns;
	place->release_ns = v->release_ns;
	place->deadline_ns = fate_deadline(v->flags, v->deadline_ns);
	place->subscription = v->flags & ECALLS_EVENT_RESUME ? v->subscription : 0;
	fate_finish(place, position);
	return 0;
}

/* The same for a raise that was refused. `pid` 0: of the current process. */
__noinline int fate_refused(u32 service, u32 kind, u32 pid, u32 uid, u32 fate) {
	u64 now_ns = bpf_ktime_get_ns(), position = 0;
	struct ecalls_fate *place = fate_place(fate, now_ns, &position);

	if (!place)
		return 0;
	if (!pid) {
		const struct task_struct *task = bpf_get_current_task_btf();
		pid = task->tgid;
		uid = uid_of(task);
	}
	fate_write(place, service, kind, pid, uid, fate);
	place->event = 0;
	place->when_ns = now_ns;
	place->raise_ns = now_ns;
	place->release_ns = 0;
	place->deadline_ns = 0;
	place->subscription = 0;
	fate_finish(place, position);
	return 0;
}

#endif
