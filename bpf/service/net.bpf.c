/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The net service: raises an event when a TCP connection retransmits a segment (RETRANSMIT), when
 * its round-trip time exceeds the service's parameter (ROUND_TRIP), and when its state changes
 * (STATE).
 *
 * All of this happens in whatever process is on the CPU, or in none. So an event belongs to the
 * socket's user, and to no process.
 *
 * The round-trip time is checked whenever a segment arrives on an established connection. While it
 * exceeds the threshold, the connection raises at most one event per round trip: the time of the
 * last one is kept in the socket's storage.
 *
 * A connection that is just being accepted is no socket yet: its first state is ESTABLISHED (after
 * SYN_RECV), and a retransmission of its answer to the first segment raises no event.
 */
#include "event/raise.h"

#define NET_WORDS (sizeof(struct ecalls_net_event) / 8)

union net_data {
	struct ecalls_net_event event;
	u64 words[NET_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64); /* when the socket last raised ROUND_TRIP, ns */
} net_told SEC(".maps");

/* ::ffff:a.b.c.d */
static __always_inline void map_ip4(u8 *ip, __be32 address) {
	ip[10] = ip[11] = 0xff;
	__builtin_memcpy(&ip[12], &address, sizeof(address));
}

static __always_inline void addresses(struct ecalls_net_event *e, const struct sock_common *sk) {
	const struct inet_sock *inet = bpf_core_cast(sk, struct inet_sock);

	e->local_port = __builtin_bswap16(inet->inet_sport);
	e->remote_port = __builtin_bswap16(sk->skc_dport);
	if (sk->skc_family == AF_INET) {
		map_ip4(e->local_ip, sk->skc_rcv_saddr);
		map_ip4(e->remote_ip, sk->skc_daddr);
	} else if (sk->skc_family == AF_INET6) {
		bpf_probe_read_kernel(e->local_ip, sizeof(e->local_ip), &sk->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(e->remote_ip, sizeof(e->remote_ip), &sk->skc_v6_daddr);
	}
}

static __always_inline void describe(union net_data *data, const struct sock *sk) {
	const struct tcp_sock *tcp = bpf_core_cast(sk, struct tcp_sock);

	data->event.cookie = bpf_get_socket_cookie((void *)sk);
	data->event.round_trip_us = tcp->srtt_us >> 3;
	data->event.retransmits = tcp->total_retrans;
	data->event.window = tcp->snd_cwnd;
	data->event.state = sk->__sk_common.skc_state;
	data->event.former = data->event.state;
	addresses(&data->event, &sk->__sk_common);
}

static __always_inline void raise_net(u32 kind, const union net_data *data, const struct sock *sk) {
	struct raise r = {
		.service = ECALLS_SERVICE_NET,
		.kind = kind,
		.type = data->event.state,
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_NO_PID,
		.uid = sk->sk_uid.val,
		.size = sizeof(data->event),
	};

	raise(&r, data->words, NET_WORDS);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(net_retransmit, const struct sock *sk) {
	union net_data data = {};

	if (!raise_wanted(ECALLS_SERVICE_NET))
		return 0;
	describe(&data, sk);
	raise_net(ECALLS_NET_RETRANSMIT, &data, sk);
	return 0;
}

/* Whether the socket may raise ROUND_TRIP now; if so, stores the time. */
static __always_inline bool round_trip_due(struct sock *sk, u64 round_trip_ns) {
	u64 now_ns = bpf_ktime_get_ns();
	u64 *told_ns = bpf_sk_storage_get(&net_told, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!told_ns)
		return true; /* no memory: rather one event too many */
	if (*told_ns && now_ns - *told_ns < round_trip_ns)
		return false;
	*told_ns = now_ns;
	return true;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(net_round_trip, struct sock *sk) {
	u32 service = ECALLS_SERVICE_NET;
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	const struct tcp_sock *tcp;
	union net_data data = {};
	u64 round_trip_ns;

	if (!s || !service_wanted(s))
		return 0;
	tcp = bpf_core_cast(sk, struct tcp_sock);
	round_trip_ns = (u64)(tcp->srtt_us >> 3) * 1000;
	if (!round_trip_ns || round_trip_ns < s->parameter || !round_trip_due(sk, round_trip_ns))
		return 0;
	describe(&data, sk);
	raise_net(ECALLS_NET_ROUND_TRIP, &data, sk);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(net_state, const struct sock *sk, const int former, const int state) {
	union net_data data = {};

	if (!raise_wanted(ECALLS_SERVICE_NET) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	describe(&data, sk);
	data.event.former = former;
	data.event.state = state;
	raise_net(ECALLS_NET_STATE, &data, sk);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
