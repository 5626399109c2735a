/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fair share (Coop §3.2): the thread with the least virtual time gets the CPU.
 *
 * The CPU keeps the least virtual time (vtime.h) of the runnable threads; a thread that becomes
 * runnable begins no earlier than there. A thread neither pays for the time for which it slept nor
 * saves it up. A plain thread pays for a part of the time for which it had the CPU alone, as soon
 * as it is not alone any more (fair_follows): whoever sleeps for a moment is never alone, because
 * an idle CPU takes a thread that waits elsewhere.
 *
 * A plain thread that wakes keeps the amount by which it is behind the others, up to FAIR_CREDIT_NS
 * of CPU time: virtual time never decreases, so the thread gains no more than that, however often
 * it sleeps. Because of this credit it runs before the threads that compute all the time. It
 * preempts a running thread whose virtual time is ahead of its own by FAIR_LEAD_NS, but not in the
 * first FAIR_SHORT_NS of a turn, if one of the two woke a moment ago: threads that wake each other
 * thousands of times a second handle several messages in a turn, and would pay for a context switch
 * for each message. Slices are short, so that a thread does not wait long for its turn.
 *
 * Where many wait, only the first that wakes in a turn has credit: who wakes many goes on.
 */
#ifndef ECALLS_SCHED_FAIR_H
#define ECALLS_SCHED_FAIR_H

#include "away.h"

#define FAIR_CREDIT_NS 4000000u /* credit of CPU time that a plain thread may have when it wakes */
#define FAIR_LEAD_NS 2000000u	/* lag with which it preempts; at most the credit */
#define FAIR_TURN_NS 1500000u	/* longest slice of a plain thread while others wait */
#define FAIR_SHORT_NS 1000000u	/* the part of a turn that is protected (fair_is_protected) */
#define FAIR_ROUND 5u		/* periods within which equal plain threads have a turn each */
#define FAIR_ALONE_NS 10000000u /* for who was alone: by so much it may be ahead afterwards */
#define FAIR_CROWD 16u		/* if so many threads wait, few gain by their sleep */
#define FAIR_FEATHER 64u	/* a thread that weighs so much less makes way at once */

/* A thread ends: the threads that begin owe the CPU time that it has had beyond the least virtual
 * time. Otherwise threads that each begin when the last one ends would never owe anything, and
 * would starve the others. The debt is at most one period's; `usual` is the weight of nice 0. */
LIB_INLINE void fair_end(struct sched_cpu *cpu, ecalls_u64 vtime, ecalls_u32 weight,
			 ecalls_u32 usual) {
	ecalls_u64 most = vtime_advance(cpu->options.period_ns, weight), ahead;

	if (!vtime_before(cpu->vtime, vtime))
		return;
	ahead = vtime - cpu->vtime < most ? vtime - cpu->vtime : most;
	ahead = vtime_advance(ahead * weight / VTIME_WEIGHT, usual);
	cpu->owed = vtime_later(cpu->owed, cpu->vtime + ahead);
}

/* The virtual time at which a new thread begins: before all that wait with the least one, which may
 * be hundreds that have begun at the same time. */
LIB_INLINE ecalls_u64 fair_begin(const struct sched_cpu *cpu) {
	return vtime_later(cpu->vtime - 1, cpu->owed);
}

/* The number of threads that are runnable on this CPU. */
LIB_INLINE ecalls_u64 fair_count(const struct sched_cpu *cpu) {
	ecalls_u64 count, groups = cpu->runnable & cpu->groups;

	if (sched_is_plain(cpu))
		return cpu->queue.count + (cpu->running == SCHED_PLAIN);
	count = cpu->queue.count + bits_count(cpu->runnable & ~cpu->groups);
	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (groups == 0)
			break;
		count += cpu->entity[sched_next(&groups)].queued;
	}
	if (cpu->running == SCHED_PLAIN || sched_in(cpu->groups, cpu->running))
		count++;
	return count;
}

