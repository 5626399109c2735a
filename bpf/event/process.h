/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queries of the host: the identity of a process, and whether the core works.
 *
 * A process id alone can be reused; id and start time together cannot. User space sees the start
 * time only in ticks, whereas the kernel side compares nanoseconds, so the host asks here.
 */
#ifndef ECALLS_EVENT_PROCESS_H
#define ECALLS_EVENT_PROCESS_H

#include "raise.h"

/* Only user space reads and writes these two maps: the record by which a core is found, and the
 * names of its services. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_host);
} ecalls_host SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_SERVICES_MAX);
	__type(key, u32);
	__type(value, struct ecalls_service_info);
} service_infos SEC(".maps");

struct identity {
	u32 pid;      /* as the kernel has it; in, if is_local, as the caller's namespace has it */
	s32 priority; /* kernel priority of its first thread: 0..99 real time, 100..139 fair */
	u64 start_ns; /* since boot */
	u32 uid;      /* as defined in identity.h */
	u32 is_local;
	u64 program; /* changes with each execve(2) */
	char comm[16];
};

SEC("syscall")
int identify(struct identity *out) {
	struct task_struct *task;

	if (!out->is_local)
		task = bpf_task_from_pid(out->pid);
	else if (bpf_ksym_exists(bpf_task_from_vpid))
		task = bpf_task_from_vpid(out->pid);
	else
		return -ENOSYS;
	if (!task)
		return -ESRCH;
	/* Its last thread has exited: the reaper has run for it, or is about to. */
	if (BPF_CORE_READ(task, signal, live.counter) == 0) {
		bpf_task_release(task);
		return -ESRCH;
	}
	out->pid = task->tgid;
	out->priority = task->prio;
	out->start_ns = task->start_boottime;
	out->uid = uid_of(task);
	out->program = task->self_exec_id;
	__builtin_memcpy(out->comm, task->comm, sizeof(out->comm));
	bpf_task_release(task);
	return 0;
}

/* When the last user of a core has closed its maps, the core's timers are gone, although programs
 * that are still being freed keep the maps visible: such a core must not be joined. */
#define HEALTH_NS 1000000000ull

struct health {
	u32 cpus;
	s32 timers; /* 0, or the error of starting a timer */
};

SEC("syscall")
int health(struct health *out) {
	u32 spare = cpus;
	struct queue_timer *t = bpf_map_lookup_elem(&queue_timers, &spare);

	out->cpus = cpus;
	out->timers = t ? (int)bpf_timer_start(&t->timer, HEALTH_NS, 0) : -ENOENT;
	return 0;
}

#endif
