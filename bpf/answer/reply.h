/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The reply to a datagram: it is taken from a cell (abi/answer.h), and the packet becomes it.
 *
 * Until the reply is taken as a whole, and allowed, the packet is untouched, so that it can go on.
 */
#ifndef ECALLS_ANSWER_REPLY_H
#define ECALLS_ANSWER_REPLY_H

#include "datagram.h"

#define REPLY ECALLS_ANSWER_REPLY
#define STORE_KEEPS_SUM 1 /* BPF_F_RECOMPUTE_CSUM: the packet's own sum follows */
#define HEADERS_IP4 (PACKET_ETHERNET + sizeof(struct ip4) + sizeof(struct udp))
#define HEADERS_IP6 (PACKET_ETHERNET + sizeof(struct ip6) + sizeof(struct udp))

/* A datagram, and the reply to it: headers that end where the payload begins, which is aligned. */
struct outgoing {
	struct datagram to;
	u64 fence;
	u64 sum; /* of the payload */
	u32 bytes;
	u8 pad[6];
	u8 headers[HEADERS_IP6];
	u64 payload[REPLY / 8];
};
_Static_assert(__builtin_offsetof(struct outgoing, payload) % 8 == 0, "it is aligned");

/* A full barrier. */
static __always_inline void fence(struct outgoing *out) {
	u64 former = __sync_fetch_and_add(&out->fence, 1);

	barrier_var(former);
}

/* Whether the cell's request is the datagram, of which what is echoed has been cleared. */
static __always_inline bool is_request(const struct ecalls_answer_cell *cell,
				       const struct ecalls_answer_input *input) {
	u32 bytes = *(volatile u32 *)&cell->request_bytes;
	const u64 *given = (const u64 *)input->data;
	const volatile u64 *kept = (const u64 *)cell->request;

	if (!bytes)
		return true;
	if (bytes != input->length)
		return false;
	/* Both have zeros behind. */
	for (u32 i = 0; i < PREFIX / 8 && 8 * i < bytes; i++)
		if (kept[i] != given[i])
			return false;
	return true;
}

/* Takes what is echoed out of the datagram. */
static __always_inline void take_echo(struct ecalls_answer_input *input, u64 *echo) {
	u64 *data = (u64 *)input->data;

	for (u32 i = 0; i < 2; i++) {
		echo[i] = data[i] & answer.echo[i];
		data[i] &= ~answer.echo[i];
	}
}

/* Copies as much of the cell's reply. The older verifiers do not see a check of both bounds at
 * once. */
static __always_inline bool copy_reply(const struct ecalls_answer_cell *cell, struct outgoing *out,
				       u64 bytes) {
	if (!bytes)
		return false;
	barrier_var(bytes);
	if (bytes > REPLY)
		return false;
	return !bpf_probe_read_kernel(out->payload, bytes, cell->reply);
}

/* Copies the cell's reply to this datagram. Returns 0, or the counter of why there is none. */
static __always_inline u64 *cell_take(const struct ecalls_answer_cell *cell,
				      struct ecalls_answer_input *input, struct outgoing *out,
				      struct ecalls_answer_count *n) {
	u64 sequence = *(volatile u64 *)&cell->sequence, sum, echo[2], bytes;
	bool is_other, is_whole;

	if (!sequence)
		return &n->empty;
	take_echo(input, echo);
	fence(out);
	is_other = !is_request(cell, input) || input->length < answer.echo_bytes;
	sum = *(volatile u64 *)&cell->sum;
	bytes = *(volatile u32 *)&cell->reply_bytes;
	is_whole = copy_reply(cell, out, bytes);
	fence(out);
	if (sequence & 1 || *(volatile u64 *)&cell->sequence != sequence)
		return &n->torn;
	if (!is_whole)
		return &n->empty;
	if (is_other)
		return &n->other;
	if (bytes > ECALLS_ANSWER_TIMES * input->length)
		return &n->too_long;
	out->bytes = bytes;
	out->sum = checksum_add(sum & 0xffff, (u32 *)echo, 4);
	for (u32 i = 0; i < 2; i++)
		out->payload[i] = (out->payload[i] & ~answer.echo[i]) | echo[i];
	return 0;
}