/* The time slice (Coop §3.2): each of N threads runs once per period, but not for less than the
 * minimum. */
LIB_INLINE ecalls_u64 fair_slice(const struct sched_cpu *cpu) {
	ecalls_u64 count = fair_count(cpu);
	ecalls_u64 slice = count > 1 ? cpu->options.period_ns / count : cpu->options.period_ns;

	return slice < cpu->options.slice_min_ns ? cpu->options.slice_min_ns : slice;
}

/* The slice of a plain thread: it does not become shorter with the number of threads, since each
 * switch costs the same, until a turn of each of them would take more than FAIR_ROUND periods. */
LIB_INLINE ecalls_u64 fair_turn(const struct sched_cpu *cpu) {
	ecalls_u64 period = cpu->options.period_ns, count = fair_count(cpu);
	ecalls_u64 slice = FAIR_TURN_NS, part;

	if (count < 2)
		return fair_slice(cpu);
	part = FAIR_ROUND * period / count;
	slice = slice < period / 2 ? slice : period / 2;
	slice = slice < part ? slice : part;
	return slice < cpu->options.slice_min_ns ? cpu->options.slice_min_ns : slice;
}

/* The running thread woke for its turn. */
LIB_INLINE void fair_woke(struct sched_cpu *cpu) {
	cpu->woke = 1;
}

/* Whether the running thread's turn is protected from a thread that wakes and has not had the CPU
 * since then. Where neither of the two woke a moment ago, it is not: a thread that sleeps most of
 * the time preempts one that computes at any time. */
LIB_INLINE _Bool fair_is_protected(const struct sched_cpu *cpu, ecalls_u64 since_ns,
				   ecalls_u64 now_ns) {
	return now_ns < cpu->protected_ns && (cpu->woke || now_ns < since_ns + FAIR_SHORT_NS);
}

/* Whether the running thread weighs next to nothing beside one that wakes: it is of the policy
 * SCHED_IDLE, say. It gives nobody a reason to wait. */
LIB_INLINE _Bool fair_is_feather(const struct sched_cpu *cpu, ecalls_u32 weight) {
	return cpu->running == SCHED_PLAIN &&
	       (ecalls_u64)cpu->plain.weight * FAIR_FEATHER <= weight;
}

/* A plain thread has woken and waits: the turn of a running plain thread ends soon, even if that
 * thread was alone until now. */
LIB_INLINE void fair_hurry(struct sched_cpu *cpu, ecalls_u32 weight, ecalls_u64 now_ns) {
	ecalls_u64 end_ns = cpu->protected_ns;

	if (!cpu->kept++)
		cpu->kept_ns = now_ns;
	end_ns = end_ns > now_ns ? end_ns : now_ns + FAIR_SHORT_NS;
	if (fair_is_feather(cpu, weight))
		end_ns = now_ns + cpu->options.slice_min_ns;
	if (cpu->running == SCHED_PLAIN && cpu->limit_ns > end_ns)
		cpu->limit_ns = end_ns;
}

/* Whether the rules of plain threads hold for an entity: it is a timed thread in no group, and
 * neither polls nor waits because its time has come (timed.h). */
LIB_INLINE _Bool fair_is_ordinary(const struct sched_cpu *cpu, ecalls_u32 i) {
	return sched_in(cpu->timed & ~(cpu->inside | cpu->windowed | cpu->cooperative), i);
}

/* The virtual time at which such a thread, or a plain one outside of groups, begins to wait. */
LIB_INLINE ecalls_u64 fair_place(const struct sched_cpu *cpu, ecalls_u64 vtime, ecalls_u32 weight) {
	return vtime_place(cpu->vtime - vtime_advance(FAIR_CREDIT_NS, weight), vtime);
}

/* The same for a plain thread. If many wait, and one has woken in this turn, this one waits as far
 * from the first thread as it was when it fell asleep. */
