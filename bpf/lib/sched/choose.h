/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The decisions: which thread runs next, which thread preempts, and when to decide again.
 *
 * Order:
 *	1. promised windows that claim the CPU			window.h, admit.h
 *	2. releases that are due, the earliest first		release.h
 *	3. windows without guarantee, within their quota	window.h
 *	4. the least virtual time				fair.h, group.h
 * and the sink of the first event may replace a thread that was chosen by 1, 3 or 4 (overlay.h).
 * Each rule is a function of its own file; this file has only their order.
 *
 * The caller calls sched_choose when a CPU is free, or when its thread's slice has ended and the
 * thread is still runnable (then sched_cpu.running is that thread). It carries out the choice and
 * reports it by turn_start. It calls sched_preempts when a thread has become ready, and
 * sched_choose when the time that sched_timer returned has come.
 */
#ifndef ECALLS_SCHED_CHOOSE_H
#define ECALLS_SCHED_CHOOSE_H

#include "overlay.h"
#include "turn.h"

#define SCHED_WHY_NOBODY 0u  /* no thread wants the CPU */
#define SCHED_WHY_FAIR 1u    /* least virtual time */
#define SCHED_WHY_RELEASE 2u /* its release is due */
#define SCHED_WHY_WINDOW 3u  /* its window claims the CPU */
#define SCHED_WHY_EVENT 4u   /* it is the sink of the first event */

/* Whether the running thread goes before other threads of its kind: the plain threads outside of
 * groups, or the plain members of a group. */
LIB_INLINE _Bool sched_keeps_plain(struct sched_cpu *cpu, ecalls_u32 who) {
	struct sched_entity *g = sched_entity(cpu, who);

	if (cpu->running != who)
		return 0;
	if (who == SCHED_PLAIN)
		return !cpu->queue.count || !vtime_before(cpu->queue.vtime, cpu->plain.vtime);
	return !g->queued || !vtime_before(g->head_vtime, cpu->plain.vtime);
}

/* In the order WINDOW_DWCS, the first of the threads with a window that share the CPU time that
 * claims leave: it stands for all of them. */
LIB_INLINE ecalls_u32 sched_beyond(struct sched_cpu *cpu) {
	if (cpu->options.window_order != WINDOW_DWCS)
		return SCHED_NOBODY;
	return window_first(cpu, window_sharing(cpu));
}

/* The thread with the least virtual time of all, as fair_update found it: a plain thread, an
 * entity, or the first member of a group. */
LIB_GLOBAL ecalls_u32 sched_fair(struct sched_cpu *cpu LIB_NONNULL) {
	ecalls_u32 first = cpu->first, who = SCHED_NOBODY;
	ecalls_u32 beyond = sched_beyond(cpu);
	ecalls_u64 least = 0;

	if (cpu->queue.count) {
		who = SCHED_PLAIN;
		least = cpu->queue.vtime;
	}
	if (cpu->running == SCHED_PLAIN &&
	    (who == SCHED_NOBODY || vtime_before(cpu->plain.vtime, least))) {
		who = SCHED_PLAIN;
		least = cpu->plain.vtime;
	}
	if (first != SCHED_NOBODY &&
	    (who == SCHED_NOBODY || vtime_before(sched_entity(cpu, first)->vtime, least))) {
		who = first;
		least = sched_entity(cpu, first)->vtime;
	}
	if (beyond != SCHED_NOBODY &&
	    (who == SCHED_NOBODY ||
	     !vtime_before(least, vtime_place(cpu->vtime, sched_entity(cpu, beyond)->vtime))))
		who = beyond;
	return sched_in(cpu->groups, who) ? group_first(cpu, who) : who;
}

/* The claim that goes first: of the promised ones, or of the others, if their quota is not used
 * up. */
LIB_INLINE ecalls_u32 sched_claim(struct sched_cpu *cpu, _Bool promised) {
	ecalls_u64 claiming = window_claiming(cpu);
	ecalls_u32 first =
		window_first(cpu, claiming & (promised ? cpu->promised : ~cpu->promised));

	if (sched_in(window_bounded(cpu), first) && !window_quota_left(cpu, first))
		return SCHED_NOBODY;
	return first;
}

/* The thread with the first claim, or in place of the task server the sink of the first event, else
 * a fair thread; choice.why is set accordingly. SCHED_NOBODY if no thread claims and it is not the
 * server's turn. */
LIB_GLOBAL ecalls_u32 sched_window(struct sched_cpu *cpu LIB_NONNULL, _Bool promised,
				   ecalls_u64 now_ns) {
	ecalls_u32 first = sched_claim(cpu, promised), who;

	cpu->choice.why = SCHED_WHY_WINDOW;
	if (promised != (cpu->promised != 0) || !overlay_server_first(cpu, first, now_ns))
		return first;
	who = overlay_sink(cpu);
	cpu->choice.why = SCHED_WHY_EVENT;
	if (who == SCHED_NOBODY && first != SCHED_NOBODY) {
		who = sched_fair(cpu);
		cpu->choice.why = SCHED_WHY_FAIR;
		if (sched_in(cpu->windowed, who))
			who = SCHED_NOBODY;
	}
	if (who == SCHED_NOBODY) {
		cpu->choice.why = SCHED_WHY_WINDOW;
		return first;
	}
	cpu->serving = who;
	return who;
}

