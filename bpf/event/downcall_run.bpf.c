/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The generic downcall (ECalls-01 §2.3.1): a service is called by its name, with up to
 * ECALLS_DATA_MAX bytes of data, a deadline and a release time; and every fast call (with no
 * name), for kernels that have no faster way in. It is a program of type syscall that applications
 * run through a descriptor (BPF_PROG_RUN); who calls is the current task, which nobody can forge.
 * It may block; nothing here needs to.
 */
#include "downcall.h"

#define GENERIC_US_MAX (1ull << 50) /* 35 years; longer times are this long */

struct service_name {
	char text[ECALLS_NAME_MAX]; /* filled up with 0 */
};

/* Index of each service by name. Written by the host. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ECALLS_SERVICES_MAX);
	__type(key, struct service_name);
	__type(value, u32);
} service_names SEC(".maps");

static __always_inline u64 after_us(u64 from_ns, u64 us) {
	return from_ns + (us < GENERIC_US_MAX ? us : GENERIC_US_MAX) * 1000;
}

/* Index of the service that the call names, or -ENOENT. Not inline: the stack that it needs for the
 * name is not its caller's too. */
static __noinline s64 service_named(const struct ecalls_generic *g) {
	struct service_name name;
	u32 *index;

	__builtin_memcpy(name.text, g->service, sizeof(name.text));
	index = bpf_map_lookup_elem(&service_names, &name);
	return index ? (s64)*index : -ENOENT;
}

/* RAISE by name: a number of subscriptions, or -errno. Not inline for the same reason. */
static __noinline s64 generic_raise(const struct ecalls_generic *g,
				    const struct task_struct *task) {
	u64 now_ns = bpf_ktime_get_ns();
	struct ecalls_service *s;
	s64 index = service_named(g);
	int result;

	if (index < 0)
		return index;
	struct raise r = {
		.service = index,
		.kind = g->kind,
		.type = g->type,
		.priority = g->priority,
		.target = g->target,
		.flags = (g->flags & ECALLS_EVENT_CPU) | RAISE_METERED,
		.size = g->size,
	};
	s = service_of(index, task->tgid, task->group_leader->start_boottime,
		       (u32)bpf_get_current_uid_gid());
	if (!s)
		return -EPERM;
	/* Its owner; else root, whom nothing limits. */
	r.user = s->owner == (u32)task->tgid ? s->user : 0;
	if (r.kind > 31)
		return -EINVAL;
	if (g->flags & ECALLS_RAISE_ABSOLUTE)
		now_ns = 0;
	if (g->release_us)
		r.release_ns = after_us(now_ns, g->release_us);
	if (g->deadline_us)
		r.deadline_ns = after_us(now_ns ? (r.release_ns ? r.release_ns : now_ns) : 0,
					 g->deadline_us);
	result = raise(&r, g->data, DATA_WORDS);
	if (result)
		return result;
	return subscribers(r.service, r.kind, r.target, task->tgid, uid_of(task));
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
		return generic_raise(g, task);
	if (!g->channel && g->op == ECALLS_OP_GETPID)
		return task->tgid;
	return generic_channel(g);
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

/* Prepares the delay timers of the first few channels, so that their first ECALLS_OP_DELAY does not
 * have to; the host may run it once. The others' are made at their first use. */
#define DELAYS_READY 16u

struct delay_argument {
	u32 first;
	u32 count;
	s32 result; /* out: how many were prepared */
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
