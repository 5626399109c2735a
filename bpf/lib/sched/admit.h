/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Admission of windows: a promise is proved; a window without proof is admitted without guarantee.
 *
 * A window is refused if its attributes are outside the limits, or if all windows together need
 * more than the reserve leaves of the CPU, in any order: the sum of (1 - x/y) C/T.
 *
 * It is promised, so that y - x of y periods are served, if with the new thread one of these holds
 * for all threads with a promise (m = y - x):
 *	either order	the sum of C/T fits beside the reserve: the order is earliest deadline
 *			first, which is optimal. While that of all windows does, every period is
 *			served.
 *	WINDOW_DWCS	all windows on this CPU have the same T and C, and the sum of m/y is at most
 *			the number of whole services that fit into T beside the reserve: the
 *			canonical sets, for which DWCS was proved (RTSS 2000), in windows that
 *			follow each other. Their periods then begin together.
 *	WINDOW_SPREAD	for each length L: the sum of C ceil(floor(L/T) m/y) is at most what the
 *			reserve leaves of L. On the left is the most that claims with their whole
 *			period in a time of length L can ask for; so earliest deadline first meets
 *			all of them. In any y periods.
 *
 * With the task server no window is promised in the order WINDOW_DWCS: as published, the server's
 * turn goes before every claim with the same deadline, promised or not.
 *
 * The reason why DWCS is not used for all windows: Mok and Wang (RTSS 2001) show that it can fail
 * at any utilization, however low, if periods or service times differ.
 *
 * Periods need not be aligned: each begins when its thread wakes, or when the last one ends, and
 * the deadlines of a thread are a period apart. So no time of length L contains more than
 * floor(L/T) whole periods, and the tests of the sum and of the lengths count no more (Liu and
 * Layland's and the sporadic model). Only the periods of canonical sets begin together.
 *
 * The promise holds from the thread's next period on. It assumes that the thread wants to run when
 * its period begins, and that only this scheduler's threads use the CPU.
 *
 * The claims of threads without guarantee are served after all promised ones and after due
 * releases, and only while the windows' quota lasts: so the reserve remains, whatever they request.
 * A service that has begun continues; its excess over one quota is subtracted from the next ones.
 */
#ifndef ECALLS_SCHED_ADMIT_H
#define ECALLS_SCHED_ADMIT_H

#include "overlay.h"

#define ADMIT_REFUSED 0u
#define ADMIT_UNPROMISED 1u /* admitted without guarantee */
#define ADMIT_PROMISED 2u

#define ADMIT_PERIOD_MIN_NS 100000ull
#define ADMIT_PERIOD_MAX_NS 10000000000ull
#define ADMIT_WINDOW_MAX 1024u
#define ADMIT_TERMS_MAX 16384u /* demands that are added at most; beyond it: no promise */

LIB_INLINE _Bool admit_valid(const struct sched_window *w) {
	return w->period_ns >= ADMIT_PERIOD_MIN_NS && w->period_ns <= ADMIT_PERIOD_MAX_NS &&
	       w->service_ns > 0 && w->service_ns <= w->period_ns && w->y > 0 &&
	       w->y <= ADMIT_WINDOW_MAX && w->x < w->y;
}

/* C/T of a window, in 2^20ths, rounded up. */
LIB_INLINE ecalls_u64 admit_whole(const struct sched_window *w) {
	ecalls_u64 period = w->period_ns ? w->period_ns : 1;

	return (w->service_ns * WINDOW_WHOLE + period - 1) / period;
}

/* The sum of C/T, or of (1 - x/y) C/T, over all threads of a set, each rounded up. */
LIB_INLINE ecalls_u64 admit_sum(struct sched_cpu *cpu, ecalls_u64 set, _Bool needed) {
	ecalls_u64 sum = 0;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (set == 0)
			break;
		struct sched_window *w = &sched_entity(cpu, sched_next(&set))->window;
		sum += needed ? overlay_needed(w) + 1 : admit_whole(w);
	}
	return sum;
}

