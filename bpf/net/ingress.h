/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The receiving side of the lane: a frame from another host becomes an event where it arrives, in
 * the interface's receive path (tcx), before the network stack and without a process.
 *
 * The event is one of the service that the program which opened the channel owns here; its
 * subscriptions are those of any service, and so a filter at the sink (IN, KECho §2.2) is a handler
 * in E-code. Its deadline is now plus the time that the frame had left. It names the sending host
 * (abi/event.h): whatever its data say, nobody else's window has taken the frame.
 *
 * A packet that is no frame of a channel of this core goes on: to the program of another core on
 * the same interface, or to the network stack, whose answer tells the sender that nobody has the
 * port. A refused frame is counted with its reason (abi/lane.h) and ends here.
 *
 * The program runs in the soft interrupt that received the packet, so it is neither preempted nor
 * entered again on its CPU: one buffer per CPU is enough. This is not so on kernels with
 * PREEMPT_RT, on which the loader does not attach it.
 */
#ifndef ECALLS_NET_INGRESS_H
#define ECALLS_NET_INGRESS_H

#include "event/raise.h"
#include "lib/frame.h"
#include "lib/window.h"
#include "egress.h"
#include "lane.h"
#include "packet.h"

struct lane_source {
	struct bpf_spin_lock lock;
	u32 pad;
	struct ecalls_window window;
	u64 told_ns;
	u64 value[ECALLS_ATTRIBUTES];
};
_Static_assert(sizeof(struct lane_source) == sizeof(struct ecalls_lane_source),
	       "they differ in the type of the lock");

#define SOURCE_WORDS (sizeof(struct lane_source) / 8)

struct lane_buffer {
	struct ecalls_wire wire;
	u64 data[ECALLS_DATA_MAX / 8];
	u64 empty[SOURCE_WORDS]; /* always 0: a new source */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ECALLS_LANE_SOURCES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ecalls_lane_key);
	__type(value, struct lane_source);
} lane_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__type(key, u32);
	__type(value, struct ecalls_lane_count);
} lane_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lane_buffer);
} lane_buffers SEC(".maps");

/* Counts a frame of the channel in row `row` that is refused. */
static __always_inline int lane_refuse(u32 row, u32 reason) {
	struct ecalls_lane_count *n = bpf_map_lookup_elem(&lane_counts, &row);

	/* The compiler knows what the functions here return, the verifier does not. */
	barrier_var(reason);
	if (n && reason < ECALLS_FRAME_REASONS) {
		n->frames++;
		n->refused[reason]++;
	}
	return TCX_DROP;
}

/* The source's row, which its first frame creates. */
static __always_inline struct lane_source *lane_source_of(struct lane_buffer *b) {
	struct ecalls_lane_key key = {.channel = b->wire.channel, .host = b->wire.host};
	struct lane_source *s = bpf_map_lookup_elem(&lane_sources, &key);

	if (s)
		return s;
	/* Another CPU may be first: then that row counts. */
	bpf_map_update_elem(&lane_sources, &key, b->empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&lane_sources, &key);
}

/* The attributes that the frame tells. */
static __always_inline void lane_tell(struct lane_source *s, const struct ecalls_wire *w,
				      u64 now_ns) {
#pragma unroll
	for (u32 i = 0; i < ECALLS_WIRE_ATTRIBUTES; i++) {
		if (i < w->attributes)
			s->value[w->number[i] & (ECALLS_ATTRIBUTES - 1)] = w->value[i];
	}
	if (w->attributes)
		s->told_ns = now_ns;
}

/* If the source is a sink of the channel, too, its attributes are what the channel's filter reads.
 * Two frames of a source at once may leave attributes of both. */
__noinline int lane_tell_filter(struct lane_buffer *b __arg_nonnull, u32 row, u32 address,
				u64 now_ns) {
	struct lane_table *table;
	void *tables = bpf_map_lookup_elem(&lane_tables, &row);
	u32 zero = 0, number, index;
	struct ecalls_sink *s;

	table = tables ? bpf_map_lookup_elem(tables, &zero) : 0;
	if (!table)
		return 0;
	for (number = 0; lib_again(number, ECALLS_SINKS_MAX); number++) {
		number ^= lib_zero(now_ns);
		if (number >= ECALLS_SINKS_MAX)
			return 0;
		index = row * ECALLS_SINKS_MAX + number;
		s = bpf_map_lookup_elem(&lane_sinks, &index);
		if (!s || !s->family)
			return 0;
		if (s->family == AF_INET && s->address[0] == address)
			break;
		if (s->family == ECALLS_SINK_HOST && s->address[0] == (u32)b->wire.host &&
		    s->address[1] == (u32)(b->wire.host >> 32))
			break;
	}
	barrier_var(number);
	if (number >= ECALLS_SINKS_MAX)
		return 0;
	for (u32 i = 0; i < ECALLS_WIRE_ATTRIBUTES; i++) {
		if (i < b->wire.attributes)
			table->sink[number].value[b->wire.number[i] & (ECALLS_ATTRIBUTES - 1)] =
				b->wire.value[i];
	}
	table->sink[number].told_ns = now_ns;
	return 0;
}

