/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Release times (Coop §3.2): cooperative threads run when they said, and whoever runs before them
 * ends in time.
 *
 * The release queue is the set sched_cpu.cooperative: threads that have published a release time by
 * their last poll and have kept the rules since (police.h), runnable or asleep.
 *
 *	release in the future	whoever has the least virtual time runs, until the release at most
 *	release due		the thread with the earliest release runs, with a slice of 0: it
 *				handles what is due, and polls
 *
 * A cooperative thread is told when its slice ends and has slack_ns to yield; no release that it
 * was told of preempts it before. All others are preempted by a release at once: they were told
 * nothing. A promised claim is not (window.h); any other one is, or told like a fair thread.
 *
 * One deviation from the paper: a sleeping thread's release does not end the slice of a thread that
 * is not cooperative. The sleeper's own timer wakes it at that moment, and then it preempts.
 */
#ifndef ECALLS_SCHED_RELEASE_H
#define ECALLS_SCHED_RELEASE_H

#include "fair.h"

/* Of these members of the release queue, the one with the earliest release; SCHED_NOBODY if none
 * has one. */
LIB_INLINE ecalls_u32 release_earliest(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 left = set & cpu->cooperative, earliest = SCHED_NEVER;
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

LIB_INLINE ecalls_u64 release_of(struct sched_cpu *cpu, ecalls_u32 i) {
	return i < SCHED_ENTITIES ? sched_entity(cpu, i)->release_ns : SCHED_NEVER;
}

/* Whether a thread is in the release queue and its time has come. */
LIB_INLINE _Bool release_due(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	return sched_in(cpu->cooperative, i) && release_of(cpu, i) <= now_ns;
}

/* The runnable thread whose release is due and the earliest, or SCHED_NOBODY. */
LIB_INLINE ecalls_u32 release_first(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u32 i = release_earliest(cpu, cpu->runnable);

	return release_of(cpu, i) <= now_ns ? i : SCHED_NOBODY;
}

/* The earliest release of the others that wait, due or not; SCHED_NEVER if none has one. */
LIB_INLINE ecalls_u64 release_waiting(struct sched_cpu *cpu, ecalls_u32 except) {
	return release_of(cpu, release_earliest(cpu, cpu->runnable & ~sched_bit(except)));
}

/* The earliest release of all others (Coop §3.1: what coop_poll returns). A sleeper whose time has
 * passed and who is not here yet will preempt when it comes; it holds nobody up. */
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

/* How long a thread that begins to run now may run for the releases of the others. `next`:
 * release_next of a cooperative one. */
LIB_INLINE ecalls_u64 release_leaves(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns,
				     ecalls_u64 next) {
	if (!sched_in(cpu->cooperative, i))
		next = release_waiting(cpu, i);
	return next > now_ns ? next - now_ns : 0;
}

/* Its slice by fair share: 0 if it is due itself. */
LIB_INLINE ecalls_u64 release_slice(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	return release_due(cpu, i, now_ns) ? 0 : fair_slice(cpu);
}

/* A thread whose release has come becomes ready, and who runs was not told of it: it began within
 * the moment between the release and this, when the sleeper held nobody up. So like those who were
 * told nothing it has no time left before others. */
LIB_INLINE void release_untold(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	if (!sched_in(cpu->cooperative, cpu->running) || release_due(cpu, cpu->running, now_ns))
		return;
	if (release_due(cpu, i, now_ns) && release_of(cpu, i) < cpu->next_release_ns &&
	    now_ns < cpu->limit_ns)
		cpu->limit_ns = now_ns;
}

#endif
