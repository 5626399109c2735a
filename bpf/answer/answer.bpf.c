/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Datagrams that are answered where they arrive (ECalls-05 §3.1.2: a kernel handler serves what it
 * can, the rest goes up): in the receive path of one interface (tcx), for one UDP port.
 *
 * An object of its own, which uses nothing of the core. A program in E-code sees the beginning of
 * the datagram and names a cell (abi/answer.h), in which the process that loaded the object keeps a
 * reply ready. If all else holds, the packet itself becomes the reply: it gets the reply's bytes,
 * its addresses and ports change places, and it leaves by the interface on which it came, without
 * anything that the network stack does with packets, netfilter included. Otherwise it goes on, and
 * its socket gets it. Each packet is counted once, under what became of it.
 *
 * What keeps this from being misused:
 *   - a reply is at most ECALLS_ANSWER_TIMES as long as its request;
 *   - replies have a rate, which all CPUs share;
 *   - a datagram whose checksum is wrong is not answered, nor one from or to several hosts, nor
 *     one that this host would not take;
 *   - nor one from the port itself: two services that answer each other do so at their rates.
 *
 * The program runs in the soft interrupt that received the packet, so it is neither preempted nor
 * entered again on its CPU: one buffer per CPU is enough. This is not so on kernels with
 * PREEMPT_RT, on which the loader does not attach it.
 */
#include "kernel.h"
#include "abi/answer.h"
#include "abi/event.h"
#include "event/frame.h"
#include "event/rate.h"
#include "reply.h"

#define READ_ONLY (1u << 3) /* BPF_F_RDONLY: what its descriptor is for; a program may write */

/* Written by the process. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the host sets it */
	__type(key, u32);
	__type(value, struct ecalls_answer_cell);
} answer_cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	/* So it can be lent. */
	__uint(map_flags, READ_ONLY);
	__type(key, u32);
	__type(value, struct ecalls_answer_count);
} answer_counts SEC(".maps");

/* When the next reply may come (lib/bucket.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} answer_rate SEC(".maps");

/* What E-code uses: the datagram as the data of an event, the frame, and the program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_event);
} answer_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_frame);
} answer_frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} answer_ecode SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct outgoing);
} answer_packets SEC(".maps");

/* The code after the tail call runs only if there is no program to call. */
static __noinline int call_ecode(struct __sk_buff *skb) {
	struct ecalls_frame *f;
	u32 zero = 0;

	bpf_tail_call(skb, &answer_ecode, 0);
	f = bpf_map_lookup_elem(&answer_frames, &zero);
	if (f)
		f->fault = ECALLS_FAULT_INDEX;
	return 0;
}

/* Does what E-code has said. */
static __always_inline int obey(struct __sk_buff *skb, struct outgoing *out,
				struct ecalls_event *event, s64 said, u32 summed,
				struct ecalls_answer_count *n) {
	struct ecalls_answer_cell *cell;
	u32 zero = 0, number = said;
	u64 *why, *rate;

	if (said == ECALLS_ANSWER_DROP) {
		n->dropped++;
		return TCX_DROP;
	}
	rate = bpf_map_lookup_elem(&answer_rate, &zero);
	if (said == ECALLS_ANSWER_UP || !rate) {
		n->up++;
		return TCX_NEXT;
	}
	cell = said == number ? bpf_map_lookup_elem(&answer_cells, &number) : 0;
	if (!cell) {
		n->empty++;
		return TCX_NEXT;
	}
	why = cell_take(cell, input_of(event), out, n);
	if (!why && !interval_takes(rate, event->raise_ns, answer.interval_ns, answer.burst))
		why = &n->limited;
	if (why) {
		(*why)++;
		return TCX_NEXT;
	}
	return reply(skb, &out->to, out, summed, n);
}

SEC("tcx/ingress")
int answer_ingress(struct __sk_buff *skb) {
	struct ecalls_answer_count *n;
	struct ecalls_event *event;
	struct ecalls_frame *frame;
	struct outgoing *out;
	u32 zero = 0, summed;
	u64 now_ns;

	n = bpf_map_lookup_elem(&answer_counts, &zero);
	event = bpf_map_lookup_elem(&answer_events, &zero);
	frame = bpf_map_lookup_elem(&answer_frames, &zero);
	out = bpf_map_lookup_elem(&answer_packets, &zero);
	if (!n || !event || !frame || !out)
		return TCX_NEXT;
	out->to = (struct datagram){};
	if (!request_open(skb, &out->to)) {
		n->passed++;
		return TCX_NEXT;
	}
	now_ns = bpf_ktime_get_ns();
	if (!request_read(skb, &out->to, event, now_ns)) {
		n->passed++;
		return TCX_NEXT;
	}
	summed = request_sum(skb, &out->to, input_of(event));
	if (summed == SUM_WRONG) {
		n->unproven++;
		return TCX_NEXT;
	}
	ecode_frame(frame, now_ns, answer.fuel, 0);
	frame->result = ECALLS_ANSWER_UP;
	call_ecode(skb);
	barrier();
	if (frame->fault) {
		n->failed++;
		return TCX_NEXT;
	}
	return obey(skb, out, event, frame->result, summed, n);
}

char LICENSE[] SEC("license") = "GPL";
