/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler: it passes what the kernel reports by the operations of struct sched_ext_ops to the
 * policy (bpf/lib/sched), and carries out the policy's decisions.
 *
 * The states of a task: enqueue (the policy knows it, and it waits in a dispatch queue) -> dispatch
 * (the policy chooses the first task of some queue) -> running -> stopping -> and again, until
 * quiescent. These operations are in this file; those for the begin and end of a task are in
 * task.h, those of a CPU in cpu.h, and those of control groups in share.h. A thread that waits for
 * the quota of its control group is in none of these states (quota.h). The table of all operations
 * is at the end.
 *
 * Failures: the kernel schedules all tasks itself again when this program makes a mistake, is
 * detached, or leaves a runnable task waiting for longer than its watchdog allows; the end of its
 * loader detaches it in any case.
 */
#include "begin.h"
#include "cpu.h"
#include "take.h"
#include "task.h"
#include "traced.h"
#include "usual.h"
#include "wait.h"

/* The reason for which the scheduler ended, for the loader. */
struct {
	s32 kind;
	s32 pad;
	s64 code;
	char reason[64];
	char message[192];
} ended SEC(".bss.ended");

SEC("struct_ops/select_cpu")
s32 BPF_PROG(sched_select, struct task_struct *p, s32 prev_cpu, u64 wake_flags) {
	struct sched_task *t = task_of(p);
	bool idle = false;
	s32 cpu;

	/* A cooperative thread stays on its CPU (Coop §4.1). */
	if (t && heir_stays(t))
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	/* A thread under a quota may have to wait for it (enqueue). */
	if (idle && !(t && t->limited))
		scx_bpf_dsq_insert(p, SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL),
				   setting.options.period_ns, 0);
	return cpu;
}

/* A task becomes runnable. There is an operation of the kernel for this, which is not used: enqueue
 * follows it, or running, where the task goes to an idle CPU at once. */
static __always_inline void begins_to_wait(struct sched_task *t, u32 cpu, struct sched_cpu *c,
					   u64 now) {
	if (t->cpu != cpu)
		leave(t);
	move_to(t, cpu, c, now);
	t->comes = COMES_NOW;
	arise(t, c, now);
}

/* A task was moved while it waited, because of its affinity or because its CPU goes offline: the
 * kernel then does not call quiescent. */
static __always_inline void goes_on_waiting(struct sched_task *t, u32 cpu, struct sched_cpu *c,
					    u64 now) {
	leave(t);
	move_to(t, cpu, c, now);
	turn_ready_plain(c, &t->plain, now);
	load_settle(t, c);
}

/* Whether a thread that enters its queue preempts another one if the policy says so. One that stops
 * is inserted because of a choice that was made already. A plain thread that is new, or comes from
 * another CPU, is treated like one that wakes. */
static __always_inline bool may_preempt(struct task_struct *p, const struct sched_task *t,
					const struct sched_cpu *c, u64 enq_flags) {
	bool is_plain = t->entity >= SCHED_ENTITIES || fair_is_ordinary(c, t->entity);

	if (!(enq_flags & SCX_NUMBER(scx_enq_flags, SCX_ENQ_WAKEUP)) &&
	    !(t->comes == COMES_NOW && is_plain))
		return false;
	/* Threads of the policies BATCH and IDLE preempt none but those of next to no weight. */
	if (p->policy != SCHED_BATCH && p->policy != SCHED_IDLE)
		return true;
	return !is_plain || c->running == SCHED_NOBODY || fair_is_feather(c, t->plain.weight);
}

/* The only thread of a CPU goes on. The CPU has looked for one already, and would be idle. */
static __always_inline void goes_on_alone(struct task_struct *p, u32 cpu, u64 slice,
					  u64 enq_flags) {
	scx_bpf_dsq_insert(p, SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice, enq_flags);
	kick((s32)cpu, 0);
}