LIB_INLINE void fair_place_plain(struct sched_cpu *cpu, struct sched_plain *plain) {
	ecalls_u64 vtime = plain->vtime;

	if (cpu->kept && plain->slept && cpu->queue.count >= FAIR_CROWD)
		vtime += cpu->vtime - plain->slept;
	plain->slept = 0;
	plain->vtime = fair_place(cpu, vtime, plain->weight);
}

/* Whether the first thread that waits has woken and runs before all threads that came from other
 * CPUs: its virtual time is less than the CPU's least one. */
LIB_INLINE _Bool fair_is_owed(const struct sched_cpu *cpu) {
	if (cpu->queue.count && vtime_before(cpu->queue.vtime, cpu->vtime))
		return 1;
	return cpu->first != cpu->running && fair_is_ordinary(cpu, cpu->first) &&
	       vtime_before(cpu->entity[sched_at(cpu->first)].vtime, cpu->vtime);
}

/* The virtual time of the running thread, or of its group. */
LIB_INLINE ecalls_u64 fair_running_vtime(struct sched_cpu *cpu) {
	struct sched_entity *e = sched_entity(cpu, cpu->running);

	if (cpu->running >= SCHED_ENTITIES)
		return cpu->plain.vtime;
	return e->group < SCHED_ENTITIES ? sched_entity(cpu, e->group)->vtime : e->vtime;
}

/* Charges a member of a group that has published an importance: all such members share one virtual
 * time (group.h). */
LIB_INLINE void fair_charge_shared(struct sched_entity *group, ecalls_u64 ns) {
	group->shared_vtime += vtime_advance(ns, group->shared_weight);
}

LIB_INLINE void fair_charge_plain(struct sched_cpu *cpu, ecalls_u64 ns) {
	ecalls_u64 passed = vtime_advance(ns, cpu->plain.weight);

	cpu->plain.vtime += passed;
	cpu->passed += passed;
}

/* Charges the running thread of a CPU with entities, and its group. The time that a thread gets by
 * its window is promised, and is not charged. If this were a part of each caller, the verifier
 * would look at it in each of them, on each path. */
LIB_GLOBAL int fair_charge_any(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 ns) {
	ecalls_u32 group = SCHED_NOBODY;

	if (cpu->running == SCHED_PLAIN || sched_in(cpu->groups, cpu->running)) {
		fair_charge_plain(cpu, ns);
		group = cpu->running;
	} else {
		struct sched_entity *e = sched_entity(cpu, cpu->running);
		group = e->group;
		if (group < SCHED_ENTITIES && e->importance != SCHED_NEVER)
			fair_charge_shared(sched_entity(cpu, group), ns);
		else if (!cpu->claims)
			e->vtime += vtime_advance(ns, e->weight);
		if (sched_in(cpu->windowed, cpu->running))
			window_charge(cpu, cpu->running, ns);
	}
	if (group < SCHED_ENTITIES) {
		struct sched_entity *g = sched_entity(cpu, group);
		g->vtime += vtime_advance(ns, g->weight);
		g->ran_ns += ns;
	}
	if (cpu->on_server)
		cpu->server.served_ns += ns;
	return 0;
}

/* Charges the running thread, and its group, for the time since the last charge. */
LIB_INLINE void fair_charge(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 ns = now_ns - cpu->charged_ns;

	if (now_ns <= cpu->charged_ns)
		return;
	cpu->charged_ns = now_ns;
	away_passes(cpu, ns);
	if (cpu->running == SCHED_NOBODY)
		return;
	if (sched_is_plain(cpu))
		fair_charge_plain(cpu, ns);
	else
		fair_charge_any(cpu, ns);
}

/* The entity outside of groups (a thread or a group) with the least virtual time, SCHED_NOBODY if
 * none of `set` is runnable. Of equal ones, the first in the table. */
