/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Deferred calls before the caller's next scheduling (ECalls-01 §2.3.1, ECALLS_DEFER_SWITCH): when
 * a thread of a registered process leaves its CPU, the deferred calls of its channel are handled.
 *
 * It runs at every context switch of the machine (about 105 ns each while attached), so the host
 * attaches it only while a channel asks for it, and for a process that is not registered it returns
 * after one lookup. It runs under the scheduler's lock and therefore sets no timer and starts no
 * thread. A deferred ECALLS_OP_TIMER therefore stays in the ring, with all calls after it, until
 * the next fast call.
 */
#include "downcall.h"

/* The channel of each registered process, one per process: process id to channel id. Written by the
 * host. The entry of a closed channel has no effect, because the channel is not active. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ECALLS_CHANNELS_MAX);
	__type(key, u32);
	__type(value, u32);
} switch_owners SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(downcall_switch, bool preempt, struct task_struct *previous) {
	u32 tgid = previous->tgid;
	struct down d;
	u32 *id;

	if (previous->flags & PF_KTHREAD)
		return 0;
	id = bpf_map_lookup_elem(&switch_owners, &tgid);
	if (!id || !down_find(&d, *id) || d.channel->owner != tgid)
		return 0;
	drain_if_waiting(&d, *id, DOWN_LOCKED);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
