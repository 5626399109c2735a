/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A plain thread goes to another CPU: its virtual time there. The caller reports who waits on both
 * CPUs, and holds the lock of the one where it arrives only: the other one may change meanwhile.
 */
#ifndef ECALLS_SCHED_ARRIVE_H
#define ECALLS_SCHED_ARRIVE_H

#include "fair.h"

/* The least virtual time of another CPU, whose plain threads wait as the caller reports. The CPU
 * itself may change meanwhile, and may have updated its least virtual time milliseconds ago. */
LIB_INLINE ecalls_u64 fair_least(const struct sched_cpu *cpu, const struct sched_queue *queue,
				 ecalls_u64 now_ns) {
	ecalls_u64 ns = now_ns > cpu->charged_ns ? now_ns - cpu->charged_ns : 0, least;
	ecalls_u64 passed = 0;

	if (cpu->runnable || (cpu->running != SCHED_PLAIN && !queue->count))
		return cpu->vtime;
	least = queue->vtime;
	if (cpu->running == SCHED_PLAIN) {
		passed = vtime_advance(ns, cpu->plain.weight);
		ecalls_u64 vtime = cpu->plain.vtime + passed;
		least = queue->count && vtime_before(least, vtime) ? least : vtime;
	}
	return fair_follows(cpu, least, cpu->passed + passed, queue->count);
}

/* A plain thread goes to another CPU. */
struct fair_move {
	struct sched_queue there; /* the plain threads that wait on its former CPU */
	struct sched_queue here;  /* ... and on the other one */
	ecalls_u64 vtime;	  /* there */
	ecalls_u64 now_ns;
};

/* Its virtual time there: it stays as far ahead of the least one as it is now. With least virtual
 * times of some milliseconds ago, a thread that goes to and fro would gain or lose as much each
 * time. */
LIB_GLOBAL ecalls_u64 fair_arrive(const struct sched_cpu *from LIB_NONNULL,
				  struct sched_cpu *to LIB_NONNULL,
				  const struct fair_move *move LIB_NONNULL) {
	fair_note(to, &move->here);
	fair_update(to, move->now_ns);
	return vtime_move(move->vtime, fair_least(from, &move->there, move->now_ns), to->vtime);
}

#endif
