/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows (ECalls-05 §4.1): service in y - x of any y periods.
 *
 * A thread with a window *claims* the CPU while it waits, has not had its service time C in the
 * current period T, and (WINDOW_SPREAD only) the period is one of those that count. CPU time by a
 * claim costs the thread no virtual time. It gets further CPU time like a fair thread (one that is
 * ordered by virtual time), if it is work-conserving; otherwise it waits for its next period after
 * its service.
 *
 * Claims are ordered in one of two ways.
 *
 * WINDOW_DWCS is Dynamic Window-Constrained Scheduling as West and Poellabauer published it (RTSS
 * 2000): all periods claim, in this order:
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
 * WINDOW_SPREAD: of each y periods, y - x claim, spread as evenly as integers allow, and claims are
 * in order of deadlines. Any n consecutive periods then contain at most ceil(n (y - x) / y) claims,
 * for which admit.h can prove that all are met, and any y consecutive periods, not only those
 * between two resets, contain y - x. While all periods of all windows fit beside the reserve
 * (sched_cpu.all_fit), no period has to be left out, and all claim. The constraint x'/y' is updated
 * as well, for the counters.
 *
 * If a thread still waits at the end of its period, its next period begins there. A thread that
 * sleeps has had the service that it wanted, and its next period begins when it wakes, at any time:
 * it need not know when its periods begin. Deadlines remain a period apart, so no other thread gets
 * less for it: a thread that wakes before its period is over gets the deadline of the next one.
 * Only a thread that has had its service in that period too has to wait. If sched_cpu.grid_ns is
 * set, all periods begin together, as DWCS demands, and a period in the middle of which a thread
 * wakes does not claim.
 */
#ifndef ECALLS_SCHED_WINDOW_H
#define ECALLS_SCHED_WINDOW_H

#include "entity.h"
#include "vtime.h"

#define WINDOW_DWCS 0u
#define WINDOW_SPREAD 1u

/* values of sched_cpu.claims */
#define WINDOW_CLAIMS 1u /* the running thread runs by its claim */
#define WINDOW_BEYOND 2u /* the same, beyond its quota, since no other thread wants the CPU */

#define WINDOW_ROLL_MAX 16u	     /* missed periods that are counted one by one */
#define WINDOW_QUOTA_NS 100000000ull /* period of the quota of windows without a grid */
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

/* Whether the claim of a goes before that of b, by rules 1 to 4; a comes before b in the table
 * (rule 5). */
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

/* Whether a period, given by its position, is one of the y - x that claim: these are spread evenly
 * over y, beginning with the first. */
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

/* The threads with a window that share the CPU time that claims leave. */
LIB_INLINE ecalls_u64 window_sharing(const struct sched_cpu *cpu) {
	return cpu->windowed & ~window_claiming(cpu) & (cpu->conserving | ~cpu->served);
}

/* A thread begins to share the CPU time that claims leave; its virtual time is at least the least
 * one. */
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

/* Ends the periods of a waiting thread up to now. For a thread that has missed more than
 * WINDOW_ROLL_MAX periods, the rest is not counted. */
LIB_GLOBAL int window_roll_one(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;
	ecalls_u64 period = w->period_ns ? w->period_ns : 1;
	/* A value that the verifier does not know, so that it does not walk each round (heap.h). */
	ecalls_u32 left = WINDOW_ROLL_MAX ^ cpu->zero;

	for (ecalls_u32 round = 0; lib_again(round, WINDOW_ROLL_MAX); round++) {
		if (w->deadline_ns > now_ns)
			return 0;
		if (left == 0)
			break;
		left--;
		if (!sched_in(cpu->served, i))
			window_miss(w);
		window_turn(cpu, i, w->deadline_ns + period);
	}
	if (w->deadline_ns <= now_ns)
		w->deadline_ns += ((now_ns - w->deadline_ns) / period + 1) * period;
	return 0;
}

