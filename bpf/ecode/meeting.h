/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A service whose events are raised by a program in E-code
 * (crates/ecalls-kernel/src/provider/meeting.rs loads it), in two parts, each an object file that
 * is loaded once per service:
 *
 *   meet.bpf.c   runs on the tracepoint with its record; calls the E-code program with the frame
 *                that handlers use, too (abi/ecode.h); reads its result.
 *   tell.bpf.c   raises the event, if there is one. A program on a tracepoint may not use the
 *                timers and locks of the queues, but one on bpf_trigger_tp may; so the first part
 *                fires that one (TRIGGER_TELL) when there is an event.
 *
 * The event, with the record as its data, and the frame are per CPU and per service, so the program
 * may interrupt the dispatcher. It cannot interrupt itself: on one CPU the kernel runs one program
 * on a tracepoint at a time, skips the others, and counts them (recursion_misses).
 */
#ifndef ECALLS_MEETING_H
#define ECALLS_MEETING_H

#include "event/maps.h"

/* The number of dynamic texts of a record that are copied, and the bytes of each. */
#define MEETING_TEXTS 8
#define MEETING_TEXT_BYTES 64

/* One text: `from` is the record's word that holds its place, `to` the place of the copy. */
struct meeting_text {
	u32 from;
	u32 to;
};

/* Properties of the service that are known when it is loaded. */
struct meeting_plan {
	u32 service;	  /* index */
	u32 record_bytes; /* of the record after its first 8 bytes, which become the input */
	u32 input_bytes;
	u32 output_bytes;
	u32 fuel;
	u32 texts;  /* in use */
	u32 locked; /* 1: the tracepoint is hit under locks: start no timer, no thread */
	u32 pad;
	u64 deadline_ns; /* relative; 0: none */
	struct meeting_text text[MEETING_TEXTS];
};

const volatile struct meeting_plan plan SEC(".rodata.plan");

/* For tell.bpf.c: raise this CPU's event. The programs of other services find none. */
#define TRIGGER_TELL 0x45430006

/* An event with space for more data than an event has: the record. */
struct meeting {
	struct ecalls_event event;
	u64 more[(ECALLS_ECODE_BYTES - ECALLS_DATA_INLINE) / 8];
	u64 told; /* 1: there is an event; set only while this service's trigger runs */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct meeting);
} meetings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_frame);
} meeting_frames SEC(".maps");

/* The program in E-code. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} meeting_ecode SEC(".maps");

static __always_inline struct meeting *meeting_of_cpu(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&meetings, &zero);
}

static __always_inline struct ecalls_frame *meeting_frame(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&meeting_frames, &zero);
}

#endif
