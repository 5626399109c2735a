/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The listeners of the guard's host, to which SYNs go that are turned away, one of each kind for
 * IPv4 and IPv6:
 *   - those of which the filters take no packet: a SYN is dropped there;
 *   - those whose connections get an answer that the server is busy.
 *
 * A connection that is answered has the server's port, since its SYN went there. So that it is not
 * taken for the server's, it inherits a mark from its listener, in the storage of sockets.
 *
 * What the answers cost is bounded here: connections, and handshakes that have begun, are counted,
 * and a SYN beyond sorry_max is dropped. Two CPUs may see the same count: there may be as many more
 * as CPUs.
 */
#ifndef ECALLS_GUARD_OWN_H
#define ECALLS_GUARD_OWN_H

#include "kernel.h"
#include "state.h"

/* Places: IPv4, IPv6. */
#define OWN_VOID 0
#define OWN_SORRY 2
#define SK_DROP 0
#define SK_PASS 1

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} guard_own SEC(".maps");

/* The mark: whatever its value is. The host marks its listeners. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u32);
} guard_mark SEC(".maps");

/* From the kernel's user API (linux/bpf.h), as far as it is used: programs see it as such. */
struct bpf_sk_lookup {
	u64 sk;
	u32 family;
	u32 protocol;
	u32 remote_ip4;
	u32 remote_ip6[4];
	__be16 remote_port;
	u16 pad;
	u32 local_ip4;
	u32 local_ip6[4];
	u32 local_port; /* host byte order */
};

static __always_inline bool is_sorry(struct sock *sk) {
	return bpf_sk_storage_get(&guard_mark, sk, 0, 0);
}

/* A connection that is answered changes its state. */
static __always_inline void count_sorry(struct counts *counts, int oldstate, int newstate) {
	if (oldstate == TCP_SYN_RECV && newstate == TCP_ESTABLISHED)
		__sync_fetch_and_add(&counts->sorry_open, 1);
	else if (newstate == TCP_CLOSE && oldstate != TCP_SYN_RECV)
		__sync_fetch_and_add(&counts->sorry_open, -1);
}

/* Sends a SYN to the listener that takes none. If that fails, the server gets it. */
static __always_inline bool drop(struct bpf_sk_lookup *syn) {
	u32 place = OWN_VOID + (syn->family == AF_INET6);
	struct bpf_sock *nobody = bpf_map_lookup_elem(&guard_own, &place);
	long failed;

	if (!nobody)
		return false;
	failed = bpf_sk_assign(syn, nobody, 0);
	bpf_sk_release(nobody);
	return !failed;
}

/* Sends a SYN to the listener that answers, if there is room. */
static __always_inline bool answer(struct bpf_sk_lookup *syn, struct counts *counts) {
	u32 place = OWN_SORRY + (syn->family == AF_INET6);
	struct bpf_sock *own = bpf_map_lookup_elem(&guard_own, &place);
	s64 busy = counts->sorry_open;
	long failed = 1;

	if (!own)
		return false;
	busy += bpf_core_cast(own, struct inet_connection_sock)->icsk_accept_queue.qlen.counter;
	if (busy < guard.sorry_max)
		failed = bpf_sk_assign(syn, own, 0);
	bpf_sk_release(own);
	if (failed)
		return false;
	__sync_fetch_and_add(&counts->sorry, 1);
	return true;
}

/* What becomes of a SYN that is turned away: the kernel's verdict, or -1: the server gets it. */
static __always_inline int turn_away(struct bpf_sk_lookup *syn, struct counts *counts) {
	if (guard.turn == TURN_REFUSE)
		return SK_DROP;
	if (guard.turn == TURN_SORRY && answer(syn, counts))
		return SK_PASS;
	return drop(syn) ? SK_PASS : -1;
}

#endif
