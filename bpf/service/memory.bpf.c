/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory service: raises an event when a process had to reclaim memory itself for at least as
 * long as the service's parameter (ns) (RECLAIM), and when the kernel kills a process because there
 * is no memory (VICTIM). PRESSURE is in cgroup.bpf.c.
 *
 * RECLAIM is raised in the process that wanted memory, when it continues. The beginning is kept in
 * `reclaims`, whose memory is allocated in advance, because none is available in this situation.
 * When more threads reclaim at the same time than it has room for, the entry of the earliest one is
 * overwritten.
 *
 * VICTIM is raised in whatever process wanted the memory, but belongs to the one that is killed.
 */
#include "event/raise.h"

#define MEMORY_WORDS (sizeof(struct ecalls_memory_event) / 8)
#define RECLAIMS 4096u

union memory_data {
	struct ecalls_memory_event event;
	u64 words[MEMORY_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, RECLAIMS);
	__type(key, u32);   /* thread */
	__type(value, u64); /* beginning, ns */
} reclaims SEC(".maps");

enum {
	MM_FILEPAGES = 0,
	MM_ANONPAGES = 1,
	MM_SHMEMPAGES = 3,
};

static __always_inline void describe(union memory_data *data, struct task_struct *task) {
	data->event.cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	data->event.pid = task->tgid;
	data->event.score = BPF_CORE_READ(task, signal, oom_score_adj);
	bpf_probe_read_kernel(data->event.comm, sizeof(data->event.comm), task->comm);
	bpf_probe_read_kernel_str(data->event.name, sizeof(data->event.name),
				  BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, name));
}

static __always_inline void reclaim_begins(void) {
	u64 now_ns = bpf_ktime_get_ns();
	u32 tid = (u32)bpf_get_current_pid_tgid();

	if (raise_wanted(ECALLS_SERVICE_MEMORY))
		bpf_map_update_elem(&reclaims, &tid, &now_ns, BPF_ANY);
}

static __always_inline void reclaim_ends(u64 pages, bool limited) {
	u32 service = ECALLS_SERVICE_MEMORY, tid = (u32)bpf_get_current_pid_tgid();
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	union memory_data data = {};
	struct raise r = {
		.service = ECALLS_SERVICE_MEMORY,
		.kind = ECALLS_MEMORY_RECLAIM,
		.target = ECALLS_TARGET_ALL,
		.size = sizeof(data.event),
	};
	u64 *since_ns, duration_ns;

	if (!s || !service_wanted(s))
		return;
	since_ns = bpf_map_lookup_elem(&reclaims, &tid);
	if (!since_ns)
		return; /* it began before the subscription */
	duration_ns = bpf_ktime_get_ns() - *since_ns;
	bpf_map_delete_elem(&reclaims, &tid);
	if (duration_ns < s->parameter)
		return;
	describe(&data, bpf_get_current_task_btf());
	data.event.duration_ns = duration_ns;
	data.event.pages = pages;
	data.event.limited = limited;
	raise(&r, data.words, MEMORY_WORDS);
}

/* The machine's memory is used up. */
SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(reclaim_begin) {
	reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(reclaim_end, unsigned long pages) {
	reclaim_ends(pages, false);
	return 0;
}

/* A control group has reached its limit. */
SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(limit_begin) {
	reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(limit_end, unsigned long pages) {
	reclaim_ends(pages, true);
	return 0;
}

static __always_inline u64 positive(s64 count) {
	return count > 0 ? count : 0;
}

/* Approximate: it lacks the counts that each CPU keeps itself. */
static __always_inline u64 pages_of(struct task_struct *task) {
	return positive(BPF_CORE_READ(task, mm, rss_stat[MM_FILEPAGES].count)) +
	       positive(BPF_CORE_READ(task, mm, rss_stat[MM_ANONPAGES].count)) +
	       positive(BPF_CORE_READ(task, mm, rss_stat[MM_SHMEMPAGES].count));
}

SEC("tp_btf/mark_victim")
int BPF_PROG(memory_victim, struct task_struct *task) {
	union memory_data data = {};
	struct raise r = {
		.service = ECALLS_SERVICE_MEMORY,
		.kind = ECALLS_MEMORY_VICTIM,
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_NO_PID,
		.size = sizeof(data.event),
	};

	if (!raise_wanted(ECALLS_SERVICE_MEMORY))
		return 0;
	describe(&data, task);
	data.event.pages = pages_of(task);
	r.pid = task->tgid;
	r.uid = uid_of(task);
	raise(&r, data.words, MEMORY_WORDS);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
