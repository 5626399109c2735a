/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The bindings of threads to the slots by which they poll (abi/coop.h), and their requests for
 * windows: written by downcalls of the thread itself, read by the scheduler (bpf/sched) at the
 * thread's next yield.
 *
 * A binding is only a request: whether the channel still belongs to its owner, and whether a
 * scheduler runs, is checked when the binding is used. It is kept in the thread's task storage and
 * ends with the thread, so bindings of one thread never displace those of another.
 *
 * A process may also bind a child (ECALLS_OP_HAND) whose program does not use this interface. That
 * the process is a child is checked when the slot is handed over, and again by the scheduler
 * (sched/binding.h), which also checks that both have the same user.
 */
#ifndef ECALLS_EVENT_COOP_H
#define ECALLS_EVENT_COOP_H

#include "down.h"
#include "abi/coop.h"

struct coop_binding {
	u32 channel; /* id; 0: none. Written last */
	u32 slot;
	u32 group; /* 0: none */
	u32 uid;   /* user of that group */
	/* the window that it requests */
	u64 period_ns; /* 0: none */
	u64 service_ns;
	u16 x;
	u16 y;
	u32 flags;  /* ECALLS_WINDOW_CONSERVING */
	u32 wishes; /* number of requests so far */
	u16 sink;   /* 1: the thread reads the channel's events */
	u16 timed;  /* not 0: the threads of the child to which it is handed are timed */
};

/* The thread's own binding, and the one that its parent has handed to it, which is used only
 * without the former. */
struct coop_thread {
	struct coop_binding own;
	struct coop_binding handed;
	u64 parent_start_ns; /* start time of the process that handed it */
	u32 parent;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct coop_thread);
} coop_threads SEC(".maps");

/* How often bindings of any thread have changed: the scheduler looks at a thread's binding only
 * when this has changed since it looked last. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} coop_changes SEC(".maps");

static __always_inline u64 *coop_changes_at(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&coop_changes, &zero);
}

/* A binding has changed; it is called after the change. */
static __always_inline void coop_changed(void) {
	u64 *changes = coop_changes_at();

	if (changes)
		__sync_fetch_and_add(changes, 1);
}

/* Changes a binding so that no reader uses one that is partly written. */
static __always_inline void coop_write(struct coop_binding *to, const struct coop_binding *from) {
	*(volatile u32 *)&to->channel = 0;
	order_stores();
	__builtin_memcpy(&to->slot, &from->slot,
			 sizeof(*to) - __builtin_offsetof(struct coop_binding, slot));
	order_stores();
	*(volatile u32 *)&to->channel = from->channel;
}

#define COOP_SINK_WHENEVER (~0ull) /* an event without deadline */

/* By index of the channel: the thread that reads its events, and the first event that has asked for
 * the CPU since the thread last ran. The dispatcher writes the deadline, the scheduler takes it. */
struct event_sink {
	u32 channel; /* id; 0: none */
	u32 tid;
	u32 waits; /* 1 + the CPU for which it waits; 0: none. Written by the scheduler */
	u32 pad;
	u64 deadline_ns; /* 0: no event */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__type(value, struct event_sink);
} event_sinks SEC(".maps");

/* Makes the calling thread the sink of its channel's events, or ends this. */
static __always_inline void coop_sink(struct down *d, u32 id, u32 tid, bool is) {
	struct event_sink *sink = bpf_map_lookup_elem(&event_sinks, &d->index);

	if (!sink)
		return;
	if (is) {
		*(volatile u32 *)&sink->channel = 0;
		order_stores();
		sink->waits = 0;
		sink->deadline_ns = 0;
		sink->tid = tid;
		order_stores();
		*(volatile u32 *)&sink->channel = id;
	} else if (sink->channel == id && sink->tid == tid) {
		*(volatile u32 *)&sink->channel = 0;
	}
}

/* ECALLS_OP_COOP: binds the calling thread. */
static __always_inline s64 coop_bind(struct down *d, u32 id, u64 slot, u64 group, u64 flags) {
	struct task_struct *task = bpf_get_current_task_btf();
	struct coop_binding binding = {
		.channel = id,
		.slot = (u32)slot,
		.group = (u32)group,
		.uid = d->channel->uid,
		.sink = (u32)flags & ECALLS_COOP_SINK,
		.timed = (u32)flags & ECALLS_COOP_TIMED,
	};
	struct coop_thread *thread;
	u32 is_sink;

	if (slot >= ECALLS_COOP_SLOTS || group > ECALLS_COOP_GROUPS ||
	    flags & ~(u64)(ECALLS_COOP_SINK | ECALLS_COOP_TIMED))
		return -EINVAL;
	thread = bpf_task_storage_get(&coop_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return -ENOMEM;
	/* The thread's window ends, and the scheduler must see this. */
	if (thread->own.channel && thread->own.wishes)
		binding.wishes = thread->own.wishes + 1;
	/* In this order it needs less stack, which the calls before Linux 6.15 lack. */
	is_sink = binding.sink;
	coop_write(&thread->own, &binding);
	coop_sink(d, id, task->pid, is_sink);
	coop_changed();
	return 0;
}

/* ECALLS_OP_WINDOW of the calling thread; no other thread changes its binding. */
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
	order_stores();
	binding->wishes++;
	coop_changed();
	return 0;
}

#endif