/* Whether all threads have the T and C of one, and the sum of m/y fits. */
LIB_INLINE _Bool admit_canonical(struct sched_cpu *cpu, ecalls_u64 set,
				 const struct sched_window *one) {
	ecalls_u64 whole = WINDOW_WHOLE - cpu->options.reserve, sum = 0;
	ecalls_u64 service = one->service_ns ? one->service_ns : 1;
	ecalls_u64 services = one->period_ns * whole / WINDOW_WHOLE / service;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (set == 0)
			break;
		struct sched_window *w = &sched_entity(cpu, sched_next(&set))->window;
		if (w->period_ns != one->period_ns || w->service_ns != one->service_ns)
			return 0;
		sum += (w->y - w->x) * WINDOW_WHOLE / (w->y ? w->y : 1) + 1;
	}
	return sum <= services * WINDOW_WHOLE + SCHED_ENTITIES;
}

/* The most that the claims of a set can demand in a time of `length`; *next is set to the next
 * length at which the demand is greater. */
LIB_GLOBAL ecalls_u64 admit_demand(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 set,
				   ecalls_u64 length, ecalls_u64 *next LIB_NONNULL) {
	ecalls_u64 demand = 0;

	*next = SCHED_NEVER;
	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (set == 0)
			break;
		struct sched_window *w = &sched_entity(cpu, sched_next(&set))->window;
		ecalls_u64 period = w->period_ns ? w->period_ns : 1, y = w->y ? w->y : 1;
		ecalls_u64 periods = length / period;
		demand += (periods * (w->y - w->x) + y - 1) / y * w->service_ns;
		if ((periods + 1) * period < *next)
			*next = (periods + 1) * period;
	}
	return demand;
}

/* From this length on, the demand cannot exceed the supply: the demand of each thread is at most
 * its share of the length and one service (C (y - 1)/y). SCHED_NEVER: the utilization leaves
 * nothing. */
LIB_INLINE ecalls_u64 admit_horizon(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 spare = WINDOW_WHOLE - cpu->options.reserve, sum = 0;
	ecalls_u64 needed = admit_sum(cpu, set, 1);

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (set == 0)
			break;
		sum += sched_entity(cpu, sched_next(&set))->window.service_ns;
	}
	if (needed >= spare)
		return SCHED_NEVER;
	return sum * WINDOW_WHOLE / (spare - needed);
}

/* Whether earliest deadline first meets all claims of a set in the order WINDOW_SPREAD. */
LIB_INLINE _Bool admit_spread(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 horizon = admit_horizon(cpu, set), length = 0, next;
	ecalls_u32 terms = cpu->zero; /* hidden from the verifier, which would walk each round */

	admit_demand(cpu, set, 0, &next);
	for (ecalls_u32 round = 0; lib_again(round, ADMIT_TERMS_MAX); round++) {
		if (terms >= ADMIT_TERMS_MAX)
			break;
		terms = (terms + bits_count(set)) ^ cpu->zero;
		length = next;
		if (length > horizon)
			return 1;
		ecalls_u64 whole = WINDOW_WHOLE - cpu->options.reserve;
		ecalls_u64 supply = (length >> 20) * whole + (((length & 0xfffff) * whole) >> 20);
		if (admit_demand(cpu, set, length, &next) > supply)
			return 0;
	}
	return 0;
}

LIB_INLINE _Bool admit_proves(struct sched_cpu *cpu, ecalls_u64 set, ecalls_u32 i) {
	ecalls_u64 whole = WINDOW_WHOLE - cpu->options.reserve, all;

	all = admit_sum(cpu, set, 0);
	if (cpu->options.window_order != WINDOW_DWCS)
		return all <= whole || admit_spread(cpu, set);
	if (cpu->options.server_ns)
		return 0;
	if (all <= whole && cpu->grid_ns == 0)
		return 1;
	return admit_canonical(cpu, cpu->windowed, &sched_entity(cpu, i)->window);
}

/* The windows of a set begin at the next multiple of the grid's period. */
LIB_INLINE void admit_grid(struct sched_cpu *cpu, ecalls_u64 left, ecalls_u64 grid_ns,
			   ecalls_u64 now_ns) {
	if (grid_ns == 0)
		return;
	cpu->quota_end_ns = 0;
	cpu->grid_ns = grid_ns;
	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		struct sched_window *w = &cpu->entity[i].window;
		w->deadline_ns = now_ns - now_ns % grid_ns + grid_ns;
		window_reset(w);
		w->tagged = 0;
		w->position = w->y;
		cpu->served |= sched_bit(i);
	}
}

