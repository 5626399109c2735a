/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quotas of control groups (cpu.max, cpu.max.burst): which threads wait for their group's next
 * period, and until when. The account itself is in lib/sched/quota.h.
 *
 * A thread of a group whose account is empty, or that of a group above, is *parked* when it would
 * be inserted into its queue, or when its turn ends: it is inserted into a queue of its CPU from
 * which nothing is taken, and for the policy it sleeps. Its CPU looks at that queue when a period
 * ends, and inserts the threads whose groups have CPU time again into their own queues. A turn is
 * charged when it ends, and is at most QUOTA_TURN_NS.
 *
 * For the kernel's watchdog a parked thread is one that waits for the CPU. Where many threads share
 * a small quota, each of them might wait for a minute, so a thread that has been parked for a third
 * of the watchdog's time has the shortest turn, which is charged like any other.
 *
 * What others may wait for is not parked: a thread that exits or is killed, one that may not leave
 * its CPU at the moment or reads kernel data under RCU, kernel threads. The CPU looks every
 * QUOTA_LOOK_NS whether a parked thread was killed. A thread that is preempted in a system call,
 * or wakes in one, can be parked while it holds a mutex of the kernel, for the rest of the period,
 * as under the kernel's own scheduler before Linux 6.18: a scheduler of sched_ext does not learn
 * when a thread returns to user space.
 *
 * When the scheduler ends, the kernel takes all threads out of our queues, parked ones too.
 *
 * Cost for the others: flags of the thread and of the CPU are tested, which a thread sets that is
 * in a control group under a quota.
 */
#ifndef ECALLS_SCHED_GLUE_QUOTA_H
#define ECALLS_SCHED_GLUE_QUOTA_H

#include "task.h"
#include "timer.h"

/* In sched_cpu.quotas. */
#define QUOTA_RUNS 1u	/* the running thread is under a quota */
#define QUOTA_PARKED 2u /* threads are parked here */

#define QUOTA_LOOK_NS 50000000u /* between two looks at parked threads, if no period ends */
#define QUOTA_LOOKS 64u		/* at so many parked threads in one decision */
#define QUOTA_RESTS                                                                                \
	16u /* the pause until it looks at the others, in times of what the looks took */
#define QUOTA_FREE ((s64)(~0ull >> 1)) /* what is left without a limit */
#define SIGKILL_BIT (1ull << 8)

/* What is left in the emptiest of a thread's accounts. If it is not more than 0, *look_ns becomes
 * no later than the end of the last period that the thread has to wait for. */
__noinline s64 quota_least(u64 number, u64 now, u64 *look_ns LIB_NONNULL) {
	s64 least = QUOTA_FREE;
	u64 until = now;

	for (u32 level = sched_zero; lib_again(level, SHARE_LEVELS); level++) {
		struct share *s = share_of(number);
		if (!s || level >= SHARE_LEVELS)
			break;
		number = s->parent;
		if (!s->quota.quota_ns)
			continue;
		s64 left = quota_left(&s->quota, now);
		least = left < least ? left : least;
		if (left <= 0 && s->quota.end_ns > until)
			until = s->quota.end_ns;
	}
	if (least <= 0 && until < *look_ns)
		*look_ns = until;
	return least;
}

/* Charges a thread's turn up to now to its group and all groups above. */
__noinline int quota_settle(struct sched_task *t LIB_NONNULL, u64 now) {
	u64 number = t->share, ns = t->from_ns && now > t->from_ns ? now - t->from_ns : 0;

	t->from_ns = now;
	for (u32 level = sched_zero; ns && lib_again(level, SHARE_LEVELS); level++) {
		struct share *s = share_of(number);
		if (!s || level >= SHARE_LEVELS)
			break;
		if (s->quota.quota_ns)
			quota_charge(&s->quota, ns);
		number = s->parent;
	}
	return 0;
}

/* A turn of a thread under a quota begins, or continues: it ends when the account is empty. */
__noinline int quota_begins(struct sched_task *t LIB_NONNULL, struct sched_cpu *c LIB_NONNULL,
			    u64 now) {
	u64 look_ns = SCHED_NEVER, end_ns;
	s64 left;

	quota_settle(t, now);
	left = quota_least(t->share, now, &look_ns);
	c->quotas |= QUOTA_RUNS;
	end_ns = now + quota_turn(left);
	if (left != QUOTA_FREE && c->limit_ns > end_ns)
		c->limit_ns = end_ns;
	return 0;
}

/* Its turn ends. */
static __always_inline void quota_ends(struct sched_task *t, struct sched_cpu *c, u64 now) {
	quota_settle(t, now);
	t->from_ns = 0;
	c->quotas &= ~(u64)QUOTA_RUNS;
}

/* Whether others may wait for a thread that is about to be parked. Programs run with migration
 * disabled, and under RCU, which counts for the current thread. */
static __always_inline bool quota_exempts(struct task_struct *p) {
	struct task_struct___scx *more = (void *)p;
	int own = p == bpf_get_current_task_btf() ? 1 : 0;

	if (p->flags & (PF_EXITING | PF_KTHREAD) || p->migration_disabled > own)
		return true;
	if (bpf_core_field_exists(more->rcu_read_lock_nesting) &&
	    BPF_CORE_READ(more, rcu_read_lock_nesting) > own)
		return true;
	return BPF_CORE_READ(more, pending.signal.sig[0]) & SIGKILL_BIT;
}

