/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose a process is.
 *
 * A process has a real, an effective and a saved user; who may start a program that changes them
 * (setuid) has lent it his real one. What such a process does is not its caller's to see, so a
 * process is a user's only if all three are that user; else it counts as root's (uid 0), whom
 * nobody but root may look at.
 */
#ifndef ECALLS_IDENTITY_H
#define ECALLS_IDENTITY_H

#include "kernel.h"

/* The user whose process it is, else 0. Without a branch: the dispatcher's callers inline it. */
static __always_inline u32 uid_of(const struct task_struct *task) {
	const struct cred *cred = task->real_cred;
	u32 uid = cred->uid.val;
	u64 differs = (uid ^ cred->euid.val) | (uid ^ cred->suid.val);

	/* differs is at most 32 bits: all ones above if it is 0 */
	return uid & (u32)((differs - 1) >> 32);
}

/* Whether the kernel would let a process of this user send the task a signal: kill(2). */
static __always_inline bool may_signal(const struct task_struct *task, u32 uid) {
	const struct cred *cred = task->real_cred;

	return !uid || cred->uid.val == uid || cred->suid.val == uid;
}

#define DUMPABLE_MASK 3
#define DUMPABLE_USER 1

/* Whether its memory is its user's to read. It is not while it runs, or since it ran, with rights
 * that its user has not. Where a kernel does not tell, it is not. */
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

/* Whether a process of this user may read the task's memory, so far as users decide about that.
 * The cast only spares the verifier: each pointer that it follows from a trusted one it looks up in
 * all types of the kernel, a millisecond on each path that leads here. */
static __always_inline bool may_read(struct task_struct *task, u32 uid) {
	const struct task_struct *plain =
		bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));

	return !uid || (uid_of(plain) == uid && is_dumpable(task));
}

#endif