SEC("struct_ops/enqueue")
void BPF_PROG(sched_enqueue, struct task_struct *p, u64 enq_flags) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	u32 cpu = task_cpu(p);
	struct sched_here *here = here_of(cpu);
	struct sched_cpu *c;
	struct sched_task *t;
	bool preempts, waits;
	u64 slice, since, now;

	if (here && usual_waits(p, cpu, here, enq_flags))
		return;
	t = task_of(p);
	if (!t || !here) {
		scx_bpf_dsq_insert(p, local, setting.options.period_ns, enq_flags);
		return;
	}
	c = &here->cpu;
	next_leaves(t);
	now = now_ns();
	if (!t->ready && !t->parked)
		begins_to_wait(t, cpu, c, now);
	else if (t->cpu != cpu)
		goes_on_waiting(t, cpu, c, now);
	if (t->limited && quota_parks(p, t, cpu, c, now))
		return;
	slice = fair_turn(c);
	if (enq_flags & SCX_NUMBER(scx_enq_flags, SCX_ENQ_LAST) && !window_holds(c, t->entity)) {
		goes_on_alone(p, cpu, slice, enq_flags);
		return;
	}
	since = t->since_ns;
	t->since_ns = now;
	preempts = may_preempt(p, t, c, enq_flags);
	if (t->comes)
		t->comes = COMES_WAITS;
	if (t->entity < SCHED_ENTITIES) {
		sink_waits(t, cpu, c);
		preempts = preempts && sched_preempts(c, t->entity, since, now);
		scx_bpf_dsq_insert(p, QUEUE_ENTITY(cpu, t->entity), slice, enq_flags);
		if (sched_in(c->windowed | (preempts ? 0 : c->timed), t->entity))
			set_timer(cpu, c, now);
	} else {
		waits = preempts;
		preempts = preempts &&
			   sched_preempts_plain(c, t->plain.vtime, t->plain.weight, since, now);
		if (waits && !preempts)
			set_timer(cpu, c, now);
		if (waits && next_takes(p, t, cpu, c, slice, enq_flags, now, preempts))
			return;
		/* Where no entity could go first, there is nothing left to choose. */
		if (preempts && c->running == SCHED_PLAIN && sched_is_plain(c)) {
			SCHED_COUNT(cpu, preempted);
			enq_flags |= SCX_NUMBER(scx_enq_flags, SCX_ENQ_PREEMPT);
			here->places.ended = 1;
			scx_bpf_dsq_insert(p, local, slice, enq_flags);
			return;
		}
		idle_shows(p);
		scx_bpf_dsq_insert_vtime(p, QUEUE_PLAIN(cpu), slice, t->plain.vtime, enq_flags);
	}
	if (!preempts)
		return;
	SCHED_COUNT(cpu, preempted);
	kick_off((s32)cpu, &here->places);
}

/* The thread that stops or goes on is an entity, and may have polled. */
static __always_inline void polls(struct task_struct *prev, struct sched_cpu *c, u64 now) {
	struct sched_task *t = task_of(prev);

	if (t && t->entity < SCHED_ENTITIES && c->running == t->entity)
		take_poll(t, c, now);
}

SEC("struct_ops/dispatch")
void BPF_PROG(sched_dispatch, s32 cpu, struct task_struct *prev) {
	struct sched_here *here = here_of((u32)cpu);
	struct sched_choice choice;
	struct sched_queue queue;
	struct sched_task *t;
	struct sched_cpu *c;
	u64 now = now_ns();

	if (!here)
		return;
	c = &here->cpu;
	if (prev && usual_goes_on(prev, here, now))
		return;
	if (prev && !sched_is_plain(c))
		polls(prev, c, now);
	if (c->quotas) {
		if (prev)
			quota_decides(prev, c, now);
		quota_resumes(cpu, c, now);
	}
	look_at_queue(cpu, &queue);
	if (sched_is_plain(c)) {
		sched_choose_plain(c, now, &queue, &choice);
	} else {
		clear_left(cpu, now);
		sink_events(cpu, c);
		fair_note(c, &queue);
		sched_choose_any(c, now);
		choice = c->choice;
		trace_choice(cpu, choice.who, choice.why);
	}
	SCHED_COUNT(cpu, chosen[choice.why & (ECALLS_WHYS - 1)]);
	if (choice.why == SCHED_WHY_FAIR && wait_ends(cpu, now))
		return;
	if (choice.why == SCHED_WHY_FAIR && !fair_is_owed(c) && balance(cpu, now)) {
		SCHED_COUNT(cpu, balanced);
		return;
	}
	if (choice.keep && prev) {
		t = task_of(prev);
		/* A thread that has named something stops, and is looked at when it runs again. */
		if (!t || binding_is_new(t))
			return;
		SCHED_COUNT(cpu, kept);
		here->places.ended = 0;
		begin(prev, t, cpu, c, now);
		return;
	}
	if (choice.who < SCHED_ENTITIES && scx_bpf_dsq_move_to_local(QUEUE_ENTITY(cpu, choice.who)))
		return;
	if (scx_bpf_dsq_move_to_local(QUEUE_PLAIN(cpu)))
		return;
	if (choice.who != SCHED_NOBODY) {
		/* Another CPU has taken the thread since it was chosen; other threads may wait. */
		turn_sleep(c, choice.who, 0, now);
		kick(cpu, 0);
		return;
	}
	/* A thread that waits for its next period runs when that period begins. */
	if (is_fine(c))
		set_timer(cpu, c, now);
	steal(cpu, now);
}

