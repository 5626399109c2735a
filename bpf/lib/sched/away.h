/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The part of a CPU that others than this policy's threads have: real-time and deadline threads
 * above all, which the kernel runs before ours, without saying so.
 *
 * The CPU is *away* while a thread wants it and none has it. The part of the time is measured while
 * threads want the CPU, over AWAY_NS each, so that it adapts when a real-time thread has ended.
 * Balancing takes it from what the CPU has for its threads (balance.h). While the CPU is away it
 * reports nothing, so that the others count the time since its last report.
 *
 * A small part is not counted: each switch of threads takes some microseconds, and a difference of
 * some hundredths between two CPUs would move threads for nothing.
 */
#ifndef ECALLS_SCHED_AWAY_H
#define ECALLS_SCHED_AWAY_H

#include "window.h"

#define AWAY_NS 50000000u	      /* over which the part is measured */
#define AWAY_GAP_NS 8000000u	      /* away for so long, the CPU counts as away at once */
#define AWAY_LEAST (WINDOW_WHOLE / 8) /* the least part that counts */

/* Whether a thread waits that may run. One that has had its window's service may not. */
LIB_INLINE _Bool away_is_wanted(const struct sched_cpu *cpu) {
	ecalls_u64 held = cpu->windowed & cpu->served & ~cpu->conserving;

	return cpu->queue.count ||
	       (cpu->runnable & ~cpu->groups & ~held & ~sched_bit(cpu->running));
}

/* The time is up for which the two are measured. */
LIB_GLOBAL int away_ends(struct sched_cpu *cpu LIB_NONNULL) {
	ecalls_u64 sum = cpu->had_ns + cpu->away_ns;

	cpu->away_share = cpu->away_ns * WINDOW_WHOLE / (sum ? sum : 1);
	cpu->had_ns = cpu->away_ns = 0;
	return 0;
}

/* Time has passed on a CPU since its last report. */
LIB_INLINE void away_passes(struct sched_cpu *cpu, ecalls_u64 ns) {
	if (cpu->running != SCHED_NOBODY)
		cpu->had_ns += ns;
	else if (away_is_wanted(cpu))
		cpu->away_ns += ns;
	if (cpu->had_ns + cpu->away_ns >= AWAY_NS)
		away_ends(cpu);
}

/* The part of a CPU that others have, in 2^20ths. Another CPU may ask. */
LIB_INLINE ecalls_u64 away_share(const struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 gap = now_ns > cpu->charged_ns ? now_ns - cpu->charged_ns : 0;
	ecalls_u64 share = cpu->away_share, sum;

	if (cpu->running == SCHED_NOBODY && gap > AWAY_GAP_NS && away_is_wanted(cpu)) {
		sum = gap + cpu->had_ns + cpu->away_ns;
		sum = (gap + cpu->away_ns) * WINDOW_WHOLE / (sum ? sum : 1);
		share = sum > share ? sum : share;
	}
	return share < AWAY_LEAST ? 0 : share;
}

#endif
