/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An observer of a server's sockets as somebody writes one today, without ECalls: a BPF ring buffer
 * filled at the tracepoint of the socket service. `ecalls bench server` compares ours with it.
 *
 * It is the cheapest of its kind: for one server and one reader, which looks at intervals, so no
 * event wakes anybody. It does without what ECalls has: rights, deadlines, filters of users,
 * accounts per subscription.
 */
#include "bpf/kernel.h"

char LICENSE[] SEC("license") = "GPL";

#define RING_BYTES (1u << 20)

struct record {
	u64 time_ns;
	u64 cookie;
	u32 bytes;
	u16 local_port;
	u16 remote_port;
	u32 remote_ip4;
	u32 cpu;
};

const volatile u32 port SEC(".rodata.port");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ringbuf, struct sock *sk) {
	const struct tcp_sock *tcp;
	struct record *r;

	if (sk->__sk_common.skc_num != port)
		return 0;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r)
		return 0;
	tcp = bpf_core_cast(sk, struct tcp_sock);
	r->time_ns = bpf_ktime_get_ns();
	r->cookie = bpf_get_socket_cookie(sk);
	r->bytes = tcp->rcv_nxt - tcp->copied_seq;
	r->local_port = sk->__sk_common.skc_num;
	r->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	r->remote_ip4 = sk->__sk_common.skc_daddr;
	r->cpu = bpf_get_smp_processor_id();
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}
