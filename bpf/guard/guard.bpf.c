/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard of a TCP port against overload (ECalls-01 §3.4): while the server is behind
 * (lib/guard.h), connections that come are turned away before there is anything of them.
 *
 * An object of its own, which uses nothing of the core. The process that loaded it holds it: the
 * guard ends with that process. It acts in the network namespace of that process, whatever the
 * interface, and has three programs:
 *   guard_lookup  decides. It runs when the kernel looks for a listener, so once for each SYN that
 *                 begins a connection; packets of connections do not come here.
 *                 (Datagrams do, and go on at once.)
 *   guard_state   runs when a TCP socket changes its state. It learns which sockets listen at the
 *                 port, also when the server opens its listener again, and counts connections.
 *   guard_begin   an iterator, run once: finds what there is when the guard begins.
 *
 * No program sees accept(2). But the connection at the head of a listener's queue has sent nothing
 * yet, so `lsndtime` is when it was established; and what was established, is not queued and was
 * not when its listener was closed, was accepted.
 *
 * Listeners are stored as addresses, and each is forgotten before its memory is freed. A look at
 * the head of a queue takes no lock: if the server accepts meanwhile, the look may see another
 * connection's words, and one decision is wrong. Nothing is written there, and reads of addresses
 * that are none yield 0.
 *
 * A server that accepts at once may tell of the queue within it (abi/guard.h): its connections
 * count as queued then, and the requests that it has answered as accepted.
 *
 * A policy in E-code (policy.h) may decide instead of the rule.
 *
 * SYN cookies: the last packet of such a handshake looks for the listener, too, and may be refused.
 */
#include "kernel.h"
#include "abi/guard.h"
#include "lib/guard.h"
#include "own.h"
#include "policy.h"
#include "state.h"

#define TOLD_MAX 1048576u /* a server has no more connections than this */

/* A page that the server writes, whom the host gives it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_guard_page);
} guard_page SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_iter__tcp {
	struct sock_common *sk_common;
};
#pragma clang attribute pop

/* Looks at listeners go as far as this place from now on. */
static __always_inline void use_place(struct state *state, u32 place) {
	for (u32 i = 0; i < LISTENERS_MAX; i++) {
		u32 used = state->used;

		if (used > place ||
		    __sync_val_compare_and_swap(&state->used, used, place + 1) == used)
			return;
	}
}

/* Places are looked for from the first on, so few listeners use few places, however often they are
 * opened again. */
static __always_inline void add_listener(struct state *state, const struct sock *sk) {
	u64 address = (u64)sk;

	state->owner = BPF_CORE_READ(sk, sk_uid.val);
	for (u32 i = 0; i < LISTENERS_MAX; i++) {
		if (state->listener[i] == address)
			return;
	}
	for (u32 i = 0; i < LISTENERS_MAX; i++) {
		if (!state->listener[i] &&
		    !__sync_val_compare_and_swap(&state->listener[i], 0, address)) {
			__sync_fetch_and_add(&state->counts.listeners, 1);
			use_place(state, i);
			return;
		}
	}
	__sync_fetch_and_add(&state->counts.unseen, 1);
}

/* A new connection begins as a copy of its listener: that one is not found here. */
static __always_inline void remove_listener(struct state *state, const struct sock *sk) {
	for (u32 i = 0; i < LISTENERS_MAX; i++) {
		if (state->listener[i] == (u64)sk) {
			state->listener[i] = 0;
			__sync_fetch_and_add(&state->lost, sk->sk_ack_backlog);
			__sync_fetch_and_add(&state->counts.listeners, -1);
			return;
		}
	}
}

