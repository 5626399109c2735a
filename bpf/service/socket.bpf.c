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
 * Nearly always one subscription alone wants an event: then it goes the short way (event/sole.h);
 * if there are several, that of event/early.h.
 *
 * Events describe the socket at the time of the raise; several arrivals may be read at once. The
 * end of the stream is a DATA event without bytes. `bytes`: for TCP the bytes that the reader has
 * not taken; for UDP the buffers with their overhead; not counted for local sockets (0).
 */
#include "event/early.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct ecalls_socket_interest);
} socket_interest SEC(".maps");

#define CONNECTION_BIT (1u << ECALLS_SOCKET_CONNECTION)
#define SOCKET_WORDS (sizeof(struct ecalls_socket_event) / 8)
#define INHERITED 0x100u /* of a kind: through its listener */

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

/* The words of struct ecalls_socket_event. Bits of `words` name those that are wanted; the others
 * become 0. */
union socket_data {
	struct ecalls_socket_event event;
	u64 words[SOCKET_WORDS];
};
#define SOCKET_ALL (~0u)
#define SOCKET_COOKIE 1u
#define SOCKET_AMOUNT 2u
#define SOCKET_PORTS 4u
#define SOCKET_ADDRESS 8u

/* Most sockets have their cookie, once one was asked for. */
static __always_inline u64 cookie_of(struct sock *sk) {
	u64 cookie = sk->__sk_common.skc_cookie.counter;

	return cookie ? cookie : bpf_get_socket_cookie(sk);
}

static __always_inline void describe(u64 *words, struct sock *sk, u32 kind, bool inherited,
				     u32 wanted) {
	struct ecalls_socket_event *e = (void *)words;
	u16 family;

	e->cookie = wanted & SOCKET_COOKIE ? cookie_of(sk) : 0;
	words[1] = 0;
	words[2] = 0;
	words[3] = 0;
	if (wanted & SOCKET_AMOUNT) {
		if (kind == ECALLS_SOCKET_CONNECTION)
			e->backlog = sk->sk_ack_backlog;
		else
			e->bytes = bytes_waiting(sk);
	}
	if (!(wanted & (SOCKET_PORTS | SOCKET_ADDRESS)))
		return;
	family = sk->__sk_common.skc_family;
	e->inherited = inherited;
	e->family = family;
	if (family != AF_INET && family != AF_INET6)
		return;
	e->local_port = sk->__sk_common.skc_num;
	e->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	if (family == AF_INET)
		e->remote_ip4 = sk->__sk_common.skc_daddr;
}

/* The record of an event, where the filter finds it. */
static __always_inline void socket_filter_event(const struct sole *o, struct sole_event *e,
						struct sock *sk, bool inherited, u32 wanted) {
	struct ecalls_event *at = &o->c->event;

	at->sequence = 0;
	sole_head(at, e, 0, 0, o->cpu);
	sole_own(at, 0, o->s);
	describe(at->data, sk, e->kind, inherited, wanted);
	at->data[SOCKET_WORDS] = 0;
}

static __always_inline struct sole_event socket_event(const struct ecalls_socket_interest *interest,
						      u32 kind) {
	return (struct sole_event){
		.service = ECALLS_SERVICE_SOCKET,
		.kind = kind & ~INHERITED,
		.type = interest->type,
		.target = interest->target,
		.pid = interest->pid,
		.uid = interest->uid,
		.size = sizeof(struct ecalls_socket_event),
	};
}

/* Returns 0 if the event cannot go the short way. Each way is a function of its own, since it needs
 * much of the stack. `kind`: with INHERITED. */
static __noinline int socket_sole(void *ctx, struct sock *sk, struct ecalls_service *service,
				  const struct ecalls_socket_interest *interest, u32 kind) {
	bool inherited = kind & INHERITED;
	struct sole_event e = socket_event(interest, kind);
	struct sole_place place;
	struct sole_call call;
	struct sole o;
	int result;

	if (!sole_begin(&o, service, &e))
		return 0;
	if (o.s->sole == ECALLS_SOLE_PUT) {
		if (o.s->ready && sole_is_told(&o, e.type)) {
			sole_end(&o);
			return 1;
		}
		if (!sole_take(&o, &e, &place)) {
			sole_end(&o);
			return 0;
		}
		describe(place.entry->data, sk, e.kind, inherited, SOCKET_ALL);
		place.entry->data[SOCKET_WORDS] = 0;
		sole_stored(&o, &place);
		sole_end(&o);
		return 1;
	}
	result = SOLE_MISSING;
	if (sole_filters(&o, &call)) {
		socket_filter_event(&o, &e, sk, inherited, call.reads);
		result = sole_filter(ctx, &o, &call);
	}
	if (result == SOLE_PASSED) {
		describe(o.c->event.data, sk, e.kind, inherited, SOCKET_ALL);
		sole_passed(&o);
	}
	if (result != SOLE_MISSING)
		o.total->direct++;
	sole_end(&o);
	return result != SOLE_MISSING;
}

/* Makes it this CPU's current event, for early_deliver(). Returns 0 if it cannot go that way. */
static __noinline int socket_early(struct sock *sk, struct ecalls_service *service,
				   const struct ecalls_socket_interest *interest, u32 kind) {
	struct sole_event e = socket_event(interest, kind);
	struct sole o;

	if (!early_begin(&o, service, &e))
		return 0;
	describe(o.c->event.data, sk, e.kind, kind & INHERITED, SOCKET_ALL);
	o.c->event.data[SOCKET_WORDS] = 0;
	return 1;
}

/* Returns 0 if the event can go neither short way. */
static __always_inline int socket_short(void *ctx, struct sock *sk, struct ecalls_service *service,
					const struct ecalls_socket_interest *interest, u32 kind) {
	if (interest->deadline_ns || !interest->pid)
		return 0;
	if (*(volatile const u32 *)&service->sole)
		return socket_sole(ctx, sk, service, interest, kind);
	if (!socket_early(sk, service, interest, kind))
		return 0;
	early_deliver(ctx, ECALLS_SERVICE_SOCKET);
	return 1;
}

/* The way that every event can go. */
static __noinline int raise_socket(struct sock *sk, struct ecalls_service *service,
				   const struct ecalls_socket_interest *interest, u32 kind) {
	bool inherited = kind & INHERITED;
	u64 words[SOCKET_WORDS];
	struct raise r = {
		.service = ECALLS_SERVICE_SOCKET,
		.kind = kind & ~INHERITED,
		.type = interest->type,
		.target = interest->target,
		.size = sizeof(struct ecalls_socket_event),
		.pid = interest->pid,
		.uid = interest->uid,
		.user = interest->user,
	};

	describe(words, sk, r.kind, inherited, SOCKET_ALL);
	if (interest->deadline_ns)
		r.deadline_ns = bpf_ktime_get_ns() + interest->deadline_ns;
	raise_of(service, ECALLS_SERVICE_SOCKET, &r, words, SOCKET_WORDS);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(socket_ready, struct sock *sk) {
	struct ecalls_socket_interest *interest;
	struct ecalls_service *service;

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
	if (inherited)
		kind |= INHERITED;
	if (socket_short(ctx, sk, service, interest, kind))
		return 0;
	return raise_socket(sk, service, interest, kind);
}

char LICENSE[] SEC("license") = "GPL";
