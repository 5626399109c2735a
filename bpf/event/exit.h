/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Telling the end of a process from the end of one of its threads, in a program on the tracepoint
 * sched_process_exit.
 *
 * A process ends with its last thread, which need not be its first. Kernels from 6.18 on say so in
 * an argument. Before, the count of live threads tells; it is lowered earlier, so two threads that
 * end at the same time may both find it 0.
 */
#ifndef ECALLS_EXIT_H
#define ECALLS_EXIT_H

#include "kernel.h"

/* The tracepoint's arguments where it tells the last thread. */
typedef void (*btf_trace_sched_process_exit___last)(void *, struct task_struct *, bool);

static __always_inline bool exits_last(const unsigned long long *ctx,
				       const struct task_struct *task) {
	if (bpf_core_type_matches(btf_trace_sched_process_exit___last))
		return ctx[1] & 1;
	return task->signal->live.counter == 0;
}

#endif
