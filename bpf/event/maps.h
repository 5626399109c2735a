/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All maps that the parts of the kernel side share. Each part is an object file (so that one which
 * a kernel cannot load disables no other) and defines the maps that it uses from here; the loader
 * creates a map once and passes the same one to all objects by name.
 *
 * The loader sizes `queues` or `spin_queues`, `queue_timers`, `rests`, `rest_uses` and the per-CPU
 * maps for the machine's CPUs.
 */
#ifndef ECALLS_MAPS_H
#define ECALLS_MAPS_H

#include "kernel.h"
#include "abi/audience.h"
#include "abi/channel.h"
#include "abi/downcall.h"
#include "abi/ecode.h"
#include "abi/event.h"
#include "abi/fate.h"
#include "abi/service.h"
#include "abi/subscription.h"
#include "abi/user.h"
#include "lib/queue.h"

/* One queue with its lock and the events in its slots. Element `cpu` belongs to that CPU; the last
 * two elements are the queue of the kernel threads and that of the signals that wait for their
 * receiver. */
struct queue_cell {
	struct bpf_res_spin_lock lock;
	u32 pad;
	struct queue queue;
	struct ecalls_event event[HEAP_ENTRIES];
};

/* The same before Linux 6.15, which has no such lock. The verifier knows locks by their type, and
 * permits one in a map's value. */
struct spin_queue_cell {
	struct bpf_spin_lock lock;
	u32 pad;
	struct queue queue;
	struct ecalls_event event[HEAP_ENTRIES];
};
_Static_assert(sizeof(struct spin_queue_cell) == sizeof(struct queue_cell),
	       "they differ in the type of the lock");

#define NESTED_EVENTS 4 /* a CPU's contexts: process, soft interrupt, interrupt, NMI */

/* The attributes that are matched, and the matches found in one list (match.h). */
struct match {
	u32 kind;
	s32 target;
	u32 pid;
	u32 uid;
	u32 next; /* 0: the service's list; after a search: an audience's row, 0: no further list */
	u32 list; /* out: the one of the service's two lists */
	u64 mask; /* out: positions of the matching subscriptions; drop_for_matches() clears them */
};

/* The process with which subscriptions are compared; an event of another host has none. */
static __always_inline u32 event_process(const struct ecalls_event *e) {
	return e->flags & ECALLS_EVENT_HOST ? 0 : e->pid;
}

/* The attributes of an event that was displaced from a queue, and what else queue_add() returns,
 * which is not on its caller's stack (lib/portable.h says why). */
struct evicted {
	struct match match; /* for account.h, to find the matching subscriptions */
	u32 service;
	u32 flags;
	u32 subscription;
	u32 chain; /* with ECALLS_EVENT_RESUME: see account.h */
	u32 rest;  /* place of its data beyond the record (rest.h); 0: none */
	u32 pad;
	u64 id;
	u64 raise_ns;
	u64 release_ns;
	u64 deadline_ns;
	u64 next_ns; /* when the queue must be examined next; 0: never */
};

#define EVICTED_PLACES 8 /* more than contexts of a CPU; a power of two */

/* The outcome of one chain. */
struct outcome {
	u32 delivered; /* actions that delivered */
	u32 signals;   /* those of them that were signals */
	u32 dropped;   /* reason + 1 of the last action that could not */
	u32 filtered;  /* a handler ended the chain, */
	u32 said;      /* by E-code's drop(): its reason + 1 */
	u32 pending;   /* the chain continues in a thread */
};

/* The last signal that this CPU's dispatcher passed to the kernel, until its verdict is known. */
struct signal_note {
	u32 subscription; /* index + 1; 0: none, or its verdict is known */
	u32 number;
	s32 verdict; /* SIGNAL_VERDICT_* */
	u32 shared;  /* 1: another action of the same chain delivered */
	u32 sending; /* 1: the dispatcher waits for the verdict, which is its action's result */
	u32 waiter;  /* a signal that must wait: subscription id, */
	u32 chain;   /* the action with which its chain continues, */
	s32 result;  /* and its result: SIGNAL_PENDING or dropped (signal_task.bpf.c) */
};

