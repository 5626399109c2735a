/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Migration of threads to another CPU: an idle CPU steals, a busy one takes a thread when the
 * policy decides so (lib/sched/balance.h). Only plain threads and heirs migrate; a thread with a
 * slot stays.
 *
 * At each choice a CPU looks at a few other CPUs, and at a few threads of the fullest one: the
 * cost is the same on any machine. A thread that was taken runs at once, and the next choice is
 * among the threads that waited here: however much fuller the other CPU is, these have every other
 * turn. A thread keeps its debt when it migrates.
 */
#ifndef ECALLS_SCHED_TAKE_H
#define ECALLS_SCHED_TAKE_H

#include "heir.h"
#include "load.h"
#include "next.h"

#define ROTATE_PERIODS 2	  /* and up to one more, until a CPU takes a thread to rotate */
#define BALANCE_LOOKS 8u	  /* at so many first threads of a queue */
#define BALANCE_CPUS 3u		  /* of so many other CPUs, at the fullest one */
#define BALANCE_AGAIN_NS 1000000u /* after a look without a result */
#define BALANCE_LEVEL_NS 50000u	  /* after one at a CPU with no greater load */

/* Whether a thread that waits in a queue may migrate to a CPU. The kernel ends a scheduler that
 * moves a thread to a CPU where it may not run. That cannot change before the move, unless the
 * thread leaves its queue meanwhile, which the move notices. */
static __always_inline bool may_go(struct task_struct *p, u32 cpu) {
	return !p->migration_disabled && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Takes a plain thread that the policy allows to migrate. */
__noinline int balance_plain(u32 cpu, u32 other, const struct balance_look *look LIB_NONNULL) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | cpu;
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool taken = false;
	u32 looks = 0;

	if (!bpf_iter_scx_dsq_new(&it, QUEUE_PLAIN(other), 0)) {
		while (!taken && looks++ < BALANCE_LOOKS && (p = bpf_iter_scx_dsq_next(&it))) {
			struct sched_task *t = task_of(p);
			if (t && balance_takes(look, t->plain.vtime, t->plain.weight) &&
			    may_go(p, cpu))
				taken = scx_bpf_dsq_move(&it, p, local, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return taken;
}

/* The same for the heirs; for a member, the virtual time of its group is compared. */
__noinline int balance_heirs(u32 other, const struct balance_look *look LIB_NONNULL) {
	struct sched_cpu *c = cpu_of(other);
	u64 left = heirs_waiting(other), set = 0;

	for (u32 round = 0; c && lib_again(round, SCHED_ENTITIES); round++) {
		if (!left)
			break;
		u32 i = sched_next(&left);
		const struct sched_entity *e = sched_entity(c, i);
		u64 vtime = e->vtime;
		if (e->group < SCHED_ENTITIES)
			vtime = sched_entity(c, e->group)->vtime;
		if (balance_takes(look, vtime, e->weight))
			set |= sched_bit(i);
	}
	return set && heir_take(other, set);
}

/* The other CPU at which this one looks next: the fullest one of the few that follow. One that is
 * alone on its CPU decides rarely, and would meet most CPUs while nobody waits there. */
static __always_inline u32 balance_next(u32 cpu, struct sched_places *places) {
	u32 other = places->looked, fullest = cpu;
	u64 most = 0, load;

	for (u32 round = sched_zero; lib_again(round, BALANCE_CPUS + 1); round++) {
		if (round > BALANCE_CPUS || round >= setting.cpus)
			break;
		other = other + 1 < setting.cpus ? other + 1 : 0;
		load = load_of_cpu(other);
		if (other == cpu || (fullest != cpu && load <= most))
			continue;
		fullest = other;
		most = load;
	}
	places->looked = fullest;
	return fullest;
}

/* Looks at another CPU, and takes a thread that waits there if the policy decides so. */
__noinline int balance(u32 cpu, u64 now) {
	struct sched_places *places = places_of(cpu), *theirs;
	struct sched_cpu *c = cpu_of(cpu), *their;
	u64 period_ns = setting.options.period_ns;
	struct balance_look look = {.period_ns = period_ns, .wanted = BALANCE_TAKES};
	u32 other;

	if (!places || !c || setting.cpus < 2 || now < places->look_ns)
		return 0;
	if (places->took) {
		places->took = 0;
		return 0;
	}
	other = balance_next(cpu, places);
	theirs = places_of(other);
	their = cpu_of(other);
	if (!theirs || !their)
		return 0;
	look.mine = load_of(places, c, now);
	look.theirs = load_of(theirs, their, now);
	look.vtime = their->vtime;
	if (now >= places->rotate_ns)
		look.wanted = BALANCE_ROTATES;
	/* Even a thread of weight 0 would not move. */
	if (balance_wants(&look.mine, &look.theirs, 0) < look.wanted) {
		places->look_ns = now + BALANCE_LEVEL_NS;
		return 0;
	}
	if (!balance_plain(cpu, other, &look) && !balance_heirs(other, &look)) {
		places->look_ns = now + BALANCE_AGAIN_NS;
		places->asked = next_ask(other, theirs, false, now);
		return 0;
	}
	places->took = 1;
	/* The time is random, otherwise the same thread might stay each time. */
	places->rotate_ns = now + ROTATE_PERIODS * period_ns + bpf_get_prandom_u32() % period_ns;
	theirs->rotate_ns = places->rotate_ns;
	return 1;
}

/* Takes any thread that waits for another CPU, of the kind of which more wait: plain ones or
 * heirs. */
__noinline int take(u32 other) {
	u64 plain = scx_bpf_dsq_nr_queued(QUEUE_PLAIN(other));
	u64 waiting = heirs_waiting(other), heirs = bits_count(waiting);

	if (plain >= heirs && plain && scx_bpf_dsq_move_to_local(QUEUE_PLAIN(other)))
		return true;
	if (heirs && heir_take(other, waiting))
		return true;
	return plain < heirs && plain && scx_bpf_dsq_move_to_local(QUEUE_PLAIN(other));
}

/* Whether a thread may wait for another CPU, by what is known there. */
static __always_inline bool may_take(u32 other) {
	const struct sched_places *theirs = places_of(other);
	const struct sched_cpu *their = cpu_of(other);

	return theirs && their && (*(volatile u64 *)&their->queue.count || theirs->heirs);
}

/* No thread wants this CPU: it takes one that waits for another CPU and may run here. It is a
 * function that the verifier checks once: Linux 7.0 rejects it as a part of sched_dispatch. */
__noinline int steal(u32 cpu, u64 now) {
	u32 other = cpu;

	idle_begins(cpu);
	for (u32 round = 1; lib_again(round, CPUS_MAX); round++) {
		if (round >= setting.cpus)
			break;
		other = other + 1 < setting.cpus ? other + 1 : 0;
		if (!may_take(other))
			continue;
		if (take(other)) {
			SCHED_COUNT(cpu, stolen);
			return 1;
		}
		struct sched_places *theirs = places_of(other);
		if (theirs)
			next_ask(other, theirs, true, now);
	}
	return 0;
}

#endif
