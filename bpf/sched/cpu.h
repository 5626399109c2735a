/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The CPUs of the scheduler: the queues and the timer of each are created when the scheduler starts
 * (sched_init_all), and its waiting threads are moved when it goes offline (sched_offline).
 *
 * The kernel calls all operations in this file; their names are in the table of scheduler.bpf.c.
 *
 * Failures: a queue or a timer that cannot be created ends the start of the scheduler with that
 * error. On a kernel where threads remain on a CPU that goes offline (offline_works), the scheduler
 * ends, and asks the program that holds it to start it again.
 */
#ifndef ECALLS_SCHED_CPU_H
#define ECALLS_SCHED_CPU_H

#include "timer.h"

/* Creates the queues and the timer of one CPU. */
static __always_inline s32 set_up(u32 cpu) {
	struct sched_timer_of *timer = timer_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	struct sched_options options = setting.options;
	s32 error;

	if (!timer || !c)
		return -ENOENT;
	sched_init(c, &options);
	error = scx_bpf_create_dsq(QUEUE_PLAIN(cpu), -1);
	if (!error)
		error = scx_bpf_create_dsq(QUEUE_PARKED(cpu), -1);
	for (u32 i = sched_zero; lib_again(i, SCHED_ENTITIES); i++) {
		if (i >= SCHED_ENTITIES || error)
			break;
		error = scx_bpf_create_dsq(QUEUE_ENTITY(cpu, i), -1);
	}
	if (error)
		return error;
	bpf_timer_init(&timer->timer, &sched_cpus, CLOCK_MONOTONIC);
	return bpf_timer_set_callback(&timer->timer, timer_comes);
}

SEC("struct_ops.s/init")
s32 BPF_PROG(sched_init_all) {
	s32 error = 0;

	for (u32 cpu = sched_zero; lib_again(cpu, CPUS_MAX); cpu++) {
		if (cpu >= setting.cpus || error)
			break;
		error = set_up(cpu);
	}
	return error;
}

/* It does nothing; but without this operation the kernel ends the scheduler when a CPU comes
 * online.
 */
SEC("struct_ops/cpu_online")
void BPF_PROG(sched_online, s32 cpu) {
}

/* Whether threads that wait for a CPU that goes offline leave it in time. On Linux 7.3 they do. On
 * 7.0 they did in most runs, but in one run the thread that took the CPU offline did not run for 42
 * s. No kernel between these versions was tried; 7.3 is recognized by a flag that 7.0 does not
 * have. */
static __always_inline bool offline_works(void) {
	return bpf_core_enum_value_exists(enum scx_enq_flags, SCX_ENQ_IMMED);
}

static char offline_message[] = "a CPU goes offline, and this kernel cannot take it from us";

/* Moves all threads that wait for a CPU that goes offline into its local queue, at once: the kernel
 * no longer asks which thread the CPU runs, and waits until all of its threads have run there, to
 * move them then. Where that does not work, the scheduler ends and requests a restart. */
SEC("struct_ops/cpu_offline")
void BPF_PROG(sched_offline, s32 cpu) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | (u32)cpu;
	struct bpf_iter_scx_dsq it;
	unsigned long long none = 0;
	struct task_struct *p;

	if (!offline_works() && bpf_ksym_exists(scx_bpf_exit_bstr)) {
		scx_bpf_exit_bstr(SCX_NUMBER(scx_exit_code, SCX_ECODE_ACT_RESTART), offline_message,
				  &none, sizeof(none));
		return;
	}
	for (u32 i = sched_zero; lib_again(i, SCHED_ENTITIES + 2); i++) {
		if (i > SCHED_ENTITIES + 1)
			break;
		u64 queue = i == SCHED_ENTITIES ? QUEUE_PLAIN((u32)cpu) : QUEUE_PARKED((u32)cpu);
		if (i < SCHED_ENTITIES)
			queue = QUEUE_ENTITY((u32)cpu, i);
		if (!bpf_iter_scx_dsq_new(&it, queue, 0))
			while ((p = bpf_iter_scx_dsq_next(&it)))
				scx_bpf_dsq_move(&it, p, local, 0);
		bpf_iter_scx_dsq_destroy(&it);
	}
	kick(cpu, SCX_NUMBER(scx_kick_flags, SCX_KICK_PREEMPT));
}

#endif
