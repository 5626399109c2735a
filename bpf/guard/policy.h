/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy of a port, a program in E-code (abi/ecode.h) that replaces the guard's rule: it sees
 * what the guard knows when a SYN comes, and its result says whether the SYN goes on. Its input is
 * `struct facts`, of which crates/ecalls-kernel/src/guard/policy.rs has the format.
 *
 * It is a program for the choice of a listener like its caller, in a place of its own, and can do
 * nothing but decide. If it fails, the rule decides.
 */
#ifndef ECALLS_GUARD_POLICY_H
#define ECALLS_GUARD_POLICY_H

#include "kernel.h"
#include "abi/event.h"
#include "abi/guard.h"
#include "event/frame.h"
#include "own.h"
#include "state.h"

struct facts {
	u64 age_ns; /* how long the connection at the head of the queue has waited; 0: none waits */
	u64 wait_ns;	 /* the time that the queue would take */
	u64 pace_ns;	 /* the time between two accepts of the busy server; 0: unknown */
	u64 target_ns;	 /* the delay that is wanted */
	u64 queued;	 /* connections that wait to be accepted, and numconnects */
	u64 numconnects; /* connections that wait within the server, if it tells */
	u64 response_ns; /* and how long the first of them has waited */
	u64 open;	 /* connections, accepted or not */
	u64 admitted;	 /* SYNs so far */
	u64 refused;
	u16 refuses; /* 1: the rule would refuse this one */
	u16 family;
	u16 remote_port;
	u16 pad;
	u32 remote_ip4;	  /* network byte order; 0 for IPv6 */
	u8 remote_ip[16]; /* of IPv4 the mapped form */
	u32 pad2;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_frame);
} guard_frames SEC(".maps");

/* An event that nobody raised, whose data are the facts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_event);
} guard_facts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} guard_policy SEC(".maps");

/* Comes back whether there is a program or not. */
static __noinline int run_policy(struct bpf_sk_lookup *syn) {
	bpf_tail_call_static(syn, &guard_policy, 0);
	return 0;
}

/* An address of the other family reads as 0. Words are read one by one, as the verifier demands. */
static __always_inline void fill_source(struct facts *facts,
					const volatile struct bpf_sk_lookup *syn) {
	bool is_ip6 = syn->family == AF_INET6;
	u32 ip4 = syn->remote_ip4, last[2];
	u32 *ip = (u32 *)facts->remote_ip;

	facts->family = syn->family;
	facts->remote_port = __builtin_bswap16(syn->remote_port);
	facts->remote_ip4 = ip4;
	ip[0] = syn->remote_ip6[0];
	ip[1] = syn->remote_ip6[1];
	last[0] = syn->remote_ip6[2];
	last[1] = syn->remote_ip6[3];
	ip[2] = is_ip6 ? last[0] : __builtin_bswap32(0xffff);
	ip[3] = is_ip6 ? last[1] : ip4;
}

/* Whether the policy refuses the SYN, given what the rule says. */
static __always_inline bool policy_refuses(struct bpf_sk_lookup *syn, struct state *state,
					   const struct guard_look *look,
					   const struct ecalls_guard_page *told, u64 wait_ns,
					   bool refuses) {
	u32 zero = 0;
	struct ecalls_frame *frame = bpf_map_lookup_elem(&guard_frames, &zero);
	struct ecalls_event *event = bpf_map_lookup_elem(&guard_facts, &zero);
	struct counts *counts = &state->counts;
	struct facts *facts;

	if (!frame || !event)
		return refuses;
	facts = (struct facts *)event->data;
	event->raise_ns = look->now_ns;
	event->size = sizeof(*facts);
	facts->age_ns = look->age_ns;
	facts->wait_ns = wait_ns;
	facts->pace_ns = counts->pace_ns;
	facts->target_ns = guard.target_ns;
	facts->queued = look->queued;
	facts->numconnects = told->numconnects;
	facts->response_ns = told->since_ns ? look->now_ns - told->since_ns : 0;
	facts->open = counts->open > 0 ? counts->open : 0;
	facts->admitted = counts->admitted;
	facts->refused = counts->refused;
	facts->refuses = refuses;
	fill_source(facts, syn);
	ecode_frame(frame, look->now_ns, guard.fuel, 0);
	frame->result = !refuses;
	run_policy(syn);
	if (frame->fault) {
		__sync_fetch_and_add(&counts->failed, 1);
		counts->fault = (u64)frame->fault_place << ECALLS_ECODE_FAULT_SHIFT | frame->fault;
		return refuses;
	}
	return !frame->result;
}

#endif