LIB_INLINE ecalls_u32 fair_first(struct sched_cpu *cpu, ecalls_u64 set) {
	ecalls_u64 left = set & cpu->runnable & ~cpu->inside, least = 0;
	ecalls_u32 best = SCHED_NOBODY;

	for (ecalls_u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (left == 0)
			break;
		ecalls_u32 i = sched_next(&left);
		ecalls_u64 vtime = cpu->entity[i].vtime;
		if (best == SCHED_NOBODY || vtime_before(vtime, least)) {
			best = i ^ cpu->zero;
			least = vtime;
		}
	}
	return best;
}

/* Records what the caller reports of the waiting plain threads. If the number is not the one that
 * was counted, another CPU has taken one of them, possibly the last. */
LIB_INLINE void fair_note(struct sched_cpu *cpu, const struct sched_queue *queue) {
	if (queue->count != cpu->queue.count)
		cpu->queued_vtime = queue->vtime;
	cpu->queue.vtime = queue->vtime;
	cpu->queue.count = queue->count;
}

/* One more plain thread waits; the caller's next report replaces this. */
LIB_INLINE void fair_queue(struct sched_cpu *cpu, ecalls_u64 vtime) {
	if (!cpu->queue.count || vtime_before(vtime, cpu->queue.vtime))
		cpu->queue.vtime = vtime;
	cpu->queue.count++;
	cpu->queued_vtime = vtime;
}

/* One of them begins to run. If it was the first, and the one that came last is the only other,
 * that is the first now. Otherwise the first one is not known, and no earlier than the one before.
 */
LIB_INLINE void fair_unqueue(struct sched_cpu *cpu, ecalls_u64 vtime) {
	if (cpu->queue.count)
		cpu->queue.count--;
	if (vtime == cpu->queued_vtime)
		cpu->queued_vtime = cpu->queue.vtime;
	else if (vtime == cpu->queue.vtime && cpu->queue.count == 1)
		cpu->queue.vtime = vtime_later(vtime, cpu->queued_vtime);
}

/* The running thread stops, or another one is to be chosen: if it is plain, or ordinary, and has
 * yielded, it is behind the first plain thread that waits, and has no turn for its time any more.
 */
LIB_INLINE void fair_yield(struct sched_cpu *cpu) {
	struct sched_entity *e = sched_entity(cpu, cpu->running);

	if (cpu->yields && cpu->running == SCHED_PLAIN && cpu->queue.count)
		cpu->plain.vtime = vtime_later(cpu->plain.vtime, cpu->queue.vtime + 1);
	if (cpu->yields && fair_is_ordinary(cpu, cpu->running)) {
		cpu->due_end_ns = 0;
		if (cpu->queue.count)
			e->vtime = vtime_later(e->vtime, cpu->queue.vtime + 1);
	}
	cpu->yields = 0;
}

/* Whether a plain thread, which begins to wait and is the last in cpu->queue, is certainly next:
 * when the thread that runs stops, for whatever reason, a choice would take this one. The caller
 * may then put it where the kernel takes it without a choice, before all threads that begin to wait
 * later and have a greater virtual time. `nexts` others are there already.
 *
 * A thread that has woken goes before these, so it has to be the first of all. One that has stopped
 * (`woken` is 0) goes behind the one that was chosen in its place, which still counts as waiting.
 * In both cases it may be ahead of the running thread by what that thread has in its shortest
 * turn. */
LIB_INLINE _Bool fair_is_next(const struct sched_cpu *cpu, const struct sched_plain *plain,
			      ecalls_u64 nexts, _Bool woken) {
	ecalls_u64 before = cpu->queue.vtime;

	if (!sched_is_plain(cpu))
		return 0;
	if (woken) {
		if (cpu->queue.count != nexts + 1 || plain->vtime != cpu->queue.vtime)
			return 0;
		if (cpu->running == SCHED_NOBODY)
			return nexts == 0;
		before = cpu->plain.vtime;
	} else if (cpu->running != SCHED_NOBODY || cpu->queue.count != 2 || nexts > 1) {
		return 0;
	}
	before += vtime_advance(FAIR_SHORT_NS, plain->weight);
	return !vtime_before(before, plain->vtime);
}

