/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Distinguishing the exit of a process from that of one of its threads, in a program on the
 * tracepoint sched_process_exit.
 *
 * A process ends with its last thread, which need not be its first. Kernels from 6.18 on have an
 * argument for this. On earlier kernels the count of live threads is used, which is decremented
 * before the tracepoint, so two threads that exit at the same time may both find it 0.
 */
#ifndef ECALLS_EXIT_H
#define ECALLS_EXIT_H

#include "kernel.h"

/* The tracepoint's arguments on kernels that report the last thread. */
typedef void (*btf_trace_sched_process_exit___last)(void *, struct task_struct *, bool);

static __always_inline bool exits_last(const unsigned long long *ctx,
				       const struct task_struct *task) {
	if (bpf_core_type_matches(btf_trace_sched_process_exit___last))
		return ctx[1] & 1;
	return task->signal->live.counter == 0;
}

#endif
