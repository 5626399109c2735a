/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which thread polls by which slot (abi/coop.h), and which window it wants: said by downcalls of
 * the thread itself, looked up by the scheduler (bpf/sched) when the thread yields next.
 *
 * A binding is a wish: whether the channel is still its owner's, and whether there is a scheduler,
 * is looked at when it is used. It is kept with its thread and ends with it, so nobody's bindings
 * make anybody else's go.
 *
 * A process may also bind a child (ECALLS_OP_HAND), for a program that knows nothing of this. Who
 * is a child is looked at when it is handed, and again by the scheduler (sched/binding.h), which
 * also sees to it that both are the same user's.
 */
#ifndef ECALLS_EVENT_COOP_H
#define ECALLS_EVENT_COOP_H

#include "down.h"
#include "abi/coop.h"

struct coop_binding {
	u32 channel; /* id; 0: there is none. Written last */
	u32 slot;
	u32 group; /* 0: none */
	u32 uid;   /* whose group that is */
	/* the window that it wants */
	u64 period_ns; /* 0: none */
	u64 service_ns;
	u16 x;
	u16 y;
	u32 flags;  /* ECALLS_WINDOW_CONSERVING */
	u32 wishes; /* so far */
	u32 sink;   /* 1: it reads the channel's events */
};

/* What a thread has named itself, and what its parent has handed to it, which counts only without
 * the former. */
struct coop_thread {
	struct coop_binding own;
	struct coop_binding handed;
	u64 parent_start_ns; /* of the process that handed it, which began then */
	u32 parent;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct coop_thread);
} coop_threads SEC(".maps");

/* A binding is changed: nobody goes by what is half written. */
static __always_inline void coop_write(struct coop_binding *to, const struct coop_binding *from) {
	*(volatile u32 *)&to->channel = 0;
	barrier();
	__builtin_memcpy(&to->slot, &from->slot,
			 sizeof(*to) - __builtin_offsetof(struct coop_binding, slot));
	barrier();
	*(volatile u32 *)&to->channel = from->channel;
}

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
		.channel = id,
		.slot = (u32)slot,
		.group = (u32)group,
		.uid = d->channel->uid,
		.sink = (u32)flags & ECALLS_COOP_SINK,
	};
	struct coop_thread *thread;

	if (slot >= ECALLS_COOP_SLOTS || group > ECALLS_COOP_GROUPS || flags & ~ECALLS_COOP_SINK)
		return -EINVAL;
	thread = bpf_task_storage_get(&coop_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return -ENOMEM;
	/* Its window ends, and that is to be seen. */
	if (thread->own.channel && thread->own.wishes)
		binding.wishes = thread->own.wishes + 1;
	coop_sink(d, id, task->pid, binding.sink);
	coop_write(&thread->own, &binding);
	return 0;
}

/* ECALLS_OP_WINDOW: of the calling thread, which alone changes its binding. */
static __always_inline s64 coop_window(u32 id, u64 period_ns, u64 service_ns, u64 shape) {
	struct task_struct *task = bpf_get_current_task_btf();
	struct coop_thread *thread = bpf_task_storage_get(&coop_threads, task, 0, 0);
	struct coop_binding *binding = thread ? &thread->own : 0;
	u16 x = (u16)shape, y = (u16)(shape >> 16);
	u32 flags = shape >> 32;

	if (!binding || binding->channel != id)
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
