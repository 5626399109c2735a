/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An upper bound of the time for which a thread waits.
 *
 * A thread whose virtual time is ahead of all others waits until they have caught up, which has no
 * limit: one turn of a thread of nice 19 puts it a second ahead, and if a hundred threads arrive
 * meanwhile, they need a hundred seconds to catch up. But the kernel ends a scheduler that lets a
 * runnable task wait for longer than its watchdog allows (30 s, or less by an option). So each CPU
 * checks periodically whether a thread has waited for a third of that, and runs it. That turn is
 * charged like any other, and is at most one slice in that time. Each such turn is counted
 * (overdue).
 *
 * A thread that has had its window's service waits by its own choice, and is not checked.
 */
#ifndef ECALLS_SCHED_WAIT_H
#define ECALLS_SCHED_WAIT_H

#include "place.h"

#define WAIT_LOOK_NS 1000000000ull /* time between two checks of all waiting threads */
#define WAIT_AGAIN_NS 10000000u	   /* the same after a thread was found: there may be others */

static __always_inline bool wait_is_over(struct task_struct *p, u64 now) {
	const struct sched_task *t = task_of(p);

	return t && t->since_ns && now > t->since_ns + WAIT_MOST_NS;
}

/* Checks the plain threads, from the end of the queue, where they wait longest. An iteration does
 * not reach threads that were inserted after it began. */
static __noinline bool wait_plain(u32 cpu, u64 now) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | cpu;
	u64 last_first = SCX_NUMBER(scx_dsq_iter_flags, SCX_DSQ_ITER_REV);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool moved = false;

	if (!bpf_iter_scx_dsq_new(&it, QUEUE_PLAIN(cpu), last_first))
		while (!moved && (p = bpf_iter_scx_dsq_next(&it)))
			moved = wait_is_over(p, now) && scx_bpf_dsq_move(&it, p, local, 0);
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

/* Checks the entities. */
static __noinline bool wait_entity(u32 cpu, u64 now) {
	const struct sched_cpu *c = cpu_of(cpu);
	u64 left = c ? c->runnable & ~c->groups & ~c->windowed : 0;

	for (u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (!left)
			break;
		u64 queue = QUEUE_ENTITY(cpu, sched_next(&left));
		struct task_struct *p = scx_bpf_dsq_peek(queue);
		if (p && wait_is_over(p, now) && scx_bpf_dsq_move_to_local(queue))
			return true;
	}
	return false;
}

/* Whether this CPU runs a thread that has waited for too long: that thread is then the first of its
 * local dispatch queue. It is a function that the verifier checks once. */
__noinline int wait_ends(u32 cpu, u64 now) {
	struct sched_places *places = places_of(cpu);

	if (!places || now < places->waits_look_ns)
		return 0;
	places->waits_look_ns = now + WAIT_LOOK_NS;
	if (!wait_plain(cpu, now) && !wait_entity(cpu, now))
		return 0;
	places->waits_look_ns = now + WAIT_AGAIN_NS;
	SCHED_COUNT(cpu, overdue);
	return 1;
}

#endif
