/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which thread polls by which slot (abi/coop.h), and which window it wants: said by downcalls of
 * the thread itself, looked up by the scheduler (bpf/sched) when the thread yields next.
 *
 * A binding is a wish: whether the channel is still its owner's, and whether there is a scheduler,
 * is looked at when it is used. So nothing is to be done when a thread ends; the oldest bindings
 * make room for new ones.
 *
 * A process may also bind a child (ECALLS_OP_HAND), for a program that knows nothing of this. That
 * is a wish like the others: whether it is a child, of the same user, is looked at by the scheduler
 * (sched/binding.h). Each process has its own, so that nobody can take another's away.
 */
#ifndef ECALLS_EVENT_COOP_H
#define ECALLS_EVENT_COOP_H

#include "down.h"
#include "abi/coop.h"

#define COOP_HANDED 0x80000000u /* its parent has named it */

struct coop_binding {
	u64 start_ns; /* of the thread, since boot: its number may be another's by now */
	u32 channel;  /* id */
	u32 slot;
	u32 group; /* 0: none */
	u32 uid;   /* whose group that is */
	/* the window that it wants */
	u64 period_ns; /* 0: none */
	u64 service_ns;
	u16 x;
	u16 y;
	u32 flags;  /* ECALLS_WINDOW_CONSERVING, COOP_HANDED */
	u32 wishes; /* so far */
	u32 sink;   /* 1: it reads the channel's events */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32); /* number of the thread */
	__type(value, struct coop_binding);
} coop_threads SEC(".maps");

/* A child that a process has handed a binding to. */
struct coop_heir {
	u32 parent; /* process */
	u32 tid;    /* first thread of the child */
};
struct coop_handed {
	u64 parent_start_ns;
	struct coop_binding binding; /* start_ns: 0 until the scheduler meets the child */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct coop_heir);
	__type(value, struct coop_handed);
} coop_handed SEC(".maps");

#define COOP_SINK_WHENEVER (~0ull) /* an event without deadline */

/* By index of the channel: the thread that reads its events, and the first of those that asked for
 * the CPU since it ran last. The dispatcher writes the deadline, the scheduler takes it. */
struct event_sink {
	u32 channel; /* id; 0: nobody */
	u32 tid;
	u32 waits; /* 1 + the CPU for which it waits; 0: it does not. Written by the scheduler */
	u32 pad;
	u64 deadline_ns; /* 0: no event */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__type(value, struct event_sink);
} event_sinks SEC(".maps");

/* The calling thread is the sink of its channel's events from now on, or no longer. */
static __always_inline void coop_sink(struct down *d, u32 id, u32 tid, bool is) {
	struct event_sink *sink = bpf_map_lookup_elem(&event_sinks, &d->index);

	if (!sink)
		return;
	if (is) {
		*(volatile u32 *)&sink->channel = 0;
		sink->waits = 0;
		sink->deadline_ns = 0;
		sink->tid = tid;
		*(volatile u32 *)&sink->channel = id;
	} else if (sink->channel == id && sink->tid == tid) {
		*(volatile u32 *)&sink->channel = 0;
	}
}

/* ECALLS_OP_COOP: the calling thread's. */
static __always_inline s64 coop_bind(struct down *d, u32 id, u64 slot, u64 group, u64 flags) {
	struct task_struct *task = bpf_get_current_task_btf();
	struct coop_binding binding = {
		.start_ns = task->start_boottime,
		.channel = id,
		.slot = (u32)slot,
		.group = (u32)group,
		.uid = d->channel->uid,
		.sink = (u32)flags & ECALLS_COOP_SINK,
	};
	u32 tid = task->pid;
	struct coop_binding *former = bpf_map_lookup_elem(&coop_threads, &tid);

	/* Its window ends, and that is to be seen. */
	if (former && former->start_ns == task->start_boottime && former->wishes)
		binding.wishes = former->wishes + 1;
	if (slot >= ECALLS_COOP_SLOTS || group > ECALLS_COOP_GROUPS || flags & ~ECALLS_COOP_SINK)
		return -EINVAL;
	coop_sink(d, id, tid, binding.sink);
	return bpf_map_update_elem(&coop_threads, &tid, &binding, BPF_ANY);
}

/* ECALLS_OP_WINDOW: of the calling thread, which alone changes its binding. */
static __always_inline s64 coop_window(u32 id, u64 period_ns, u64 service_ns, u64 shape) {
	struct task_struct *task = bpf_get_current_task_btf();
	u32 tid = task->pid, flags = shape >> 32;
	struct coop_binding *binding = bpf_map_lookup_elem(&coop_threads, &tid);
	u16 x = (u16)shape, y = (u16)(shape >> 16);

	if (!binding || binding->start_ns != task->start_boottime || binding->channel != id)
		return -ENOENT;
	if (period_ns &&
	    (period_ns < ECALLS_WINDOW_PERIOD_MIN_NS || period_ns > ECALLS_WINDOW_PERIOD_MAX_NS ||
	     !service_ns || service_ns > period_ns || x >= y || y > ECALLS_WINDOW_Y_MAX ||
	     flags & ~ECALLS_WINDOW_CONSERVING || binding->group))
		return -EINVAL;
	binding->period_ns = period_ns;
	binding->service_ns = service_ns;
	binding->x = x;
	binding->y = y;
	binding->flags = flags;
	binding->wishes++;
	return 0;
}

#endif
