/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Scheduler activations without sched_ext (SA §3.1): sees the threads of processes block, and takes
 * the virtual processor from the one that has it (lib/activation.h).
 *
 * An object of its own, which uses nothing of the core. It is held by a process that loaded it for
 * itself, or by the daemon for its clients. A block is seen in the tracepoint of the context
 * switch, whatever the thread blocks in: any system call, or a page fault. A thread that is
 * preempted still has its processor.
 *
 * A page is a process's own word. Which thread is which activation of which page, and whose a page
 * is, is in maps that no client has: so a client writes only what is its own.
 */
#include "kernel.h"
#include "lib/activation.h"

/* One for each runtime; each counts as a channel of its user. */
#define ROWS ECALLS_CHANNELS_MAX

/* The page that the process maps. */
struct activation_page {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct ecalls_activations));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ROWS);
	__type(key, u32);
	__array(values, struct activation_page);
} activations SEC(".maps");

#define ANYBODY ~0u

/* Whose the page of that index is. Written by the host. */
struct row {
	u32 pid;	/* 0: nobody's; ANYBODY: whoever may run the programs */
	u32 generation; /* another one whenever the page gets an owner, or loses it */
	u64 start_ns;	/* of the process, which tells it from a later one with its id */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROWS);
	__type(key, u32);
	__type(value, struct row);
} activation_rows SEC(".maps");

/* Which activation a thread is. */
struct activation_of {
	u32 row;
	u32 generation;
	u32 number;
	u32 pad;
	u64 exec_id; /* by execve(2) it is none any more */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct activation_of);
} activation_of SEC(".maps");

/* Of all pages, since the object was loaded: what processes do not write. */
struct counts {
	u64 told;
	u64 untold;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} activation_sums SEC(".maps");

static __always_inline void count_block(int result) {
	struct counts *counts;
	u32 zero = 0;

	counts = bpf_map_lookup_elem(&activation_sums, &zero);
	if (!counts)
		return;
	if (result == ACTIVATION_TOLD)
		__sync_fetch_and_add(&counts->told, 1);
	else if (result == ACTIVATION_UNTOLD)
		__sync_fetch_and_add(&counts->untold, 1);
}

static __always_inline u32 generation_of(const struct row *row) {
	return *(volatile u32 *)&row->generation;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(thread_blocks, bool preempt, struct task_struct *previous, struct task_struct *next,
	     unsigned int state) {
	struct ecalls_activations *all;
	struct activation_of *own;
	struct row *row;
	u32 zero = 0;
	void *page;

	if (preempt || !state)
		return 0;
	own = bpf_task_storage_get(&activation_of, previous, 0, 0);
	if (!own)
		return 0;
	row = bpf_map_lookup_elem(&activation_rows, &own->row);
	if (!row || generation_of(row) != own->generation || previous->self_exec_id != own->exec_id)
		return 0;
	page = bpf_map_lookup_elem(&activations, &own->row);
	if (!page)
		return 0;
	all = bpf_map_lookup_elem(page, &zero);
	if (all)
		count_block(activation_block(all, own->number));
	return 0;
}

struct join {
	u32 row;
	u32 number;
};

/* The calling thread is that activation from now on, until it ends. */
SEC("syscall")
int activation_join(struct join *join) {
	struct task_struct *task = bpf_get_current_task_btf();
	u32 at = join->row, number = join->number, generation;
	struct activation_of *own;
	struct row *row;

	row = bpf_map_lookup_elem(&activation_rows, &at);
	if (!number || number >= ECALLS_ACTIVATIONS_MAX || !row)
		return -EINVAL;
	/* Read before it is certain whose the page is: if that changes meanwhile, this is an old
	 * generation. */
	generation = generation_of(row);
	if (row->pid != ANYBODY &&
	    (row->pid != (u32)task->tgid || row->start_ns != task->group_leader->start_boottime))
		return -EPERM;
	own = bpf_task_storage_get(&activation_of, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!own)
		return -ENOMEM;
	own->row = at;
	own->generation = generation;
	own->number = number;
	own->exec_id = task->self_exec_id;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