SEC("struct_ops/running")
void BPF_PROG(sched_running, struct task_struct *p) {
	/* The CPU is that of the task: another CPU may change a running task's kind or weight. */
	u32 cpu = task_cpu(p);
	struct sched_here *here = here_of(cpu);
	struct sched_task *t = task_of(p);
	struct sched_cpu *c;
	bool moved;
	u64 now;

	if (!t || !here)
		return;
	c = &here->cpu;
	here->places.stopped = here->places.ended = 0;
	idle_ends(cpu, &here->places);
	/* It came at once from select_cpu, or the kernel did not ask us where it goes. */
	if (!t->ready && !t->parked)
		begins_to_wait(t, cpu, c, now_ns());
	if (is_usual(t, cpu, c) && !binding_is_new(t)) {
		usual_runs(p, t, cpu, here);
		return;
	}
	next_leaves(t);
	here->places.bindings = SCHED_NEVER;
	now = now_ns();
	/* Another CPU has taken the task, or the task has lost the right to its group. */
	moved = t->cpu != cpu;
	if (moved || heir_is_another(p, t))
		leave(t);
	move_to(t, cpu, c, now);
	/* Its CPU goes offline, and lets all threads run. */
	if (t->parked)
		quota_unpark(t, c, now);
	/* The task is treated as if it had waited here for no time. */
	if (moved)
		turn_ready_plain(c, &t->plain, now);
	begin(p, t, cpu, c, now);
	if (t->comes)
		fair_woke(c);
	t->comes = COMES_BACK;
	if (!sched_is_plain(c)) {
		seen_runs(cpu, t->entity, now);
		watch_begins(p, cpu, t->entity);
	}
	if (!binding_is_new(t))
		return;
	binding_is_known(t);
	look_for_binding(p, t, cpu, now);
	if (t->entity >= SCHED_ENTITIES)
		return;
	take_poll(t, c, now);
	begin(p, t, cpu, c, now);
}

SEC("struct_ops/stopping")
void BPF_PROG(sched_stopping, struct task_struct *p, bool runnable) {
	u32 cpu = task_cpu(p);
	struct sched_here *here = here_of(cpu);
	struct sched_task *t = task_of(p);
	struct sched_cpu *c;
	u64 now = now_ns();

	if (!t || !here)
		return;
	c = &here->cpu;
	if (is_usual(t, cpu, c)) {
		usual_stops(p, t, cpu, here, runnable, now);
		return;
	}
	if (!sched_is_plain(c))
		watch_ends(cpu, now);
	if (t->limited)
		quota_ends(t, c, now);
	if (t->parked)
		return;
	t->since_ns = now;
	if (t->entity >= SCHED_ENTITIES) {
		if (runnable && has_yielded(p, &here->places, c, now))
			turn_yield(c);
		turn_stop(c, runnable, now);
		t->plain.vtime = c->plain.vtime;
		t->plain.brief = c->plain.brief;
		t->plain.slept = c->plain.slept;
		bequeath(p, t, c);
		let_go(p, cpu, runnable, now);
		return;
	}
	/* A thread that sleeps in its poll does not yield; and where a thread waits in the local
	 * queue, the kernel does not ask who is next. */
	if (!runnable || !has_slice(p))
		take_poll(t, c, now);
	sink_looks(t);
	if (runnable && has_yielded(p, &here->places, c, now))
		turn_yield(c);
	turn_stop(c, runnable, now);
	bequeath(p, t, c);
	seen_stops(cpu, t->entity, runnable, now);
}

SEC("struct_ops/quiescent")
void BPF_PROG(sched_quiescent, struct task_struct *p, u64 deq_flags) {
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c)
		return;
	next_leaves(t);
	if (t->ready && sched_is_plain(c))
		rest_plain(t, c);
	else if (t->ready)
		rest(t, c, deq_flags & SCX_NUMBER(scx_deq_flags, SCX_DEQ_SLEEP), now_ns());
	else
		t->parked = 0;
}

SEC("struct_ops/exit")
void BPF_PROG(sched_exit, struct scx_exit_info *info) {
	ended.kind = info->kind;
	ended.code = info->exit_code;
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.message, sizeof(ended.message), info->msg);
}

SEC(".struct_ops.link")
struct sched_ext_ops ecalls_sched = {
	.select_cpu = (void *)sched_select,
	.enqueue = (void *)sched_enqueue,
	.dispatch = (void *)sched_dispatch,
	.running = (void *)sched_running,
	.stopping = (void *)sched_stopping,
	.quiescent = (void *)sched_quiescent,
	.set_weight = (void *)sched_weight,
	.enable = (void *)sched_enable,
	.disable = (void *)sched_disable,
	.init_task = (void *)sched_init_task,
	.exit_task = (void *)sched_exit_task,
	.cgroup_init = (void *)share_init,
	.cgroup_exit = (void *)share_exit,
	.cgroup_move = (void *)share_moves,
	.cgroup_set_weight = (void *)share_weighs,
	.cgroup_set_idle = (void *)share_idles,
	.cgroup_set_bandwidth = (void *)share_limits,
	.cpu_online = (void *)sched_online,
	.cpu_offline = (void *)sched_offline,
	.init = (void *)sched_init_all,
	.exit = (void *)sched_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.name = "ecalls",
};

char LICENSE[] SEC("license") = "GPL";
