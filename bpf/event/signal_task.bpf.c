/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Signals that wait for their receiver (signal.h explains why they must).
 *
 * The dispatcher fires the program signal_wait, in its own context, for a chain that cannot send
 * now. The program queues the chain and asks the receiver, by task work, to run before it returns
 * to its program; the kernel wakes it for that. There the waiting chains, of this receiver or of
 * others, move to this CPU's queue and through the dispatcher, which can now send.
 *
 * Each subscription has two works, because one that is just ending does not read the queue again
 * but still refuses to be scheduled; then the second one is used. So a stopped receiver blocks no
 * other: its own signals are sent when the next receiver runs.
 *
 * A receiver that exits between the two steps leaves its signals in the queue; and two works that
 * end at the same moment may both miss a chain that was just queued. So while anything waits, a
 * timer, the watch, goes through the queue: it asks receivers again, and passes the chains of dead
 * ones, and late ones, to the dispatcher, which counts them.
 *
 * It is a separate object, because it needs a function that kernels before 6.18 lack.
 */
#include "raise.h"
#include "signal.h"

#define WORKS 2u	  /* of one subscription */
#define WORK_CHAINS 64u	  /* chains that one work takes; further works take the rest */
#define WATCH_CHAINS 128u /* chains that the watch examines at a time */

/* The loader compares this type, which a function's type names; a mere declaration would differ. */
struct bpf_map {
	u32 id;
} __attribute__((preserve_access_index));

struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

struct signal_work {
	struct bpf_task_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX *WORKS);
	__type(key, u32);
	__type(value, struct signal_work);
} signal_works SEC(".maps");

/* < 7.0 */
extern int bpf_task_work_schedule_signal_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map,
					      int(callback)(struct bpf_map *, void *, void *),
					      void *aux__prog) __ksym __weak;
/* >= 7.0 */
extern int bpf_task_work_schedule_signal(struct task_struct *task, struct bpf_task_work *tw,
					 void *map, int(callback)(struct bpf_map *, void *, void *))
	__ksym __weak;

/* Moves a waiting chain to this CPU's queue and lets the dispatcher run: the first one, or the one
 * at place `at` if it still belongs to subscription `id`. Returns 0 if there is none. Global, like
 * the next such function, so that the verifier checks it once and not in each round of a loop. */
__noinline int pass_one(u32 at, u32 id) {
	struct current *c = current_cpu();
	u32 cpu = bpf_get_smp_processor_id(), level;
	u64 now_ns = bpf_ktime_get_ns();
	bool taken;

	if (!c)
		return 0;
	level = *(volatile u32 *)&c->nesting;
	if (level >= NESTED_EVENTS)
		return 0;
	c->nesting = level + 1;
	barrier();
	if (at)
		taken = !queue_pull(QUEUE_SIGNALS, at, id, &c->nested[level]);
	else
		taken = !queue_take(QUEUE_SIGNALS, now_ns, &c->nested[level]);
	if (taken)
		raise_queued(&c->nested[level], cpu, now_ns);
	barrier();
	c->nesting = level;
	if (taken)
		drain(cpu, 0);
	return taken;
}

/* Runs in a receiver, in process context. A receiver that is exiting cannot send signals any more,
 * so it leaves the waiting chains to others. */
static int pass(struct bpf_map *map, void *key, void *value) {
	const struct task_struct *task = bpf_get_current_task_btf();

	if (task->flags & PF_EXITING)
		return 0;
	for (u32 i = 0; lib_again(i, WORK_CHAINS); i++) {
		bool taken;

		i ^= lib_zero(bpf_ktime_get_ns());
		if (i >= WORK_CHAINS)
			break;
		bpf_preempt_disable();
		taken = pass_one(0, 0);
		bpf_preempt_enable();
		if (!taken)
			break;
	}
	return 0;
}

static __always_inline int ask(struct task_struct *task, u32 at) {
	struct signal_work *w = bpf_map_lookup_elem(&signal_works, &at);

	if (!w)
		return -EINVAL;
	if (bpf_ksym_exists(bpf_task_work_schedule_signal_impl))
		return bpf_task_work_schedule_signal_impl(task, &w->work, &signal_works, pass, 0);
	return bpf_task_work_schedule_signal(task, &w->work, &signal_works, pass);
}

/* Asks a receiver to send its signals. */
static __always_inline void ask_one(struct task_struct *task, u32 index) {
	if (ask(task, index * WORKS) == -EBUSY)
		ask(task, index * WORKS + 1);
}

/* Whether a chain of subscription `id` waits for a receiver that may still run; if so, asks it. */
__noinline int receiver_comes(u32 id) {
	u32 index = ECALLS_ID_INDEX(id);
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct task_struct *task;
	bool comes;

	if (!s || s->id != id || s->state != ECALLS_STATE_ACTIVE)
		return 0;
	task = receiver_of(s);
	if (!task)
		return 0;
	comes = !(task->flags & PF_EXITING);
	if (comes)
		ask_one(task, index);
	bpf_task_release(task);
	return comes;
}

static int watch_expired(void *map, u32 *key, struct signal_watch *w) {
	u64 now_ns = bpf_ktime_get_ns(), deadline_ns = 0;
	u32 at = w->at, id;

	for (u32 i = 0; lib_again(i, WATCH_CHAINS); i++) {
		i ^= lib_zero(now_ns);
		if (i >= WATCH_CHAINS)
			break;
		id = queue_look(QUEUE_SIGNALS, at + 1, &deadline_ns);
		if (!id) {
			at = 0;
			break;
		}
		/* After a chain is taken, another one has its place. */
		if (!is_late(deadline_ns, now_ns) && receiver_comes(id))
			at++;
		else if (!pass_one(at + 1, id))
			break;
	}
	w->at = at;
	__sync_lock_test_and_set(&w->armed, 0);
	/* A chain that is queued after this look arms the watch again, so none is left behind. */
	if (queue_waits(QUEUE_SIGNALS) && !__sync_lock_test_and_set(&w->armed, 1)) {
		if (w->period_ns < WATCH_NS_MAX)
			w->period_ns *= 2;
		if (bpf_timer_start(&w->timer, w->period_ns, 0))
			w->armed = 0;
	}
	return 0;
}

/* Run by the loader. A former instance of this part may have made the timer: then the timer gets
 * the callback of this one. */
SEC("syscall")
int watch_setup(void *ctx) {
	u32 zero = 0;
	struct signal_watch *w = bpf_map_lookup_elem(&signal_watches, &zero);
	int error;

	if (!w)
		return -EINVAL;
	error = bpf_timer_init(&w->timer, &signal_watches, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	return bpf_timer_set_callback(&w->timer, watch_expired);
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(signal_wait, int nonce) {
	struct current *c = current_cpu();
	struct ecalls_subscription *s;
	struct task_struct *task;
	u32 index, id;

	/* Another core's trigger reaches this program too, and finds no signal. */
	if (nonce != TRIGGER_SIGNAL || !c || !c->signal.waiter)
		return 0;
	id = c->signal.waiter;
	c->signal.waiter = 0;
	index = ECALLS_ID_INDEX(id);
	s = bpf_map_lookup_elem(&subscriptions, &index);
	task = s ? receiver_of(s) : 0;
	if (!task) {
		c->signal.result = SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
		return 0;
	}
	int lost = chain_add(QUEUE_SIGNALS, id, c->signal.chain,
			     ECALLS_EVENT_RESUME | ECALLS_EVENT_THREAD);
	c->signal.result = lost ? lost : SIGNAL_PENDING;
	ask_one(task, index);
	bpf_task_release(task);
	if (!c->locked)
		signals_watch();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
