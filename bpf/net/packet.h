/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A packet on an interface: finding a datagram in it, and whether it is for this host.
 *
 * Offsets count from the network header, so that this works on interfaces with and without Ethernet
 * headers. Packets with options, extension headers, fragments or a VLAN tag are left to the kernel:
 * the lane's senders make none, and clients of a service hardly any.
 */
#ifndef ECALLS_NET_PACKET_H
#define ECALLS_NET_PACKET_H

#include "kernel.h"
#include "abi/wire.h"
#include "lib/checksum.h"
#include <bpf/bpf_endian.h>

/* The kernel's user API (linux/bpf.h, linux/tcp.h and others): not relocated. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 unused[33];
	u32 gso_size;
};
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "as the kernel's");

struct bpf_fib_lookup {
	u8 family;
	u8 l4_protocol;
	u16 sport;
	u16 dport;
	u16 tot_len;
	u32 ifindex;
	u32 tos_or_flowinfo;
	u32 src[4];
	u32 dst[4];
	u32 result[4];
};
_Static_assert(sizeof(struct bpf_fib_lookup) == 64, "as the kernel's");

#define BPF_HDR_START_NET 1
#define BPF_FIB_LKUP_RET_NOT_FWDED 4
#define BPF_FIB_LKUP_RET_FWD_DISABLED 5
#define TCX_NEXT (-1)
#define TCX_DROP 2
#define PACKET_HOST 0
#define LOOPBACK 1 /* index of the loopback interface of every network namespace */
#define PACKET_OTHERHOST 3
#define PACKET_ETHERNET 14 /* bytes of an Ethernet header */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPPROTO_UDP 17

struct ip4 {
	u8 version_words; /* 0x45: without options */
	u8 tos;
	u16 bytes;
	u16 id;
	u16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	u32 source;
	u32 target;
};
#define FRAGMENT_MASK 0x3fff /* a part of a packet; the bits beside are other flags */
#define IP_WHOLE 0x4000	     /* never in parts */
#define PACKET_TTL 64

struct ip6 {
	u32 version_flow;
	u16 bytes;
	u8 protocol;
	u8 hops;
	u32 source[4];
	u32 target[4];
};

struct udp {
	u16 source;
	u16 target;
	u16 bytes;
	u16 checksum;
};

/* A UDP packet. */
struct packet {
	u32 at;	   /* of the first byte after the UDP header, from the network header on */
	u32 bytes; /* after the UDP header */
	struct bpf_fib_lookup way;
};

static __always_inline long packet_load(struct __sk_buff *skb, u32 at, void *to, u32 bytes) {
	return bpf_skb_load_bytes_relative(skb, at, to, bytes, BPF_HDR_START_NET);
}

static __always_inline bool packet_ip4(struct __sk_buff *skb, struct packet *p) {
	struct ip4 ip;

	if (packet_load(skb, 0, &ip, sizeof(ip)) || ip.version_words != 0x45 ||
	    ip.protocol != IPPROTO_UDP || ip.fragment & bpf_htons(FRAGMENT_MASK))
		return false;
	p->at = sizeof(ip);
	p->bytes = bpf_ntohs(ip.bytes) - sizeof(ip);
	p->way.family = AF_INET;
	p->way.src[0] = ip.source;
	p->way.dst[0] = ip.target;
	return bpf_ntohs(ip.bytes) >= sizeof(ip) + sizeof(struct udp);
}

static __always_inline bool packet_ip6(struct __sk_buff *skb, struct packet *p) {
	struct ip6 ip;

	if (packet_load(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP)
		return false;
	p->at = sizeof(ip);
	p->bytes = bpf_ntohs(ip.bytes);
	p->way.family = AF_INET6;
	__builtin_memcpy(p->way.src, ip.source, sizeof(ip.source));
	__builtin_memcpy(p->way.dst, ip.target, sizeof(ip.target));
	return p->bytes >= sizeof(struct udp);
}

/* Whether the packet is UDP, as long as it says. */
static __always_inline bool packet_udp(struct __sk_buff *skb, struct packet *p, struct udp *udp) {
	if (skb->vlan_present)
		return false;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!packet_ip4(skb, p))
			return false;
	} else if (skb->protocol != bpf_htons(ETH_P_IPV6) || !packet_ip6(skb, p)) {
		return false;
	}
	if (packet_load(skb, p->at, udp, sizeof(*udp)) || bpf_ntohs(udp->bytes) != p->bytes)
		return false;
	p->at += sizeof(*udp);
	p->bytes -= sizeof(*udp);
	return true;
}

/* Whether the packet is one from the lane's port to the lane's port. */
static __always_inline bool packet_open(struct __sk_buff *skb, struct packet *p) {
	const u16 port = bpf_htons(ECALLS_WIRE_PORT);
	struct udp udp;

	return packet_udp(skb, p, &udp) && udp.source == port && udp.target == port;
}

/* Whether this host would take the packet: a bridge that does not know an address yet sends packets
 * to every host, and a router gets packets that are for others. */
static __always_inline bool packet_is_here(struct __sk_buff *skb, struct packet *p) {
	long result;

	if (skb->pkt_type == PACKET_OTHERHOST)
		return false;
	if (skb->pkt_type != PACKET_HOST)
		return true; /* to several hosts: nobody routes these */
	p->way.l4_protocol = IPPROTO_UDP;
	p->way.ifindex = skb->ifindex;
	result = bpf_fib_lookup(skb, &p->way, sizeof(p->way), 0);
	return result == BPF_FIB_LKUP_RET_NOT_FWDED || result == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

#endif
