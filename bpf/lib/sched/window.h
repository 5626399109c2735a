/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows (ECalls-05 §4.1): service in y - x of any y periods.
 *
 * A thread with a window *claims* the CPU while it waits, has not had its service time C in the
 * current period T, and (WINDOW_SPREAD only) the period is one of those that count. What it gets by
 * a claim costs it no virtual time. What it gets otherwise, it gets like a fair thread, if it is
 * work-conserving; else it waits for its next period once it has been served.
 *
 * Two orders among claims.
 *
 * WINDOW_DWCS is Dynamic Window-Constrained Scheduling as West and Poellabauer published it (RTSS
 * 2000): all periods claim, and this goes first:
 *	1. the earliest deadline
 *	2. of equal deadlines, the lowest x'/y'
 *	3. if both are zero, the highest y'
 *	4. if they are equal and not zero, the lowest x'
 *	5. first come: here, first in the table
 * x'/y' is x/y at first. At the end of a period that was
 *	served		y' - 1; if y' = x', both - 1. Then, at 0/0 or if tagged, back to x/y
 *	missed		x' > 0: both - 1; then, at 0/0, back to x/y
 *			x' = 0: y' + 1, and the thread is tagged: a violation
 * so that x'/y' says how many of the periods left in the current window may still be missed.
 *
 * WINDOW_SPREAD: of each y periods, y - x claim, spread as evenly as integers allow, and these in
 * order of deadlines. Any n periods in a row then hold at most ceil(n (y - x) / y) claims, for
 * which admit.h can prove that all are met, and any y in a row, not only those between two resets,
 * hold y - x. While all periods of all windows fit beside the reserve (sched_cpu.all_fit), none has
 * to be left out, and all claim. The constraint x'/y' is kept as well, for the counts.
 *
 * A thread that waits on at the end of its period begins the next one there. One that sleeps had
 * what it wanted, and begins its next period when it wakes, whenever that is: it need not know when
 * its periods are. Deadlines stay a period apart, so nobody else has less for it: who wakes before
 * its period is over has the next one's deadline. Only who has had that one as well has to wait.
 * If sched_cpu.grid_ns is set, all periods begin together, as DWCS demands, and one in whose middle
 * a thread wakes does not claim.
 */
#ifndef ECALLS_SCHED_WINDOW_H
#define ECALLS_SCHED_WINDOW_H

#include "entity.h"
#include "vtime.h"

#define WINDOW_DWCS 0u
#define WINDOW_SPREAD 1u

/* sched_cpu.claims */
#define WINDOW_CLAIMS 1u /* who runs does so by its window */
#define WINDOW_BEYOND 2u /* so, too, beyond its quota, for nobody else wants the CPU */

#define WINDOW_ROLL_MAX 16u	     /* missed periods that are counted one by one at a time */
#define WINDOW_QUOTA_NS 100000000ull /* in which windows leave the reserve, without a grid */
#define WINDOW_WHOLE (1ull << 20)    /* a whole CPU */

LIB_INLINE void window_reset(struct sched_window *w) {
	w->now_x = w->x;
	w->now_y = w->y;
}

/* The period was served: adjustment (A). */
LIB_INLINE void window_met(struct sched_window *w) {
	w->met++;
	if (w->now_y > w->now_x) {
		w->now_y--;
	} else if (w->now_x > 0) {
		w->now_x--;
		w->now_y--;
	}
	if ((w->now_x == 0 && w->now_y == 0) || w->tagged)
		window_reset(w);
	w->tagged = 0;
}

/* The period was missed: adjustment (B). */
LIB_INLINE void window_miss(struct sched_window *w) {
	w->missed++;
	if (w->now_x > 0) {
		w->now_x--;
		w->now_y--;
		if (w->now_x == 0 && w->now_y == 0)
			window_reset(w);
	} else {
		w->now_y++;
		w->tagged = 1;
		w->violated++;
	}
}

/* Whether a's claim goes before b's, rules 1 to 4; a comes before b in the table (rule 5). */
LIB_INLINE _Bool window_before(const struct sched_window *a, const struct sched_window *b,
			       ecalls_u32 order) {
	ecalls_u64 tight_a = (ecalls_u64)a->now_x * b->now_y;
	ecalls_u64 tight_b = (ecalls_u64)b->now_x * a->now_y;

	if (a->deadline_ns != b->deadline_ns)
		return a->deadline_ns < b->deadline_ns;
	if (order != WINDOW_DWCS)
		return 1;
	if (tight_a != tight_b)
		return tight_a < tight_b;
	if (a->now_x == 0)
		return a->now_y >= b->now_y;
	return a->now_x <= b->now_x;
}

/* Whether a period is one of the y - x that count, by its position: each (y - x)th part of y, the
 * first included. */
