/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast downcall by prctl: prctl(ECALLS_PRCTL, ECALLS_CALL(channel, frame, op), a, b, c).
 *
 * The kernel does not know our option and reports it on a tracepoint, where this program handles
 * the call. prctl itself then returns -EINVAL in any case; the result is in the caller's frame,
 * whose `sequence` has changed if, and only if, the call was accepted. No other system call becomes
 * slower.
 *
 * Failures: it does not load on kernels without the tracepoint (before 6.13); then
 * downcall_security.bpf.c, downcall_setsockopt.bpf.c or downcall_run.bpf.c replaces it.
 */
#include "downcall.h"

SEC("tp_btf/task_prctl_unknown")
int BPF_PROG(downcall_prctl, int option, u64 call, u64 a, u64 b, u64 c) {
	struct down d;

	if (option != ECALLS_PRCTL)
		return 0;
	if (!down_open(&d, call_channel(call)))
		return 0;
	frame_put(&d, call, downcall(&d, call_channel(call), call_op(call), a, b, c));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
