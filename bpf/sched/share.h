/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares of control groups (cpu.weight).
 *
 * Within a control group its threads and the groups below it share what it gets by their weights,
 * as they do under the kernel's own scheduler: a group of weight 100 is to its neighbours what one
 * thread of nice 0 is, however many threads it has.
 *
 * The policy knows only threads. So each thread's weight there is its part of its group's part, of
 * the part of the group above, and so on up to the root: at each level its own weight by the sum
 * of those that want the CPU. It is looked up whenever the thread gets the CPU. Sums are over all
 * CPUs, as a group's share is.
 *
 * A group's sum is changed by atomic additions when threads become ready and sleep. Only when the
 * first one comes or the last one goes, or the weight changes, is the sum above changed: `settle`
 * makes `counted` right and then looks again, so that of two who do it at once the later one sees
 * what the other did. A sum that is read meanwhile is wrong for one time slice.
 *
 * An idle group (cpu.idle) has the least weight there is, 1; one that is so no longer begins again
 * with that of nice 0, as the kernel's own scheduler has it.
 *
 * Limits: a thread weighs a 256th of one of nice 0 at least. SHARE_GROUPS_MAX groups with a
 * cpu.weight; what comes later counts as the root. cpu.max is not looked at.
 */
#ifndef ECALLS_SCHED_SHARE_H
#define ECALLS_SCHED_SHARE_H

#include "state.h"

#define SHARE_GROUPS_MAX 4096
#define SHARE_LEVELS 16u /* groups within groups; above, no more is divided */
#define SHARE_ROUNDS 64u /* of settling: two per level, and room for others who do it */
#define SHARE_SCALE 64u	 /* weights are so much larger than the kernel's, for parts of them */
#define SHARE_FINE 1024u /* and while they are computed, once more */
#define SHARE_IDLE 1u	 /* weight of an idle group */
#define SHARE_NICE_0 (VTIME_WEIGHT * SHARE_SCALE)
#define SHARE_LEAST (SHARE_NICE_0 / 256) /* else it waits until the kernel's watchdog notices */

struct share {
	u64 parent; /* id of the group above */
	s64 sum;    /* weights of the threads in it, and of the groups below, that want the CPU */
	u64 weight;
	u64 counted; /* of it, in the parent's sum */
};

/* By id of the control group. The root has none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHARE_GROUPS_MAX);
	__type(key, u64);
	__type(value, struct share);
} sched_shares SEC(".maps");

static __always_inline struct share *share_of(u64 id) {
	return id ? bpf_map_lookup_elem(&sched_shares, &id) : 0;
}

static __always_inline u64 share_wanted(const volatile struct share *s) {
	return s->sum > 0 ? s->weight : 0;
}

/* Whether a group wants the CPU may have changed: makes the sums above right. */
__noinline int share_settle(u64 id) {
	for (u32 round = 0; lib_again(round, SHARE_ROUNDS); round++) {
		struct share *s = share_of(id), *above;
		if (!s || round >= SHARE_ROUNDS)
			break;
		above = share_of(s->parent);
		if (!above)
			break;
		s64 wanted = share_wanted(s);
		s64 change = wanted - (s64)__sync_lock_test_and_set(&s->counted, wanted);
		s64 before = __sync_fetch_and_add(&above->sum, change);
		if ((s64)share_wanted(s) != wanted)
			continue;
		if ((before > 0) == (before + change > 0))
			break;
		id = s->parent;
	}
	return 0;
}

static __always_inline void share_add(u64 id, s64 change) {
	struct share *s = share_of(id);
	s64 before;

	if (!s || !change)
		return;
	before = __sync_fetch_and_add(&s->sum, change);
	if ((before > 0) != (before + change > 0))
		share_settle(id);
}

/* A thread wants the CPU from now on. */
static __always_inline void share_ready(struct sched_task *t) {
	if (!t->share || t->counted_nice)
		return;
	t->counted_nice = t->nice;
	share_add(t->share, t->nice);
}

/* It does not any more. */
static __always_inline void share_sleep(struct sched_task *t) {
	if (!t->share || !t->counted_nice)
		return;
	share_add(t->share, -(s64)t->counted_nice);
	t->counted_nice = 0;
}

/* A thread's weight towards all others. */
static __always_inline u32 share_weight(const struct sched_task *t) {
	u64 weight = (u64)t->nice * SHARE_SCALE * SHARE_FINE, own = t->nice, id = t->share;

	for (u32 level = 0; lib_again(level, SHARE_LEVELS); level++) {
		const volatile struct share *s = share_of(id);
		if (!s || level >= SHARE_LEVELS)
			break;
		s64 sum = s->sum;
		weight = weight * s->weight / (sum > (s64)own ? (u64)sum : own ? own : 1);
		own = s->weight;
		id = s->parent;
	}
	weight = (weight + SHARE_FINE / 2) / SHARE_FINE;
	return weight > SHARE_LEAST ? weight : SHARE_LEAST;
}

/* The number of a control group as the kernel gives it, 0 for the root. */
static __always_inline u64 share_id(struct cgroup *group) {
	return group && BPF_CORE_READ(group, self.parent) ? BPF_CORE_READ(group, kn, id) : 0;
}

/* Whether a control group was idle before we came: who weighs is not told. */
static __always_inline bool share_idle(struct cgroup *group) {
	struct cgroup___cpu *cpu = (void *)group;
	struct task_group *known = 0;

	bpf_probe_read_kernel(&known, sizeof(known),
			      &cpu->subsys[0] + SCX_NUMBER(cgroup_subsys_id, cpu_cgrp_id));
	return known && BPF_CORE_READ(known, scx.idle);
}

SEC("struct_ops.s/cgroup_init")
s32 BPF_PROG(share_init, struct cgroup *group, struct scx_cgroup_init_args *args) {
	struct share fresh = {.weight = share_idle(group) ? SHARE_IDLE : args->weight};
	u64 id = share_id(group);

	if (!id)
		return 0;
	fresh.parent = share_id(BPF_CORE_READ(group, self.parent, cgroup));
	/* Without room for it, its threads are weighed as those of the root. */
	bpf_map_update_elem(&sched_shares, &id, &fresh, BPF_ANY);
	return 0;
}

SEC("struct_ops.s/cgroup_exit")
void BPF_PROG(share_exit, struct cgroup *group) {
	u64 id = share_id(group);

	bpf_map_delete_elem(&sched_shares, &id);
}

static __always_inline void share_weigh(struct cgroup *group, u32 weight) {
	u64 id = share_id(group);
	struct share *s = share_of(id);

	if (!s)
		return;
	s->weight = weight;
	share_settle(id);
}

SEC("struct_ops/cgroup_set_weight")
void BPF_PROG(share_weighs, struct cgroup *group, u32 weight) {
	share_weigh(group, weight);
}

SEC("struct_ops/cgroup_set_idle")
void BPF_PROG(share_idles, struct cgroup *group, bool idle) {
	share_weigh(group, idle ? SHARE_IDLE : VTIME_WEIGHT);
}

SEC("struct_ops/cgroup_move")
void BPF_PROG(share_moves, struct task_struct *p, struct cgroup *from, struct cgroup *to) {
	struct sched_task *t = task_of(p);

	if (!t)
		return;
	/* The kernel takes a task out of its queue first, and puts it back after. */
	share_sleep(t);
	t->share = share_id(to);
	if (t->ready)
		share_ready(t);
}

#endif