/* How far the current event has come on its way through the lists of subscriptions (walk.h). */
struct walk {
	u32 row;      /* the list: a row of an audience; 0: the service's list, */
	u32 list;     /* and the one of its two versions */
	u32 at;	      /* the next position in it */
	u32 audience; /* first row of the event's audience; 0: none */
	u32 one;      /* 1: only the subscription at `at` receives the event (wake-one) */
	u32 direct;   /* 1: the event was not queued, and its raise is not counted yet */
	u32 offered;  /* subscriptions to which it was offered */
	u32 flags;    /* the event's, and its deadline: for each subscription they are others */
	u64 deadline_ns;
	u32 sole; /* with DIRECT_SOLE: the only subscription in the event's lists; _RUN: one */
	u32 pad;
};

/* The call of a handler that runs now (action.h); the handler writes the result. */
struct handler_call {
	u32 subscription; /* index */
	u32 action;
	s32 result; /* HANDLER_* */
	u32 pad;
};

/* The data of an event beyond its record (rest.h): 8 entries without their first words. */
#define REST_ENTRY_WORDS (ECALLS_ENTRY_DATA / 8)
#define REST_WORDS (8 * REST_ENTRY_WORDS)
struct rest {
	u64 word[REST_WORDS];
};
_Static_assert(ECALLS_DATA_INLINE + sizeof(struct rest) == ECALLS_DATA_MAX, "the largest event");

/* The event's data, kept here while the output of an E-code handler replaces it (ecode.h). */
struct text_input {
	u32 changed; /* 1: it is replaced */
	u32 size;
	u64 data[ECALLS_DATA_INLINE / 8];
	struct rest rest;
};

/* The records about fates of this CPU (fate.h). */
struct fate_notes {
	u64 count;	 /* written so far */
	u64 quota_ns;	 /* time of the last record about a limit, */
	u64 filtered_ns; /* time of the last one about a handler that ended a chain, */
	u64 said_ns;	 /* and of the last one about a handler that did so with a reason */
	u64 tick[2];	 /* jiffies at which the short way looked at these two (sole.h) */
};

#define DIRECT_FILTERS 2
#define DIRECT_SOLE 3
#define DIRECT_RUN 4

/* The event that one CPU is delivering. Only code that runs with preemption off uses it, and while
 * `busy` is set, an interrupt that raises an event queues it instead of delivering it. */
struct current {
	/* the event that is being delivered, and its data beyond the record */
	struct ecalls_event event;
	struct rest rest;
	/* where the data beyond these are, in the memory of the task that raises the event now */
	u64 far;
	u64 far_task; /* that task's address */
	/* events that are being queued, one per context that raises */
	struct ecalls_event nested[NESTED_EVENTS];
	/* events that were dropped from a queue, one per context that drops: too large for the
	 * stack */
	struct evicted evicted[EVICTED_PLACES];
	u32 evicting; /* number of those in use */
	u32 pad;
	u64 now_ns; /* time at which `event` was taken */
	u64 raised; /* events raised on this CPU: the low part of their ids */
	u32 busy;   /* 1: `event` is in use */
	u32 waits;  /* 0: no event in this CPU's queue is ready */
	/* 1: `event` must be delivered. Another core's trigger reaches this dispatcher too, and
	 * must not deliver it again. */
	u32 direct;  /* DIRECT_FILTERS: to plain subscriptions and filters only, _SOLE: to one
		      * subscription (filter.h), _RUN: to a filter to which it was offered */
	u32 fresh;   /* 1: `now_ns` is the time; set only while a trigger of our own runs */
	u32 expired; /* 1 + the CPU whose queue's timer has expired on this one; 0: none */
	u32 runs;    /* number of times that the dispatcher ran here */
	u32 left;    /* 1: it stopped within `mask`, and continues when triggered */
	u32 calls;   /* tail calls in this run of the dispatcher */
	u32 locked;  /* 1: raised under a scheduler lock: start no timer, no thread */
	u32 pad1;
	/* The outcome of the chain that is running; it is not on the stack, because there the
	 * verifier would explore every combination of its values. */
	struct outcome outcome;
	struct signal_note signal;
	struct walk walk;
	struct handler_call call;
	struct text_input text;
	struct fate_notes fate;
	u32 nesting; /* entries of `nested` in use: a stack, as contexts end in reverse order */
	/* Always 0: XORed into a loop's counter, it makes the verifier forget the counter's value,
	 * so that the states of the loop converge (bpf/lib/heap.h). */
	u32 zero;
};

