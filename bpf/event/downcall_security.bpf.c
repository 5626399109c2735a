/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast downcall at the kernel's security hook of prctl: the cheapest, where trampolines load.
 *
 * The hook runs first in prctl, and prctl returns the result of this program unless that is 0 or
 * -ENOSYS: then prctl itself runs. That is the paper's optimistic handler (ECalls-01 §2.3.1).
 *   result			prctl returns		frame
 *   1..0x7fffffff		the result		left alone
 *   -4095..-1			the result (errno)	the result
 *   0, or any other		-1, EINVAL		the result
 *   none: stranger's channel	what the real prctl returns (-1, EINVAL)	left alone
 *   none: unknown operation	what the real prctl returns (-1, EINVAL today)	left alone
 * A stranger's channel may be one of another core (an instance): if this program returns 0, that
 * core's is called next, here or on the tracepoint of downcall_prctl.bpf.c.
 * The second row applies to the caller also for -ENOSYS: the real prctl refuses our option with
 * EINVAL.
 *
 * A core attaches only one of this program and downcall_prctl.bpf.c; otherwise a call that reaches
 * the real prctl would run twice.
 */
#include "downcall.h"
#include "pinned.h"

#define ERRNO_MAX 4095
#define RETURN_MAX 0x7fffffff

/* What prctl returns for a result. */
static __always_inline int security_result(struct down *d, u64 call, s64 result) {
	if (result > 0 && result <= RETURN_MAX)
		return (int)result;
	frame_put(d, call, result);
	return result < 0 && result >= -ERRNO_MAX ? (int)result : -EINVAL;
}

static __always_inline int security_call(u64 call, u64 a, u64 b, u64 c) {
	struct down d;
	s64 result;

	if (!down_open(&d, call_channel(call)))
		return 0;
	if (!downcall_small(&d, call_op(call), a, b, &result)) {
		bpf_preempt_disable();
		result = downcall(&d, call_channel(call), call_op(call), a, b, c);
		bpf_preempt_enable();
	}
	return security_result(&d, call, result);
}

static __always_inline int security_pinned(u64 call, u64 a, u64 b, u64 c) {
	struct down d;
	s64 result;

	if (!down_open(&d, call_channel(call)))
		return 0;
	if (!downcall_small(&d, call_op(call), a, b, &result)) {
		bpf_preempt_disable();
		result = pinned_downcall(call, a, b, c);
		bpf_preempt_enable();
	}
	return security_result(&d, call, result);
}

SEC("fmod_ret/security_task_prctl")
int BPF_PROG(downcall_secure, int option, u64 call, u64 a, u64 b, u64 c, int ret) {
	if (option != ECALLS_PRCTL)
		return ret;
	if (call_op(call) >= ECALLS_OPS)
		return 0;
	return security_call(call, a, b, c);
}

/* In its place before Linux 6.15. */
SEC("fmod_ret/security_task_prctl")
int BPF_PROG(secure_pinned, int option, u64 call, u64 a, u64 b, u64 c, int ret) {
	if (option != ECALLS_PRCTL)
		return ret;
	if (call_op(call) >= ECALLS_OPS)
		return 0;
	return security_pinned(call, a, b, c);
}

char LICENSE[] SEC("license") = "GPL";
