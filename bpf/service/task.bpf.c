/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The task service: raises an event when a thread or process is created (FORK), a process executes
 * another program (EXEC), and a thread or process ends (EXIT).
 *
 * The events are raised in the process that they describe, before it continues. `thread` tells
 * whether a thread or a process was created or ended; a process ends with its last thread.
 */
#include "event/raise.h"
#include "event/exit.h"

#define TASK_WORDS (sizeof(struct ecalls_task_event) / 8)

union task_data {
	struct ecalls_task_event event;
	u64 words[TASK_WORDS];
};

static __always_inline void describe(union task_data *data, struct task_struct *task) {
	data->event.pid = task->tgid;
	data->event.tid = task->pid;
	data->event.parent = BPF_CORE_READ(task, real_parent, tgid);
	bpf_probe_read_kernel(data->event.comm, sizeof(data->event.comm), task->comm);
}

static __always_inline void raise_task(u32 kind, const union task_data *data) {
	struct raise r = {
		.service = ECALLS_SERVICE_TASK,
		.kind = kind,
		.target = ECALLS_TARGET_ALL,
		.size = sizeof(data->event),
	};

	raise(&r, data->words, TASK_WORDS);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_fork, struct task_struct *parent, struct task_struct *child) {
	union task_data data = {};

	if (!raise_wanted(ECALLS_SERVICE_TASK))
		return 0;
	describe(&data, parent);
	data.event.child = child->pid;
	data.event.thread = child->tgid == parent->tgid;
	raise_task(ECALLS_TASK_FORK, &data);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(task_exec, struct task_struct *task) {
	union task_data data = {};

	if (!raise_wanted(ECALLS_SERVICE_TASK))
		return 0;
	describe(&data, task);
	raise_task(ECALLS_TASK_EXEC, &data);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_exit, struct task_struct *task) {
	union task_data data = {};
	u32 code;

	if (!raise_wanted(ECALLS_SERVICE_TASK))
		return 0;
	describe(&data, task);
	data.event.thread = !exits_last(ctx, task);
	code = BPF_CORE_READ(task, signal, group_exit_code);
	data.event.code = code ? code : task->exit_code;
	raise_task(ECALLS_TASK_EXIT, &data);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
