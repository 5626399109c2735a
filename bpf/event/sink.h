/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dispatcher's information for the scheduler (ECalls-05 §4.2): an event that asks for the CPU
 * waits for the thread that reads a channel.
 *
 * It is stored before the reader is woken, so a reader that wakes finds it. A reader that already
 * waits for its CPU is not woken: its CPU is made to decide again. Without a scheduler no reader
 * waits, and the cost is one load; an event without the flag costs the test of the flag.
 */
#ifndef ECALLS_EVENT_SINK_H
#define ECALLS_EVENT_SINK_H

#include "coop.h"

#define KICK_PREEMPT 2ull /* the kernel's SCX_KICK_PREEMPT */

extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;

/* Called when an event has been stored in a channel. */
static __noinline int sink_note(u32 channel, const struct ecalls_event *e) {
	u32 index = ECALLS_ID_INDEX(channel), waits;
	struct event_sink *sink = bpf_map_lookup_elem(&event_sinks, &index);
	u64 deadline_ns = e->deadline_ns ? e->deadline_ns : COOP_SINK_WHENEVER;
	u64 before_ns;

	if (!sink || *(volatile u32 *)&sink->channel != channel)
		return 0;
	order_loads();
	/* Two CPUs at once may leave the later of two deadlines, but the reader runs in any
	 * case. */
	before_ns = *(volatile u64 *)&sink->deadline_ns;
	if (before_ns && before_ns <= deadline_ns)
		return 0;
	/* A full barrier: first the deadline is stored, then `waits` is read. The scheduler does it
	 * in the opposite order. */
	__sync_lock_test_and_set(&sink->deadline_ns, deadline_ns);
	waits = *(volatile u32 *)&sink->waits;
	if (waits && bpf_ksym_exists(scx_bpf_kick_cpu))
		scx_bpf_kick_cpu((s32)waits - 1, KICK_PREEMPT);
	return 0;
}

#endif
