/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The operations of downcalls: one function per operation (ECALLS_OP_*), the same for fast,
 * deferred and generic calls.
 *
 * The operations on attributes take a few instructions and are inline. The others are separate
 * functions that are verified once. Events carry the channel's owner, not the current task, because
 * a deferred call may be handled in any context.
 *
 * Every caller runs with preemption off.
 */
#ifndef ECALLS_OPERATION_H
#define ECALLS_OPERATION_H

#include "right.h"
#include "down.h"
#include "service/timer.h"

static __always_inline s64 attribute_set(u32 index, u64 number, u64 value) {
	struct attributes *a = bpf_map_lookup_elem(&attributes, &index);

	if (!a || number >= ECALLS_ATTRIBUTES)
		return -EINVAL;
	*(volatile u64 *)&a->value[number & (ECALLS_ATTRIBUTES - 1)] = value;
	return 0;
}

static __always_inline s64 attribute_get(u32 index, u64 number) {
	struct attributes *a = bpf_map_lookup_elem(&attributes, &index);

	if (!a || number >= ECALLS_ATTRIBUTES)
		return -EINVAL;
	return *(volatile u64 *)&a->value[number & (ECALLS_ATTRIBUTES - 1)];
}

/* ECALLS_OP_RAISE. Returns the number of subscriptions to which the event was offered or, if it was
 * queued, that matched it when it was raised. */
__noinline int down_raise(const struct downcall *call) {
	struct ecalls_channel *ch;
	struct ecalls_service *s;
	struct raise r = {};
	u32 index;
	u64 data;
	int result;

	if (!call)
		return -EINVAL;
	index = ECALLS_ID_INDEX(call->channel);
	ch = bpf_map_lookup_elem(&channels, &index);
	if (!ch)
		return -EINVAL;
	r.service = call->a & 0xffff;
	r.kind = (call->a >> 16) & 0xffff;
	r.target = (s32)call->b;
	r.size = sizeof(u64);
	r.flags = RAISE_METERED | (call->how & DOWN_LOCKED ? RAISE_LOCKED : 0);
	r.user = ch->user;
	r.pid = ch->owner;
	r.uid = ch->uid;
	data = call->c;
	s = service_of(r.service, ch->owner, ch->owner_start, ch->uid);
	if (!s)
		return -EPERM;
	if (r.kind > 31)
		return -EINVAL;
	result = raise(&r, &data, 1);
	return result ? result : subscribers(r.service, r.kind, r.target, r.pid, r.uid);
}

/* Whether the action before `action` hands the chain to this channel. */
static __always_inline bool resumable(const struct ecalls_subscription *s, u32 id, u32 action,
				      const struct ecalls_channel *ch) {
	const struct ecalls_action *before = action_of(s, action - 1);

	return s->id == id && *(volatile u32 *)&s->state == ECALLS_STATE_ACTIVE &&
	       (s->owner == ch->owner || s->receiver == ch->owner) && action > 0 &&
	       action < s->actions && before->kind == ECALLS_ACTION_USER &&
	       before->channel == ch->id;
}

/* Makes a chain's event from the entry in the application's ring. The application may have changed
 * that entry, so fields that could harm other users are written again. */
static __always_inline void resume_fill(struct ecalls_event *e, const struct ecalls_event *place,
					const struct downcall *call,
					const struct ecalls_channel *ch, u32 service) {
	__builtin_memcpy(e, place, sizeof(*e));
	e->sequence = call->c;
	e->raise_ns = bpf_ktime_get_ns();
	e->release_ns = 0;
	e->service = service;
	e->kind &= 31;
	e->flags = (e->flags & ECALLS_EVENT_CPU) | ECALLS_EVENT_RESUME;
	e->pid = ch->owner;
	e->tid = ch->owner;
	e->uid = ch->uid;
	e->cpu = bpf_get_smp_processor_id();
	e->size = e->size < ECALLS_DATA_LARGE ? e->size : ECALLS_DATA_LARGE;
	e->subscription = (u32)call->a;
}

/* The same for the data beyond the record. Without a free place the event is dropped (rest.h). */
static __noinline int resume_rest(void *up, u32 position, u32 mask, struct ecalls_event *e,
				  u32 of_user) {
	struct current *c = current_cpu();
	u32 place = rest_take(of_user), bytes = rest_bytes(e->size), at, i;
	struct rest *to = rest_at(place);

	if (!c || !to)
		return 0;
	at = c->zero;
	i = 1 ^ c->zero;
	for (u32 round = 0; lib_again(round, REST_WORDS / REST_ENTRY_WORDS);) {
		u32 element = ECALLS_UP_EVENTS + ((position + i) & mask);
		u64 *from = bpf_map_lookup_elem(up, &element);
		if (!from || at * 8 >= bytes || at > REST_WORDS - REST_ENTRY_WORDS)
			break;
#pragma unroll
		for (int word = 0; word < REST_ENTRY_WORDS; word++)
			to->word[at + word] = from[1 + word];
		i = (i + 1) ^ c->zero;
		at = (at + REST_ENTRY_WORDS) ^ c->zero;
	}
	rest_place_set(e, place);
	return 0;
}

