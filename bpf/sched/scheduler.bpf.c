/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler: what the kernel tells (struct sched_ext_ops), handed on to the policy
 * (bpf/lib/sched), and what the policy decides, done.
 *
 * A task's way: runnable (the policy knows it) -> enqueue (it waits in a queue) -> dispatch (the
 * policy chooses the first of some queue) -> running -> stopping -> and again, until quiescent.
 *
 * Fails how: the kernel takes every task back when this program makes a mistake, is detached, or
 * leaves a runnable task waiting for 30 s; and its loader's end detaches it, however that comes.
 */
#include "take.h"
#include "share.h"
#include "sink.h"
#include "traced.h"
#include "wait.h"

#define UNASKED_NS 1000000u /* until a CPU that does not ask is told again */

/* The timer of a CPU comes at the policy's next moment, and makes the CPU ask again. */
struct sched_timer_of {
	struct bpf_timer timer;
	u64 at_ns;   /* when it comes; 0: it does not */
	u64 past_ns; /* the moment for which it came at once last */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sched_timer_of);
} sched_timers SEC(".maps");

/* How it ended, for the loader. */
struct {
	s32 kind;
	s32 pad;
	s64 code;
	char reason[64];
	char message[192];
} ended SEC(".bss.ended");

/* Has a CPU ask again whom to run. Not from a CPU that goes offline: in its last moments it gets no
 * interrupt, but still is asked whom to run and wakes others; and a kick is sent by an interrupt to
 * oneself. One that is lost so stays pending: all later kicks from that CPU would do nothing, and
 * who ends the scheduler would wait for it for ever. */
static __always_inline void kick(s32 cpu, u64 flags) {
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool can = bpf_cpumask_test_cpu(bpf_get_smp_processor_id(), online);

	scx_bpf_put_cpumask(online);
	if (can)
		scx_bpf_kick_cpu(cpu, flags);
}

static int timer_comes(void *map, u32 *cpu, struct sched_timer_of *timer) {
	struct sched_cpu *c = cpu_of(*cpu);
	u64 at;

	timer->at_ns = 0;
	at = c ? sched_timer(c) : 0;
	/* Whoever it was set for has gone, or has run. Who sets it meanwhile sets it for now. */
	if (at > now_ns()) {
		if (at != SCHED_NEVER && !__sync_val_compare_and_swap(&timer->at_ns, 0, at))
			bpf_timer_start(&timer->timer, at, BPF_F_TIMER_ABS);
		return 0;
	}
	kick((s32)*cpu, SCX_NUMBER(scx_kick_flags, SCX_KICK_PREEMPT));
	return 0;
}

/* Sees to it that this CPU asks again when its policy wants to. */
static __always_inline void set_timer(u32 cpu, struct sched_cpu *c, bool is_light, u64 now) {
	struct sched_timer_of *timer = bpf_map_lookup_elem(&sched_timers, &cpu);
	u64 at;

	/* Among plain threads of some weight the kernel's tick is fine enough. */
	if (!timer || !(c->cooperative | c->windowed | is_light))
		return;
	at = sched_timer(c);
	if (at == SCHED_NEVER || (timer->at_ns && timer->at_ns <= at))
		return;
	timer->at_ns = at;
	if (at <= now) {
		/* Told of this moment already, it has not asked: Linux 7.0 asks nothing for a CPU
		 * that goes offline. Told at once again and again, it would do nothing else. */
		at = now + (timer->past_ns == at ? UNASKED_NS : 0);
		timer->past_ns = timer->at_ns;
	}
	bpf_timer_start(&timer->timer, at, BPF_F_TIMER_ABS);
}

/* The task goes by another CPU's virtual time from now on. */
static __always_inline void move_to(struct sched_task *t, u32 cpu, struct sched_cpu *c) {
	struct sched_cpu *former = cpu_of(t->cpu);

	if (t->cpu == cpu)
		return;
	if (former)
		t->plain.vtime = vtime_move(t->plain.vtime, former->vtime, c->vtime);
	t->cpu = cpu;
}

