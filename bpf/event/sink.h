/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the dispatcher tells the scheduler (ECalls-05 §4.2): an event that asks for the CPU waits
 * for the thread that reads a channel.
 *
 * It is noted before the reader is woken, so whoever wakes finds it. A reader that waits for its
 * CPU already is not woken: its CPU is made to decide again. Without a scheduler no reader waits,
 * and there is nothing more to it than a look; an event without the flag costs the test of it.
 */
#ifndef ECALLS_EVENT_SINK_H
#define ECALLS_EVENT_SINK_H

#include "coop.h"

#define KICK_PREEMPT 2ull /* the kernel's SCX_KICK_PREEMPT */

extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;

/* An event was put into a channel. */
static __noinline int sink_note(u32 channel, const struct ecalls_event *e) {
	u32 index = ECALLS_ID_INDEX(channel), waits;
	struct event_sink *sink = bpf_map_lookup_elem(&event_sinks, &index);
	u64 deadline_ns = e->deadline_ns ? e->deadline_ns : COOP_SINK_WHENEVER;
	u64 before_ns;

	if (!sink || *(volatile u32 *)&sink->channel != channel)
		return 0;
	/* Two CPUs at once may leave the later of two deadlines: the reader comes all the same. */
	before_ns = *(volatile u64 *)&sink->deadline_ns;
	if (before_ns && before_ns <= deadline_ns)
		return 0;
	/* A full barrier: first the deadline, then whether it waits. The scheduler does it the
	 * other way round. */
	__sync_lock_test_and_set(&sink->deadline_ns, deadline_ns);
	waits = *(volatile u32 *)&sink->waits;
	if (waits && bpf_ksym_exists(scx_bpf_kick_cpu))
		scx_bpf_kick_cpu((s32)waits - 1, KICK_PREEMPT);
	return 0;
}

#endif
