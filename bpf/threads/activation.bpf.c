/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Scheduler activations without sched_ext (SA §3.1): sees the threads of one process block, and
 * takes the virtual processor from the one that has it (lib/activation.h).
 *
 * An object of its own, held by the process that loaded it; it uses nothing of the core. A block is
 * seen in the tracepoint of the context switch, whatever the thread blocks in: any system call, or
 * a page fault. A thread that is preempted still has its processor.
 */
#include "kernel.h"
#include "lib/activation.h"

/* The page that the process maps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_activations);
} activations SEC(".maps");

/* The number of a thread that is an activation. Not in the page: the process cannot change it. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} activation_of SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(thread_blocks, bool preempt, struct task_struct *previous, struct task_struct *next,
	     unsigned int state) {
	struct ecalls_activations *all;
	u32 *number, zero = 0;

	if (preempt || !state)
		return 0;
	number = bpf_task_storage_get(&activation_of, previous, 0, 0);
	if (!number)
		return 0;
	all = bpf_map_lookup_elem(&activations, &zero);
	if (all)
		activation_block(all, *number);
	return 0;
}

/* The calling thread is that activation from now on, until it ends. */
SEC("syscall")
int activation_join(u32 *number) {
	u32 *own;

	if (!*number || *number >= ECALLS_ACTIVATIONS_MAX)
		return -EINVAL;
	own = bpf_task_storage_get(&activation_of, bpf_get_current_task_btf(), 0,
				   BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!own)
		return -ENOMEM;
	*own = *number;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