/* Queues that event by way of this CPU's stack of events (see maps.h). Returns -ENOENT if its
 * position in the ring was taken again during the copy, which precedes any store to the entry. */
static __always_inline int resume_queue(void *up, const struct ecalls_event *place,
					const struct ecalls_up *head, const struct downcall *call,
					const struct ecalls_channel *ch, u32 service) {
	u32 cpu = bpf_get_smp_processor_id();
	struct current *c = current_cpu();
	struct ecalls_event *e;
	int result, waits = 0;
	u32 level;

	if (!c)
		return -EINVAL;
	level = *(volatile u32 *)&c->nesting;
	if (level >= NESTED_EVENTS)
		return -EAGAIN;
	if (ch->user)
		waits = user_queue(ch->user);
	if (waits == USER_FULL)
		return -EDQUOT;
	c->nesting = level + 1;
	barrier();
	e = &c->nested[level];
	resume_fill(e, place, call, ch, service);
	e->flags |= (u32)waits;
	if (e->size > ECALLS_DATA_INLINE && e->size <= ECALLS_DATA_MAX)
		resume_rest(up, (u32)call->b, ch->capacity - 1, e, ch->user);
	barrier();
	result = -ENOENT;
	if (*(volatile u64 *)&head->back - call->b <= ch->capacity)
		result = raise_queued(e, cpu, e->raise_ns);
	else {
		user_unqueue(e->flags);
		rest_drop(e);
	}
	barrier();
	c->nesting = level;
	drain(cpu, call->how & DOWN_LOCKED);
	return result;
}

/* ECALLS_OP_RESUME: continues a chain with the event at position `b` of the channel's ring. */
__noinline int down_resume(const struct downcall *call) {
	const struct ecalls_event *place;
	struct ecalls_subscription_count *n;
	struct ecalls_subscription *s;
	struct ecalls_channel *ch;
	u32 index, at, element, zero = 0;
	struct ecalls_up *head;
	int result = -ENOENT;
	void *up;

	if (!call)
		return -EINVAL;
	at = ECALLS_ID_INDEX(call->channel);
	index = ECALLS_ID_INDEX((u32)call->a);
	ch = bpf_map_lookup_elem(&channels, &at);
	up = bpf_map_lookup_elem(&ups, &at);
	s = bpf_map_lookup_elem(&subscriptions, &index);
	n = count_of(index);
	if (!ch || !up || !s || !n || ch->layout != ECALLS_LAYOUT_RING)
		return -EINVAL;
	if (call->c >= ECALLS_ACTIONS_MAX || !resumable(s, (u32)call->a, (u32)call->c, ch))
		return -EPERM;
	element = ECALLS_UP_EVENTS + (u32)(call->b & (ch->capacity - 1));
	place = bpf_map_lookup_elem(up, &element);
	head = bpf_map_lookup_elem(up, &zero);
	__sync_fetch_and_add(&n->offered, 1);
	if (ch->user && !user_raise(ch->user, bpf_ktime_get_ns(), 1))
		result = -EDQUOT;
	else if (place && head && *(volatile u64 *)&place->sequence == call->b + 1)
		result = resume_queue(up, place, head, call, ch, s->service);
	/* The ring has overtaken a slow handler: the event of its chain was overwritten. */
	if (result == -ENOENT)
		drop_for_subscription(index, s->channel, ECALLS_DROP_RING_FULL, false);
	else if (result == -EDQUOT)
		drop_for_subscription(index, s->channel, ECALLS_DROP_QUOTA, false);
	else if (result == -EAGAIN || result == -EINVAL)
		__sync_fetch_and_sub(&n->offered, 1);
	return result;
}

/* The calls that take more than a few instructions. */
static __always_inline s64 downcall_more(const struct downcall *call) {
	switch (call->op) {
	case ECALLS_OP_RAISE:
		return down_raise(call);
	case ECALLS_OP_RESUME:
		return down_resume(call);
	case ECALLS_OP_TIMER:
		if (call->how & DOWN_LOCKED)
			return -EAGAIN;
		return timer_set(call->channel, (u32)call->a, call->b, call->c);
	default:
		return -EINVAL;
	}
}

#endif
