/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Release times (Coop §3.2): cooperative threads run at the times that they published, and the
 * threads that run before them end in time.
 *
 * The release queue is the set sched_cpu.cooperative: threads that have published a release time by
 * their last poll and have kept the rules since then (police.h), runnable or asleep.
 *
 *	release in the future	whoever has the least virtual time runs, until the release at most
 *	release due		the thread with the earliest release runs, with a slice of 0: it
 *				handles what is due, and polls
 *
 * A cooperative thread learns when its slice ends and has slack_ns to yield; no release that it
 * knows of preempts it before. A release preempts all other threads at once, since these do not
 * know of it. An exception is a promised claim (window.h); any other claim is preempted, or
 * informed like that of a fair thread.
 *
 * One deviation from the paper: a sleeping thread's release does not end the slice of a thread that
 * is not cooperative. The sleeping thread's own timer wakes it at that time, and then it preempts.
 */
#ifndef ECALLS_SCHED_RELEASE_H
#define ECALLS_SCHED_RELEASE_H

#include "fair.h"

/* release_earliest of a set that is not empty. */
LIB_GLOBAL ecalls_u32 release_earliest_of(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 left) {
	ecalls_u64 earliest = SCHED_NEVER;
	ecalls_u32 best = SCHED_NOBODY;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		ecalls_u64 release = cpu->entity[i].release_ns;
		if (release < earliest) {
			best = i ^ cpu->zero;
			earliest = release;
		}
	}
	return best;
}

/* The member of the release queue with the earliest release, of a set; SCHED_NOBODY if none has
 * one. */
LIB_INLINE ecalls_u32 release_earliest(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 left = set & cpu->cooperative;

	return left ? release_earliest_of(cpu, left) : SCHED_NOBODY;
}

LIB_INLINE ecalls_u64 release_of(struct sched_cpu *cpu, ecalls_u32 i) {
	return i < SCHED_ENTITIES ? sched_entity(cpu, i)->release_ns : SCHED_NEVER;
}

/* Whether a thread is in the release queue and its release time has come. */
LIB_INLINE _Bool release_due(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	return sched_in(cpu->cooperative, i) && release_of(cpu, i) <= now_ns;
}

/* The runnable thread with the earliest release that is due, or SCHED_NOBODY. */
LIB_INLINE ecalls_u32 release_first(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u32 i = release_earliest(cpu, cpu->runnable);

	return release_of(cpu, i) <= now_ns ? i : SCHED_NOBODY;
}

/* The earliest release of the other runnable threads, due or not; SCHED_NEVER if none has one. */
LIB_INLINE ecalls_u64 release_waiting(struct sched_cpu *cpu, ecalls_u32 except) {
	return release_of(cpu, release_earliest(cpu, cpu->runnable & ~sched_bit(except)));
}

/* The earliest release of all other threads (Coop §3.1: what coop_poll returns). A sleeping thread
 * whose release time has passed does not count: it preempts when it wakes. */
LIB_GLOBAL ecalls_u64 release_next(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 except,
				   ecalls_u64 now_ns) {
	ecalls_u64 left = cpu->cooperative & ~sched_bit(except), next = SCHED_NEVER;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		ecalls_u64 release = cpu->entity[i].release_ns;
		if (release <= now_ns && !sched_in(cpu->runnable, i))
			continue;
		if (release < next)
			next = release;
	}
	return next;
}

/* How long a thread that begins to run now may run before the releases of the others. `next` is the
 * result of release_next, and is used for a cooperative thread. */
LIB_INLINE ecalls_u64 release_leaves(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns,
				     ecalls_u64 next) {
	if (!sched_in(cpu->cooperative, i))
		next = release_waiting(cpu, i);
	return next > now_ns ? next - now_ns : 0;
}

/* The thread's slice by fair share; 0 if its own release is due. */
LIB_INLINE ecalls_u64 release_slice(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	return release_due(cpu, i, now_ns) ? 0 : fair_slice(cpu);
}

/* A thread whose release has come becomes ready, and the running cooperative thread does not know
 * of that release: it began to run after the release time, while the other thread still slept. So
 * the running thread has no time left, like threads that are not cooperative. */
LIB_INLINE void release_untold(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	if (!sched_in(cpu->cooperative, cpu->running) || release_due(cpu, cpu->running, now_ns))
		return;
	if (release_due(cpu, i, now_ns) && release_of(cpu, i) < cpu->next_release_ns &&
	    now_ns < cpu->limit_ns)
		cpu->limit_ns = now_ns;
}

#endif
