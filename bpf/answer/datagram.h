/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A datagram for the service: what is answered, and to whom.
 *
 * It is found in a packet that the network stack has not looked at: so whatever the stack would
 * find wrong is looked for here, the checksums included, and goes on.
 */
#ifndef ECALLS_ANSWER_DATAGRAM_H
#define ECALLS_ANSWER_DATAGRAM_H

#include "kernel.h"
#include "abi/answer.h"
#include "abi/event.h"
#include "lib/checksum.h"
#include "net/packet.h"

#define PREFIX ECALLS_ANSWER_PREFIX
#define CHECKSUM_UNNECESSARY 1
#define CHECKSUM_PARTIAL 3

/* Written by the host before it loads the object. */
const volatile struct {
	u64 echo[2];	 /* mask of the bytes that a reply has from its request */
	u64 interval_ns; /* between two replies, */
	u64 burst;	 /* so many of which may come at once */
	u32 echo_bytes;
	u32 fuel;
	u32 address[4]; /* of this host; any: 0 */
	u16 family;	/* of the address; 0: both */
	u16 port;	/* network byte order */
	u32 pad;
} answer SEC(".rodata.answer");

/* A datagram for the port. */
struct datagram {
	struct packet packet;
	struct packet copy; /* for what looks up its way */
	struct udp udp;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sk_buff {
	u8 ip_summed : 2;
	u16 csum_start;
	u16 csum_offset;
	u16 network_header;
};
#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

static __always_inline struct ecalls_answer_input *input_of(struct ecalls_event *event) {
	return (struct ecalls_answer_input *)event->data;
}

/* Whether an address is one host's. */
static __always_inline bool is_host(const u32 *address, u8 family, bool is_loopback) {
	u8 first = address[0] & 0xff;

	if (family == AF_INET)
		return first && first < 224 && (first != 127 || is_loopback);
	if (address[0] | address[1] | address[2])
		return first != 0xff;
	/* :: and ::1, and what was IPv4 once. */
	return address[3] == bpf_htonl(1) && is_loopback;
}

/* Whether the datagram is sent to the service, as far as its header says. */
static __always_inline bool is_ours(struct __sk_buff *skb, struct datagram *d) {
	struct bpf_fib_lookup *way = &d->packet.way;
	bool is_loopback = skb->ifindex == LOOPBACK;

	if (skb->pkt_type != PACKET_HOST || skb->gso_size || d->udp.source == answer.port ||
	    !d->udp.source)
		return false;
	if (answer.family && answer.family != way->family)
		return false;
	if (!is_host(way->src, way->family, is_loopback) ||
	    !is_host(way->dst, way->family, is_loopback))
		return false;
	if (!answer.address[0] && !answer.address[1] && !answer.address[2] && !answer.address[3]) {
		d->copy = d->packet;
		return packet_is_here(skb, &d->copy);
	}
	return way->dst[0] == answer.address[0] && way->dst[1] == answer.address[1] &&
	       way->dst[2] == answer.address[2] && way->dst[3] == answer.address[3];
}

/* Finds the datagram. False: it is none for the port, or an unusual one. */
static __always_inline bool request_open(struct __sk_buff *skb, struct datagram *d) {
	struct ip4 ip;

	if (!packet_udp(skb, &d->packet, &d->udp) || d->udp.target != answer.port ||
	    !is_ours(skb, d))
		return false;
	if (d->packet.way.family != AF_INET)
		return true;
	/* The network stack has not looked at this header yet. */
	return !packet_load(skb, 0, &ip, sizeof(ip)) &&
	       checksum_fold(checksum_add(0, (u32 *)&ip, sizeof(ip) / 4)) == 0xffff;
}

/* Fills what E-code sees. */
static __always_inline bool request_read(struct __sk_buff *skb, const struct datagram *d,
					 struct ecalls_event *event, u64 now_ns) {
	struct ecalls_answer_input *input = input_of(event);
	u64 bytes = d->packet.bytes;

	event->raise_ns = now_ns;
	event->cpu = bpf_get_smp_processor_id();
	event->size = sizeof(*input);
	input->length = d->packet.bytes;
	input->family = d->packet.way.family;
	input->remote_port = d->udp.source;
	__builtin_memcpy(input->remote_ip, d->packet.way.src, sizeof(input->remote_ip));
	for (u32 i = 0; i < PREFIX / 8; i++)
		*(volatile u64 *)&input->data[8 * i] = 0;
	if (!bytes)
		return true;
	barrier_var(bytes);
	if (bytes > PREFIX)
		bytes = PREFIX;
	return !packet_load(skb, d->packet.at, input->data, bytes);
}

/* The sum of the header that is no part of the packet, for so many bytes of UDP. */
static __always_inline u64 pseudo_sum(const struct datagram *d, u32 bytes) {
	u64 sum = (u64)bpf_htons(IPPROTO_UDP) + bpf_htons(bytes);

	if (d->packet.way.family == AF_INET)
		return sum + d->packet.way.src[0] + d->packet.way.dst[0];
	sum = checksum_add(sum, d->packet.way.src, 4);
	return checksum_add(sum, d->packet.way.dst, 4);
}

#define SUM_WRONG 0
#define SUM_RIGHT 1
#define SUM_OPEN 2 /* the packet was never on a wire: who sends it on computes its checksum */

/* Who has verified the datagram's checksum. */
static __always_inline u32 request_sum(struct __sk_buff *skb, const struct datagram *d,
				       const struct ecalls_answer_input *input) {
	const struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);
	u32 summed = BPF_CORE_READ_BITFIELD(kernel, ip_summed), from;
	u64 sum;

	if (summed == CHECKSUM_PARTIAL) {
		/* From the UDP header on, into its field? */
		from = kernel->csum_start - kernel->network_header + sizeof(d->udp);
		return from == d->packet.at && kernel->csum_offset ==
						       __builtin_offsetof(struct udp, checksum)
			       ? SUM_OPEN
			       : SUM_WRONG;
	}
	if (summed == CHECKSUM_UNNECESSARY)
		return SUM_RIGHT;
	if (!d->udp.checksum)
		return d->packet.way.family == AF_INET ? SUM_RIGHT : SUM_WRONG;
	if (d->packet.bytes > PREFIX)
		return SUM_WRONG;
	sum = pseudo_sum(d, d->packet.bytes + sizeof(d->udp));
	sum = checksum_add(sum, (const u32 *)&d->udp, sizeof(d->udp) / 4);
	/* What is beyond the datagram is 0. */
	sum = checksum_add(sum, (const u32 *)input->data, PREFIX / 4);
	return checksum_fold(sum) == 0xffff ? SUM_RIGHT : SUM_WRONG;
}

#endif
