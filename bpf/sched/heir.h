/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads of a program that was given a group, or that is timed (`ecalls run --group`, `--coop`,
 * ECALLS_OP_HAND): this holds not only for its first thread, which has the slot, but also for the
 * threads and programs that it creates.
 *
 * Such an heir is an entity of its CPU without a slot: it never polls, so within the group it is
 * ordered by virtual time. Unlike a thread with a slot it migrates to other CPUs as plain threads
 * do, where a CPU is idle or fewer threads wait, and is a member of the same group there. It
 * remains an heir until it names a slot itself, or becomes another user's; the threads and programs
 * that it creates inherit the group. Beyond HEIR_PLACES on a CPU, threads remain plain.
 *
 * The owner of the group is inherited, too (handed_uid), and is compared whenever an heir runs: a
 * program that has become another user's adds no thread to a group, neither that of the former user
 * nor one of its own.
 *
 * A scheduler that was started later does not know which thread created which: it then searches the
 * thread's ancestors for a program with that group.
 */
#ifndef ECALLS_SCHED_HEIR_H
#define ECALLS_SCHED_HEIR_H

#include "timed.h"
#include "wish.h"

#define HEIR_PLACES 24u	  /* of a CPU's table, for the heirs of one user, root included */
#define HEIR_ANCESTORS 8u /* levels that are searched */

_Static_assert(HEIR_PLACES < USER_PLACES, "there is place for who asks for it");

/* Whether an entity is an heir. */
static __always_inline bool is_heir(const struct sched_task *t) {
	return !t->channel;
}

/* The binding by which another process handed a group to a thread's program. */
static __always_inline void heir_is_given(struct sched_task *t,
					  const struct coop_binding *binding) {
	t->handed_group = binding->group;
	t->handed_uid = binding->uid;
	t->handed_channel = binding->channel;
	t->handed_slot = binding->slot;
	timed_is(t, binding->timed);
}

/* Whether a thread's program was given something that its descendants inherit. */
static __always_inline bool heir_has(const struct sched_task *t) {
	return t->handed_group || t->timed;
}

static __always_inline void heir_loses(struct sched_task *t) {
	t->handed_group = 0;
	timed_is(t, 0);
}

/* A thread is created: it inherits what its creator's program was given, even if that program has
 * named another group since. */
static __always_inline void heir_is_made(struct sched_task *t) {
	const struct sched_task *maker = task_of(bpf_get_current_task_btf());

	if (!maker || !heir_has(maker))
		return;
	t->handed_group = maker->handed_group;
	t->handed_uid = maker->handed_uid;
	t->handed_channel = maker->handed_channel;
	t->handed_slot = maker->handed_slot;
	timed_is(t, maker->timed);
	t->bound = 1;
}

/* Whether an heir now belongs to another user; then it loses its group. */
static __always_inline bool heir_is_another(struct task_struct *p, struct sched_task *t) {
	if (t->entity >= SCHED_ENTITIES || !is_heir(t) || binding_is_of(p, t->uid))
		return false;
	heir_loses(t);
	return true;
}

/* Searches for a group among the ancestors of a thread that is older than this scheduler. */
__noinline int heir_looks_up(struct task_struct *p __arg_trusted, struct sched_task *t) {
	struct task_struct *up = p;

	if (!t)
		return -ENOENT;
	for (u32 level = sched_zero; level < HEIR_ANCESTORS && lib_may_goto(); level++) {
		up = up->pid != up->tgid ? up->group_leader : up->real_parent;
		if (up->pid <= 1)
			return 0;
		struct coop_thread *thread = binding_thread(up);
		struct coop_binding *binding = thread ? binding_handed(up, thread) : 0;
		if (!binding || !(binding->group | binding->timed))
			continue;
		heir_is_given(t, binding);
		return 0;
	}
	return 0;
}

/* The running thread becomes a member of its program's group. */
__noinline int heir_joins(struct sched_task *t, u32 cpu, u64 now) {
	struct sched_places *places = places_of(cpu);

	if (!t || !places)
		return -ENOENT;
	/* Places of threads that have left are freed first. */
	clear_left(cpu, now);
	if (bits_count(of_user(places, places->heirs, t->handed_uid)) >= HEIR_PLACES) {
		SCHED_COUNT(cpu, full);
		return -EDQUOT;
	}
	if (!enter(t, cpu, now, 0))
		places->heirs |= sched_bit(t->entity);
	return 0;
}

/* The running thread has named no slot: it may have a group through its program. */
static __always_inline void heir_enters(struct task_struct *p, struct sched_task *t, u32 cpu,
					u64 now) {
	bool is_asked = t->bound;

	t->bound = 0;
	if (!is_asked || t->entity < SCHED_ENTITIES)
		return;
	if (!heir_has(t))
		heir_looks_up(p, t);
	if (!heir_has(t))
		return;
	if (!binding_is_of(p, t->handed_uid)) {
		heir_loses(t);
		return;
	}
	watch_enters(p, cpu, now);
	heir_joins(t, cpu, now);
}

/* Whether a thread stays on its CPU: it has a slot, by which it polls, and is not that of an
 * unmodified program. */
static __always_inline bool heir_stays(const struct sched_task *t) {
	return t->entity < SCHED_ENTITIES && !is_heir(t) && !t->timed;
}

/* The running thread has named a slot, or was handed one. */
static __always_inline void heir_has_slot(const struct sched_task *t, u32 cpu) {
	struct sched_places *places = places_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);

	if (!places || !c || t->entity >= SCHED_ENTITIES)
		return;
	timed_is_of(c, t->entity, t->timed);
	if (t->timed)
		places->heirs |= sched_bit(t->entity);
	else
		places->heirs &= ~sched_bit(t->entity);
}

/* The heirs that wait for a CPU. Another CPU may change the set meanwhile. */
static __always_inline u64 heirs_waiting(u32 cpu) {
	const struct sched_places *places = places_of(cpu);
	const struct sched_cpu *c;

	if (!places || !places->heirs)
		return 0;
	c = cpu_of(cpu);
	return c ? places->heirs & c->runnable & ~sched_bit(c->running) & ~places->left : 0;
}

/* This CPU takes one of these heirs, which wait for another CPU, unless none of them may run here.
 * The search does not always begin with the first in the table, which would be taken every time.
 *
 * The call before the loop also leaves no argument in its register: Linux 7.0 rejects a loop with a
 * call otherwise ("backtracking call unexpected regs"), depending on the code before. */
__noinline int heir_take(u32 other, u64 rest) {
	u64 set = rest & ~0ull << (bpf_get_prandom_u32() & (SCHED_ENTITIES - 1));

	rest &= ~set;
	for (u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (!set) {
			set = rest;
			rest = 0;
		}
		if (!set)
			break;
		if (scx_bpf_dsq_move_to_local(QUEUE_ENTITY(other, sched_next(&set))))
			return true;
	}
	return false;
}

#endif
