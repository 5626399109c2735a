/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which thread polls by which slot (abi/coop.h): said by a downcall of the thread itself, looked up
 * by the scheduler (bpf/sched) when the thread yields next.
 *
 * A binding is a wish: whether the channel is still its owner's, and whether there is a scheduler,
 * is looked at when it is used. So nothing is to be done when a thread ends; the oldest bindings
 * make room for new ones.
 */
#ifndef ECALLS_EVENT_COOP_H
#define ECALLS_EVENT_COOP_H

#include "down.h"
#include "abi/coop.h"

struct coop_binding {
	u64 start_ns; /* of the thread, since boot: its number may be another's by now */
	u32 channel;  /* id */
	u32 slot;
	u32 group; /* 0: none */
	u32 uid;   /* whose group that is */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32); /* number of the thread */
	__type(value, struct coop_binding);
} coop_threads SEC(".maps");

/* ECALLS_OP_COOP: the calling thread's. */
static __always_inline s64 coop_bind(struct down *d, u32 id, u64 slot, u64 group) {
	struct task_struct *task = bpf_get_current_task_btf();
	struct coop_binding binding = {
		.start_ns = task->start_boottime,
		.channel = id,
		.slot = (u32)slot,
		.group = (u32)group,
		.uid = d->channel->uid,
	};
	u32 tid = task->pid;

	if (slot >= ECALLS_COOP_SLOTS || group > ECALLS_COOP_GROUPS)
		return -EINVAL;
	return bpf_map_update_elem(&coop_threads, &tid, &binding, BPF_ANY);
}

#endif