/* The order of the rules, before events may change the choice. */
LIB_INLINE ecalls_u32 sched_order(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u32 who = sched_window(cpu, 1, now_ns);

	if (who != SCHED_NOBODY)
		return who;
	cpu->choice.why = SCHED_WHY_RELEASE;
	who = release_first(cpu, now_ns);
	if (who != SCHED_NOBODY)
		return who;
	who = sched_window(cpu, 0, now_ns);
	if (who != SCHED_NOBODY)
		return who;
	cpu->choice.why = SCHED_WHY_FAIR;
	who = sched_fair(cpu);
	if (who != SCHED_NOBODY)
		return who;
	/* Beyond its quota, since no other thread wants the CPU. */
	cpu->choice.why = SCHED_WHY_WINDOW;
	return window_first(cpu, window_claiming(cpu));
}

/* Whether the running thread is cooperative and its limit is not reached. Only the limit ends its
 * turn, or a promised window. */
LIB_INLINE _Bool sched_protected(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	return sched_in(cpu->cooperative & ~cpu->due, cpu->running) && now_ns < cpu->limit_ns;
}

/* Whether a window claims the CPU from the running thread: a promised one from any thread except
 * one with an earlier claim or an earlier turn of the task server; a window without promise only
 * from a thread that runs by virtual time. */
LIB_GLOBAL int sched_claimed(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 now_ns) {
	ecalls_u32 first = sched_claim(cpu, 1), running = cpu->running;

	if (first == SCHED_NOBODY) {
		if (sched_protected(cpu, now_ns) || release_due(cpu, running, now_ns))
			return 0;
		first = sched_claim(cpu, 0);
	}
	if (first == SCHED_NOBODY || first == running)
		return 0;
	return !cpu->on_server || !window_before(&cpu->server, &sched_entity(cpu, first)->window,
						 cpu->options.window_order);
}

/* Whether the running thread runs by a claim that must yield to threads without a window: the claim
 * is beyond its quota, or the task server goes before it. */
LIB_GLOBAL int sched_makes_way(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 now_ns) {
	if (!cpu->claims || cpu->on_server)
		return 0;
	return cpu->claims == WINDOW_BEYOND || overlay_server_first(cpu, cpu->running, now_ns);
}

/* Whether the running thread continues whichever thread might be chosen: it was given a slice, and
 * has not polled. The caller asks in this case because its timer was armed for a thread that has
 * gone, or because the kernel requires a decision. */
LIB_INLINE _Bool sched_goes_on(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	return sched_protected(cpu, now_ns) && !sched_in(cpu->polled, cpu->running) &&
	       !sched_claimed(cpu, now_ns) && !sched_makes_way(cpu, now_ns);
}

/* sched_choose for a CPU without entities. */
LIB_INLINE void sched_choose_plain(struct sched_cpu *cpu, ecalls_u64 now_ns,
				   const struct sched_queue *queue, struct sched_choice *choice) {
	fair_note(cpu, queue);
	fair_yield(cpu);
	fair_update_plain(cpu, now_ns);
	cpu->serving = SCHED_NOBODY;
	choice->who = SCHED_PLAIN;
	choice->why = SCHED_WHY_FAIR;
	choice->keep = sched_keeps_plain(cpu, SCHED_PLAIN);
	if (cpu->running == SCHED_PLAIN || queue->count)
		return;
	choice->who = SCHED_NOBODY;
	choice->why = SCHED_WHY_NOBODY;
}

/* sched_choose for a CPU with entities, whose queue was noted; the result is cpu->choice. */
LIB_GLOBAL int sched_choose_any(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 now_ns) {
	struct sched_choice *choice = &cpu->choice;
	ecalls_u32 who, chosen;

	fair_yield(cpu);
	if (cpu->windowed) {
		fair_charge(cpu, now_ns);
		/* A thread whose period ends here may share or claim from now on. */
		window_roll(cpu, now_ns);
		window_begin(cpu, now_ns);
	}
	fair_update(cpu, now_ns);
	overlay_roll(cpu, now_ns);
	police_overran(cpu, now_ns);
	cpu->serving = SCHED_NOBODY;
	if (sched_goes_on(cpu, now_ns)) {
		choice->who = cpu->running;
		choice->why = SCHED_WHY_FAIR;
		choice->keep = 1;
		return 0;
	}
	timed_stays(cpu, now_ns);
	chosen = sched_order(cpu, now_ns);
	who = chosen;
	if (choice->why != SCHED_WHY_RELEASE && cpu->serving == SCHED_NOBODY)
		who = overlay_apply(cpu, chosen, now_ns);
	choice->who = who;
	if (who != chosen)
		choice->why = SCHED_WHY_EVENT;
	choice->keep = 0;
	if (who == SCHED_NOBODY) {
		choice->why = SCHED_WHY_NOBODY;
		return 0;
	}
	if (who == SCHED_PLAIN || sched_in(cpu->groups, who))
		choice->keep = sched_keeps_plain(cpu, who);
	else
		choice->keep = cpu->running == who;
	return 0;
}

