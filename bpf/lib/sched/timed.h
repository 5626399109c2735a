/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timed threads: those of an unmodified program whose sleeps end at times that the thread has set
 * (a timeout, a timer). The caller learns the time from the kernel's timers; the thread says
 * nothing, and does not poll.
 *
 * When a timed thread wakes and its time has come, it is *due*: it is in the release queue
 * (release.h), where it waits like a thread that has polled with a release that is due, and
 * preempts whom that one would preempt. It is due for one turn of a plain thread, in which it runs
 * before all fair threads:
 *
 *	- Each release that comes meanwhile preempts it, since it has no slack. Then it waits with
 *	  the rest of its turn, behind those that are due by then: a program of several threads that
 *	  wake at one time would otherwise preempt its own work, and wait for everybody's turns.
 *	- While another one is due that has not run yet, it has slice_min_ns, so that none is late
 *	  for the others' work. Those that have run do not take turns, which would cost switches.
 *	- If it sleeps or yields, the turn is over.
 *
 * Else a timed thread is a plain one (fair_is_ordinary): what another thread wakes has the credit
 * and the protection that a plain one has, so no thread is served later because it is timed. A
 * member of a group is one of its group instead.
 *
 * Rule 3 of policing (police.h) is the bound: a thread that is more than ahead_ns beyond the least
 * virtual time when it wakes waits for its share. So whatever timers a thread sets, it has at most
 * ahead_ns and one turn more than that. The time of its release is that of its wake-up, so that no
 * thread overtakes those that have waited longer.
 */
#ifndef ECALLS_SCHED_TIMED_H
#define ECALLS_SCHED_TIMED_H

#include "police.h"

/* A thread is one of a timed program, or is not any more. */
LIB_INLINE void timed_is_of(struct sched_cpu *cpu, ecalls_u32 i, _Bool is) {
	if (is)
		cpu->timed |= sched_bit(i);
	else
		cpu->timed &= ~sched_bit(i);
}

/* A thread is due, for so much of a turn. */
LIB_INLINE void timed_waits(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 turn_ns,
			    ecalls_u64 now_ns) {
	struct sched_entity *e = sched_entity(cpu, i);

	e->release_ns = now_ns;
	e->turn_ns = turn_ns;
	cpu->cooperative |= sched_bit(i);
	cpu->due |= sched_bit(i);
}

/* A timed thread has become ready (turn_ready), and the time until which it slept has come. */
LIB_GLOBAL int timed_ready(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns) {
	ecalls_u64 ready = cpu->timed & cpu->runnable & ~cpu->cooperative & ~cpu->windowed;

	if (!sched_in(ready, i) || cpu->running == i)
		return 0;
	if (police_ahead_ns(cpu, i) > cpu->options.ahead_ns) {
		sched_entity(cpu, i)->ahead++;
		return 0;
	}
	timed_waits(cpu, i, FAIR_TURN_NS, now_ns);
	cpu->fresh |= sched_bit(i);
	release_untold(cpu, i, now_ns);
	return 0;
}

/* A thread gets the CPU, or no longer waits for it; 1: it was due. */
LIB_INLINE _Bool timed_ends(struct sched_cpu *cpu, ecalls_u32 i) {
	if (!sched_in(cpu->due, i))
		return 0;
	cpu->due &= ~sched_bit(i);
	cpu->fresh &= ~sched_bit(i);
	police_demote(cpu, i);
	return 1;
}

/* A thread that was due begins its turn, or goes on with the rest of it. The next release ends it,
 * but not at once; those that go on with a rest, too, do not. */
LIB_INLINE void timed_begins(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	ecalls_u64 others = cpu->runnable & ~(cpu->due & ~cpu->fresh) & ~sched_bit(i);
	ecalls_u64 next = release_of(cpu, release_earliest(cpu, others));
	ecalls_u64 least = now_ns + cpu->options.slice_min_ns;
	ecalls_u64 turn = fair_turn(cpu), left = sched_entity(cpu, i)->turn_ns;

	cpu->due_end_ns = cpu->limit_ns = now_ns + (left < turn ? left : turn);
	if (next < least)
		next = least;
	if (next < cpu->limit_ns)
		cpu->limit_ns = next;
}

/* The running thread stops and still waits, or another one may be chosen: if it was due, it is so
 * for the rest of its turn. */
LIB_INLINE void timed_stays(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 able = cpu->timed & ~cpu->cooperative & ~cpu->windowed;

	if (sched_in(able, cpu->running) && cpu->due_end_ns > now_ns)
		timed_waits(cpu, cpu->running, cpu->due_end_ns - now_ns, now_ns);
	cpu->due_end_ns = 0;
}

#endif