/* Whether a thread has to wait for its quota; if so, *look_ns is when to look again. */
static __always_inline bool quota_waits(struct task_struct *p, const struct sched_task *t, u64 now,
					u64 *look_ns) {
	return t->limited && quota_least(t->share, now, look_ns) <= 0 && !quota_exempts(p);
}

/* For the policy and for balancing, a thread that does not run goes to sleep. */
__noinline int quota_park(struct sched_task *t LIB_NONNULL, struct sched_cpu *c LIB_NONNULL,
			  u64 now) {
	if (!t->parked)
		t->since_ns = now;
	t->parked = 1;
	if (!t->ready)
		return 0;
	SCHED_COUNT(t->cpu, parked);
	rest(t, c, false, now);
	return 0;
}

/* The same for the running thread, which stops. */
static __always_inline void quota_stops(struct sched_task *t, struct sched_cpu *c, u64 now) {
	quota_ends(t, c, now);
	turn_stop(c, 0, now);
	if (t->entity >= SCHED_ENTITIES)
		t->plain.vtime = c->plain.vtime;
	quota_park(t, c, now);
}

/* It no longer has to wait for its quota. */
__noinline int quota_unpark(struct sched_task *t LIB_NONNULL, struct sched_cpu *c LIB_NONNULL,
			    u64 now) {
	t->parked = 0;
	t->since_ns = now;
	if (!t->ready)
		arise(t, c, now);
	return 0;
}

/* A thread enters its queue. Returns whether it was parked instead. This function and quota_decides
 * are verified once: in their callers, the code that follows would be verified for each way through
 * them. */
__noinline int quota_parks(struct task_struct *p __arg_trusted, struct sched_task *t LIB_NONNULL,
			   u32 cpu, struct sched_cpu *c LIB_NONNULL, u64 now) {
	struct sched_timer_of *timer = timer_of(cpu);
	u64 look_ns = now + QUOTA_LOOK_NS;

	if (!timer || !quota_waits(p, t, now, &look_ns)) {
		if (t->parked)
			quota_unpark(t, c, now);
		return 0;
	}
	quota_park(t, c, now);
	scx_bpf_dsq_insert(p, QUEUE_PARKED(cpu), setting.options.period_ns, 0);
	c->quotas |= QUOTA_PARKED;
	if (!timer->look_ns || look_ns < timer->look_ns)
		timer->look_ns = look_ns;
	set_timer(cpu, c, now);
	return 1;
}

/* Inserts a thread that is no longer parked into its queue. */
static __always_inline void quota_inserts(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					  const struct sched_task *t, u32 cpu) {
	if (t->entity < SCHED_ENTITIES) {
		scx_bpf_dsq_move(it, p, QUEUE_ENTITY(cpu, t->entity), 0);
		return;
	}
	scx_bpf_dsq_move_set_vtime(it, t->plain.vtime);
	scx_bpf_dsq_move_vtime(it, p, QUEUE_PLAIN(cpu), 0);
}

/* Looks at the parked threads of this CPU. */
__noinline int quota_look(u32 cpu, u64 now) {
	struct sched_timer_of *timer = timer_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	u64 look_ns = now + QUOTA_LOOK_NS;
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u32 looks = 0;

	if (!timer || !c || now < timer->look_ns)
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, QUEUE_PARKED(cpu), 0)) {
		while (looks++ < QUOTA_LOOKS && (p = bpf_iter_scx_dsq_next(&it))) {
			struct sched_task *t = task_of(p);
			looks ^= lib_zero(now);
			if (!t || (now < t->since_ns + WAIT_MOST_NS &&
				   quota_waits(p, t, now, &look_ns))) {
				/* To the end: the next look begins with the others. */
				scx_bpf_dsq_move(&it, p, QUEUE_PARKED(cpu), 0);
				continue;
			}
			quota_unpark(t, c, now);
			quota_inserts(&it, p, t, cpu);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (looks > QUOTA_LOOKS) {
		u64 end_ns = now_ns();
		look_ns = end_ns + (end_ns - now) * QUOTA_RESTS;
	}
	timer->look_ns = look_ns;
	if (scx_bpf_dsq_nr_queued(QUEUE_PARKED(cpu)) > 0)
		return 0;
	timer->look_ns = 0;
	c->quotas &= ~(u64)QUOTA_PARKED;
	return 0;
}

/* A CPU decides, and the thread that has it may be under a quota. */
__noinline int quota_decides(struct task_struct *prev __arg_trusted,
			     struct sched_cpu *c LIB_NONNULL, u64 now) {
	struct sched_task *t = task_of(prev);
	u64 look_ns = SCHED_NEVER;

	if (t && t->ready && t->limited && c->running == who_is(t)) {
		quota_settle(t, now);
		if (quota_waits(prev, t, now, &look_ns))
			quota_stops(t, c, now);
	} else {
		c->quotas &= ~(u64)QUOTA_RUNS;
	}
	return 0;
}

/* A CPU decides, and threads may be parked there. */
__noinline int quota_resumes(u32 cpu, struct sched_cpu *c LIB_NONNULL, u64 now) {
	if (!(c->quotas & QUOTA_PARKED))
		return 0;
	quota_look(cpu, now);
	set_timer(cpu, c, now);
	return 0;
}

#endif
