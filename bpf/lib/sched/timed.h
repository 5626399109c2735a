/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timed threads: those of an unmodified program whose sleeps end at times that the thread has set
 * (a timeout, a timer). The caller learns the time from the kernel's timers; the thread says
 * nothing, and does not poll.
 *
 * When a timed thread wakes and its time has come, it is in the release queue (release.h) until it
 * gets the CPU: it waits like a thread that has polled with a release that is due, and preempts
 * whom that one would preempt. From then on it is a fair thread. So it has no slack, no thread is
 * kept from preempting it, and its turn is no longer than a plain thread's, because its virtual
 * time may be ahead of those that wait.
 *
 * Rule 3 of policing (police.h) is the bound: a thread that is more than ahead_ns beyond the least
 * virtual time when it wakes waits for its share. So whatever timers a thread sets, it has at most
 * ahead_ns and one turn more than that. The time of its release is that of its wake-up, so that no
 * thread overtakes those that have waited longer.
 */
#ifndef ECALLS_SCHED_TIMED_H
#define ECALLS_SCHED_TIMED_H

#include "police.h"

/* A timed thread has become ready (turn_ready), and the time until which it slept has come. */
LIB_GLOBAL int timed_ready(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns) {
	if (!sched_in(cpu->runnable & ~cpu->cooperative & ~cpu->windowed, i) || cpu->running == i)
		return 0;
	if (police_ahead_ns(cpu, i) > cpu->options.ahead_ns) {
		sched_entity(cpu, i)->ahead++;
		return 0;
	}
	sched_entity(cpu, i)->release_ns = now_ns;
	cpu->cooperative |= sched_bit(i);
	cpu->timed |= sched_bit(i);
	release_untold(cpu, i, now_ns);
	return 0;
}

/* A thread gets the CPU, or no longer waits for it; 1: it waited after a timed sleep. */
LIB_INLINE _Bool timed_ends(struct sched_cpu *cpu, ecalls_u32 i) {
	if (!sched_in(cpu->timed, i))
		return 0;
	cpu->timed &= ~sched_bit(i);
	police_demote(cpu, i);
	return 1;
}

#endif
