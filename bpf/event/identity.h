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

#endif