static __always_inline bool is_guarded(const struct sock_common *sk, u32 port) {
	return port == guard.port && sk->skc_net.net->net_cookie == guard.net_cookie;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(guard_state, struct sock *sk, int oldstate, int newstate) {
	/* A closed one may have released its port. */
	u32 port = __builtin_bswap16(bpf_core_cast(sk, struct inet_sock)->inet_sport);
	struct state *state;

	if (sk->__sk_common.skc_num)
		port = sk->__sk_common.skc_num;
	if (!is_guarded(&sk->__sk_common, port) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	state = state_of();
	if (!state)
		return 0;
	if (is_sorry(sk)) {
		count_sorry(&state->counts, oldstate, newstate);
		return 0;
	}
	if (newstate == TCP_LISTEN) {
		add_listener(state, sk);
	} else if (oldstate == TCP_LISTEN) {
		remove_listener(state, sk);
	} else if (oldstate == TCP_SYN_RECV && newstate == TCP_ESTABLISHED) {
		__sync_fetch_and_add(&state->counts.established, 1);
		__sync_fetch_and_add(&state->counts.open, 1);
	} else if (newstate == TCP_CLOSE && oldstate != TCP_SYN_RECV) {
		__sync_fetch_and_add(&state->counts.open, -1);
	}
	return 0;
}

SEC("iter/tcp")
int guard_begin(struct bpf_iter__tcp *context) {
	struct sock_common *sk = context->sk_common;
	struct state *state = state_of();

	if (!sk || !state || !is_guarded(sk, sk->skc_num))
		return 0;
	switch (sk->skc_state) {
	case TCP_LISTEN:
		add_listener(state, (const struct sock *)sk);
		__sync_fetch_and_add(&state->counts.established,
				     BPF_CORE_READ((struct sock *)sk, sk_ack_backlog));
		break;
	case TCP_TIME_WAIT:
	case TCP_NEW_SYN_RECV:
	case TCP_SYN_RECV:
	case TCP_CLOSE:
		break;
	default:
		__sync_fetch_and_add(&state->counts.open, 1);
	}
	return 0;
}

/* How well a listener's address fits: 0: not at all, 1: it takes all addresses, 2: all of this
 * family, 3: this one. */
static __always_inline u32 fit(const struct sock_common *listener, struct bpf_sk_lookup *syn) {
	u16 family = BPF_CORE_READ(listener, skc_family);
	u32 own4 = BPF_CORE_READ(listener, skc_rcv_saddr);
	u64 own[2], want[2];

	if (syn->family == AF_INET) {
		if (own4)
			return own4 == syn->local_ip4 ? 3 : 0;
		return family == AF_INET ? 2 : 1;
	}
	if (family != AF_INET6)
		return 0;
	BPF_CORE_READ_INTO(&own, listener, skc_v6_rcv_saddr);
	if (!own[0] && !own[1])
		return 2;
	want[0] = syn->local_ip6[0] | (u64)syn->local_ip6[1] << 32;
	want[1] = syn->local_ip6[2] | (u64)syn->local_ip6[3] << 32;
	return own[0] == want[0] && own[1] == want[1] ? 3 : 0;
}

/* The age of the connection that has waited longest for this listener; 0: none waits. */
static __always_inline u64 head_age_ns(const struct sock *listener, u64 now_ticks) {
	const struct inet_connection_sock *queue = (const void *)listener;
	struct request_sock *head;
	struct tcp_sock *tcp;
	u32 ticks;

	head = BPF_CORE_READ(queue, icsk_accept_queue.rskq_accept_head);
	if (!head)
		return 0;
	tcp = (struct tcp_sock *)BPF_CORE_READ(head, sk);
	if (!tcp)
		return 0;
	ticks = (u32)now_ticks - BPF_CORE_READ(tcp, lsndtime);
	return (s32)ticks <= 0 ? 1 : ticks * guard.tick_ns;
}

/* A search through the listeners. */
struct search {
	struct state *state;
	struct bpf_sk_lookup *syn;
	u64 now_ticks;
	u64 queued;
	u64 begun; /* handshakes */
	u64 age_ns;
	u32 best;
	u32 pad;
};

static long look_at(u32 i, struct search *search) {
	const struct sock *listener;
	u64 age_ns;
	u32 fits;

	listener = (const struct sock *)search->state->listener[i % LISTENERS_MAX];
	if (!listener || BPF_CORE_READ(listener, __sk_common.skc_state) != TCP_LISTEN)
		return 0;
	search->queued += BPF_CORE_READ(listener, sk_ack_backlog);
	search->begun += BPF_CORE_READ((const struct inet_connection_sock *)listener,
				       icsk_accept_queue.young.counter);
	fits = fit(&listener->__sk_common, search->syn);
	if (!fits || fits < search->best)
		return 0;
	age_ns = head_age_ns(listener, search->now_ticks);
	if (fits > search->best || age_ns < search->age_ns)
		search->age_ns = age_ns;
	search->best = fits;
	return 0;
}

/* What the server tells of the queue within it; zeros: nothing. */
static __always_inline void hear(struct guard_look *look, struct ecalls_guard_page *told) {
	u32 zero = 0;
	const volatile struct ecalls_guard_page *page = bpf_map_lookup_elem(&guard_page, &zero);

	if (!page || page->told != ECALLS_GUARD_PAGE_TOLD)
		return;
	told->numconnects = page->numconnects;
	if (told->numconnects > TOLD_MAX)
		told->numconnects = TOLD_MAX;
	told->since_ns = page->since_ns;
	if (told->since_ns > look->now_ns)
		told->since_ns = 0;
	look->queued += told->numconnects;
	if (told->since_ns && look->now_ns - told->since_ns > look->age_ns)
		look->age_ns = look->now_ns - told->since_ns;
	look->accepted = page->served;
}

/* What a SYN finds; false if no listener that is known would get it. Of several that would (a group
 * with SO_REUSEPORT), the one that is least behind counts. */
static __always_inline bool find(struct state *state, struct bpf_sk_lookup *syn,
				 struct guard_look *look, struct ecalls_guard_page *told) {
	struct search search = {.state = state, .syn = syn, .now_ticks = bpf_jiffies64()};
	u64 established = state->counts.established, others;

	bpf_loop(state->used, look_at, &search, 0);
	look->now_ns = bpf_ktime_get_ns();
	look->age_ns = search.age_ns;
	look->queued = search.queued;
	look->begun = search.begun;
	/* A connection is queued a moment before it is established. */
	others = search.queued + state->lost;
	look->accepted = established > others ? established - others : 0;
	hear(look, told);
	return search.best;
}

SEC("sk_lookup")
int guard_lookup(struct bpf_sk_lookup *syn) {
	struct ecalls_guard_page told = {};
	struct guard_look look = {};
	u32 is_ip6 = syn->family == AF_INET6;
	struct state *state;
	u64 wait_ns;
	int verdict = -1;
	bool refuses;

	if (syn->local_port != guard.port || syn->protocol != IPPROTO_TCP)
		return SK_PASS;
	state = state_of();
	if (!state || !find(state, syn, &look, &told))
		return SK_PASS;
	wait_ns = guard_wait(&state->pace, &look, guard.tick_ns);
	state->counts.pace_ns = state->pace.pace_ns;
	__sync_fetch_and_add(&state->counts.age_ns_sum, look.age_ns);
	__sync_fetch_and_add(&state->counts.wait_ns_sum, wait_ns);
	refuses = guard_refuses(state->ruled[is_ip6], wait_ns, look.age_ns, guard.target_ns);
	state->ruled[is_ip6] = refuses;
	if (guard.fuel)
		refuses = policy_refuses(syn, state, &look, &told, wait_ns, refuses);
	if (refuses && !state->counts.refuses[is_ip6])
		__sync_fetch_and_add(&state->counts.turns, 1);
	state->counts.refuses[is_ip6] = refuses;
	if (refuses)
		verdict = turn_away(syn, &state->counts);
	if (verdict >= 0) {
		__sync_fetch_and_add(&state->counts.refused, 1);
		return verdict;
	}
	__sync_fetch_and_add(&state->counts.admitted, 1);
	return SK_PASS;
}

char LICENSE[] SEC("license") = "GPL";
