/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The turns of a thread: it becomes ready, runs, stops, goes to sleep. The caller reports each of
 * them.
 *
 *	ready   turn_ready, or turn_ready_plain: it waits for this CPU from now on
 *	timed   timed_is_of (timed.h): its program is timed, or is not any more
 *	due	timed_ready, after turn_ready: it slept until a time that it had set
 *	runs	turn_start: the CPU is given to it, whoever decided that
 *	poll	police_poll (police.h), while it runs
 *	yields	turn_yield, while it runs; the caller then may have to ask who is next
 *	stops	turn_stop: it no longer runs; it still waits unless it sleeps
 *	sleeps	turn_sleep, or turn_sleep_plain: it no longer waits; also when it leaves this CPU or
 *		ends
 */
#ifndef ECALLS_SCHED_TURN_H
#define ECALLS_SCHED_TURN_H

#include "brief.h"
#include "group.h"
#include "timed.h"

/* A thread that is an entity becomes runnable. */
LIB_GLOBAL int turn_ready(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, ecalls_u64 now_ns) {
	struct sched_entity *e = sched_entity(cpu, i);

	if (!sched_in(cpu->used & ~cpu->runnable, i))
		return 0;
	fair_update(cpu, now_ns);
	if (e->group < SCHED_ENTITIES) {
		e->vtime = vtime_place(sched_entity(cpu, e->group)->inner_vtime, e->vtime);
		group_enter(cpu, e->group, e->weight);
		if (group_shares(cpu, i))
			group_share(cpu, i);
	} else if (fair_is_ordinary(cpu, i)) {
		e->vtime = fair_place(cpu, e->vtime, e->weight);
	} else {
		e->vtime = vtime_place(cpu->vtime, e->vtime);
	}
	cpu->runnable |= sched_bit(i);
	release_untold(cpu, i, now_ns);
	window_wake(cpu, i, now_ns);
	return 0;
}

/* turn_ready_plain for a CPU without entities. */
LIB_INLINE void turn_wait_plain(struct sched_cpu *cpu, struct sched_plain *plain,
				ecalls_u64 now_ns) {
	fair_update_plain(cpu, now_ns);
	fair_place_plain(cpu, plain);
	fair_queue(cpu, plain->vtime);
}

/* A plain thread becomes runnable. The caller then inserts it into its queue, or that of its group,
 * by plain->vtime; for a group the caller sets head_vtime and queued. */
LIB_GLOBAL int turn_ready_plain(struct sched_cpu *cpu LIB_NONNULL,
				struct sched_plain *plain LIB_NONNULL, ecalls_u64 now_ns) {
	if (sched_is_plain(cpu)) {
		turn_wait_plain(cpu, plain, now_ns);
		return 0;
	}
	fair_update(cpu, now_ns);
	if (sched_in(cpu->groups, plain->group)) {
		plain->vtime =
			vtime_place(sched_entity(cpu, plain->group)->inner_vtime, plain->vtime);
		group_enter(cpu, plain->group, plain->weight);
	} else {
		fair_place_plain(cpu, plain);
		fair_queue(cpu, plain->vtime);
	}
	return 0;
}

/* A thread that is an entity is no longer runnable: it sleeps (`asleep`), or it ends or leaves this
 * CPU. If it was running, it has stopped before. */
LIB_GLOBAL int turn_sleep(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 i, _Bool asleep,
			  ecalls_u64 now_ns) {
	struct sched_entity *e = sched_entity(cpu, i);

	if (!sched_in(cpu->runnable, i))
		return 0;
	fair_update(cpu, now_ns);
	if (asleep) {
		police_sleep(cpu, i);
		window_sleep(cpu, i);
	}
	timed_ends(cpu, i);
	cpu->events &= ~sched_bit(i);
	cpu->runnable &= ~sched_bit(i);
	if (group_shares(cpu, i))
		group_unshare(cpu, i);
	if (e->group < SCHED_ENTITIES)
		group_exit(cpu, e->group, e->weight);
	return 0;
}

/* A plain thread is no longer runnable. */
LIB_GLOBAL int turn_sleep_plain(struct sched_cpu *cpu LIB_NONNULL,
				const struct sched_plain *plain LIB_NONNULL, ecalls_u64 now_ns) {
	fair_update(cpu, now_ns);
	if (sched_in(cpu->groups, plain->group))
		group_exit(cpu, plain->group, plain->weight);
	return 0;
}