/* Chooses the thread that runs next. */
LIB_INLINE struct sched_choice sched_choose(struct sched_cpu *cpu, ecalls_u64 now_ns,
					    const struct sched_queue *queue) {
	if (sched_is_plain(cpu)) {
		sched_choose_plain(cpu, now_ns, queue, &cpu->choice);
	} else {
		fair_note(cpu, queue);
		sched_choose_any(cpu, now_ns);
	}
	return cpu->choice;
}

/* Whether a thread that has just become ready preempts a running one of fair share, by the rules of
 * plain threads: if it is behind the running thread by FAIR_LEAD_NS, and the running thread's turn
 * is not protected (fair_is_protected); one of next to no weight makes way without both. Otherwise
 * its turn comes soon. */
LIB_INLINE _Bool sched_overtakes(struct sched_cpu *cpu, ecalls_u64 vtime, ecalls_u32 weight,
				 ecalls_u64 since_ns, ecalls_u64 now_ns) {
	_Bool is_kept = fair_is_protected(cpu, since_ns, now_ns);

	if (fair_is_feather(cpu, weight))
		is_kept = 0;
	else
		vtime += vtime_advance(FAIR_LEAD_NS, weight);
	if (!is_kept && !vtime_before(fair_running_vtime(cpu), vtime))
		return 1;
	fair_hurry(cpu, weight, now_ns);
	return 0;
}

/* Whether a thread that has just become ready preempts the running one at once: if its window
 * claims the CPU, if its release is due, if an event is pending for it, or if its virtual time is
 * not ahead of the running one's. `who` is an entity, which has not had the CPU since `since_ns`;
 * for a member its group is compared, and no member preempts another. */
LIB_GLOBAL int sched_preempts(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 who,
			      ecalls_u64 since_ns, ecalls_u64 now_ns) {
	struct sched_entity *e = sched_entity(cpu, who);

	if (cpu->running == SCHED_NOBODY)
		return 1;
	if (cpu->running == who)
		return 0;
	fair_charge(cpu, now_ns);
	if (sched_claimed(cpu, now_ns) || sched_makes_way(cpu, now_ns))
		return 1;
	if (sched_protected(cpu, now_ns) || window_is_firm(cpu, cpu->running))
		return 0;
	if (release_due(cpu, who, now_ns))
		return 1;
	if (cpu->claims)
		return 0;
	if (release_due(cpu, cpu->running, now_ns) || sched_in(cpu->windowed & ~fair_set(cpu), who))
		return 0;
	if (overlay_sink(cpu) == who)
		return 1;
	if (cpu->on_server)
		return 0;
	if (e->group < SCHED_ENTITIES) {
		if (e->group == turn_group(cpu))
			return 0;
		e = sched_entity(cpu, e->group);
	} else if (fair_is_ordinary(cpu, who)) {
		return sched_overtakes(cpu, e->vtime, e->weight, since_ns, now_ns);
	}
	return !vtime_before(fair_running_vtime(cpu), e->vtime);
}

/* The same for a plain thread without a group, given by its virtual time and its weight. */
LIB_GLOBAL int sched_preempts_plain(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 vtime,
				    ecalls_u32 weight, ecalls_u64 since_ns, ecalls_u64 now_ns) {
	if (cpu->running == SCHED_NOBODY)
		return 1;
	fair_charge(cpu, now_ns);
	if (!sched_is_plain(cpu)) {
		if (sched_makes_way(cpu, now_ns))
			return 1;
		if (sched_protected(cpu, now_ns) || release_due(cpu, cpu->running, now_ns))
			return 0;
		if (cpu->claims || cpu->on_server)
			return 0;
	}
	if (brief_makes_way(cpu, vtime, weight))
		return 1;
	return sched_overtakes(cpu, vtime, weight, since_ns, now_ns);
}

/* When to decide again: at the end of the running thread's time, at a release that then preempts,
 * or at the beginning of a window's period. SCHED_NEVER: not before the next report. */
LIB_GLOBAL ecalls_u64 sched_timer(struct sched_cpu *cpu LIB_NONNULL) {
	ecalls_u64 next, waiting = SCHED_NEVER;

	if (sched_is_plain(cpu))
		return cpu->running == SCHED_NOBODY ? SCHED_NEVER : cpu->limit_ns;
	next = window_next(cpu);
	if (cpu->running == SCHED_NOBODY)
		return next;
	if (!sched_in(cpu->cooperative, cpu->running) && !window_is_firm(cpu, cpu->running) &&
	    !cpu->due_end_ns)
		waiting = release_waiting(cpu, cpu->running);
	next = waiting < next ? waiting : next;
	return next < cpu->limit_ns ? next : cpu->limit_ns;
}

#endif