struct queue_timer {
	struct bpf_timer timer;
};

/* Two words that belong to one action of one subscription: counters, buckets. */
struct handler_state {
	u64 word[2];
};

struct attributes {
	u64 value[ECALLS_ATTRIBUTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_SERVICES_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ECALLS_SERVICES_MAX);
	__type(key, u32);
	__type(value, struct ecalls_service_count);
} service_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ECALLS_SERVICES_MAX);
	__type(key, u32);
	__type(value, struct ecalls_service_latency);
} latencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_subscription);
} subscriptions SEC(".maps");

/* The index of each audience's first row, never 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX * 2);
	__type(key, struct ecalls_audience_key);
	__type(value, u32);
} audiences SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_AUDIENCE_ROWS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_audience);
} audience_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX);
	__type(key, u32);
	__type(value, struct ecalls_subscription_count);
} sub_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__type(value, struct ecalls_channel);
} channels SEC(".maps");

/* An `up` segment. BPF_F_INNER_MAP: segments may differ in capacity. */
struct up_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_UP_EVENTS + ECALLS_CAPACITY_MIN);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__type(key, u32);
	__type(value, struct ecalls_event);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__array(values, struct up_segment);
} ups SEC(".maps");

/* A buffer that serves only as a descriptor to sleep on. */
struct wake_buffer {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ECALLS_WAKE_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__array(values, struct wake_buffer);
} wakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs + 2, set by the loader */
	__type(key, u32);
	__type(value, struct queue_cell);
} queues SEC(".maps");

/* In place of `queues` before Linux 6.15; the one that is not used has one element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spin_queue_cell);
} spin_queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs + 1, set by the loader; the last is a spare */
	__type(key, u32);
	__type(value, struct queue_timer);
} queue_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct current);
} current_events SEC(".maps");

/* A trace (sched/traced.h): bpf_trigger_tp reports that current.event is delivered. */
#define TRIGGER_TRACE 0x45430007
#define TRACE_TIME_SHIFT 30 /* ecalls_service.traced counts in 2^30 ns */

/* The host maps it, so that it can write a limit without changing the kernel side's counts. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_USERS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_user);
} users SEC(".maps");

/* ECALLS_FATES per CPU, set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_FATES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_fate);
} fates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ECALLS_HANDLERS_MAX);
	__type(key, u32);
	__type(value, u32);
} handlers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX *ECALLS_ACTIONS_MAX);
	__type(key, u32);
	__type(value, struct handler_state);
} handler_states SEC(".maps");

/* The programs of the actions in E-code: two places for each action of each subscription
 * (abi/ecode.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX *ECALLS_ACTIONS_MAX * 2);
	__type(key, u32);
	__type(value, u32);
} ecodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_frame);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__type(value, struct attributes);
} attributes SEC(".maps");

/* Number of possible CPUs of the machine, set by the loader. */
const volatile u32 cpus SEC(".rodata.core") = 1;

#define QUEUE_THREADS (cpus)
#define QUEUE_SIGNALS (cpus + 1)

#endif
