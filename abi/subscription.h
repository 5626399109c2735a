/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A subscription (struct ecalls of ECalls-05 §3): the events that it selects from a service, and
 * the actions for each event, in order. An action's result decides whether the next one runs
 * (ECalls-05 §3.1).
 *
 * Written by the host while state is SETUP; then only `state` changes. The kernel side reads it for
 * every event of the service.
 */
#ifndef ECALLS_SUBSCRIPTION_H
#define ECALLS_SUBSCRIPTION_H

#include "channel.h"

#define ECALLS_ACTION_HANDLER 1u /* kernel handler: continues or ends the chain */
#define ECALLS_ACTION_THREAD 2u /* kernel handler in a kernel thread; the rest of the chain there */
#define ECALLS_ACTION_SIGNAL 3u /* real-time signal with a 64-bit value */
#define ECALLS_ACTION_USER 4u	/* user handler: upcall on a thread of the library */
#define ECALLS_ACTION_MEMORY 5u /* shared memory of `channel` */

/* A real-time signal's value: `argument[0]` instead of the event's first data word. */
#define ECALLS_ACTION_FIXED_VALUE 0x1u

/* Which events of the service it sees. */
#define ECALLS_SCOPE_ALL 0u /* those of all users */
#define ECALLS_SCOPE_OWN 1u /* those whose uid is `owner_uid` */

/* The short way (bpf/event/sole.h) is for a subscription with `plain`, without a user whose rate is
 * limited, to the events of all users. */
#define ECALLS_SOLE_NONE 0u
#define ECALLS_SOLE_PUT 1u    /* one put into memory */
#define ECALLS_SOLE_FILTER 2u /* a filter before it */

struct ecalls_action {
	ecalls_u32 kind;    /* ECALLS_ACTION_* */
	ecalls_u32 flags;   /* ECALLS_ACTION_FIXED_VALUE */
	ecalls_u32 handler; /* HANDLER, THREAD: number of the kernel handler */
	ecalls_u32 channel; /* USER, MEMORY: id of the channel */
	ecalls_u32 signal;  /* SIGNAL: number, SIGRTMIN..SIGRTMAX */
	ecalls_u32 pad;
	ecalls_u64 argument[3]; /* HANDLER, THREAD: its parameters; SIGNAL: the fixed value */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_action) == 48, "action");

struct ecalls_subscription {
	/* line 0: read for every event */
	ecalls_u32 state;	/* ECALLS_STATE_* */
	ecalls_u32 id;		/* index | generation << 12 */
	ecalls_u32 service;	/* index of the service */
	ecalls_u32 owner;	/* process that subscribed */
	ecalls_u32 receiver;	/* process that receives (process_id of struct ecalls) */
	ecalls_u32 uid;		/* user of the receiver */
	ecalls_u32 kinds;	/* bit k: wants events of kind k; 0: all */
	ecalls_u32 pid;		/* 0, or only events raised in this process */
	ecalls_u32 scope;	/* ECALLS_SCOPE_* */
	ecalls_u32 owner_uid;	/* user of the owner: its rights to see events and to signal */
	ecalls_u32 user;	/* row of abi/user.h that is charged for it */
	ecalls_u32 channel;	/* whose `lost` element shows its losses; 0: none */
	ecalls_u64 deadline_ns; /* relative; 0: none. The earlier of this and the event's holds */
	ecalls_u32 actions;	/* entries of action[] in use */
	/* Id of the channel if its last action is MEMORY or USER, and the only one (a plain
	 * subscription) or behind one handler in E-code (a filter); 0: otherwise */
	ecalls_u32 plain;
	/* line 1 */
	ecalls_u64 receiver_start; /* start time of the receiver (since boot, ns): pid reuse */
	ecalls_u64 owner_start;	   /* start time of the owner, 0: not compared */
	ecalls_u32 cpu_priority;   /* CPU scheduling priority of the receiver, higher first */
	ecalls_u32 order;	   /* registration order; host only */
	ecalls_u64 ended_ns;	   /* when it was taken out of its lists; host only */
	/* `plain`, if that is its only action and what is not read stands for further events */
	ecalls_u32 ready;
	ecalls_u32 sole; /* ECALLS_SOLE_*: how an event that it alone may want comes to it */
	/* ECALLS_EVENT_COALESCES, or 0: what its events have in addition. For one action that
	 * stores into a ring, the last one. */
	ecalls_u32 event_flags;
	ecalls_u32 pad1;
	/* With COALESCES: position + 1 of the last event that was stored; 0: none. Written by the
	 * kernel side's CPUs in any order: an older value only stores one event more. */
	ecalls_u64 stored;
	ecalls_u32 pad2[2];
	struct ecalls_action action[ECALLS_ACTIONS_MAX];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_subscription) == 512, "subscription");

#endif
