/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast downcall by setsockopt, for kernels that have neither the tracepoint of
 * downcall_prctl.bpf.c nor trampolines: setsockopt(any socket, ECALLS_SETSOCKOPT,
 * ECALLS_SETSOCKOPT, {call, a, b, c}, 32) in a control group to which this program is attached.
 * The result is in the caller's frame, as with prctl; setsockopt returns 0 for a call that was
 * taken.
 *
 * It costs twice as much as prctl, and a check for each setsockopt of the group's processes.
 */
#include "downcall.h"
#include "pinned.h"

#define SETSOCKOPT_PASS 1    /* continue with the kernel's own handler */
#define SETSOCKOPT_DONE (-1) /* optlen: no kernel handler */

/* From the kernel's user API (linux/bpf.h): not relocated, the kernel translates each access. */
struct bpf_sockopt {
	struct bpf_sock *sk;
	u64 optval;
	u64 optval_end;
	s32 level;
	s32 optname;
	s32 optlen;
	s32 retval;
};

struct setsockopt_call {
	u64 call;
	u64 argument[3];
};

/* Copies the call of a setsockopt that is ours, and finds its channel. */
static __always_inline bool setsockopt_open(struct bpf_sockopt *ctx, struct setsockopt_call *copy,
					    struct down *d) {
	const struct setsockopt_call *s = (void *)(long)ctx->optval;

	if (ctx->level != ECALLS_SETSOCKOPT || ctx->optname != ECALLS_SETSOCKOPT)
		return false;
	if ((void *)(s + 1) > (void *)(long)ctx->optval_end)
		return false;
	*copy = *s;
	return down_open(d, call_channel(copy->call));
}

SEC("cgroup/setsockopt")
int downcall_setopt(struct bpf_sockopt *ctx) {
	struct setsockopt_call copy;
	struct down d;

	if (!setsockopt_open(ctx, &copy, &d))
		return SETSOCKOPT_PASS;
	bpf_preempt_disable();
	frame_put(&d, copy.call,
		  downcall(&d, call_channel(copy.call), call_op(copy.call), copy.argument[0],
			   copy.argument[1], copy.argument[2]));
	bpf_preempt_enable();
	ctx->optlen = SETSOCKOPT_DONE;
	return SETSOCKOPT_PASS;
}

/* In its place before Linux 6.15. */
SEC("cgroup/setsockopt")
int setopt_pinned(struct bpf_sockopt *ctx) {
	struct setsockopt_call copy;
	struct down d;

	if (!setsockopt_open(ctx, &copy, &d))
		return SETSOCKOPT_PASS;
	bpf_preempt_disable();
	frame_put(&d, copy.call,
		  pinned_downcall(copy.call, copy.argument[0], copy.argument[1], copy.argument[2]));
	bpf_preempt_enable();
	ctx->optlen = SETSOCKOPT_DONE;
	return SETSOCKOPT_PASS;
}

char LICENSE[] SEC("license") = "GPL";
