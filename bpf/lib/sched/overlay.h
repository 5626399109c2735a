/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The event overlay (ECalls-05 §4.2, ECalls-01 §2.4): after a choice, the sink of the first pending
 * event may replace the chosen thread, if that breaks no promise.
 *
 * The first event is the one with the earliest deadline whose sink waits for the CPU. For the
 * chosen thread i and the sink j:
 *
 *	rule 1	j = i: nothing to do
 *	rule 2	i has no claim and is a plain or fair thread: j runs
 *	rule 3	i has a window and was served in this period: j runs
 *	rule 4	i and j claim with the same deadline: j runs if i can still be served before it.
 *		Not if only i has a promise: no admission has counted the time that j takes, and
 *		it would be missing to claims with later deadlines
 *	rule 5	i is the task server: j runs
 *
 * An event stops having an effect when its sink is given the CPU.
 *
 * Bound. A sink runs by an event only while its own virtual time is at most ahead_ns (police.h)
 * ahead of the least one: so events make a thread run earlier, but not longer in the long run. A
 * claim needs no bound, since its time is promised anyway.
 *
 * The task server is a pseudo-thread among the claims: its constraint is 0/y with y larger than any
 * other, its service time that of the first event's sink or else options.server_ns, its period the
 * service time over the remaining utilization; these are computed when its period begins. If no
 * event is pending at its turn, fair threads run in its place. It exists only in the order
 * WINDOW_DWCS, if options.server_ns is not 0.
 *
 * Its guarantee is that of a window without misses: it has its service time in each period, unless
 * claims with earlier deadlines leave none. So a claim ends where the server's next period begins,
 * and a claim that continues because there are no sinks and no fair threads yields to the first one
 * that wakes.
 */
#ifndef ECALLS_SCHED_OVERLAY_H
#define ECALLS_SCHED_OVERLAY_H

#include "police.h"

#define OVERLAY_SERVER 66u /* the task server, as a thread's index */
#define OVERLAY_PERIOD_MAX_NS 10000000000ull

/* Records that an event for thread i is pending, until i runs. If i runs now, it will find the
 * event itself. */
LIB_INLINE void overlay_event(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 deadline_ns) {
	struct sched_entity *e = sched_entity(cpu, i);

	if (!sched_in(cpu->used & ~cpu->groups, i) || cpu->running == i)
		return;
	if (!sched_in(cpu->events, i) || deadline_ns < e->event_ns)
		e->event_ns = deadline_ns;
	cpu->events |= sched_bit(i);
}

/* overlay_sink of a set that is not empty. */
LIB_GLOBAL ecalls_u32 overlay_sink_of(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 left) {
	ecalls_u64 first = 0;
	ecalls_u32 best = SCHED_NOBODY;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		ecalls_u64 deadline = cpu->entity[i].event_ns;
		if (!window_claims(cpu, i) && police_ahead_ns(cpu, i) > cpu->options.ahead_ns)
			continue;
		if (best == SCHED_NOBODY || deadline < first) {
			best = i ^ cpu->zero;
			first = deadline;
		}
	}
	return best;
}

/* The sink of the first event, of the waiting threads that may run by an event; SCHED_NOBODY if
 * there is none. */
LIB_INLINE ecalls_u32 overlay_sink(struct sched_cpu *cpu) {
	ecalls_u64 left = cpu->events & cpu->runnable;

	return left ? overlay_sink_of(cpu, left) : SCHED_NOBODY;
}

/* Rule 4: whether the claim of j may go before that of i. */
LIB_INLINE _Bool overlay_fits(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u32 j,
			      ecalls_u64 now_ns) {
	struct sched_window *a = &sched_entity(cpu, i)->window;
	struct sched_window *b = &sched_entity(cpu, j)->window;

	if (!window_claims(cpu, j) || a->deadline_ns != b->deadline_ns)
		return 0;
	if (sched_in(cpu->promised, i) && !sched_in(cpu->promised, j))
		return 0;
	return a->deadline_ns >
	       now_ns + (a->service_ns - a->served_ns) + (b->service_ns - b->served_ns);
}

/* The thread that runs: the sink of the first event, or the chosen one. */
LIB_GLOBAL ecalls_u32 overlay_apply(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 chosen,
				    ecalls_u64 now_ns) {
	ecalls_u32 sink = overlay_sink(cpu);

	if (sink == SCHED_NOBODY || sink == chosen)
		return chosen;
	if (window_claims(cpu, chosen))
		return overlay_fits(cpu, chosen, sink, now_ns) ? sink : chosen;
	return sink;
}

/* The part of the CPU that a window needs at least, in 2^20ths: (1 - x/y) C/T. */
LIB_INLINE ecalls_u64 overlay_needed(const struct sched_window *w) {
	ecalls_u64 period = w->period_ns ? w->period_ns : 1, y = w->y ? w->y : 1;

	return w->service_ns * WINDOW_WHOLE / period * (w->y - w->x) / y;
}

/* Rule 5: computes the task server's attributes for its next period, which begins where the last
 * one ended, or now if that is long ago, because no decision was made meanwhile. */
LIB_GLOBAL int overlay_serve(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 now_ns) {
	ecalls_u64 left = cpu->windowed, service = cpu->options.server_ns,
		   rest = cpu->options.reserve;
	struct sched_window *server = &cpu->server;
	ecalls_u32 sink = overlay_sink(cpu), y = 0;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		struct sched_window *w = &sched_entity(cpu, sched_next(&left))->window;
		y = w->y > y ? w->y : y;
		y = w->now_y > y ? w->now_y : y;
		rest += overlay_needed(w);
	}
	rest = rest < WINDOW_WHOLE ? WINDOW_WHOLE - rest : 1;
	if (sched_in(cpu->windowed, sink))
		service = sched_entity(cpu, sink)->window.service_ns;
	server->now_x = 0;
	server->now_y = y + 1;
	server->service_ns = service;
	server->period_ns = service * WINDOW_WHOLE / rest;
	server->served_ns = 0;
	/* the paper has a period of whole units */
	if (cpu->options.server_ns)
		server->period_ns +=
			cpu->options.server_ns - 1 -
			(server->period_ns + cpu->options.server_ns - 1) % cpu->options.server_ns;
	if (server->period_ns > OVERLAY_PERIOD_MAX_NS)
		server->period_ns = OVERLAY_PERIOD_MAX_NS;
	if (server->deadline_ns + server->period_ns <= now_ns)
		server->deadline_ns = now_ns;
	server->deadline_ns += server->period_ns;
	return 0;
}

/* Whether there is a task server; if its period has ended, its next one begins. */
LIB_INLINE _Bool overlay_roll(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	if (cpu->options.server_ns == 0 || cpu->windowed == 0 ||
	    cpu->options.window_order != WINDOW_DWCS)
		return 0;
	if (cpu->server.deadline_ns <= now_ns)
		overlay_serve(cpu, now_ns);
	return 1;
}

/* Whether the task server goes before the claim of `first`, which may be SCHED_NOBODY. */
LIB_INLINE _Bool overlay_server_first(struct sched_cpu *cpu, ecalls_u32 first, ecalls_u64 now_ns) {
	if (!overlay_roll(cpu, now_ns) || cpu->server.served_ns >= cpu->server.service_ns)
		return 0;
	return first == SCHED_NOBODY ||
	       window_before(&cpu->server, &sched_entity(cpu, first)->window,
			     cpu->options.window_order);
}

#endif