/* The group of the running thread, SCHED_NOBODY if it is in none. */
LIB_INLINE ecalls_u32 turn_group(struct sched_cpu *cpu) {
	if (cpu->running >= SCHED_ENTITIES)
		return SCHED_NOBODY;
	if (sched_in(cpu->groups, cpu->running))
		return cpu->running;
	return sched_entity(cpu, cpu->running)->group;
}

/* Whether `who` is the running thread in the middle of its slice: a cooperative thread that
 * continues without a poll. It gets no new slice. */
LIB_INLINE _Bool turn_goes_on(struct sched_cpu *cpu, ecalls_u32 who, ecalls_u64 now_ns) {
	return cpu->running == who && sched_in(cpu->cooperative & ~(cpu->polled | cpu->due), who) &&
	       now_ns < cpu->limit_ns;
}

/* How long `who` may have the CPU because of the task server: in the server's place, for what is
 * left of the server's service; by a claim, until the server's next period begins, when the server
 * may go first. */
LIB_INLINE ecalls_u64 turn_beside_server(struct sched_cpu *cpu, ecalls_u32 who, ecalls_u64 now_ns) {
	const struct sched_window *server = &cpu->server;

	if (cpu->serving == who)
		return server->service_ns > server->served_ns
			       ? server->service_ns - server->served_ns
			       : 0;
	if (!cpu->claims || server->deadline_ns <= now_ns)
		return SCHED_NEVER;
	return server->deadline_ns - now_ns;
}

/* The longest turn of `who` now: with a claim what is left of its service, else its slice by fair
 * share; for a thread with a window that is at most one service. The task server may shorten it. */
LIB_INLINE ecalls_u64 turn_most(struct sched_cpu *cpu, ecalls_u32 who, ecalls_u64 now_ns) {
	ecalls_u64 service = sched_entity(cpu, who)->window.service_ns, slice, most;

	if (cpu->claims) {
		slice = window_slice(cpu, who, now_ns);
	} else if (who >= SCHED_ENTITIES || fair_is_ordinary(cpu, who)) {
		slice = fair_turn(cpu);
	} else {
		slice = release_slice(cpu, who, now_ns);
		if (sched_in(cpu->windowed, who) && service < slice)
			slice = service;
	}
	most = turn_beside_server(cpu, who, now_ns);
	return slice < most ? slice : most;
}

/* The slice and the limit of `who`. A release of another thread ends both, except for a promised
 * claim; a cooperative thread then has the slack in addition. The slack lengthens no claim. */
LIB_INLINE void turn_limit(struct sched_cpu *cpu, ecalls_u32 who, ecalls_u64 now_ns) {
	ecalls_u64 most = turn_most(cpu, who, now_ns), slice = most, limit;

	if (!window_is_firm(cpu, who)) {
		slice = release_leaves(cpu, who, now_ns, cpu->next_release_ns);
		slice = slice < most ? slice : most;
	}
	limit = slice;
	if (sched_in(cpu->cooperative, who))
		limit += cpu->options.slack_ns;
	if (cpu->claims && limit > most)
		limit = most;
	cpu->slice_end_ns = now_ns + slice;
	cpu->limit_ns = now_ns + limit;
}

/* The turn that has begun ends at this time at the latest. */
LIB_INLINE void turn_shorten(struct sched_cpu *cpu, ecalls_u64 end_ns) {
	if (cpu->limit_ns > end_ns)
		cpu->limit_ns = end_ns;
}

/* turn_start for a CPU without entities, from the thread's virtual time and weight. */
LIB_INLINE void turn_start_plain(struct sched_cpu *cpu, const struct sched_plain *plain,
				 ecalls_u64 now_ns) {
	fair_charge(cpu, now_ns);
	cpu->claims = cpu->on_server = 0;
	cpu->next_release_ns = SCHED_NEVER;
	cpu->slice_end_ns = cpu->limit_ns = now_ns + fair_turn(cpu);
	if (cpu->running != SCHED_PLAIN) {
		fair_unqueue(cpu, plain ? plain->vtime : cpu->vtime);
		cpu->protected_ns = now_ns + FAIR_SHORT_NS;
		cpu->woke = 0;
	}
	cpu->charged_ns = now_ns;
	cpu->running = SCHED_PLAIN;
	if (plain) {
		cpu->plain.vtime = plain->vtime;
		cpu->plain.weight = plain->weight;
		cpu->plain.group = plain->group;
		cpu->plain.slept = 0;
		cpu->plain.brief = plain->brief;
	}
	cpu->serving = SCHED_NOBODY;
	cpu->yields = 0;
}

