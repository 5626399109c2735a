/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel handler `remote` (abi/handler.h): an event becomes a frame, which goes to the sinks of
 * a channel (abi/sink.h).
 *
 * It runs in the dispatcher, where no packet can be created. So it writes the whole packet, without
 * what differs from sink to sink, and puts it into the channel's buffer, where a thread of the
 * program that opened the channel takes it. The frame's `sinks` has the sinks that were chosen, and
 * its `left_ns` the time of the deadline: the program on the interface (egress.h) knows the time
 * when it is sent.
 *
 * Failures: a full buffer, a user who has its share of the buffer, data that the channel's format
 * does not describe, and a channel that is closed, are counted with these reasons and drop the
 * event for this subscription.
 *
 * A user with limits may put no more bytes into the buffer than are left free there (struct
 * ecalls_lane_share). CPUs that compare at the same time may together exceed that by a frame each.
 */
#ifndef ECALLS_NET_REMOTE_H
#define ECALLS_NET_REMOTE_H

#include "event/ecode.h"
#include "abi/sink.h"
#include "lane.h"
#include "packet.h"

/* A packet with a frame, as an interface with Ethernet headers sends it. */
struct lane_packet {
	u16 user;  /* its row, or 0; not part of the packet */
	u8 pad[4]; /* the rest is aligned */
	u8 ethernet[12];
	u16 type;
	struct ip4 ip;
	struct udp udp;
	struct ecalls_wire wire;
	u8 data[ECALLS_DATA_MAX];
};
#define LANE_HEADERS __builtin_offsetof(struct lane_packet, data)
_Static_assert(__builtin_offsetof(struct lane_packet, wire) % 8 == 0, "its words are aligned");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lane_packet);
} lane_packets SEC(".maps");

struct lane_buffer_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ECALLS_LANE_BUFFER);
};

/* Each channel's buffer, made by the program that opened it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__type(key, u32);
	__array(values, struct lane_buffer_map);
} lane_rings SEC(".maps");

struct lane_share_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_USERS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct ecalls_lane_share));
};

/* What users have in each channel's buffer, made together with it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__type(key, u32);
	__array(values, struct lane_share_map);
} lane_shares SEC(".maps");

/* The filters of channels: two places each. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2 * ECALLS_LANE_CHANNELS);
	__type(key, u32);
	__type(value, u32);
} lane_filters SEC(".maps");

#define REMOTE_NO_FILTER 99 /* a fault: the place is empty */

/* The code after the tail call runs only if the place is empty. */
static __noinline int remote_call(void *ctx, u32 place) {
	struct ecalls_frame *f;

	bpf_tail_call(ctx, &lane_filters, place);
	f = frame_of_cpu();
	if (f)
		f->fault = REMOTE_NO_FILTER;
	return 0;
}

/* Those of `sinks` that the channel's filter chooses. If it fails, all: a mistake in a filter loses
 * no event. */
static __always_inline u64 remote_choose(void *ctx, struct current *c, u32 row, u64 call,
					 struct ecalls_lane_out *out, u64 sinks) {
	struct ecalls_frame *f = frame_of_cpu();

	if (!f || !(call >> ECALLS_OUT_SET_SHIFT & 1))
		return sinks;
	ecode_frame(f, c->now_ns, (u32)call, sinks);
	c->calls++; /* the second tail call of this handler */
	remote_call(ctx, 2 * row + (u32)(call >> ECALLS_OUT_PLACE_SHIFT));
	barrier();
	if (f->fault) {
		__sync_fetch_and_add(&out->failed, 1);
		*(volatile u64 *)&out->fault =
			(u64)f->fault_place << ECALLS_ECODE_FAULT_SHIFT | f->fault;
		return sinks;
	}
	if (!f->result || f->drop)
		return 0;
	return sinks & (call >> ECALLS_OUT_ACCEPTS_SHIFT & 1 ? f->accepted : ~f->rejected);
}

/* Drops the event for this subscription; the chain goes on. */
static __always_inline void remote_refuse(struct call *call, u32 row, u32 reason, u32 drop) {
	struct ecalls_lane_out *out = bpf_map_lookup_elem(&lane_outs, &row);

	if (out) {
		__sync_fetch_and_add(&out->events, 1);
		__sync_fetch_and_add(&out->refused[reason], 1);
	}
	call->current->outcome.dropped = drop + 1;
	call_close(call, true);
}

static __always_inline void remote_headers(struct lane_packet *p, u32 size) {
	u16 bytes = sizeof(p->udp) + sizeof(p->wire) + size;

	p->type = bpf_htons(ETH_P_IP);
	p->ip.version_words = 0x45;
	p->ip.bytes = bpf_htons(sizeof(p->ip) + bytes);
	p->ip.fragment = bpf_htons(IP_WHOLE);
	p->ip.ttl = PACKET_TTL;
	p->ip.protocol = IPPROTO_UDP;
	p->udp.source = bpf_htons(ECALLS_WIRE_PORT);
	p->udp.target = bpf_htons(ECALLS_WIRE_PORT);
	p->udp.bytes = bpf_htons(bytes);
}

