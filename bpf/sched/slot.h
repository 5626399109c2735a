/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The slot of a thread that polls (abi/coop.h): line 0 is written by the thread, line 1 by the
 * scheduler. The answer to a wish for a window is in line 0, too (wish.h). entry.h describes how a
 * thread becomes an entity that has a slot.
 *
 * A slot is two elements of a channel's segment `down`, in memory of the application, which can
 * write anything there at any time. So each word of line 0 is read when it is used, and is only a
 * request; the policy bounds its effect. The scheduler never reads line 1. When a thread yields or
 * sleeps, take_poll() passes its poll to the policy; when it runs, count_turn() counts its lateness
 * and its violations, and tell() writes what coop_poll returns.
 *
 * Failures: a slot whose channel is gone is neither read nor written (line_of).
 */
#ifndef ECALLS_SCHED_SLOT_H
#define ECALLS_SCHED_SLOT_H

#include "observe.h"
#include "event/coop.h"

/* Line 1 of struct ecalls_coop, which is an element of `down` by itself. */
struct told {
	u64 next_release_ns;
	u64 least_importance;
	u64 slice_end_ns;
	u64 dispatch_ns;
	u64 overran;
	u64 slept;
	u64 ahead;
	u32 state;
	u32 answered;
};
_Static_assert(sizeof(struct told) == sizeof(struct ecalls_downcall) &&
		       __builtin_offsetof(struct ecalls_coop, next_release_ns) ==
			       sizeof(struct told) &&
		       __builtin_offsetof(struct ecalls_coop, answered) ==
			       sizeof(struct told) + __builtin_offsetof(struct told, answered),
	       "line 1 of a slot is one element of `down`");

/* One of the two lines of a slot; 0: the channel is gone. */
static __always_inline void *line_of(u32 channel, u32 slot, u32 line) {
	u32 index = ECALLS_ID_INDEX(channel);
	u32 element = ECALLS_DOWN_COOP + 2 * (slot & (ECALLS_COOP_SLOTS - 1)) + line;
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);
	void *segment;

	if (!channel || !ch || ch->id != channel ||
	    *(volatile u32 *)&ch->state != ECALLS_STATE_ACTIVE)
		return 0;
	segment = bpf_map_lookup_elem(&downs, &index);
	return segment ? bpf_map_lookup_elem(segment, &element) : 0;
}

/* A line of a thread's own slot. */
static __always_inline void *slot_line(const struct sched_task *t, u32 line) {
	return line_of(t->channel, t->slot, line);
}

/* Passes the values in line 0 of the running thread to the policy, if the thread is in a poll. */
static __always_inline void take_poll(struct sched_task *t, struct sched_cpu *c, u64 now) {
	volatile struct ecalls_coop *said = slot_line(t, 0);
	u64 polls;

	if (!said || !(said->flags & ECALLS_COOP_POLLING))
		return;
	polls = said->polls;
	if (polls == t->polls)
		return;
	t->polls = polls;
	SCHED_COUNT(t->cpu, polls);
	seen_polls(t->cpu, t->entity, said->release_ns);
	police_poll(c, t->entity, now, said->release_ns, said->importance);
}

/* Counts how late a thread gets the CPU, if its release time has come, once per poll. */
static __always_inline void count_release(struct sched_task *t, struct sched_cpu *c, u64 now) {
	struct ecalls_sched_count *counts = counts_of(t->cpu);
	u64 release = sched_entity(c, t->entity)->release_ns, tardy;

	if (t->due_ns) {
		release = t->due_ns;
		t->due_ns = 0;
	} else if (t->counted == t->polls || !release_due(c, t->entity, now)) {
		return;
	} else {
		t->counted = t->polls;
	}
	if (!counts)
		return;
	tardy = now > release ? now - release : 0;
	counts->releases++;
	counts->tardiness[histogram_bucket(tardy / 1000) & 63]++;
	if (tardy > counts->tardiest_ns)
		counts->tardiest_ns = tardy;
	seen_released(t->cpu, t->entity, release, now);
}

/* Counts the violations of a thread since the last count. */
static __always_inline void count_offences(struct sched_task *t, const struct sched_entity *e) {
	struct ecalls_sched_count *counts = counts_of(t->cpu);

	if (!counts)
		return;
	counts->overran += e->overran - t->overran;
	counts->slept += e->slept - t->slept;
	counts->ahead += e->ahead - t->ahead;
	if (e->overran + e->slept + e->ahead != t->overran + t->slept + t->ahead)
		seen_offends(t->cpu, t->entity, e->overran - t->overran, e->slept - t->slept,
			     e->ahead - t->ahead);
	t->overran = e->overran;
	t->slept = e->slept;
	t->ahead = e->ahead;
}

/* Updates the counters when a thread gets the CPU. It is a function that the verifier checks once;
 * as a part of its caller, the code that follows it would be verified once per path through it. */
__noinline int count_turn(struct sched_task *t, u64 now) {
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c || t->entity >= SCHED_ENTITIES)
		return 0;
	count_release(t, c, now);
	count_offences(t, sched_entity(c, t->entity));
	return 0;
}

/* Writes what coop_poll returns (Coop §3.1) for the thread that begins to run. */
static __always_inline void tell(struct sched_task *t, struct sched_cpu *c, u64 now) {
	struct sched_entity *e = sched_entity(c, t->entity);
	volatile struct told *told = slot_line(t, 1);

	if (!told)
		return;
	told->next_release_ns = c->next_release_ns;
	told->least_importance =
		e->group < SCHED_ENTITIES ? group_least_importance(c, t->entity) : ECALLS_COOP_NONE;
	told->slice_end_ns = c->slice_end_ns;
	told->dispatch_ns = now;
	told->overran = e->overran;
	told->slept = e->slept;
	told->ahead = e->ahead;
	told->state =
		sched_in(c->cooperative, t->entity) ? ECALLS_COOP_COOPERATIVE : ECALLS_COOP_DEMOTED;
	told->answered = (u32)t->polls;
}

#endif
