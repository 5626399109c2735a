/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that read a channel's events: when an event has requested the CPU (event/sink.h), it is
 * reported to the policy, which may let the thread run earlier (lib/sched/overlay.h).
 *
 * An event is reported when the thread becomes ready, which is after the event was recorded; for a
 * thread that waits already, it is reported at each choice. A thread that has run has read its
 * events.
 */
#ifndef ECALLS_SCHED_SINK_H
#define ECALLS_SCHED_SINK_H

#include "heir.h"

/* The first event that waits for a thread, if the thread still reads `channel`. */
static __always_inline struct event_sink *sink_of(u32 channel, u32 tid) {
	u32 index = ECALLS_ID_INDEX(channel);
	struct event_sink *sink = bpf_map_lookup_elem(&event_sinks, &index);

	if (!channel || !sink || *(volatile u32 *)&sink->channel != channel)
		return 0;
	order_loads();
	return tid && sink->tid != tid ? 0 : sink;
}

/* The running thread, which is an entity, begins or stops to read events. */
static __always_inline void sink_named(struct sched_task *t, u32 cpu, u32 tid) {
	struct sched_places *places = places_of(cpu);

	t->sink = tid;
	if (!places || t->entity >= SCHED_ENTITIES)
		return;
	places->sinks &= ~sched_bit(t->entity);
	if (!tid)
		return;
	places->sinks |= sched_bit(t->entity);
	places->channel[sched_at(t->entity)] = t->channel;
}

/* The thread begins to wait. The order of the two steps matters: the dispatcher checks whether the
 * thread waits after it has recorded an event. */
static __always_inline void sink_waits(const struct sched_task *t, u32 cpu, struct sched_cpu *c) {
	struct event_sink *sink = t->sink ? sink_of(t->channel, t->sink) : 0;
	u64 deadline_ns;

	if (!sink)
		return;
	*(volatile u32 *)&sink->waits = cpu + 1;
	deadline_ns = __sync_lock_test_and_set(&sink->deadline_ns, 0);
	if (deadline_ns)
		overlay_event(c, t->entity, deadline_ns);
}

/* The thread has the CPU, or has had it until now: it reads its events itself. */
static __always_inline void sink_looks(const struct sched_task *t) {
	struct event_sink *sink = t->sink ? sink_of(t->channel, t->sink) : 0;

	if (!sink)
		return;
	*(volatile u32 *)&sink->waits = 0;
	__sync_lock_test_and_set(&sink->deadline_ns, 0);
}

/* The thread no longer waits, and an event may be recorded for the next time. */
static __always_inline void sink_leaves(const struct sched_task *t) {
	struct event_sink *sink = t->sink ? sink_of(t->channel, t->sink) : 0;

	if (sink)
		*(volatile u32 *)&sink->waits = 0;
}

/* Before a choice: reports the events of waiting threads to the policy. */
__noinline int sink_events(u32 cpu, struct sched_cpu *c LIB_NONNULL) {
	struct sched_places *places = places_of(cpu);
	u64 left;

	if (!places)
		return 0;
	left = places->sinks & c->runnable;
	for (u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (!left)
			break;
		u32 i = sched_next(&left);
		struct event_sink *sink = sink_of(places->channel[sched_at(i)], 0);
		if (!sink || sink->waits != cpu + 1)
			continue;
		u64 deadline_ns = __sync_lock_test_and_set(&sink->deadline_ns, 0);
		if (deadline_ns)
			overlay_event(c, i, deadline_ns);
	}
	return 0;
}

/* Reads what the running thread has named: a slot, another group, events, or a window. */
__noinline int look_for_binding(struct task_struct *p __arg_trusted,
				struct sched_task *t LIB_NONNULL, u32 cpu, u64 now) {
	struct coop_thread *thread = binding_thread(p);
	struct coop_binding *own = thread && thread->own.channel ? &thread->own : 0;
	struct coop_binding *handed = thread && !own ? binding_handed(p, thread) : 0;
	struct coop_binding *binding = own ? own : handed;

	if (!binding) {
		heir_enters(p, t, cpu, now);
		return 0;
	}
	order_loads();
	if (t->entity < SCHED_ENTITIES && (t->group != binding->group || t->uid != binding->uid))
		come_out(t, cpu, now);
	if (t->entity >= SCHED_ENTITIES) {
		watch_enters(p, cpu, now);
		enter(t, cpu, now, binding);
	}
	/* No place was free, and one may be when it runs next. */
	if (t->entity >= SCHED_ENTITIES)
		t->bindings = SCHED_NEVER;
	if (handed)
		heir_is_given(t, handed);
	heir_has_slot(t, cpu);
	t->channel = binding->channel;
	t->slot = binding->slot;
	sink_named(t, cpu, binding->sink ? p->pid : 0);
	if (t->wishes != binding->wishes)
		window_wish(t, cpu, now, binding);
	return 0;
}

/* Whether a thread may have named something since it was looked at last. */
static __always_inline bool binding_is_new(const struct sched_task *t) {
	volatile u64 *changes = coop_changes_at();

	return t->bound || (changes && t->bindings != *changes);
}

/* It is looked at next: a change that comes meanwhile counts as a later one. */
static __always_inline void binding_is_known(struct sched_task *t) {
	volatile u64 *changes = coop_changes_at();

	t->bindings = changes ? *changes : 0;
}

#endif