static __always_inline void write_udp(const struct datagram *d, const struct outgoing *out,
				      u32 summed, struct udp *udp) {
	u32 bytes = sizeof(*udp) + out->bytes;
	u64 sum = pseudo_sum(d, bytes);

	udp->source = answer.port;
	udp->target = d->udp.source;
	udp->bytes = bpf_htons(bytes);
	udp->checksum = 0;
	if (summed == SUM_OPEN) {
		udp->checksum = checksum_fold(sum);
		return;
	}
	sum = checksum_add(sum + out->sum, (u32 *)udp, sizeof(*udp) / 4);
	udp->checksum = ~checksum_fold(sum);
	if (!udp->checksum)
		udp->checksum = 0xffff;
}

static __always_inline void write_ip4(const struct datagram *d, const struct outgoing *out,
				      struct ip4 *ip) {
	*ip = (struct ip4){
		.version_words = 0x45,
		.bytes = bpf_htons(sizeof(*ip) + sizeof(struct udp) + out->bytes),
		.fragment = bpf_htons(IP_WHOLE),
		.ttl = PACKET_TTL,
		.protocol = IPPROTO_UDP,
		.source = d->packet.way.dst[0],
		.target = d->packet.way.src[0],
	};
	ip->checksum = ~checksum_fold(checksum_add(0, (u32 *)ip, sizeof(*ip) / 4));
}

static __always_inline void write_ip6(const struct datagram *d, const struct outgoing *out,
				      struct ip6 *ip) {
	ip->version_flow = bpf_htonl(0x60000000);
	ip->bytes = bpf_htons(sizeof(struct udp) + out->bytes);
	ip->protocol = IPPROTO_UDP;
	ip->hops = PACKET_TTL;
	__builtin_memcpy(ip->source, d->packet.way.dst, sizeof(ip->source));
	__builtin_memcpy(ip->target, d->packet.way.src, sizeof(ip->target));
}

/* Makes the packet the reply, whose headers begin at `from`. */
static __always_inline int send(struct __sk_buff *skb, struct outgoing *out, u8 *from, u32 headers,
				struct ecalls_answer_count *n) {
	u64 bytes = out->bytes;

	barrier_var(bytes);
	if (bytes > REPLY || bpf_skb_load_bytes(skb, 6, from, 6) ||
	    bpf_skb_load_bytes(skb, 0, from + 6, 6) || bpf_skb_load_bytes(skb, 12, from + 12, 2) ||
	    bpf_skb_change_tail(skb, headers + bytes, 0)) {
		n->unsent++;
		return TCX_NEXT;
	}
	if (bpf_skb_store_bytes(skb, 0, from, headers + bytes, STORE_KEEPS_SUM)) {
		n->unsent++;
		return TCX_DROP;
	}
	n->answered++;
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline int reply(struct __sk_buff *skb, const struct datagram *d,
				 struct outgoing *out, u32 summed, struct ecalls_answer_count *n) {
	u8 *from = out->headers, *end = out->headers + HEADERS_IP6;

	write_udp(d, out, summed, (struct udp *)(end - sizeof(struct udp)));
	if (d->packet.way.family == AF_INET) {
		from += HEADERS_IP6 - HEADERS_IP4;
		write_ip4(d, out, (struct ip4 *)(from + PACKET_ETHERNET));
		return send(skb, out, from, HEADERS_IP4, n);
	}
	write_ip6(d, out, (struct ip6 *)(from + PACKET_ETHERNET));
	return send(skb, out, from, HEADERS_IP6, n);
}

#endif
