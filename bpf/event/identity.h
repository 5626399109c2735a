/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The user of a process.
 *
 * A process has a real, an effective and a saved user. A setuid program that a user starts has this
 * user only as its real one, and its actions must not be visible to its caller. So a process
 * belongs to a user only if all three are this user; otherwise it counts as root's (uid 0), which
 * only root may observe.
 */
#ifndef ECALLS_IDENTITY_H
#define ECALLS_IDENTITY_H

#include "kernel.h"

/* The user of a process, else 0. There is no branch, because the dispatcher's callers inline it. */
static __always_inline u32 uid_of(const struct task_struct *task) {
	const struct cred *cred = task->real_cred;
	u32 uid = cred->uid.val;
	u64 differs = (uid ^ cred->euid.val) | (uid ^ cred->suid.val);

	/* differs is at most 32 bits: all ones above if it is 0 */
	return uid & (u32)((differs - 1) >> 32);
}

/* Whether the kernel would permit a process of this user to send the task a signal: kill(2). */
static __always_inline bool may_signal(const struct task_struct *task, u32 uid) {
	const struct cred *cred = task->real_cred;

	return !uid || cred->uid.val == uid || cred->suid.val == uid;
}

#define DUMPABLE_MASK 3
#define DUMPABLE_USER 1

/* Whether the user of a task may read its memory. This is not so while the task runs, or after it
 * has run, with rights that its user has not; nor on kernels that do not tell. */
static __always_inline bool is_dumpable(struct task_struct *task) {
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct mm_struct___bits *later = (void *)mm;
	unsigned long flags = 0;

	if (bpf_core_field_exists(mm->flags))
		flags = BPF_CORE_READ(mm, flags);
	else if (bpf_core_field_exists(later->flags.__mm_flags))
		flags = BPF_CORE_READ(later, flags.__mm_flags[0]);
	return (flags & DUMPABLE_MASK) == DUMPABLE_USER;
}

/* Whether a process of this user may read the task's memory, as far as users decide this. The cast
 * only saves time in the verifier: for each pointer that is followed from a trusted one it searches
 * all types of the kernel, which takes a millisecond on each path that leads here. */
static __always_inline bool may_read(struct task_struct *task, u32 uid) {
	const struct task_struct *plain =
		bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));

	return !uid || (uid_of(plain) == uid && is_dumpable(task));
}

#endif
