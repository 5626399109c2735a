/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sending side of the lane, in the send path of an interface (tcx): a frame with a set of
 * sinks, which only this host's programs can bring here, becomes one packet for each sink.
 *
 * For each sink the frame gets the sink's next number, and the packet its addresses; then a copy
 * of it is sent on the interface. The copy comes by here again, with a mark, and is sent on to the
 * neighbour that the kernel's routing finds for its address, which is looked up on the network if
 * it is not known. To the last sink the packet itself goes. What is lost from there on is missing
 * at the sink.
 *
 * The frame is checked against the channel's row: packets with sinks that are of no channel of this
 * core go on, to the program of another core, or are sent as they are: a receiver refuses them.
 *
 * Failures: an event whose deadline has passed goes to no sink, and is counted for each.
 */
#ifndef ECALLS_NET_EGRESS_H
#define ECALLS_NET_EGRESS_H

#include "abi/sink.h"
#include "lib/bits.h"
#include "lane.h"
#include "packet.h"

/* Of a copy on its way to its sink, before and after its neighbour is known. */
#define LANE_MARK 0x4c414e45
#define LANE_SENT 0x4c414e46

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_LANE_CHANNELS *ECALLS_SINKS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_sink);
} lane_sinks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_lane_out);
} lane_outs SEC(".maps");

/* What the sinks of a channel have told, which its filter reads; made by the program that opened
 * it. */
struct lane_table {
	struct ecalls_sink_told sink[ECALLS_SINKS_MAX];
};

struct lane_table_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct lane_table));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__type(key, u32);
	__array(values, struct lane_table_map);
} lane_tables SEC(".maps");

#define EGRESS_IP PACKET_ETHERNET
#define EGRESS_WIRE (EGRESS_IP + sizeof(struct ip4) + sizeof(struct udp))
#define EGRESS_FIELD(field) (EGRESS_WIRE + __builtin_offsetof(struct ecalls_wire, field))

static __always_inline long egress_store(struct __sk_buff *skb, u32 at, const void *from,
					 u32 bytes) {
	return bpf_skb_store_bytes(skb, at, from, bytes, 0);
}

/* Sends a copy to a sink. If it is the last one the packet itself is for it, and 1 is returned. */
__noinline int egress_send(struct __sk_buff *skb, u32 row, u32 number, bool is_last) {
	u32 index = row * ECALLS_SINKS_MAX + number;
	struct ecalls_sink *s = bpf_map_lookup_elem(&lane_sinks, &index);
	struct ecalls_lane_out *out = bpf_map_lookup_elem(&lane_outs, &row);
	struct ip4 ip = {
		.version_words = 0x45,
		.bytes = bpf_htons(skb->len - EGRESS_IP),
		.fragment = bpf_htons(IP_WHOLE),
		.ttl = PACKET_TTL,
		.protocol = IPPROTO_UDP,
	};
	u64 sequence;

	if (!s || !out)
		return 0;
	if (!*(volatile u32 *)&s->member) {
		__sync_fetch_and_add(&out->gone, 1);
		return 0;
	}
	ip.source = s->source;
	ip.target = s->address[0];
	ip.checksum = ~checksum_fold(checksum_add(0, (u32 *)&ip, sizeof(ip) / 4));
	sequence = __sync_fetch_and_add(&s->sent, 1) + 1;
	__sync_fetch_and_add(&out->sent, 1);
	if (egress_store(skb, EGRESS_IP, &ip, sizeof(ip)) ||
	    egress_store(skb, EGRESS_FIELD(sequence), &sequence, sizeof(sequence)) ||
	    (!is_last && bpf_clone_redirect(skb, s->interface, 0))) {
		__sync_fetch_and_add(&s->failed, 1);
		return 0;
	}
	return is_last;
}

/* Sends the frame to its sinks. */
static __always_inline int egress_fan(struct __sk_buff *skb, const struct ecalls_wire *w, u32 row) {
	struct ecalls_lane_out *out = bpf_map_lookup_elem(&lane_outs, &row);
	u64 sinks = w->sinks, left_ns = 0, now_ns, none = 0;
	u32 count = bits_count(sinks);
	int is_ready = 0;

	if (!out)
		return TCX_DROP;
	__sync_fetch_and_add(&out->fanned, 1);
	__sync_fetch_and_add(&out->frames, count);
	if (w->left_ns) {
		now_ns = bpf_ktime_get_ns();
		if (now_ns >= w->left_ns) {
			__sync_fetch_and_add(&out->late, count);
			return TCX_DROP;
		}
		left_ns = w->left_ns - now_ns;
	}
	egress_store(skb, EGRESS_FIELD(sinks), &none, sizeof(none));
	egress_store(skb, EGRESS_FIELD(left_ns), &left_ns, sizeof(left_ns));
	skb->mark = LANE_MARK;
	for (u32 i = 0; i < ECALLS_SINKS_MAX; i++) {
		if (sinks >> i & 1)
			is_ready = egress_send(skb, row, i, sinks >> i == 1);
	}
	skb->mark = LANE_SENT;
	return is_ready ? bpf_redirect_neigh(skb->ifindex, 0, 0, 0) : TCX_DROP;
}

SEC("tcx/egress")
int lane_egress(struct __sk_buff *skb) {
	const struct ecalls_lane_channel *c;
	struct ecalls_wire w;
	struct packet p = {};
	u32 *row;

	if (skb->mark == LANE_MARK) {
		skb->mark = LANE_SENT;
		return bpf_redirect_neigh(skb->ifindex, 0, 0, 0);
	}
	if (skb->mark == LANE_SENT) {
		skb->mark = 0;
		return TCX_NEXT;
	}
	if (!packet_open(skb, &p) || p.way.family != AF_INET)
		return TCX_NEXT;
	if (p.bytes < sizeof(w) || packet_load(skb, p.at, &w, sizeof(w)) ||
	    w.magic != ECALLS_WIRE_MAGIC || !w.sinks)
		return TCX_NEXT;
	row = bpf_map_lookup_elem(&lane_ids, &w.channel);
	c = row ? bpf_map_lookup_elem(&lane_channels, row) : 0;
	if (!c || w.host != c->host || w.epoch != c->epoch)
		return TCX_NEXT;
	return egress_fan(skb, &w, *row);
}

#endif
