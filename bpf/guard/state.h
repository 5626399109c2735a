/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the guard of a port is told when it is loaded, and what it knows since. Its programs use it,
 * on all CPUs at once; the host reads it (crates/ecalls-kernel/src/guard.rs mirrors it).
 */
#ifndef ECALLS_GUARD_STATE_H
#define ECALLS_GUARD_STATE_H

#include "kernel.h"
#include "lib/guard.h"

#define LISTENERS_MAX 64u /* of the port; further ones are not seen: their queues do not count */
#define TURN_REFUSE 0	  /* it is refused by a reset */
#define TURN_DROP 1	  /* it is dropped */
#define TURN_SORRY 2	  /* a listener of the host's answers; beyond sorry_max it is dropped */

/* Written by the host before it loads the object. */
const volatile struct {
	u64 net_cookie; /* of the network namespace */
	u64 target_ns;	/* the delay that is wanted */
	u64 tick_ns;	/* a jiffy */
	u32 port;
	u32 turn;      /* what becomes of a SYN that is turned away: TURN_ */
	u32 sorry_max; /* connections, begun or not, that the answering listeners have at a time */
	u32 fuel; /* of the policy, a program in E-code that replaces the rule; 0: there is none */
} guard SEC(".rodata.guard");

/* Written by the programs here with atomic additions, or by one CPU's word against another's; read
 * by the host. */
struct counts {
	u64 admitted;	 /* SYNs that went on to the listener */
	u64 refused;	 /* SYNs that did not */
	u64 established; /* connections, since the guard began or queued then */
	s64 open;	 /* connections, accepted or not */
	u64 age_ns_sum;	 /* of what each SYN found: the age of the queue's head */
	u64 wait_ns_sum; /* and the wait ahead */
	u64 pace_ns;	 /* the server's, 0: unknown */
	u64 turns;	 /* how often refusing began */
	u64 sorry;	 /* of the refused: those that went to a listener that answers */
	s64 sorry_open;	 /* their connections */
	u64 failed;	 /* runs of the policy that ended in a fault: the rule decided */
	u64 fault;	 /* of the last one, as in abi/ecode.h, argument[1] */
	u32 refuses[2];	 /* now, for IPv4 and IPv6 */
	u32 listeners;
	u32 unseen; /* listeners beyond LISTENERS_MAX */
};

struct state {
	struct counts counts;
	struct guard_pace pace;
	u64 lost;     /* connections that were queued when their listener was closed */
	u32 used;     /* places of listeners that were ever used: the first ones */
	u32 owner;    /* the user who opened the last listener */
	u32 ruled[2]; /* what the rule said last, for IPv4 and IPv6: 1: to refuse */
	u64 listener[LISTENERS_MAX]; /* addresses; 0: free */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct state);
} guard_table SEC(".maps");

static __always_inline struct state *state_of(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&guard_table, &zero);
}

#endif
