/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's verdict on the real-time signals that the core sent.
 *
 * bpf_send_signal_task() reports success before the signal is generated (signal.h). The tracepoint
 * signal_generate reports the actual result a moment later on the same CPU: queued, ignored by the
 * receiver, or refused because the receiver's RLIMIT_SIGPENDING is reached. It is matched with the
 * last signal that this CPU's dispatcher sent by number, receiver and origin; no process can use
 * this origin (SI_KERNEL).
 *
 * It runs under the receiver's signal lock and only counts. Without this program everything works,
 * except that a lost signal counts as delivered.
 */
#include "signal.h"

#define SIGNALS_REAL_TIME 32 /* the kernel's SIGRTMIN */
#define SI_KERNEL 0x80

/* `info` may be a small number instead of an address, so it is read with bpf_probe_read. */
static __always_inline bool from_kernel(const struct kernel_siginfo *info) {
	int code = 0;

	bpf_probe_read_kernel(&code, sizeof(code), &info->si_code);
	return code == SI_KERNEL;
}

/* Corrects the counters for a verdict that arrives after the chain was counted. */
static __always_inline void correct(const struct ecalls_subscription *s, u32 index, s32 verdict,
				    bool shared) {
	struct ecalls_subscription_count *n = count_of(index);
	int result = signal_result(verdict);

	if (result == SIGNAL_SENT || !n)
		return;
	__sync_fetch_and_sub(&n->signals, 1);
	if (shared)
		return;
	__sync_fetch_and_sub(&n->delivered, 1);
	drop_for_subscription(index, s->channel, -result - 1, false);
}

static __always_inline void verdict(struct current *c, const struct task_struct *task, int sig,
				    const struct kernel_siginfo *info, s32 verdict) {
	u32 index = c->signal.subscription - 1;
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);

	if (!s || sig != c->signal.number || s->receiver != task->tgid || !from_kernel(info))
		return;
	c->signal.subscription = 0;
	c->signal.verdict = verdict;
	if (!c->signal.sending)
		correct(s, index, verdict, c->signal.shared);
}

SEC("tp_btf/signal_generate")
int BPF_PROG(signal_verdict, int sig, struct kernel_siginfo *info, struct task_struct *task,
	     int group, int result) {
	struct current *c = current_cpu();

	if (sig < SIGNALS_REAL_TIME || !c)
		return 0;
	if (c->signal.subscription)
		verdict(c, task, sig, info, result);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
