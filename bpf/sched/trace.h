/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A trace (`ecalls sched trace`): what happens, as notes in a ring buffer that a process reads
 * while it wants one.
 *
 * It is on until a moment that who reads it moves on every so often: when that process ends,
 * however, it is soon off. Off, the scheduler's own notes cost one comparison each; thread switches
 * and events come by programs that the reader attaches, and cost nothing. What finds the ring full
 * is counted.
 */
#ifndef ECALLS_SCHED_TRACE_H
#define ECALLS_SCHED_TRACE_H

#include "state.h"

#define TRACE_BYTES (1u << 20)	    /* of the ring: some 16,000 notes */
#define TRACE_LIFE_NS 2000000000ull /* for which one call keeps it on */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TRACE_BYTES);
} sched_ring SEC(".maps");

/* What was asked for by trace_ask. */
struct {
	u64 traced_ns;	  /* until when a trace is on */
	u64 forgotten_ns; /* the worst cases until then do not count */
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

/* Nobody is woken for a note: the reader looks by itself. */
static __always_inline void trace_done(struct ecalls_sched_note *note) {
	bpf_ringbuf_submit(note, BPF_RB_NO_WAKEUP);
}

/* A note about an entity. */
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
