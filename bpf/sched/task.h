/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task under this scheduler from begin to end: its data (struct sched_task), the CPU of its
 * virtual time, and its weight.
 *
 * The kernel calls init_task when a task is created or the scheduler starts, enable when the task
 * enters this scheduling class, disable when it leaves it, set_weight when its nice value changes,
 * exit_task when it ends. In between, the operations of scheduler.bpf.c call move_to() when the
 * task is on another CPU than before, weigh() when its weight may have changed, and bequeath() when
 * a thread that exits stops running.
 *
 * Failures: init_task refuses a task if there is no memory for it; every other operation ignores a
 * task without data.
 */
#ifndef ECALLS_SCHED_TASK_H
#define ECALLS_SCHED_TASK_H

#include "load.h"
#include "next.h"
#include "share.h"
#include "sink.h"
#include "lib/sched/arrive.h"

/* Reads the state of the plain threads that wait for a CPU. */
static __always_inline void look_at_queue(u32 cpu, struct sched_queue *queue) {
	struct task_struct___scx *first = (void *)scx_bpf_dsq_peek(QUEUE_PLAIN(cpu));
	struct scx_dispatch_q *all = first ? first->scx.dsq : 0;

	/* Another CPU may take it at this moment: then it is in none. */
	queue->count = all ? all->nr : 0;
	queue->vtime = first ? first->scx.dsq_vtime : 0;
}

/* The same for any CPU: while threads are in its local queue, the policy's record counts them. */
static __always_inline void look_at_waiting(u32 cpu, struct sched_queue *queue) {
	const struct sched_places *places = places_of(cpu);
	const struct sched_cpu *c = cpu_of(cpu);

	if (places && c && places->nexts)
		*queue = c->queue;
	else
		look_at_queue(cpu, queue);
}

/* Converts a task's virtual time to that of another CPU. */
__noinline int migrate(struct sched_task *t LIB_NONNULL, u32 cpu, struct sched_cpu *c LIB_NONNULL,
		       u64 now) {
	struct fair_move move = {.vtime = t->plain.vtime, .now_ns = now};
	struct sched_cpu *former = cpu_of(t->cpu);

	look_at_waiting(t->cpu, &move.there);
	look_at_waiting(cpu, &move.here);
	if (former)
		t->plain.vtime = fair_arrive(former, c, &move);
	t->plain.slept = 0;
	t->cpu = cpu;
	return 0;
}

static __always_inline void move_to(struct sched_task *t, u32 cpu, struct sched_cpu *c, u64 now) {
	if (t->cpu != cpu)
		migrate(t, cpu, c, now);
}

/* Gives an entity the weight of its thread. A runnable member of a group is counted in the group's
 * weight, and keeps its weight until it sleeps (`rests`). */
static __always_inline void weigh(const struct sched_task *t, struct sched_cpu *c, bool rests) {
	struct sched_entity *e = sched_entity(c, t->entity);

	if (rests || e->group >= SCHED_ENTITIES)
		e->weight = t->plain.weight;
}

/* Passes on the CPU time that an exiting thread has had beyond its share: the threads that begin
 * owe it. This is done from the thread's last moments on, because a process that waits for its end
 * may start another thread before this one has finally stopped. */
static __always_inline void bequeath(const struct task_struct *p, const struct sched_task *t,
				     struct sched_cpu *c) {
	struct sched_entity *e = sched_entity(c, t->entity);

	if (!(p->flags & PF_EXITING))
		return;
	if (t->entity >= SCHED_ENTITIES) {
		fair_end(c, t->plain.vtime, t->plain.weight, SHARE_NICE_0);
		return;
	}
	if (e->group < SCHED_ENTITIES)
		e = sched_entity(c, e->group);
	fair_end(c, e->vtime, e->weight, SHARE_NICE_0);
}

/* A thread wants the CPU of its virtual time from now on: the policy, the load and the shares count
 * it. */
