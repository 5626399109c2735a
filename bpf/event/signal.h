/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The real-time signal action (ECalls-05 §3.1.1): queues a real-time signal with a 64-bit value
 * to the receiver.
 *
 * The kernel's bpf_send_signal_task() has three peculiarities:
 *   - With preemption off, as in the dispatcher, it sends through a per-CPU interrupt work that
 *     holds one signal at a time, and reports nothing but that this work is busy. The program in
 *     signal.bpf.c sees the kernel's own verdict. With interrupts on, the work has run before the
 *     call returns, and the verdict is this action's result. With interrupts off it runs later,
 *     and a lost signal is taken back out of `delivered`; unless another action of the same chain
 *     delivered, which makes the event delivered all the same.
 *   - It refuses (EPERM) while the interrupted thread has no user memory: in kernel threads, in
 *     interrupts of an idle CPU, and in a process that exits. And it refuses the first process.
 *   - Being busy or refusing is no fault of the event.
 * So a signal that cannot be sent now waits in the queue QUEUE_SIGNALS, and the receiver is asked
 * to run signal_task.bpf.c's work before it returns to its program, where it can be sent. Until
 * then, later signals of the same subscription wait behind it, so that their order is kept. A
 * timer, the watch, handles those whose receiver does not come, for example because it has exited.
 * On a kernel that cannot ask (before 6.18) such a signal is dropped as THREAD_FULL.
 */
#ifndef ECALLS_SIGNAL_H
#define ECALLS_SIGNAL_H

#include "identity.h"
#include "thread.h"

#define TRIGGER_SIGNAL 0x45430004 /* for signal_task.bpf.c: queue the signal in current.signal */

#define SIGNAL_SENT 0
#define SIGNAL_PENDING 1 /* it waits for its receiver */

#define INIT_PID 1 /* never receives a signal from here */

/* The tracepoint signal_generate's result for a signal. */
#define SIGNAL_VERDICT_NONE (-1) /* not sent yet */
#define SIGNAL_VERDICT_SENT 0
#define SIGNAL_VERDICT_IGNORED 1
#define SIGNAL_VERDICT_LIMIT 3

#define WATCH_NS 1000000ull	 /* time to the first look at signals that wait */
#define WATCH_NS_MAX 64000000ull /* each look in vain doubles the time to the next, up to this */

struct signal_watch {
	struct bpf_timer timer;
	u64 period_ns; /* to its next look */
	u32 armed;     /* 1: it is armed */
	u32 at;	       /* place in the queue where it continues */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct signal_watch);
} signal_watches SEC(".maps");

/* Arms the watch. Not under a scheduler lock, where no timer may be started; there the pump does it
 * (thread.h). */
static __always_inline void signals_watch(void) {
	u32 zero = 0;
	struct signal_watch *w = bpf_map_lookup_elem(&signal_watches, &zero);

	if (!w || __sync_lock_test_and_set(&w->armed, 1))
		return;
	w->period_ns = WATCH_NS;
	if (bpf_timer_start(&w->timer, WATCH_NS, 0))
		w->armed = 0;
}

#define SIGNAL_DROPPED(reason) (-(int)(reason) - 1)

static __always_inline u64 signal_value(const struct ecalls_action *a,
					const struct ecalls_event *e) {
	return a->flags & ECALLS_ACTION_FIXED_VALUE ? a->argument[0] : e->data[0];
}

/* The receiver, if it is still the same process. The caller must release it. */
static __always_inline struct task_struct *receiver_of(const struct ecalls_subscription *s) {
	struct task_struct *task = bpf_task_from_pid(s->receiver);

	if (!task)
		return 0;
	if (s->receiver_start && task->start_boottime != s->receiver_start) {
		bpf_task_release(task);
		return 0;
	}
	return task;
}

/* Lets the program signal_wait, if it is loaded, queue the current event's chain. */
static __always_inline int signal_later(struct current *c, u32 subscription_id, u32 chain,
					u64 *waiting) {
	c->signal.waiter = subscription_id;
	c->signal.chain = chain & ~CHAIN_IN_THREAD;
	c->signal.result = SIGNAL_DROPPED(ECALLS_DROP_THREAD_FULL);
	__sync_fetch_and_add(waiting, 1);
	bpf_modify_return_test_tp(TRIGGER_SIGNAL);
	if (c->signal.result != SIGNAL_PENDING)
		__sync_fetch_and_sub(waiting, 1);
	return c->signal.result;
}

/* The result of a signal action for a verdict. */
static __always_inline int signal_result(s32 verdict) {
	switch (verdict) {
	case SIGNAL_VERDICT_IGNORED:
		return SIGNAL_DROPPED(ECALLS_DROP_SIGNAL_IGNORED);
	case SIGNAL_VERDICT_LIMIT:
		return SIGNAL_DROPPED(ECALLS_DROP_SIGNAL_LIMIT);
	default:
		return SIGNAL_SENT;
	}
}

/* Passes a signal to the interrupt work, and records its owner for signal.bpf.c; the work may still
 * hold another signal, whose record then stays. Returns 0, -EBUSY, or the error. */
static __always_inline int signal_hand_over(struct current *c, const struct ecalls_action *a,
					    struct task_struct *task, u32 index) {
	struct signal_note before = c->signal;
	int error;

	if (!bpf_ksym_exists(bpf_send_signal_task))
		return -ENOSYS;
	c->signal.subscription = index + 1;
	c->signal.number = a->signal;
	c->signal.verdict = SIGNAL_VERDICT_NONE;
	c->signal.shared = 0;
	c->signal.sending = 1;
	barrier();
	error = bpf_send_signal_task(task, a->signal, PIDTYPE_TGID, signal_value(a, &c->event));
	barrier();
	c->signal.sending = 0;
	if (error)
		c->signal = before;
	return error;
}

/* Sends the signal of the action in `chain` of subscription `index` for the current event. */
__noinline int signal_send(u32 index, u32 chain) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct current *c = current_cpu();
	const struct ecalls_action *a;
	struct task_struct *task;
	bool waited;
	u64 *waiting = signals_waiting(index, chain & CHAIN_ACTION);
	int error;

	if (!c || !s || !waiting)
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	a = action_of(s, chain & CHAIN_ACTION);
	waited = chain & CHAIN_IN_THREAD;
	if (*(volatile u64 *)waiting && !waited)
		return signal_later(c, s->id, chain, waiting);
	task = receiver_of(s);
	if (!task)
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	/* The processes that its owner may signal can have changed since it subscribed. */
	if (task->flags & (PF_EXITING | PF_KTHREAD) || task->tgid == INIT_PID ||
	    !may_signal(task, s->owner_uid))
		error = -ESRCH;
	else
		error = signal_hand_over(c, a, task, index);
	bpf_task_release(task);
	if (error == -EBUSY || error == -EPERM)
		return signal_later(c, s->id, chain, waiting);
	if (error)
		return SIGNAL_DROPPED(error == -EAGAIN ? ECALLS_DROP_SIGNAL_LIMIT
						       : ECALLS_DROP_TARGET_GONE);
	return signal_result(*(volatile s32 *)&c->signal.verdict);
}

#endif
