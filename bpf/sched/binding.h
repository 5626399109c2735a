/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which binding is a task's (event/coop.h): the one that it has named itself, or the one that its
 * parent has handed to it.
 *
 * A handed one counts only for the first thread of a process, while the process that handed it is
 * its parent, and while both are the same user's: who has become another user (a program that is
 * set-user-ID, for instance) is scheduled by nobody else's wishes. The first task that is met by
 * such a binding keeps it: its number may be another's later.
 */
#ifndef ECALLS_SCHED_BINDING_H
#define ECALLS_SCHED_BINDING_H

#include "state.h"
#include "event/coop.h"

static __always_inline bool binding_is_of(struct task_struct *p, u32 uid) {
	const struct cred *cred = p->real_cred;

	return cred->uid.val == uid && cred->euid.val == uid;
}

/* What a task was handed, while its parent is the process that did that. */
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
