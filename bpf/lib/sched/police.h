/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policing (Coop §3.2): a thread that breaks a rule is an ordinary fair thread until its next poll.
 *
 *	rule		broken by					counted in
 *	1 overran	running past the slice and slack_ns		overran
 *	2 slept		sleeping other than in a poll			slept
 *	3 ahead		at a poll, or when others end its turn,		ahead
 *			having had more than ahead_ns beyond the
 *			least virtual time
 *
 * Rule 3 bounds the gain from any lie about release times: whatever a thread publishes, it gets at
 * most ahead_ns and one slice of 0 with its slack beyond its fair share. The excess is measured in
 * CPU time of this thread, or of its group, at its weight: the paper's threshold in virtual time
 * would be some microseconds for a thread of the least weight.
 *
 * A release time in the past counts as the time of the poll: so no thread overtakes those that have
 * waited longer by claiming an older release.
 */
#ifndef ECALLS_SCHED_POLICE_H
#define ECALLS_SCHED_POLICE_H

#include "group.h"
#include "release.h"

#define POLICE_VTIME_MAX (1ull << 38) /* so that the product below fits, for any group weight */

/* Removes a thread from the release queue. Its importance becomes void, unless it has published one
 * just now: rule 3, at a poll. */
LIB_INLINE void police_demote(struct sched_cpu *cpu, ecalls_u32 i) {
	cpu->cooperative &= ~sched_bit(i);
	sched_entity(cpu, i)->release_ns = SCHED_NEVER;
}

/* A thread breaks a rule other than at a poll: its importance becomes void, too. */
LIB_GLOBAL int police_offends(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i) {
	group_publish(cpu, i, SCHED_NEVER);
	police_demote(cpu, i);
	return 0;
}

/* The CPU time by which a thread, or its group, is ahead of the least virtual time. */
LIB_INLINE ecalls_u64 police_ahead_ns(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i);
	ecalls_u64 ahead;

	if (e->group < SCHED_ENTITIES)
		e = sched_entity(cpu, e->group);
	if (!vtime_before(cpu->vtime, e->vtime))
		return 0;
	ahead = e->vtime - cpu->vtime;
	if (ahead > POLICE_VTIME_MAX)
		return SCHED_NEVER;
	return ahead * e->weight / VTIME_WEIGHT;
}

/* Rule 1. Whether the running thread, if it is cooperative, has used up its slice and the slack. */
LIB_INLINE _Bool police_overran(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u32 i = cpu->running;

	if (!sched_in(cpu->cooperative & ~(cpu->polled | cpu->due), i))
		return 0;
	if (now_ns < cpu->slice_end_ns + cpu->options.slack_ns)
		return 0;
	sched_entity(cpu, i)->overran++;
	police_offends(cpu, i);
	return 1;
}

/* Rule 3, at the end of a turn without a poll. A thread does not break rule 1 if windows end each
 * of its turns before its slice and the slack have ended; and while it does not poll, its release
 * stays due. */
LIB_INLINE void police_stopped(struct sched_cpu *cpu) {
	ecalls_u32 i = cpu->running;

	if (!sched_in(cpu->cooperative & ~(cpu->polled | cpu->due), i) ||
	    police_ahead_ns(cpu, i) <= cpu->options.ahead_ns)
		return;
	sched_entity(cpu, i)->ahead++;
	police_offends(cpu, i);
}

/* Rule 2. A thread goes to sleep outside a poll. */
LIB_INLINE void police_sleep(struct sched_cpu *cpu, ecalls_u32 i) {
	if (!sched_in(cpu->cooperative & ~(cpu->polled | cpu->due), i))
		return;
	sched_entity(cpu, i)->slept++;
	police_offends(cpu, i);
}

/* The running thread polls: it publishes its values, and is cooperative unless it breaks rule 3. */
LIB_GLOBAL int police_poll(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns,
			   ecalls_u64 release_ns, ecalls_u64 importance) {
	struct sched_entity *e = sched_entity(cpu, i);

	fair_update(cpu, now_ns);
	if (cpu->running == i)
		police_overran(cpu, now_ns);
	group_publish(cpu, i, importance);
	e->release_ns = release_ns < now_ns ? now_ns : release_ns;
	cpu->polled |= sched_bit(i);
	cpu->cooperative |= sched_bit(i);
	if (police_ahead_ns(cpu, i) > cpu->options.ahead_ns) {
		e->ahead++;
		police_demote(cpu, i);
	}
	return 0;
}

#endif