/* Takes the frame's number: FRAME_GOOD, or why it is refused. */
__noinline int lane_window(struct lane_buffer *b __arg_nonnull, u64 now_ns) {
	struct lane_source *s = lane_source_of(b);
	int result;

	if (!s)
		return ECALLS_FRAME_SOURCES;
	bpf_spin_lock(&s->lock);
	result = window_take(&s->window, b->wire.epoch, b->wire.sequence, now_ns);
	if (result == WINDOW_FRESH)
		lane_tell(s, &b->wire, now_ns);
	bpf_spin_unlock(&s->lock);
	if (result == WINDOW_DUPLICATE)
		return ECALLS_FRAME_DUPLICATE;
	return result == WINDOW_STALE ? ECALLS_FRAME_STALE : FRAME_GOOD;
}

/* Reads the frame's data, and clears the rest of the record's, which an earlier frame left. */
static __always_inline bool lane_data(struct __sk_buff *skb, struct lane_buffer *b, u32 at) {
	u32 size = b->wire.size;

	/* Volatile, since for larger data the compiler would call memset(), which there is not. */
	for (u32 i = 0; i < DATA_WORDS; i++)
		*(volatile u64 *)&b->data[i] = 0;
	if (!size)
		return true;
	barrier_var(size);
	if (size > ECALLS_DATA_MAX)
		return false;
	return !packet_load(skb, at + sizeof(b->wire), b->data, size);
}

/* The end of the time that the frame has left, 0: none. Times end, they do not wrap. */
static __always_inline u64 lane_deadline_ns(u64 now_ns, u64 left_ns) {
	if (!left_ns)
		return 0;
	return left_ns > ~now_ns ? ~0ull : now_ns + left_ns;
}

static __always_inline void lane_raise(const struct ecalls_lane_channel *c,
				       const struct lane_buffer *b, u32 row, u64 now_ns) {
	struct ecalls_lane_count *n = bpf_map_lookup_elem(&lane_counts, &row);
	const struct ecalls_wire *w = &b->wire;
	struct raise r = {
		.service = c->service,
		.kind = w->kind,
		.type = w->type,
		.priority = w->priority,
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_NO_PID | ECALLS_EVENT_HOST,
		.pid = (u32)w->host,
		.tid = w->host >> 32,
		.uid = c->uid,
		.size = w->size,
		.deadline_ns = lane_deadline_ns(now_ns, w->left_ns),
	};

	if (n) {
		n->frames++;
		n->raised++;
	}
	if (w->size > ECALLS_DATA_INLINE)
		r.rest = (u64)&b->data[DATA_WORDS];
	raise(&r, b->data, DATA_WORDS);
}

SEC("tcx/ingress")
int lane_ingress(struct __sk_buff *skb) {
	struct ecalls_lane_channel *c;
	struct lane_buffer *b;
	struct packet p = {};
	u32 zero = 0, *row;
	u64 now_ns;
	int reason;

	b = bpf_map_lookup_elem(&lane_buffers, &zero);
	if (!b || !packet_open(skb, &p) || !packet_is_here(skb, &p))
		return TCX_NEXT;
	if (packet_load(skb, p.at, &b->wire.magic, sizeof(u32)) ||
	    b->wire.magic != ECALLS_WIRE_MAGIC)
		return TCX_NEXT;
	if (p.bytes < sizeof(b->wire) || packet_load(skb, p.at, &b->wire, sizeof(b->wire)))
		return lane_refuse(0, ECALLS_FRAME_SIZE);
	row = bpf_map_lookup_elem(&lane_ids, &b->wire.channel);
	reason = frame_check(&b->wire, p.bytes);
	if (reason != FRAME_GOOD)
		return lane_refuse(row ? *row : 0, reason);
	c = row ? bpf_map_lookup_elem(&lane_channels, row) : 0;
	/* Nobody of the network can pretend to be a relay. */
	if (!c || (c->way == ECALLS_WAY_RELAY && skb->ifindex != LOOPBACK))
		return TCX_NEXT;
	if (b->wire.format != c->format || b->wire.size > c->data_max)
		return lane_refuse(*row, ECALLS_FRAME_FORMAT);
	if (b->wire.host == c->host)
		return lane_refuse(*row, ECALLS_FRAME_OWN);
	if (!lane_is_open(c))
		return lane_refuse(*row, ECALLS_FRAME_CLOSED);
	now_ns = bpf_ktime_get_ns();
	if (!lane_data(skb, b, p.at))
		return lane_refuse(*row, ECALLS_FRAME_SIZE);
	reason = lane_window(b, now_ns);
	if (reason != FRAME_GOOD)
		return lane_refuse(*row, reason);
	if (b->wire.attributes && p.way.family == AF_INET)
		lane_tell_filter(b, *row, p.way.src[0], now_ns);
	lane_raise(c, b, *row, now_ns);
	return TCX_DROP;
}

#endif