/* The CPU is given to `who`: an entity, a group for its plain member `plain`, or SCHED_PLAIN for
 * `plain`. The caller also reports a thread that continues. */
LIB_GLOBAL int turn_start(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 who,
			  const struct sched_plain *plain, ecalls_u64 now_ns) {
	struct sched_entity *e = sched_entity(cpu, who);
	_Bool is_due;

	if (sched_is_plain(cpu)) {
		turn_start_plain(cpu, plain, now_ns);
		return 0;
	}
	fair_charge(cpu, now_ns);
	if (turn_goes_on(cpu, who, now_ns))
		return 0;
	cpu->yields = 0;
	if (cpu->running != who) {
		cpu->protected_ns = now_ns + FAIR_SHORT_NS;
		cpu->woke = 0;
	}
	cpu->claims = window_claim(cpu, who);
	is_due = timed_ends(cpu, who);
	cpu->next_release_ns = who < SCHED_ENTITIES ? release_next(cpu, who, now_ns) : SCHED_NEVER;
	turn_limit(cpu, who, now_ns);
	cpu->due_end_ns = 0;
	if (is_due)
		timed_begins(cpu, who, now_ns);
	if (who == SCHED_PLAIN && cpu->running != SCHED_PLAIN)
		fair_unqueue(cpu, plain ? plain->vtime : cpu->vtime);
	cpu->charged_ns = now_ns;
	cpu->running = who;
	if (plain) {
		cpu->plain.vtime = plain->vtime;
		cpu->plain.weight = plain->weight;
		cpu->plain.group = plain->group;
		cpu->plain.slept = 0;
		cpu->plain.brief = plain->brief;
	}
	if (sched_in(cpu->windowed, who) && !cpu->claims)
		e->vtime = vtime_place(cpu->vtime, e->vtime);
	cpu->on_server = cpu->serving == who;
	cpu->serving = SCHED_NOBODY;
	cpu->polled &= ~sched_bit(who);
	cpu->events &= ~sched_bit(who);
	return 0;
}

/* The running thread yields. The next choice puts it behind another plain thread that waits. 0: it
 * is plain and alone, so its turn goes on. */
LIB_INLINE _Bool turn_yield(struct sched_cpu *cpu) {
	if (cpu->running == SCHED_PLAIN && !cpu->queue.count && !cpu->runnable)
		return 0;
	cpu->yields = 1;
	return 1;
}

/* turn_stop for a CPU without entities. */
LIB_INLINE void turn_stop_plain(struct sched_cpu *cpu, _Bool waits, ecalls_u64 now_ns) {
	fair_update_plain(cpu, now_ns);
	brief_learns(cpu, waits, now_ns);
	if (waits && cpu->running == SCHED_PLAIN) {
		fair_yield(cpu);
		fair_queue(cpu, cpu->plain.vtime);
	}
	if (!waits)
		fair_sleeps(cpu);
	cpu->running = SCHED_NOBODY;
}

/* turn_stop for a CPU with entities. */
LIB_GLOBAL int turn_stop_any(struct sched_cpu *cpu LIB_NONNULL, _Bool waits, ecalls_u64 now_ns) {
	fair_update(cpu, now_ns);
	brief_learns(cpu, waits, now_ns);
	police_overran(cpu, now_ns);
	if (waits) {
		police_stopped(cpu);
		fair_yield(cpu);
		timed_stays(cpu, now_ns);
	}
	if (waits && cpu->running == SCHED_PLAIN)
		fair_queue(cpu, cpu->plain.vtime);
	if (!waits)
		fair_sleeps(cpu);
	cpu->running = SCHED_NOBODY;
	cpu->due_end_ns = 0;
	cpu->claims = 0;
	cpu->on_server = 0;
	return 0;
}

/* The running thread stops; `waits`: it remains runnable. A plain thread's virtual time is in
 * cpu->plain. The stopping thread is included in the least virtual time: if it was the only one, it
 * is not ahead of any other. */
LIB_INLINE void turn_stop(struct sched_cpu *cpu, _Bool waits, ecalls_u64 now_ns) {
	if (sched_is_plain(cpu))
		turn_stop_plain(cpu, waits, now_ns);
	else
		turn_stop_any(cpu, waits, now_ns);
}

#endif