/* An entity's weight is its thread's. A runnable member of a group is counted in the group's, and
 * keeps its own until it sleeps. */
static __always_inline void weigh(const struct sched_task *t, struct sched_cpu *c, bool rests) {
	struct sched_entity *e = sched_entity(c, t->entity);

	if (rests || e->group >= SCHED_ENTITIES)
		e->weight = t->plain.weight;
}

/* A task has the CPU, again or anew. */
static __always_inline void begin(struct task_struct *p, struct sched_task *t, u32 cpu,
				  struct sched_cpu *c, u64 now) {
	bool is_light;

	t->plain.weight = share_weight(t);
	if (t->entity < SCHED_ENTITIES) {
		turn_start(c, t->entity, 0, now);
		weigh(t, c, false);
	} else {
		turn_start(c, who_is(t), c->running == who_is(t) ? &c->plain : &t->plain, now);
		c->plain.weight = t->plain.weight;
	}
	load_settle(t, c);
	is_light =
		t->entity >= SCHED_ENTITIES && fair_is_light(c, t->plain.weight, load_of_cpu(cpu));
	scx_bpf_task_set_slice(p, c->limit_ns > now ? c->limit_ns - now : 1);
	if (t->entity < SCHED_ENTITIES) {
		count_turn(t, now);
		tell(t, c, now);
		window_tell(t, c);
		sink_looks(t);
	}
	set_timer(cpu, c, is_light, now);
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(sched_select, struct task_struct *p, s32 prev_cpu, u64 wake_flags) {
	struct sched_task *t = task_of(p);
	bool idle = false;
	s32 cpu;

	/* A cooperative thread stays where it is (Coop §4.1). */
	if (t && t->entity < SCHED_ENTITIES && !is_heir(t))
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (idle)
		scx_bpf_dsq_insert(p, SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL),
				   setting.options.period_ns, 0);
	return cpu;
}

SEC("struct_ops/runnable")
void BPF_PROG(sched_runnable, struct task_struct *p, u64 enq_flags) {
	u32 cpu = scx_bpf_task_cpu(p);
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = cpu_of(cpu);

	if (!t || !c || t->ready)
		return;
	if (t->cpu != cpu)
		leave(t);
	move_to(t, cpu, c);
	t->ready = 1;
	share_ready(t);
	if (t->entity < SCHED_ENTITIES) {
		t->plain.weight = share_weight(t);
		weigh(t, c, !sched_in(c->runnable, t->entity));
		turn_ready(c, t->entity, now_ns());
		seen_waits(cpu, t->entity, now_ns());
	} else {
		turn_ready_plain(c, &t->plain, now_ns());
	}
	load_settle(t, c);
}