LIB_INLINE void admit_share(struct sched_cpu *cpu) {
	cpu->promised_share =
		admit_sum(cpu, cpu->promised, cpu->options.window_order != WINDOW_DWCS);
}

/* Determines whether any period has to be left out (WINDOW_SPREAD), of those that begin from now
 * on. */
LIB_INLINE void admit_all(struct sched_cpu *cpu) {
	cpu->all_fit = admit_sum(cpu, cpu->windowed, 0) <= WINDOW_WHOLE - cpu->options.reserve;
}

/* Thread i, which is in no group, gives up its window if it has one. */
LIB_GLOBAL int admit_end(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns) {
	fair_update(cpu, now_ns);
	cpu->windowed &= ~sched_bit(i);
	cpu->promised &= ~sched_bit(i);
	cpu->served &= ~sched_bit(i);
	cpu->conserving &= ~sched_bit(i);
	cpu->counting &= ~sched_bit(i);
	cpu->starting &= ~sched_bit(i);
	if (cpu->running == i)
		cpu->claims = 0;
	if (cpu->windowed == 0)
		cpu->grid_ns = 0;
	admit_all(cpu);
	admit_share(cpu);
	sched_entity(cpu, i)->vtime = vtime_place(cpu->vtime, sched_entity(cpu, i)->vtime);
	return 0;
}

/* A thread's first period begins when no promised thread claims: admission has not counted its
 * claims beside those of the periods that began while all fitted. */
LIB_INLINE void admit_later(struct sched_cpu *cpu, ecalls_u32 i) {
	struct sched_window *w = &sched_entity(cpu, i)->window;

	cpu->starting |= sched_bit(i);
	cpu->served |= sched_bit(i);
	w->position = w->y;
}

/* Thread i, which is in no group, requests this window: T, C, x, y of cpu->wish. Its first period
 * begins now, or soon. `conserving`: it may also run beyond its service, like a fair thread. */
LIB_GLOBAL ecalls_u32 admit(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, _Bool conserving,
			    ecalls_u64 now_ns) {
	const struct sched_window *wish = &cpu->wish;
	struct sched_window *w = &sched_entity(cpu, i)->window;
	ecalls_u64 spare = WINDOW_WHOLE - cpu->options.reserve;
	ecalls_u64 bit = sched_bit(i) & cpu->used & ~cpu->groups & ~cpu->inside;

	admit_end(cpu, i, now_ns);
	if (!bit || !admit_valid(wish))
		return ADMIT_REFUSED;
	*w = (struct sched_window){
		.period_ns = wish->period_ns,
		.service_ns = wish->service_ns,
		.deadline_ns = now_ns + wish->period_ns,
		.x = wish->x,
		.y = wish->y,
	};
	window_reset(w);
	if (admit_sum(cpu, cpu->windowed | bit, 1) > spare + SCHED_ENTITIES)
		return ADMIT_REFUSED;
	cpu->windowed |= bit;
	cpu->conserving |= conserving ? bit : 0;
	cpu->counting |= bit;
	admit_all(cpu);
	/* While all periods claim, a thread may begin anywhere in its window of y. It begins at
	 * another position than the thread before it: so they leave out different periods, once
	 * not all claim. */
	if (cpu->all_fit)
		w->position = bits_count(cpu->windowed) % w->y;
	if (!admit_proves(cpu, cpu->promised | bit, i))
		return ADMIT_UNPROMISED;
	if (cpu->grid_ns)
		admit_grid(cpu, bit, w->period_ns, now_ns);
	else if (cpu->options.window_order == WINDOW_DWCS &&
		 admit_sum(cpu, cpu->promised | bit, 0) > spare)
		admit_grid(cpu, cpu->windowed, w->period_ns, now_ns);
	else if (cpu->options.window_order != WINDOW_DWCS && !cpu->all_fit && cpu->promised)
		admit_later(cpu, i);
	cpu->promised |= bit;
	admit_share(cpu);
	return ADMIT_PROMISED;
}

#endif
