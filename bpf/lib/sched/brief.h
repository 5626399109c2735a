/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Plain threads that sleep as soon as they have woken another one: the reader of a pipe that holds
 * one message, say. If the woken one waits until then, both sleep and are woken for each message.
 * If it preempts at once, the other one is still ready when its message comes: one wake-up less,
 * and no switch more. So a thread whose turn has ended in this way is preempted by who is first
 * anyway, though its turn is protected (fair.h), but only BRIEF_TURNS times: then it has to show it
 * again.
 *
 * fair_hurry counts who woke in a turn and did not preempt, in sched_cpu.kept.
 */
#ifndef ECALLS_SCHED_BRIEF_H
#define ECALLS_SCHED_BRIEF_H

#include "fair.h"

#define BRIEF_NS 100000u /* who sleeps so soon after a thread woke was about to */
#define BRIEF_TURNS 64u	 /* turns for which that is believed of the next ones */

/* Whether a plain thread that wakes is first, and the running one is believed to sleep at once:
 * then it preempts that one, unless it is ahead of it by more than the shortest turn. */
LIB_INLINE _Bool brief_makes_way(struct sched_cpu *cpu, ecalls_u64 vtime, ecalls_u32 weight) {
	ecalls_u64 most = cpu->plain.vtime + vtime_advance(FAIR_SHORT_NS, weight);

	if (cpu->running != SCHED_PLAIN || !cpu->plain.brief || cpu->runnable)
		return 0;
	if (vtime_before(cpu->queue.vtime, vtime) || vtime_before(most, vtime))
		return 0;
	cpu->plain.brief--;
	return 1;
}

/* The running thread stops; `waits`: it remains runnable. */
LIB_INLINE void brief_learns(struct sched_cpu *cpu, _Bool waits, ecalls_u64 now_ns) {
	if (!cpu->kept)
		return;
	cpu->plain.brief = 0;
	if (!waits && cpu->kept == 1 && now_ns < cpu->kept_ns + BRIEF_NS)
		cpu->plain.brief = BRIEF_TURNS;
	cpu->kept = 0;
}

#endif
