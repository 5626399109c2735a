/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The binding of a task (event/coop.h): the one that the task has named itself, or the one that its
 * parent has handed to it.
 *
 * A handed binding is valid only for the first thread of a process, while the process that handed
 * it is its parent, and while both belong to the same user: a process that has become another
 * user's (a set-user-ID program, for instance) is not scheduled by the first user's requests. The
 * first task that such a binding reaches keeps it, because its thread id may belong to another task
 * later.
 */
#ifndef ECALLS_SCHED_BINDING_H
#define ECALLS_SCHED_BINDING_H

#include "state.h"
#include "event/coop.h"

static __always_inline bool binding_is_of(struct task_struct *p, u32 uid) {
	const struct cred *cred = p->real_cred;

	return cred->uid.val == uid && cred->euid.val == uid;
}

/* The binding that a task was handed, while its parent is the process that handed it. */
static __always_inline struct coop_binding *binding_handed(struct task_struct *p,
							   struct coop_thread *thread) {
	if (!thread->handed.channel || p->pid != p->tgid ||
	    thread->parent != p->real_parent->tgid ||
	    thread->parent_start_ns != p->real_parent->group_leader->start_boottime ||
	    !binding_is_of(p, thread->handed.uid))
		return 0;
	return &thread->handed;
}

static __always_inline struct coop_thread *binding_thread(struct task_struct *p) {
	return bpf_task_storage_get(&coop_threads, p, 0, 0);
}

#endif