/* The windows with a quota of claims: on a grid all of them, else those without guarantee. */
LIB_INLINE ecalls_u64 window_bounded(const struct sched_cpu *cpu) {
	return cpu->grid_ns ? cpu->windowed : cpu->windowed & ~cpu->promised;
}

/* Their common quota is what the reserve and the promised windows leave: of each period on a grid,
 * else of WINDOW_QUOTA_NS. */
LIB_INLINE ecalls_u64 window_quota(const struct sched_cpu *cpu) {
	ecalls_u64 length = cpu->grid_ns ? cpu->grid_ns : WINDOW_QUOTA_NS;
	ecalls_u64 kept = cpu->options.reserve + (cpu->grid_ns ? 0 : cpu->promised_share);

	return kept < WINDOW_WHOLE ? length * (WINDOW_WHOLE - kept) / WINDOW_WHOLE : 0;
}

/* Whether a claim still fits into the quota; on a grid the whole service has to fit. */
LIB_GLOBAL int window_quota_left(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	if (cpu->grid_ns)
		return cpu->quota_used_ns + w->service_ns <= window_quota(cpu) + w->served_ns;
	return cpu->quota_used_ns < window_quota(cpu);
}

/* The next quota begins. The time by which the last claim exceeded the previous quota is subtracted
 * from it, otherwise long services would leave the other threads nothing. On a grid no claim
 * exceeds the quota. */
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

/* Ends the periods that are over, of all threads that wait or run. */
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

/* Begins the first periods of the threads in sched_cpu.starting, once no promised thread claims. */
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
 * unless its deadline is more than a period ahead already. On a grid the period begins at the next
 * multiple of its length, and the rest of the current one does not claim. */
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

/* A thread sleeps: it gives up the rest of a service that has begun. */
LIB_INLINE void window_sleep(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	if (!sched_in(cpu->windowed & ~cpu->served, i) || w->served_ns == 0)
		return;
	window_met(w);
	cpu->served |= sched_bit(i);
}

/* Charges the running thread, which has a window, for `ns`. */
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

/* window_first of a set that is not empty. */
LIB_GLOBAL ecalls_u32 window_first_of(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 left) {
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

/* The first waiting thread of a set, by the order of windows. */
LIB_INLINE ecalls_u32 window_first(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 left = set & cpu->windowed & cpu->runnable;

	return left ? window_first_of(cpu, left) : SCHED_NOBODY;
}

/* How a thread that gets the CPU now claims it: 0, WINDOW_CLAIMS or WINDOW_BEYOND. */
LIB_INLINE ecalls_u32 window_claim(struct sched_cpu *cpu, ecalls_u32 i) {
	if (!window_claims(cpu, i))
		return 0;
	return sched_in(window_bounded(cpu), i) && !window_quota_left(cpu, i) ? WINDOW_BEYOND
									      : WINDOW_CLAIMS;
}

/* Whether thread `who`, which runs, has a promised claim: then due releases wait for its end. Any
 * other claim is interrupted by them, and continues afterwards. */
LIB_INLINE _Bool window_is_firm(const struct sched_cpu *cpu, ecalls_u32 who) {
	return cpu->claims == WINDOW_CLAIMS && sched_in(cpu->promised, who);
}

/* How long a claim that begins now may last: until the thread is served, or beyond the quota, at
 * most until the next quota begins. */
LIB_INLINE ecalls_u64 window_slice(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	struct sched_window *w = &sched_entity(cpu, i)->window;
	ecalls_u64 slice = w->service_ns > w->served_ns ? w->service_ns - w->served_ns : 0;
	ecalls_u64 rest = cpu->quota_end_ns > now_ns ? cpu->quota_end_ns - now_ns : slice;

	if (cpu->claims != WINDOW_BEYOND)
		return slice;
	return slice < rest ? slice : rest;
}

/* When the next period of a waiting thread begins, or the next quota, if a claim waits for it;
 * SCHED_NEVER if neither is waited for. On a grid both are the same. */
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
