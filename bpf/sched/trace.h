/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A trace (`ecalls sched trace`): records of what happens, in a ring buffer that a process reads
 * while it wants a trace.
 *
 * The trace is on until a time that its reader extends regularly: when the reader ends, for
 * whatever reason, the trace is soon off. When it is off, the scheduler's own records cost one
 * comparison each; thread switches and events are recorded by programs that the reader attaches,
 * and cost nothing. Records that are lost because the ring is full are counted.
 */
#ifndef ECALLS_SCHED_TRACE_H
#define ECALLS_SCHED_TRACE_H

#include "state.h"

#define TRACE_BYTES (1u << 20)	    /* of the ring: some 16,000 notes */
#define TRACE_LIFE_NS 2000000000ull /* time for which one call keeps the trace on */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TRACE_BYTES);
} sched_ring SEC(".maps");

/* What was requested by trace_ask. */
struct {
	u64 traced_ns;	  /* the trace is on until then */
	u64 forgotten_ns; /* worst cases until then do not count */
} asked SEC(".bss.asked");

static __always_inline bool is_traced(u64 now) {
	return asked.traced_ns > now;
}

static __always_inline struct ecalls_sched_note *trace_place(u32 what, u32 cpu) {
	struct ecalls_sched_note *note = bpf_ringbuf_reserve(&sched_ring, sizeof(*note), 0);

	if (!note) {
		SCHED_COUNT(cpu, untraced);
		return 0;
	}
	note->at_ns = bpf_ktime_get_ns();
	note->what = what;
	note->cpu = cpu;
	return note;
}

/* A record wakes no process: the reader polls. */
static __always_inline void trace_done(struct ecalls_sched_note *note) {
	bpf_ringbuf_submit(note, BPF_RB_NO_WAKEUP);
}

/* Records an event of an entity. */
static __noinline int trace_note(u32 what, u32 cpu, const struct ecalls_sched_seen *seen, u32 which,
				 u64 value) {
	struct ecalls_sched_note *note = trace_place(what, cpu);

	if (!note)
		return 0;
	note->value = value;
	note->more = 0;
	note->pid = seen->pid;
	note->tid = seen->tid;
	note->other = 0;
	note->which = which;
	__builtin_memcpy(note->comm, seen->comm, sizeof(note->comm));
	trace_done(note);
	return 0;
}

#endif
