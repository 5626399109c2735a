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

/* The number of a thread where its parent is, which may be in a namespace of numbers. */
static __noinline u32 binding_number(struct task_struct *p) {
	u32 level = p->real_parent->thread_pid->level, number = p->pid;
	struct pid *pid = p->thread_pid;

	/* The kernel's elements are larger than what is known of them here. */
	if (level && level <= pid->level)
		bpf_probe_read_kernel(&number, sizeof(number),
				      (void *)pid->numbers +
					      level * bpf_core_type_size(struct upid));
	return number;
}

static __always_inline struct coop_binding *binding_handed(struct task_struct *p) {
	struct coop_heir heir = {.parent = p->real_parent->tgid, .tid = binding_number(p)};
	struct coop_handed *handed = bpf_map_lookup_elem(&coop_handed, &heir);

	if (!handed || p->pid != p->tgid ||
	    handed->parent_start_ns != p->real_parent->group_leader->start_boottime ||
	    !binding_is_of(p, handed->binding.uid))
		return 0;
	if (!handed->binding.start_ns)
		handed->binding.start_ns = p->start_boottime;
	return handed->binding.start_ns == p->start_boottime ? &handed->binding : 0;
}

static __always_inline struct coop_binding *binding_of(struct task_struct *p) {
	u32 tid = p->pid;
	struct coop_binding *binding = bpf_map_lookup_elem(&coop_threads, &tid);

	return binding && binding->start_ns == p->start_boottime ? binding : binding_handed(p);
}

#endif
