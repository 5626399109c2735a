/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The decisions: who runs next, who preempts, and when to look again.
 *
 * Order: a release that is due, the earliest first; then the least virtual time. Each is a function
 * of its own file; here is only the order.
 *
 * The caller asks sched_choose when a CPU is free, or its thread's slice has ended and the thread
 * is still runnable (then sched_cpu.running is that thread). It does what the choice says and tells
 * turn_start. It asks sched_preempts when a thread has become ready, and sched_expire when the time
 * sched_timer has come.
 */
#ifndef ECALLS_SCHED_CHOOSE_H
#define ECALLS_SCHED_CHOOSE_H

#include "turn.h"

#define SCHED_WHY_NOBODY 0u  /* nobody wants the CPU */
#define SCHED_WHY_FAIR 1u    /* least virtual time */
#define SCHED_WHY_RELEASE 2u /* its release is due */

struct sched_choice {
	ecalls_u32 who; /* an entity, a group (its first plain thread), SCHED_PLAIN, SCHED_NOBODY */
	ecalls_u32 why; /* SCHED_WHY_... */
	ecalls_u32 keep; /* 1: who runs goes on */
	ecalls_u32 pad;
	ecalls_u64 slice_ns; /* how long it may run; of a cooperative thread with the slack */
};

/* Whether the running thread has the CPU before others of its kind: among the plain threads outside
 * of groups, or the plain ones of a group. */
LIB_INLINE _Bool sched_keeps_plain(struct sched_cpu *cpu, ecalls_u32 who) {
	struct sched_entity *g = sched_entity(cpu, who);

	if (cpu->running != who)
		return 0;
	if (who == SCHED_PLAIN)
		return !cpu->queue.count || !fair_before(cpu->queue.vtime, cpu->plain.vtime);
	return !g->queued || !fair_before(g->head_vtime, cpu->plain.vtime);
}

/* The least virtual time of all: a plain thread, an entity, or the first of a group. */
LIB_INLINE ecalls_u32 sched_fair(struct sched_cpu *cpu) {
	ecalls_u32 first = fair_first(cpu, ~0ull), who = SCHED_NOBODY;
	ecalls_u64 least = 0;

	if (cpu->queue.count) {
		who = SCHED_PLAIN;
		least = cpu->queue.vtime;
	}
	if (cpu->running == SCHED_PLAIN &&
	    (who == SCHED_NOBODY || fair_before(cpu->plain.vtime, least))) {
		who = SCHED_PLAIN;
		least = cpu->plain.vtime;
	}
	if (first != SCHED_NOBODY &&
	    (who == SCHED_NOBODY || fair_before(sched_entity(cpu, first)->vtime, least)))
		who = first;
	return sched_in(cpu->groups, who) ? group_first(cpu, who) : who;
}

/* Who runs next. */
LIB_CALL int sched_choose(struct sched_cpu *cpu, ecalls_u64 now_ns, const struct sched_queue *queue,
			  struct sched_choice *choice) {
	ecalls_u32 who;

	fair_note(cpu, queue);
	fair_update(cpu, now_ns);
	choice->why = SCHED_WHY_RELEASE;
	who = release_first(cpu, now_ns);
	if (who == SCHED_NOBODY) {
		choice->why = SCHED_WHY_FAIR;
		who = sched_fair(cpu);
	}
	choice->who = who;
	choice->keep = 0;
	choice->slice_ns = 0;
	if (who == SCHED_NOBODY) {
		choice->why = SCHED_WHY_NOBODY;
		return 0;
	}
	if (who == SCHED_PLAIN || sched_in(cpu->groups, who))
		choice->keep = sched_keeps_plain(cpu, who);
	else
		choice->keep = cpu->running == who;
	choice->slice_ns = turn_limit(cpu, who, now_ns) - now_ns;
	return 0;
}

/* Whether the running thread is cooperative and within what it was told. Only its limit ends it. */
LIB_INLINE _Bool sched_protected(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	return sched_in(cpu->cooperative, cpu->running) && now_ns < cpu->limit_ns;
}

/* Whether a thread that has just become ready takes the CPU at once: if its release is due, or if
 * it has had no more than who runs. `who` is an entity; for a member its group is judged, and no
 * member preempts another. */
LIB_CALL int sched_preempts(struct sched_cpu *cpu, ecalls_u32 who, ecalls_u64 now_ns) {
	struct sched_entity *e = sched_entity(cpu, who);

	if (cpu->running == SCHED_NOBODY)
		return 1;
	if (cpu->running == who || sched_protected(cpu, now_ns))
		return 0;
	if (release_due(cpu, who, now_ns))
		return 1;
	if (release_due(cpu, cpu->running, now_ns))
		return 0;
	fair_charge(cpu, now_ns);
	if (e->group < SCHED_ENTITIES) {
		if (e->group == turn_group(cpu))
			return 0;
		e = sched_entity(cpu, e->group);
	}
	return !fair_before(fair_running_vtime(cpu), e->vtime);
}

/* The same for a plain thread without a group, by its virtual time. */
LIB_CALL int sched_preempts_plain(struct sched_cpu *cpu, ecalls_u64 vtime, ecalls_u64 now_ns) {
	if (cpu->running == SCHED_NOBODY)
		return 1;
	if (sched_protected(cpu, now_ns) || release_due(cpu, cpu->running, now_ns))
		return 0;
	fair_charge(cpu, now_ns);
	return !fair_before(fair_running_vtime(cpu), vtime);
}

/* When to look again: the end of the running thread's time, or a release that then preempts.
 * SCHED_NEVER: not before something happens. */
LIB_CALL ecalls_u64 sched_timer(struct sched_cpu *cpu) {
	ecalls_u64 waiting;

	if (cpu->running == SCHED_NOBODY)
		return SCHED_NEVER;
	if (sched_in(cpu->cooperative, cpu->running))
		return cpu->limit_ns;
	waiting = release_waiting(cpu, cpu->running);
	return waiting < cpu->limit_ns ? waiting : cpu->limit_ns;
}

/* The timer has come: whether who runs must make way now. */
LIB_CALL int sched_expire(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u32 due = release_first(cpu, now_ns);

	if (cpu->running == SCHED_NOBODY)
		return 0;
	police_overran(cpu, now_ns);
	if (now_ns >= cpu->limit_ns)
		return 1;
	return due != SCHED_NOBODY && due != cpu->running && !sched_protected(cpu, now_ns);
}

#endif
