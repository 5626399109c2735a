/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The generic downcall (ECalls-01 §2.3.1): a service is called by its name, with up to
 * ECALLS_DATA_MAX bytes of data, a deadline and a release time; and every fast call (without a
 * name), for kernels without a faster mechanism. It is a program of type syscall that applications
 * run through a descriptor (BPF_PROG_RUN); the caller is the current task, which cannot be forged.
 * It may block, but nothing here does.
 */
#include "downcall.h"
#include "pinned.h"

/* RAISE by name. Not inline, so that its stack is not added to its caller's. */
static __noinline s64 generic_named(const struct ecalls_generic *g,
				    const struct task_struct *task) {
	struct service_name name;

	__builtin_memcpy(name.text, g->service, sizeof(name.text));
	return generic_raise(g, service_named(&name), task);
}

/* The operations of the fast call. Not inline for the same reason. */
static __noinline s64 generic_channel(const struct ecalls_generic *g) {
	struct down d;

	if (!down_open(&d, g->channel))
		return -EPERM;
	return downcall(&d, g->channel, g->op, g->argument[0], g->argument[1], g->argument[2]);
}

static __always_inline s64 generic_call(const struct ecalls_generic *g,
					const struct task_struct *task) {
	if (g->op == ECALLS_OP_RAISE && g->service[0])
		return generic_named(g, task);
	if (!g->channel && g->op == ECALLS_OP_GETPID)
		return task->tgid;
	return generic_channel(g);
}

/* The same by the program of pinned.h. */
static __always_inline s64 generic_pinned(const struct ecalls_generic *g) {
	struct pinned *p = pinned_place();
	struct ecalls_generic *named;
	u32 zero = 0;

	if (!p || g->op >= ECALLS_OPS)
		return -EINVAL;
	if (g->op == ECALLS_OP_RAISE && g->service[0]) {
		named = bpf_map_lookup_elem(&generic_calls, &zero);
		if (!named)
			return -EINVAL;
		__builtin_memcpy(named, g, sizeof(*named));
		return pinned_run(p, PINNED_GENERIC);
	}
	if (!g->channel && g->op == ECALLS_OP_GETPID)
		return bpf_get_current_task_btf()->tgid;
	return pinned_downcall((u64)g->channel << 32 | (g->op & 0xffff), g->argument[0],
			       g->argument[1], g->argument[2]);
}

SEC("syscall")
int call_generic(struct ecalls_generic *g) {
	s64 result;

	bpf_preempt_disable();
	result = generic_call(g, bpf_get_current_task_btf());
	bpf_preempt_enable();
	g->result = result;
	return 0;
}

/* In its place before Linux 6.15. */
SEC("syscall")
int call_pinned(struct ecalls_generic *g) {
	s64 result;

	bpf_preempt_disable();
	result = generic_pinned(g);
	bpf_preempt_enable();
	g->result = result;
	return 0;
}

/* Prepares the delay timers of the first few channels, so that their first ECALLS_OP_DELAY need
 * not; the host may run it once. The other timers are prepared at their first use. */
#define DELAYS_READY 16u

struct delay_argument {
	u32 first;
	u32 count;
	s32 result; /* out: number of prepared timers */
};

static int delay_setup_once(u32 i, struct delay_argument *a) {
	u32 index = a->first + i;
	struct down_state *state = bpf_map_lookup_elem(&down_states, &index);

	if (!state || delay_prepare(state))
		return 1;
	a->result++;
	return 0;
}

SEC("syscall")
int delay_setup(struct delay_argument *argument) {
	struct delay_argument a = {.first = argument->first};
	u32 count = argument->count < DELAYS_READY ? argument->count : DELAYS_READY;

	bpf_loop(count, delay_setup_once, &a, 0);
	argument->result = a.result;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