/* The threads and groups that are ordered by virtual time. A thread with a window is one of them
 * while it does not claim: each such thread for itself, except in the order WINDOW_DWCS, where the
 * first one stands for all of them (choose.h). */
LIB_INLINE ecalls_u64 fair_set(const struct sched_cpu *cpu) {
	if (cpu->options.window_order == WINDOW_DWCS)
		return ~cpu->windowed;
	return ~cpu->windowed | window_sharing(cpu);
}

/* The virtual time of a CPU, where so many threads wait beside the running one, which has had
 * `passed` of virtual time since the last report. It follows the least one of all of them, but no
 * faster than the running thread's, and half as fast while that thread is alone. So one that was
 * alone for long is ahead of who comes then, here and where it goes: by FAIR_ALONE_NS at most. */
LIB_INLINE ecalls_u64 fair_follows(const struct sched_cpu *cpu, ecalls_u64 least, ecalls_u64 passed,
				   ecalls_u64 others) {
	ecalls_u64 at = cpu->vtime + (others ? passed : passed / 2);

	if (vtime_before(at, least))
		least = vtime_later(at, least - vtime_advance(FAIR_ALONE_NS, cpu->plain.weight));
	return vtime_later(cpu->vtime, least);
}

/* The running thread sleeps. If it was alone, it is not ahead any more: only who computes all the
 * time is, and takes the CPU time of those who sleep for a moment. */
LIB_INLINE void fair_sleeps(struct sched_cpu *cpu) {
	if (cpu->running == SCHED_PLAIN && !cpu->queue.count && !cpu->runnable)
		cpu->vtime = vtime_later(cpu->vtime, cpu->plain.vtime);
	cpu->plain.slept = cpu->vtime;
}

/* fair_update for a CPU on which no entity is ready or runs. */
LIB_INLINE void fair_update_plain(struct sched_cpu *cpu, ecalls_u64 now_ns) {
	ecalls_u64 least;

	fair_charge(cpu, now_ns);
	cpu->first = SCHED_NOBODY;
	if (cpu->running != SCHED_NOBODY)
		least = cpu->plain.vtime;
	else if (cpu->queue.count)
		least = cpu->queue.vtime;
	else
		return;
	if (cpu->queue.count && vtime_before(cpu->queue.vtime, least))
		least = cpu->queue.vtime;
	cpu->vtime = fair_follows(cpu, least, cpu->passed, cpu->queue.count);
	cpu->passed = 0;
}

/* Charges the running thread, and updates the CPU's least virtual time. Threads that are served by
 * their window do not count, since their virtual time stands still meanwhile; one that runs for its
 * releases beyond that counts while it is alone, and so is not ahead of anybody (police.h). */
LIB_GLOBAL int fair_update(struct sched_cpu *cpu LIB_NONNULL, ecalls_u64 now_ns) {
	ecalls_u64 least;
	ecalls_u32 first;
	_Bool any;

	if (!cpu->runnable) {
		fair_update_plain(cpu, now_ns);
		return 0;
	}
	any = cpu->running != SCHED_NOBODY &&
	      (!sched_in(cpu->windowed, cpu->running) || (!cpu->claims && !away_is_wanted(cpu)));
	fair_charge(cpu, now_ns);
	first = fair_first(cpu, fair_set(cpu));
	cpu->first = first;
	least = fair_running_vtime(cpu);
	if (first != SCHED_NOBODY) {
		ecalls_u64 vtime = sched_entity(cpu, first)->vtime;
		least = !any || vtime_before(vtime, least) ? vtime : least;
		any = 1;
	}
	if (cpu->queue.count) {
		least = !any || vtime_before(cpu->queue.vtime, least) ? cpu->queue.vtime : least;
		any = 1;
	}
	if (any)
		cpu->vtime = vtime_later(cpu->vtime, least);
	cpu->passed = 0;
	return 0;
}

#endif
