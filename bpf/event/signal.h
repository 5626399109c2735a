/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The real-time signal action (ECalls-05 §3.1.1): queues a real-time signal with a 64-bit value to the
 * receiver.
 *
 * In the dispatcher preemption is off, so the kernel sends through a per-CPU interrupt work that holds
 * one signal at a time and does not report what becomes of it. Hence two things: when that work is
 * busy, the signal goes through a kernel thread, where it is sent at once, and until that thread has
 * sent it, later signals of the same subscription follow it there, so that they stay in order; and
 * the program in signal.bpf.c sees the kernel's own verdict and takes a lost signal back out of
 * `delivered`.
 */
#ifndef ECALLS_SIGNAL_H
#define ECALLS_SIGNAL_H

#include "thread.h"

#define SIGNAL_SENT 0
#define SIGNAL_PENDING 1 /* a kernel thread sends it */
#define SIGNAL_DROPPED(reason) (-(int)(reason)-1)

static __always_inline u64 signal_value(const struct ecalls_action *a, const struct ecalls_event *e) {
	return a->flags & ECALLS_ACTION_FIXED_VALUE ? a->argument[0] : e->data[0];
}

/* The receiver, if it is still the process that was meant. To be released. */
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

/* How many of a subscription's signals wait for a thread: the first word of the action's state. */
static __always_inline u64 *signals_waiting(u32 index, u32 action) {
	u32 at = index * ECALLS_ACTIONS_MAX + (action & (ECALLS_ACTIONS_MAX - 1));
	struct handler_state *state = bpf_map_lookup_elem(&handler_states, &at);

	return state ? &state->word[0] : 0;
}

static __always_inline int signal_by_thread(u32 subscription_id, u32 action, u64 *waiting) {
	__sync_fetch_and_add(waiting, 1);
	if (!thread_add(subscription_id, action))
		return SIGNAL_PENDING;
	__sync_fetch_and_sub(waiting, 1);
	return SIGNAL_DROPPED(ECALLS_DROP_THREAD_FULL);
}

/* Sends the signal of action `action` of subscription `index` for the current event. */
__noinline int signal_send(u32 index, u32 action) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct current *c = current_cpu();
	const struct ecalls_action *a;
	struct task_struct *task;
	u64 *waiting = signals_waiting(index, action);
	int error;

	if (!c || !s || !waiting)
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	a = action_of(s, action);
	if (*(volatile u64 *)waiting)
		return signal_by_thread(s->id, action, waiting);
	task = receiver_of(s);
	if (!task)
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	c->signal_number = a->signal;
	c->signal_subscription = index + 1;
	error = bpf_send_signal_task(task, a->signal, PIDTYPE_TGID, signal_value(a, &c->event));
	bpf_task_release(task);
	if (!error)
		return SIGNAL_SENT;
	if (error == -EBUSY)
		return signal_by_thread(s->id, action, waiting);
	c->signal_subscription = 0;
	return SIGNAL_DROPPED(error == -EAGAIN ? ECALLS_DROP_SIGNAL_LIMIT : ECALLS_DROP_TARGET_GONE);
}

#endif
