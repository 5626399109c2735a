/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RAISE by name, the generic downcall (ECalls-01 §2.3.1): a service is called by its name, with up
 * to ECALLS_DATA_MAX bytes of data, a deadline and a release time.
 *
 * There are two callers. A program that hosts the core runs the BPF program call_generic
 * (downcall_run.bpf.c). A client of the daemon makes a fast call with the address of its struct
 * ecalls_generic (ECALLS_OP_CALL): if it held a BPF program, it could bind maps to it, which would
 * then live as long as the core.
 *
 * Every caller runs with preemption off.
 */
#ifndef ECALLS_GENERIC_H
#define ECALLS_GENERIC_H

#include "deferred.h"
#include "shared.h"

#define GENERIC_US_MAX (1ull << 50) /* 35 years; longer times are this long */

static __always_inline u64 after_us(u64 from_ns, u64 us) {
	return from_ns + (us < GENERIC_US_MAX ? us : GENERIC_US_MAX) * 1000;
}

/* Index of the service of this name, ECALLS_NAME_MAX bytes, or -ENOENT. */
static __always_inline s64 service_named(const void *name) {
	u32 *index = bpf_map_lookup_elem(&service_names, name);

	return index ? (s64)*index : -ENOENT;
}

/* RAISE by name: returns a number of subscriptions, or -errno. `index`: service_named() of its
 * name. */
static __always_inline s64 generic_raise(const struct ecalls_generic *g, s64 index,
					 const struct task_struct *task) {
	u64 now_ns = bpf_ktime_get_ns();
	struct ecalls_service *s;
	int result;

	if (index < 0)
		return index;
	struct raise r = {
		.service = index,
		.kind = g->kind,
		.type = g->type,
		.priority = g->priority,
		.target = g->target,
		.flags = (g->flags & ECALLS_EVENT_CPU) | RAISE_METERED | RAISE_REST_USER,
		.size = g->size,
	};
	if (g->size > ECALLS_DATA_INLINE)
		r.rest = g->rest;
	s = service_of(index, task->tgid, task->group_leader->start_boottime,
		       (u32)bpf_get_current_uid_gid());
	if (!s)
		return -EPERM;
	/* The owner of the service; otherwise the caller is root, which has no limits. */
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

/* ECALLS_OP_CALL. The memory belongs to the caller: a program that may not sleep can read it only
 * while it is resident, so callers write it just before the call, and retry. */
__noinline int down_call(u64 address) {
	struct task_struct *task = bpf_get_current_task_btf();
	struct ecalls_generic *g;
	u32 zero = 0;

	g = bpf_map_lookup_elem(&generic_calls, &zero);
	if (!g || bpf_probe_read_user(g, sizeof(*g), (const void *)address))
		return -EFAULT;
	if (g->op != ECALLS_OP_RAISE)
		return -EINVAL;
	return (int)generic_raise(g, service_named(g->service), task);
}

#endif