LIB_INLINE _Bool window_counts(const struct sched_window *w, ecalls_u32 position) {
	ecalls_u64 served = w->y - w->x, y = w->y ? w->y : 1;
	ecalls_u64 before = position * served + y - 1;

	return (before + served) / y != before / y;
}

/* The threads whose current period claims the CPU, if they wait. */
LIB_INLINE ecalls_u64 window_claiming(const struct sched_cpu *cpu) {
	return cpu->windowed & cpu->counting & ~cpu->served;
}

LIB_INLINE _Bool window_claims(const struct sched_cpu *cpu, ecalls_u32 i) {
	return sched_in(window_claiming(cpu), i);
}

/* The threads that share what claims leave. */
LIB_INLINE ecalls_u64 window_sharing(const struct sched_cpu *cpu) {
	return cpu->windowed & ~window_claiming(cpu) & (cpu->conserving | ~cpu->served);
}

/* A thread shares from now on what claims leave: not before the least virtual time. */
LIB_INLINE void window_share(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_entity *e = sched_entity(cpu, i);

	if (vtime_before(e->vtime, cpu->vtime))
		e->vtime = cpu->vtime;
}

/* The next period begins. */
LIB_INLINE void window_turn(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 deadline_ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	w->deadline_ns = deadline_ns;
	w->served_ns = 0;
	w->position = w->position + 1 < w->y ? w->position + 1 : 0;
	cpu->served &= ~sched_bit(i);
	if (cpu->options.window_order == WINDOW_DWCS || cpu->all_fit ||
	    window_counts(w, w->position)) {
		cpu->counting |= sched_bit(i);
		return;
	}
	cpu->counting &= ~sched_bit(i);
	window_share(cpu, i);
}

/* A waiting thread's periods up to now have ended. Whoever did not get to run for very long has
 * missed more than WINDOW_ROLL_MAX: the rest is forgotten. */
LIB_GLOBAL int window_roll_one(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;
	ecalls_u64 period = w->period_ns ? w->period_ns : 1;

	for (ecalls_u32 round = 0; lib_again(round, WINDOW_ROLL_MAX); round++) {
		if (w->deadline_ns > now_ns)
			return 0;
		if (round >= WINDOW_ROLL_MAX)
			break;
		if (!sched_in(cpu->served, i))
			window_miss(w);
		window_turn(cpu, i, w->deadline_ns + period);
	}
	if (w->deadline_ns <= now_ns)
		w->deadline_ns += ((now_ns - w->deadline_ns) / period + 1) * period;
	return 0;
}

/* The windows whose claims a quota bounds: on a grid all, else those without guarantee. */
LIB_INLINE ecalls_u64 window_bounded(const struct sched_cpu *cpu) {
	return cpu->grid_ns ? cpu->windowed : cpu->windowed & ~cpu->promised;
}

/* Their quota, which is what the reserve and the promised windows leave: on a grid of each period,
 * else of WINDOW_QUOTA_NS. */
LIB_INLINE ecalls_u64 window_quota(const struct sched_cpu *cpu) {
	ecalls_u64 length = cpu->grid_ns ? cpu->grid_ns : WINDOW_QUOTA_NS;
	ecalls_u64 kept = cpu->options.reserve + (cpu->grid_ns ? 0 : cpu->promised_share);

	return kept < WINDOW_WHOLE ? length * (WINDOW_WHOLE - kept) / WINDOW_WHOLE : 0;
}

/* Whether a claim still fits into it: on a grid in whole services. */
LIB_INLINE _Bool window_quota_left(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	if (cpu->grid_ns)
		return cpu->quota_used_ns + w->service_ns <= window_quota(cpu) + w->served_ns;
	return cpu->quota_used_ns < window_quota(cpu);
}

/* The next quota begins. What the last claim took beyond the one before is owed, else long services
 * would leave the others nothing. On a grid none does. */
LIB_INLINE void window_quota_begin(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 length = cpu->grid_ns ? cpu->grid_ns : WINDOW_QUOTA_NS;
	ecalls_u64 passed = 1 + (now_ns - cpu->quota_end_ns) / length;
	ecalls_u64 quota = window_quota(cpu);

	if (cpu->grid_ns || quota == 0 || cpu->quota_used_ns / quota < passed)
		cpu->quota_used_ns = 0;
	else
		cpu->quota_used_ns -= passed * quota;
	cpu->quota_end_ns = now_ns - now_ns % length + length;
}

/* Ends the periods that are over, of the threads that wait or run. */
LIB_GLOBAL int window_roll(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 now_ns) {
	ecalls_u64 left = cpu->windowed & cpu->runnable & ~cpu->starting;

	if (cpu->quota_end_ns <= now_ns)
		window_quota_begin(cpu, now_ns);
	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		if (cpu->entity[i].window.deadline_ns <= now_ns)
			window_roll_one(cpu, i, now_ns);
	}
	return 0;
}