static __always_inline void remote_frame(struct ecalls_wire *w, const struct ecalls_lane_channel *c,
					 const struct ecalls_event *e, u32 size, u64 sinks) {
	w->magic = ECALLS_WIRE_MAGIC;
	w->version = ECALLS_WIRE_VERSION;
	w->size = size;
	w->channel = c->id;
	w->host = c->host;
	w->epoch = c->epoch;
	w->format = c->format;
	w->sinks = sinks;
	w->left_ns = e->deadline_ns;
	w->kind = e->kind;
	w->type = e->type;
	w->priority = e->priority;
}

/* The user's share of the channel's buffer, or none for a user without limits. */
static __always_inline struct ecalls_lane_share *remote_share(u32 row, u32 user) {
	void *shares = user ? bpf_map_lookup_elem(&lane_shares, &row) : 0;

	return shares ? bpf_map_lookup_elem(shares, &user) : 0;
}

/* Puts the packet, whose data has `size` bytes, into the channel's buffer. Returns 0, or
 * 1 + ECALLS_REMOTE_*. */
static __always_inline u32 remote_put(struct lane_packet *p, u32 row, u32 user, u32 size) {
	struct ecalls_lane_share *share = remote_share(row, user);
	void *ring = bpf_map_lookup_elem(&lane_rings, &row);
	u64 bytes = ECALLS_LANE_RECORD(LANE_HEADERS + size), used, own;

	if (!ring || size > ECALLS_DATA_MAX)
		return 1 + ECALLS_REMOTE_FULL;
	p->user = 0;
	if (share) {
		used = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
		own = *(volatile u64 *)&share->put - *(volatile u64 *)&share->taken;
		if (own + used + bytes > ECALLS_LANE_BUFFER)
			return 1 + ECALLS_REMOTE_SHARE;
		p->user = user;
		/* Before the record is there: the thread may take it at once. */
		__sync_fetch_and_add(&share->put, bytes);
	}
	if (!bpf_ringbuf_output(ring, p, LANE_HEADERS + size, 0))
		return 0;
	if (share)
		__sync_fetch_and_sub(&share->put, bytes);
	return 1 + ECALLS_REMOTE_FULL;
}

/* The reason by which the subscription counts an event that this one refuses. */
static __always_inline u32 remote_drop(u32 reason) {
	if (reason == ECALLS_REMOTE_SHARE)
		return ECALLS_DROP_QUOTA;
	return reason == ECALLS_REMOTE_FORMAT ? ECALLS_DROP_SIZE : ECALLS_DROP_RING_FULL;
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(handler_remote, int nonce) {
	const struct ecalls_lane_channel *c;
	struct ecalls_lane_out *out;
	const struct ecalls_event *e;
	struct lane_packet *p;
	u32 zero = 0, row, size, refused;
	struct call call;
	u64 sinks;

	if (!call_open(&call))
		return 0;
	row = call.action->argument[0];
	c = bpf_map_lookup_elem(&lane_channels, &row);
	out = bpf_map_lookup_elem(&lane_outs, &row);
	p = bpf_map_lookup_elem(&lane_packets, &zero);
	if (!c || !out || !p || c->id != call.action->argument[1] ||
	    c->epoch != call.action->argument[2] || !lane_is_open(c)) {
		remote_refuse(&call, 0, ECALLS_REMOTE_CLOSED, ECALLS_DROP_CHANNEL_GONE);
		return 0;
	}
	size = call.current->event.size;
	if (size > c->data_max) {
		remote_refuse(&call, row, ECALLS_REMOTE_FORMAT, remote_drop(ECALLS_REMOTE_FORMAT));
		return 0;
	}
	sinks = *(volatile u64 *)&c->sinks;
	if (!sinks) {
		__sync_fetch_and_add(&out->events, 1);
		__sync_fetch_and_add(&out->none, 1);
		call_close(&call, false);
		return 0;
	}
	sinks = remote_choose(ctx, call.current, row, *(volatile u64 *)&c->out, out, sinks);
	if (!sinks) {
		__sync_fetch_and_add(&out->events, 1);
		__sync_fetch_and_add(&out->filtered, 1);
		call_close(&call, false);
		return 0;
	}
	e = &call.current->event;
	barrier_var(size);
	if (size > ECALLS_DATA_MAX)
		size = ECALLS_DATA_MAX;
	remote_headers(p, size);
	remote_frame(&p->wire, c, e, size, sinks);
	/* The data beyond the record are behind it. */
	if (size && bpf_probe_read_kernel(p->data, size, e->data))
		size = 0;
	refused = remote_put(p, row, call.user, size);
	if (refused) {
		remote_refuse(&call, row, refused - 1, remote_drop(refused - 1));
		return 0;
	}
	__sync_fetch_and_add(&out->events, 1);
	call_close(&call, true);
	return 0;
}

#endif