static __always_inline void arise(struct sched_task *t, struct sched_cpu *c, u64 now) {
	t->ready = 1;
	share_ready(t);
	if (sched_is_plain(c)) {
		turn_wait_plain(c, &t->plain, now);
	} else if (t->entity < SCHED_ENTITIES) {
		t->plain.weight = share_weight(t);
		weigh(t, c, !sched_in(c->runnable, t->entity));
		turn_ready(c, t->entity, now);
		timed_wakes(t, c, now);
		seen_waits(t->cpu, t->entity, now);
	} else {
		turn_ready_plain(c, &t->plain, now);
	}
	load_settle(t, c);
}

/* A thread no longer wants the CPU; `asleep`: it sleeps. */
static __always_inline void rest(struct sched_task *t, struct sched_cpu *c, bool asleep, u64 now) {
	t->ready = 0;
	load_settle(t, c);
	share_sleep(t);
	sink_leaves(t);
	if (t->entity >= SCHED_ENTITIES) {
		turn_sleep_plain(c, &t->plain, now);
	} else {
		turn_sleep(c, t->entity, asleep, now);
		timed_rests(t, now);
	}
}

/* The same on a CPU without entities: the policy knows what matters since the thread stopped. */
static __always_inline void rest_plain(struct sched_task *t, struct sched_cpu *c) {
	t->ready = 0;
	load_settle(t, c);
	share_sleep(t);
}

/* The weight of a thread's nice value. One of the policy SCHED_IDLE gets what others leave: it has
 * the least weight, and its control group counts it as none. */
static __always_inline u32 nice_of(const struct task_struct *p, u32 weight) {
	return p->policy == SCHED_IDLE ? 0 : vtime_weight(weight, p->flags & PF_KTHREAD);
}

SEC("struct_ops/set_weight")
void BPF_PROG(sched_weight, struct task_struct *p, u32 weight) {
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c)
		return;
	t->nice = nice_of(p, weight);
	t->plain.weight = share_weight(t);
	/* The kernel has taken the task out of its queue: its group does not count it now. */
	if (t->entity < SCHED_ENTITIES)
		weigh(t, c, true);
	load_settle(t, c);
}

/* A thread that runs has become a real-time thread, and so keeps its CPU; or a thread ends. */
SEC("struct_ops/disable")
void BPF_PROG(sched_disable, struct task_struct *p) {
	u32 cpu = task_cpu(p);
	struct sched_places *places = places_of(cpu);

	if (places)
		places->last = 0;
	if (!(p->flags & PF_EXITING))
		next_yields(cpu, now_ns());
}

SEC("struct_ops/enable")
void BPF_PROG(sched_enable, struct task_struct *p) {
	struct task_struct___scx *scx = (void *)p;
	struct sched_task *t = task_of(p);
	struct sched_cpu *c;
	u32 cpu = task_cpu(p);

	c = cpu_of(cpu);
	if (!t || !c)
		return;
	if (t->cpu != cpu)
		leave(t);
	/* A thread that comes back from another scheduling class keeps its debt. */
	move_to(t, cpu, c, now_ns());
	t->plain.vtime = vtime_later(t->plain.vtime, t->born ? fair_begin(c) : c->vtime);
	t->born = 0;
	t->nice = nice_of(p, BPF_CORE_READ(scx, scx.weight));
	t->plain.weight = share_weight(t);
}

SEC("struct_ops.s/init_task")
s32 BPF_PROG(sched_init_task, struct task_struct *p, struct scx_init_task_args *args) {
	struct sched_task *t;

	t = bpf_task_storage_get(&sched_tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	t->nice = VTIME_WEIGHT;
	share_enters(t, share_number(args->cgroup));
	t->born = args->fork;
	t->plain.group = SCHED_NOBODY;
	t->entity = SCHED_NOBODY;
	/* A thread that is older than this scheduler may have named a slot already. */
	t->bound = !args->fork;
	if (args->fork)
		heir_is_made(t);
	return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(sched_exit_task, struct task_struct *p, struct scx_exit_task_args *args) {
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c)
		return;
	t->ready = 0;
	load_settle(t, c);
	share_sleep(t);
	sink_leaves(t);
	leave(t);
	timed_is(t, 0);
}

#endif
