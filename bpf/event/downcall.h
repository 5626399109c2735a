/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Downcalls (ECalls-01 §2.3.1): one call of an application, the same for every mechanism.
 *
 * Mechanisms: prctl (downcall_prctl.bpf.c, downcall_security.bpf.c), setsockopt
 * (downcall_setsockopt.bpf.c) and a system call program (downcall_run.bpf.c). Each finds the
 * channel by down_open(), which also checks that it belongs to the caller, calls downcall(), and
 * returns the result as it can.
 *
 * Below are, in this order: down.h (the segment), operation.h (the operations), deferred.h (calls
 * that waited in the segment), generic.h (the generic call). A call first handles the deferred
 * calls before it.
 *
 * Every caller runs with preemption off.
 */
#ifndef ECALLS_EVENT_DOWNCALL_H
#define ECALLS_EVENT_DOWNCALL_H

#include "coop.h"
#include "generic.h"

/* The calls that must be fast, if no call is deferred. They may be preempted. Returns true if
 * done. */
static __always_inline bool downcall_small(struct down *d, u32 op, u64 a, u64 b, s64 *result) {
	struct down_counts *counts = down_counts_of(d);

	if (!counts || down_waits(d, *(volatile u64 *)&counts->front))
		return false;
	if (op == ECALLS_OP_NOP)
		*result = 0;
	else if (op == ECALLS_OP_GETPID)
		*result = d->channel->owner;
	else if (op == ECALLS_OP_SET)
		*result = attribute_set(d->index, a, b);
	else if (op == ECALLS_OP_GET)
		*result = attribute_get(d->index, a);
	else
		return false;
	return true;
}

/* ECALLS_OP_HAND: the calling thread's binding becomes that of a child. A sink's binding cannot,
 * because it reads this process's memory. Not inline, so that its stack is not added to its
 * caller's. */
static __noinline s64 coop_hand(u32 id, u64 child) {
	struct task_struct *task = bpf_get_current_task_btf(), *p;
	struct coop_thread *own = bpf_task_storage_get(&coop_threads, task, 0, 0), *its;
	s64 error = -ECHILD;

	if (!own || own->own.channel != id)
		return -ENOENT;
	if (own->own.sink)
		return -EINVAL;
	if (!bpf_ksym_exists(bpf_task_from_vpid))
		return -ENOSYS;
	p = (s32)child > 0 && (s32)child == child ? bpf_task_from_vpid(child) : 0;
	if (!p)
		return -ESRCH;
	if (p->pid == p->tgid && BPF_CORE_READ(p, real_parent, tgid) == task->tgid) {
		error = -ENOMEM;
		its = bpf_task_storage_get(&coop_threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (its) {
			its->parent = task->tgid;
			its->parent_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
			/* The binding that was handed before ends, and the scheduler must see
			 * this. */
			if (own->own.wishes || its->handed.wishes)
				own->own.wishes = its->handed.wishes + 1;
			coop_write(&its->handed, &own->own);
			own->own.channel = 0;
			coop_changed();
			error = 0;
		}
	}
	bpf_task_release(p);
	return error;
}

/* Any call. */
static __always_inline s64 downcall(struct down *d, u32 id, u32 op, u64 a, u64 b, u64 c) {
	s64 result = 0;
	int drained;

	if (downcall_small(d, op, a, b, &result))
		return result;
	/* It only starts the timer for the deferred calls, so it does not handle them. */
	if (op == ECALLS_OP_DELAY)
		return down_delay(id);
	/* It concerns the calling thread. */
	if (op == ECALLS_OP_COOP)
		return coop_bind(d, id, a, b, c);
	if (op == ECALLS_OP_WINDOW)
		return coop_window(id, a, b, c);
	if (op == ECALLS_OP_HAND)
		return coop_hand(id, a);
	drained = drain_if_waiting(d, id, 0);
	if (op == ECALLS_OP_NOP)
		return drained;
	if (op == ECALLS_OP_GETPID)
		return d->channel->owner;
	if (op == ECALLS_OP_SET)
		return attribute_set(d->index, a, b);
	if (op == ECALLS_OP_GET)
		return attribute_get(d->index, a);
	if (op == ECALLS_OP_CALL)
		return down_call(a);
	struct downcall call = {.channel = id, .op = op, .a = a, .b = b, .c = c};
	return downcall_more(&call);
}

#endif
