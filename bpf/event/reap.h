/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Closes the objects of a process that has exited, before its id can be used again: its channels,
 * the subscriptions that it made or receives, and its application services become DEAD. From then
 * on nothing is delivered to them; the host reclaims them later.
 *
 * The host lists every process with such objects in `owners`; for all others an exit costs one
 * lookup. For an owner the tables are walked, which takes some 10 us.
 *
 * A process that executes another program loses its objects in the same way: its memory and
 * handlers are gone, and the new program may have rights that the old one must not use.
 * Subscriptions that others made for it as the receiver stay, unless the new program has rights
 * that its caller has not (setuid, file capabilities): then only those that root made stay.
 *
 * A start time in a table entry that is not 0 must be that of the process: a late exit does not
 * change an entry that was made for a new process with the same id.
 */
#ifndef ECALLS_EVENT_REAP_H
#define ECALLS_EVENT_REAP_H

#include "account.h"
#include "exit.h"

#define OWNERS_MAX 4096

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWNERS_MAX);
	__type(key, u32);   /* process */
	__type(value, u32); /* channels, subscriptions and services that name it; host only */
} owners SEC(".maps");

#define RECEIVES_KEPT 0u   /* nothing of it ends */
#define RECEIVES_OTHERS 1u /* the subscriptions of others than root end */
#define RECEIVES_ENDS 2u   /* all end */

/* The process that ends. Filled on one CPU, with preemption off. */
struct reaped {
	u64 start_ns;
	u32 pid;
	u32 receives; /* the subscriptions that end because it is their receiver: RECEIVES_* */
};

static __always_inline bool is_of(const struct reaped *r, u32 pid, u64 start_ns) {
	return pid == r->pid && (!start_ns || start_ns == r->start_ns);
}

static __always_inline bool ends_received(const struct reaped *r,
					  const struct ecalls_subscription *s) {
	return r->receives == RECEIVES_ENDS || (r->receives == RECEIVES_OTHERS && s->owner_uid);
}

/* Neither FREE nor DEAD. */
static __always_inline void close_state(u32 *state) {
	u32 now = *(volatile u32 *)state;

	if (now == ECALLS_STATE_ACTIVE || now == ECALLS_STATE_SETUP)
		__sync_val_compare_and_swap(state, now, ECALLS_STATE_DEAD);
}

static __noinline int reap_channels(const struct reaped *r, u32 zero) {
	for (u32 i = zero; lib_again(i, ECALLS_CHANNELS_MAX); i++) {
		i ^= zero;
		u32 at = i;
		struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &at);
		if (!ch)
			break;
		if (is_of(r, ch->owner, ch->owner_start))
			close_state(&ch->state);
	}
	return 0;
}

static __noinline int reap_subscriptions(const struct reaped *r, u32 zero) {
	for (u32 i = zero; lib_again(i, ECALLS_SUBSCRIPTIONS_MAX); i++) {
		i ^= zero;
		u32 at = i;
		struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &at);
		if (!s)
			break;
		if (is_of(r, s->owner, s->owner_start) ||
		    (ends_received(r, s) && is_of(r, s->receiver, s->receiver_start)))
			close_state(&s->state);
	}
	return 0;
}

static __noinline int reap_services(const struct reaped *r, u32 zero) {
	for (u32 i = ECALLS_SERVICE_USER + zero; lib_again(i, ECALLS_SERVICES_MAX); i++) {
		i ^= zero;
		u32 at = i;
		struct ecalls_service *s = bpf_map_lookup_elem(&services, &at);
		if (!s)
			break;
		if (is_of(r, s->owner, s->owner_start))
			close_state(&s->state);
	}
	return 0;
}

static __always_inline void reap(const struct task_struct *task, u32 receives) {
	struct current *c = current_cpu();
	struct reaped r = {
		.pid = task->tgid,
		.start_ns = task->group_leader->start_boottime,
		.receives = receives,
	};

	if (!c)
		return;
	reap_channels(&r, c->zero);
	reap_subscriptions(&r, c->zero);
	reap_services(&r, c->zero);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(reap_exit, struct task_struct *task) {
	u32 pid = task->tgid;

	if (!bpf_map_lookup_elem(&owners, &pid) || !exits_last(ctx, task))
		return 0;
	reap(task, RECEIVES_ENDS);
	bpf_map_delete_elem(&owners, &pid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(reap_exec, struct task_struct *task, int old_pid, struct linux_binprm *program) {
	u32 pid = task->tgid;

	if (bpf_map_lookup_elem(&owners, &pid))
		reap(task, BPF_CORE_READ_BITFIELD_PROBED(program, secureexec) ? RECEIVES_OTHERS
									      : RECEIVES_KEPT);
	return 0;
}

#endif