/* The first periods of those that were to wait for it begin, if nobody who was promised claims. */
LIB_INLINE void window_begin(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 left = cpu->starting;

	if (window_claiming(cpu) & cpu->promised & cpu->runnable)
		return;
	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		window_turn(cpu, i, now_ns + cpu->entity[i].window.period_ns);
	}
	cpu->starting = 0;
}

/* A thread wakes, and a period of its own begins: a new one if it was served in the last one,
 * unless that is ahead already. On a grid it begins at the next line, and the rest of the current
 * one does not claim. */
LIB_INLINE void window_wake(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;
	ecalls_u64 end_ns = now_ns + w->period_ns;

	if (!sched_in(cpu->windowed & ~cpu->starting, i))
		return;
	if (cpu->grid_ns) {
		if (w->deadline_ns > now_ns)
			return;
		w->deadline_ns = now_ns - now_ns % cpu->grid_ns + cpu->grid_ns;
		cpu->served |= sched_bit(i);
	} else if (!sched_in(cpu->served, i)) {
		w->deadline_ns = w->deadline_ns < end_ns ? end_ns : w->deadline_ns;
	} else if (w->deadline_ns <= end_ns) {
		if (w->deadline_ns > now_ns)
			end_ns = w->deadline_ns + w->period_ns;
		window_turn(cpu, i, end_ns);
	}
}

/* A thread sleeps: what it has not used of a service that has begun, it does not want. */
LIB_INLINE void window_sleep(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	if (!sched_in(cpu->windowed & ~cpu->served, i) || w->served_ns == 0)
		return;
	window_met(w);
	cpu->served |= sched_bit(i);
}

/* The running thread, which has a window, has run for `ns`. */
LIB_INLINE void window_charge(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	w->served_ns += ns;
	if (cpu->claims == WINDOW_CLAIMS && sched_in(window_bounded(cpu), i))
		cpu->quota_used_ns += ns;
	if (sched_in(cpu->served, i) || w->served_ns < w->service_ns)
		return;
	window_met(w);
	window_share(cpu, i);
	cpu->served |= sched_bit(i);
	cpu->claims = 0;
}

/* Of a set, the waiting thread that goes first by the order of windows. */
LIB_INLINE ecalls_u32 window_first(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 left = set & cpu->windowed & cpu->runnable;
	ecalls_u32 best = SCHED_NOBODY;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		if (best == SCHED_NOBODY ||
		    !window_before(&sched_entity(cpu, best)->window, &cpu->entity[i].window,
				   cpu->options.window_order))
			best = i ^ cpu->zero;
	}
	return best;
}

/* How a thread that is given the CPU now claims it: 0, or as above. */
LIB_INLINE ecalls_u32 window_claim(struct sched_cpu *cpu, ecalls_u32 i) {
	if (!window_claims(cpu, i))
		return 0;
	return sched_in(window_bounded(cpu), i) && !window_quota_left(cpu, i) ? WINDOW_BEYOND
									      : WINDOW_CLAIMS;
}

/* Whether who has the CPU as sched_cpu.claims says does so by a promise: due releases wait for it.
 * Any other claim makes way for them, and goes on after. */
LIB_INLINE _Bool window_is_firm(const struct sched_cpu *cpu, ecalls_u32 who) {
	return cpu->claims == WINDOW_CLAIMS && sched_in(cpu->promised, who);
}

/* For how long a claim that begins now may go on: until it was served. Beyond its quota, until the
 * next one. */
LIB_INLINE ecalls_u64 window_slice(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;
	ecalls_u64 slice = w->service_ns > w->served_ns ? w->service_ns - w->served_ns : 0;
	ecalls_u64 rest = cpu->quota_end_ns > now_ns ? cpu->quota_end_ns - now_ns : slice;

	if (cpu->claims != WINDOW_BEYOND)
		return slice;
	return slice < rest ? slice : rest;
}

/* When the next period of a waiting thread begins, or the next quota of one whose claim waits for
 * that; SCHED_NEVER if none waits. Of a grid both are one. */
LIB_INLINE ecalls_u64 window_next(struct sched_cpu *cpu) {
	ecalls_u64 left = cpu->windowed & cpu->runnable & ~cpu->starting, next = SCHED_NEVER;

	if (!cpu->grid_ns && (window_claiming(cpu) & window_bounded(cpu) & cpu->runnable) &&
	    cpu->quota_used_ns >= window_quota(cpu))
		next = cpu->quota_end_ns;
	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u64 deadline = cpu->entity[sched_next(&left)].window.deadline_ns;
		if (deadline < next)
			next = deadline;
	}
	return next;
}

#endif