SEC("struct_ops/enqueue")
void BPF_PROG(sched_enqueue, struct task_struct *p, u64 enq_flags) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	u64 slice = setting.options.period_ns;
	u32 cpu = scx_bpf_task_cpu(p);
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = cpu_of(cpu);
	/* Who stops is put back by a choice that was made already. */
	bool preempts = enq_flags & SCX_NUMBER(scx_enq_flags, SCX_ENQ_WAKEUP);
	u64 now = now_ns();

	/* Moved while it waited, by its affinity or because its CPU goes offline: the kernel then
	 * calls neither quiescent nor runnable. */
	if (t && c && t->cpu != cpu) {
		leave(t);
		move_to(t, cpu, c);
		turn_ready_plain(c, &t->plain, now);
		load_settle(t, c);
	}
	if (!t || !c ||
	    (enq_flags & SCX_NUMBER(scx_enq_flags, SCX_ENQ_LAST) && !window_holds(c, t->entity))) {
		scx_bpf_dsq_insert(p, local, slice, enq_flags);
		return;
	}
	t->waits_ns = now;
	if (t->entity < SCHED_ENTITIES) {
		sink_waits(t, cpu, c);
		preempts = preempts && sched_preempts(c, t->entity, now);
		scx_bpf_dsq_insert(p, QUEUE_ENTITY(cpu, t->entity), slice, enq_flags);
		if (sched_in(c->windowed, t->entity))
			set_timer(cpu, c, false, now);
	} else {
		preempts = preempts && sched_preempts_plain(c, t->plain.vtime, now);
		scx_bpf_dsq_insert_vtime(p, QUEUE_PLAIN(cpu), slice, t->plain.vtime, enq_flags);
	}
	if (!preempts)
		return;
	SCHED_COUNT(cpu, preempted);
	kick(cpu, SCX_NUMBER(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* The plain threads that wait for a CPU. */
static __always_inline void look_at_queue(u32 cpu, struct sched_queue *queue) {
	struct task_struct *first = scx_bpf_dsq_peek(QUEUE_PLAIN(cpu));
	struct sched_task *t = first ? task_of(first) : 0;

	queue->count = t ? scx_bpf_dsq_nr_queued(QUEUE_PLAIN(cpu)) : 0;
	queue->vtime = t ? t->plain.vtime : 0;
}

SEC("struct_ops/dispatch")
void BPF_PROG(sched_dispatch, s32 cpu, struct task_struct *prev) {
	struct sched_cpu *c = cpu_of(cpu);
	struct sched_choice choice = {};
	struct sched_queue queue;
	struct sched_task *t;
	u64 now = now_ns();

	if (!c)
		return;
	clear_left(cpu, now);
	sink_events(cpu, c);
	look_at_queue(cpu, &queue);
	sched_choose(c, now, &queue, &choice);
	SCHED_COUNT(cpu, chosen[choice.why & (ECALLS_WHYS - 1)]);
	trace_choice(cpu, choice.who, choice.why);
	if (choice.why == SCHED_WHY_FAIR && wait_ends(cpu, now))
		return;
	if (choice.why == SCHED_WHY_FAIR && balance(cpu, now)) {
		SCHED_COUNT(cpu, balanced);
		return;
	}
	if (choice.keep && prev) {
		t = task_of(prev);
		if (!t)
			return;
		SCHED_COUNT(cpu, kept);
		begin(prev, t, cpu, c, now);
		return;
	}
	if (choice.who < SCHED_ENTITIES && scx_bpf_dsq_move_to_local(QUEUE_ENTITY(cpu, choice.who)))
		return;
	if (scx_bpf_dsq_move_to_local(QUEUE_PLAIN(cpu)))
		return;
	if (choice.who != SCHED_NOBODY) {
		/* Another CPU has taken it since it was chosen: there may be others. */
		turn_sleep(c, choice.who, 0, now);
		kick(cpu, 0);
		return;
	}
	/* Who waits for its next period runs when that begins. */
	set_timer(cpu, c, false, now);
	steal(cpu, now);
}

SEC("struct_ops/running")
void BPF_PROG(sched_running, struct task_struct *p) {
	/* Not this CPU: another one may change a running task's kind or weight. */
	u32 cpu = scx_bpf_task_cpu(p);
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = cpu_of(cpu);
	u64 now = now_ns();

	if (!t || !c)
		return;
	/* It was taken from there, or has lost the right to its group. */
	if (t->cpu != cpu || heir_is_another(p, t))
		leave(t);
	move_to(t, cpu, c);
	begin(p, t, cpu, c, now);
	seen_runs(cpu, t->entity, now);
	watch_begins(p, cpu, t->entity);
	if (!t->bound || t->entity < SCHED_ENTITIES)
		return;
	look_for_binding(p, t, cpu, now);
	if (t->entity < SCHED_ENTITIES)
		begin(p, t, cpu, c, now);
}

/* A thread ends: what it has had beyond its share is owed by those who begin. From its last moments
 * on, for who waits for its end may begin another one before it has stopped for good. */
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

SEC("struct_ops/stopping")
void BPF_PROG(sched_stopping, struct task_struct *p, bool runnable) {
	u32 cpu = scx_bpf_task_cpu(p);
	struct sched_cpu *c = cpu_of(cpu);
	struct sched_task *t = task_of(p);
	u64 now = now_ns();

	if (!t || !c)
		return;
	watch_ends(cpu, now);
	if (t->entity >= SCHED_ENTITIES) {
		turn_stop(c, runnable, now);
		t->plain.vtime = c->plain.vtime;
		bequeath(p, t, c);
		return;
	}
	/* A poll that sleeps comes without a yield. */
	if (!runnable)
		take_poll(t, c, now);
	sink_looks(t);
	turn_stop(c, runnable, now);
	bequeath(p, t, c);
	seen_stops(cpu, t->entity, runnable, now);
}

SEC("struct_ops/yield")
bool BPF_PROG(sched_yield, struct task_struct *from, struct task_struct *to) {
	u32 cpu = bpf_get_smp_processor_id();
	struct sched_task *t = task_of(from);
	struct sched_cpu *c = cpu_of(cpu);
	struct sched_queue queue;
	u64 now = now_ns();

	if (!t || !c)
		return false;
	look_for_binding(from, t, cpu, now);
	if (t->entity < SCHED_ENTITIES) {
		take_poll(t, c, now);
	} else {
		/* The next of its kind goes first. */
		look_at_queue(cpu, &queue);
		if (queue.count)
			c->plain.vtime = vtime_later(c->plain.vtime, queue.vtime + 1);
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

SEC("struct_ops/quiescent")
void BPF_PROG(sched_quiescent, struct task_struct *p, u64 deq_flags) {
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c || !t->ready)
		return;
	t->ready = 0;
	load_settle(t, c);
	share_sleep(t);
	sink_leaves(t);
	if (t->entity >= SCHED_ENTITIES) {
		turn_sleep_plain(c, &t->plain, now_ns());
		return;
	}
	turn_sleep(c, t->entity, deq_flags & SCX_NUMBER(scx_deq_flags, SCX_DEQ_SLEEP), now_ns());
}

SEC("struct_ops/set_weight")
void BPF_PROG(sched_weight, struct task_struct *p, u32 weight) {
	struct sched_task *t = task_of(p);
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c)
		return;
	t->nice = weight;
	t->plain.weight = share_weight(t);
	/* The kernel takes a task out of its queue first: its group does not count it now. */
	if (t->entity < SCHED_ENTITIES)
		weigh(t, c, true);
	load_settle(t, c);
}

SEC("struct_ops/enable")
void BPF_PROG(sched_enable, struct task_struct *p) {
	struct task_struct___scx *scx = (void *)p;
	struct sched_task *t = task_of(p);
	struct sched_cpu *c;
	u32 cpu = scx_bpf_task_cpu(p);

	c = cpu_of(cpu);
	if (!t || !c)
		return;
	if (t->cpu != cpu)
		leave(t);
	/* A thread that was in another class for a while owes what it owed. */
	move_to(t, cpu, c);
	t->plain.vtime = vtime_later(t->plain.vtime, t->born ? fair_begin(c) : c->vtime);
	t->born = 0;
	t->nice = BPF_CORE_READ(scx, scx.weight);
	t->plain.weight = share_weight(t);
}

SEC("struct_ops.s/init_task")
s32 BPF_PROG(sched_init_task, struct task_struct *p, struct scx_init_task_args *args) {
	struct sched_task *t;

	t = bpf_task_storage_get(&sched_tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	t->nice = VTIME_WEIGHT;
	t->share = share_number(args->cgroup);
	t->born = args->fork;
	t->plain.group = SCHED_NOBODY;
	t->entity = SCHED_NOBODY;
	/* It may have named a slot to a scheduler before this one. */
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
}

SEC("struct_ops/cpu_online")
void BPF_PROG(sched_online, s32 cpu) {
}

/* Whether threads that wait for a CPU that goes offline get away from it. On 7.3 they do. On Linux
 * 7.0 they did in most runs, but in one the thread that takes it offline was not run for 42 s. What
 * is between was not tried: 7.3 has a flag that 7.0 has not. */
static __always_inline bool offline_works(void) {
	return bpf_core_enum_value_exists(enum scx_enq_flags, SCX_ENQ_IMMED);
}

static char offline_message[] = "a CPU goes offline, and this kernel cannot take it from us";

/* A CPU goes offline: it is not asked any more whom to run, and the kernel waits until all of its
 * threads have run, to be moved then. So they are given to it at once. Or the scheduler ends, and
 * asks its holder to start it again. */
SEC("struct_ops/cpu_offline")
void BPF_PROG(sched_offline, s32 cpu) {
	u64 local = SCX_NUMBER(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | (u32)cpu;
	struct bpf_iter_scx_dsq it;
	unsigned long long none = 0;
	struct task_struct *p;

	if (!offline_works() && bpf_ksym_exists(scx_bpf_exit_bstr)) {
		scx_bpf_exit_bstr(SCX_NUMBER(scx_exit_code, SCX_ECODE_ACT_RESTART), offline_message,
				  &none, sizeof(none));
		return;
	}
	for (u32 i = 0; lib_again(i, SCHED_ENTITIES + 1); i++) {
		if (i > SCHED_ENTITIES)
			break;
		u64 queue = i < SCHED_ENTITIES ? QUEUE_ENTITY((u32)cpu, i) : QUEUE_PLAIN((u32)cpu);
		if (!bpf_iter_scx_dsq_new(&it, queue, 0))
			while ((p = bpf_iter_scx_dsq_next(&it)))
				scx_bpf_dsq_move(&it, p, local, 0);
		bpf_iter_scx_dsq_destroy(&it);
	}
	kick(cpu, SCX_NUMBER(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* Makes the queues and the timer of one CPU. */
static __always_inline s32 set_up(u32 cpu) {
	struct sched_timer_of *timer = bpf_map_lookup_elem(&sched_timers, &cpu);
	struct sched_cpu *c = cpu_of(cpu);
	struct sched_options options = setting.options;
	s32 error;

	if (!timer || !c)
		return -ENOENT;
	sched_init(c, &options);
	error = scx_bpf_create_dsq(QUEUE_PLAIN(cpu), -1);
	for (u32 i = 0; lib_again(i, SCHED_ENTITIES); i++) {
		if (i >= SCHED_ENTITIES || error)
			break;
		error = scx_bpf_create_dsq(QUEUE_ENTITY(cpu, i), -1);
	}
	if (error)
		return error;
	bpf_timer_init(&timer->timer, &sched_timers, CLOCK_MONOTONIC);
	return bpf_timer_set_callback(&timer->timer, timer_comes);
}

SEC("struct_ops.s/init")
s32 BPF_PROG(sched_init_all) {
	s32 error = 0;

	for (u32 cpu = 0; lib_again(cpu, CPUS_MAX); cpu++) {
		if (cpu >= setting.cpus || error)
			break;
		error = set_up(cpu);
	}
	return error;
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
	.runnable = (void *)sched_runnable,
	.running = (void *)sched_running,
	.stopping = (void *)sched_stopping,
	.quiescent = (void *)sched_quiescent,
	.set_weight = (void *)sched_weight,
	.yield = (void *)sched_yield,
	.enable = (void *)sched_enable,
	.init_task = (void *)sched_init_task,
	.exit_task = (void *)sched_exit_task,
	.cgroup_init = (void *)share_init,
	.cgroup_exit = (void *)share_exit,
	.cgroup_move = (void *)share_moves,
	.cgroup_set_weight = (void *)share_weighs,
	.cgroup_set_idle = (void *)share_idles,
	.cpu_online = (void *)sched_online,
	.cpu_offline = (void *)sched_offline,
	.init = (void *)sched_init_all,
	.exit = (void *)sched_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.name = "ecalls",
};

char LICENSE[] SEC("license") = "GPL";
