/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The socket service: raises an event when a registered socket has data, or a registered listener
 * has a completed connection.
 *
 * A socket is registered if it has a struct ecalls_socket_interest in the map `socket_interest`,
 * which the host writes with the socket's descriptor as key. It lives as long as the socket. For
 * other sockets the cost is one load.
 *
 * The kernel copies a TCP listener's interest into each connection accepted from it (BPF_F_CLONE).
 * The kinds tell whether a connection was registered itself or got a copy: only a listener's
 * interest has the bit of CONNECTION. So the host sets that bit for listeners only, and a
 * connection with it has inherited it: it raises events only if `inherit` is set.
 *
 * The process concerned is the one that registered the socket, because the current process is
 * whichever was interrupted when data arrived, or the sender.
 *
 * A registration ends when its user loses its row (abi/user.h): when the row belongs to another
 * user, its events are refused.
 *
 * Readiness that its only subscription has been told and that its reader has not taken is counted
 * before the event is described (ready.h).
 *
 * Events describe the socket at the time of the raise; several arrivals may be read at once. The
 * end of the stream is a DATA event without bytes. `bytes`: for TCP the bytes that the reader has
 * not taken; for UDP the buffers with their overhead; not counted for local sockets (0).
 */
#include "event/raise.h"
#include "event/ready.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct ecalls_socket_interest);
} socket_interest SEC(".maps");

#define CONNECTION_BIT (1u << ECALLS_SOCKET_CONNECTION)
#define SOCKET_WORDS (sizeof(struct ecalls_socket_event) / 8)

static __always_inline bool is_tcp(const struct sock *sk) {
	return sk->sk_protocol == IPPROTO_TCP && sk->sk_type == SOCK_STREAM;
}

static __always_inline u32 bytes_waiting(const struct sock *sk) {
	const struct tcp_sock *tcp;
	u32 bytes;

	if (!is_tcp(sk))
		return sk->sk_backlog.rmem_alloc.counter;
	tcp = bpf_core_cast(sk, struct tcp_sock);
	bytes = tcp->rcv_nxt - tcp->copied_seq;
	/* The peer's end of stream occupies a sequence number. */
	return bytes && sk->sk_shutdown & RCV_SHUTDOWN ? bytes - 1 : bytes;
}

static __always_inline void addresses(struct ecalls_socket_event *e, const struct sock *sk) {
	u16 family = sk->__sk_common.skc_family;

	e->family = family;
	if (family != AF_INET && family != AF_INET6)
		return;
	e->local_port = sk->__sk_common.skc_num;
	e->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	if (family == AF_INET)
		e->remote_ip4 = sk->__sk_common.skc_daddr;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(socket_ready, struct sock *sk) {
	struct ecalls_socket_interest *interest;
	struct ecalls_service *service;
	union {
		struct ecalls_socket_event event;
		u64 words[SOCKET_WORDS];
	} data = {};

	/* Most of the machine's sockets have no storage: a load is cheaper than the look-up. */
	if (!sk->sk_bpf_storage)
		return 0;
	service = wanted_service(ECALLS_SERVICE_SOCKET);
	if (!service)
		return 0;
	interest = bpf_sk_storage_get(&socket_interest, sk, 0, 0);
	if (!interest)
		return 0;
	/* The registration lives as long as the socket, which may be longer than the user has the
	 * row. */
	if (!user_is(interest->user, interest->uid)) {
		struct ecalls_service_count *n = count_of_service(ECALLS_SERVICE_SOCKET);
		if (n)
			__sync_fetch_and_add(&n->refused, 1);
		return 0;
	}
	bool listens = sk->__sk_common.skc_state == TCP_LISTEN;
	u32 kind = listens ? ECALLS_SOCKET_CONNECTION : ECALLS_SOCKET_DATA;
	bool inherited = !listens && interest->kinds & CONNECTION_BIT && is_tcp(sk);
	if (!(interest->kinds >> kind & 1) || (inherited && !interest->inherit))
		return 0;
	struct raise r = {
		.service = ECALLS_SERVICE_SOCKET,
		.kind = kind,
		.type = interest->type,
		.target = interest->target,
		.size = sizeof(data.event),
		.pid = interest->pid,
		.uid = interest->uid,
		.user = interest->user,
	};
	if (ready_is_told(service, &r))
		return 0;
	data.event.cookie = bpf_get_socket_cookie(sk);
	data.event.inherited = inherited;
	addresses(&data.event, sk);
	if (listens)
		data.event.backlog = sk->sk_ack_backlog;
	else
		data.event.bytes = bytes_waiting(sk);
	if (interest->deadline_ns)
		r.deadline_ns = bpf_ktime_get_ns() + interest->deadline_ns;
	raise_of(service, ECALLS_SERVICE_SOCKET, &r, data.words, SOCKET_WORDS);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
