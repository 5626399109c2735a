/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares of control groups (cpu.weight).
 *
 * The threads of a control group and the groups below it share its CPU time by their weights, as
 * under the kernel's own scheduler: a group of weight 100 counts for its siblings like one thread
 * of nice 0, however many threads it has.
 *
 * The policy knows only threads. So the weight of a thread there is its part of its group's part,
 * of the part of the group above, and so on up to the root: at each level its own weight divided by
 * the sum of the weights that want the CPU. It is computed whenever the thread gets the CPU. Sums
 * are over all CPUs, as a group's share is.
 *
 * A group's sum is changed by atomic additions when threads become ready and sleep. The sum above
 * is changed only when the first thread becomes ready or the last one sleeps, or when the weight
 * changes: `settle` corrects `counted` and then checks again, so that of two concurrent calls the
 * later one sees the change of the other. A sum that is read meanwhile is wrong for one time slice.
 *
 * Groups are in a table, and a thread stores the index of its group. A freed index is reused with
 * another number, so that one group is never mistaken for another. A group's part of the whole is
 * cached with it, and is valid while `shares.version` is unchanged: each change of a sum of groups,
 * or of a weight, makes a new version; threads of a group that continues to want the CPU become
 * ready and sleep without a new version.
 *
 * An idle group (cpu.idle) has the least weight, 1; a group that is no longer idle has the weight
 * of nice 0, as under the kernel's own scheduler.
 *
 * Limits: a thread's weight is at least a 256th of that of nice 0. There are SHARE_GROUPS_MAX
 * groups with a cpu.weight; further groups count as the root. What cpu.max limits is in quota.h.
 */
#ifndef ECALLS_SCHED_SHARE_H
#define ECALLS_SCHED_SHARE_H

#include "state.h"

#define SHARE_GROUPS_MAX 4096u	 /* a power of two */
#define SHARE_NEAR 64u		 /* entries of the table that one call searches */
#define SHARE_LEVELS 16u	 /* depth of nesting; groups above are not divided */
#define SHARE_ROUNDS 64u	 /* of settling: two per level, and more for concurrent calls */
#define SHARE_SCALE 64u		 /* factor from the kernel's weights to ours, for their parts */
#define SHARE_PART_BITS 16	 /* fractional bits of a group's part */
#define SHARE_LIMITED (1u << 31) /* flag of a part: this group, or one above, has a quota */
#define SHARE_FINE_BITS 16	 /* additional ones while it is computed */
#define SHARE_IDLE 1u		 /* weight of an idle group */
#define SHARE_NICE_0 (VTIME_WEIGHT * SHARE_SCALE)
#define SHARE_LEAST (SHARE_NICE_0 / 256) /* with less a thread waits until the watchdog notices */

struct share {
	u64 number; /* of the group that has this entry now; 0: none */
	u64 taken;  /* 1: by a group, from its begin to its end */
	u64 last;   /* count of all groups that had it */
	u64 parent; /* number of the group above; 0: the root */
	s64 sum;    /* weights of its threads, and of the groups below, that want the CPU */
	u64 weight;
	u64 counted; /* part of the weight that is in the parent's sum */
	u64 below;   /* number of groups directly below */
	/* its part of the whole, and SHARE_LIMITED; the upper half is the version; 0: none */
	u64 part;
	struct quota quota; /* cpu.max (lib/sched/quota.h) */
};

/* The root has no entry. The lower half of a group's number is its index here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARE_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct share);
} sched_shares SEC(".maps");

/* The number of a control group, by the kernel's id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHARE_GROUPS_MAX);
	__type(key, u64);
	__type(value, u64);
} sched_share_at SEC(".maps");

struct {
	u32 version; /* of the parts of all groups */
	u32 next;    /* where to search for a free entry */
} shares SEC(".bss.shares");

static __always_inline struct share *share_at(u32 at) {
	return bpf_map_lookup_elem(&sched_shares, &at);
}

static __always_inline struct share *share_of(u64 number) {
	struct share *s = number ? share_at((u32)number) : 0;

	return s && s->number == number ? s : 0;
}

/* Invalidates the parts of all groups. It is called after the change, which is atomic or one
 * store. */
static __always_inline void share_changes(void) {
	__sync_fetch_and_add(&shares.version, 1);
}

static __always_inline u64 share_wanted(const volatile struct share *s) {
	return s->sum > 0 ? s->weight : 0;
}

/* Corrects the sum above a group. Returns the group that has to be settled next: the same one
 * again, the one above, or none (0). It is a function that the verifier checks once, not in each
 * round. */
__noinline u64 share_settle_one(u64 number) {
	struct share *s = share_of(number), *above = s ? share_of(s->parent) : 0;
	s64 wanted, change, before;

	if (!above)
		return 0;
	wanted = share_wanted(s);
	change = wanted - (s64)__sync_lock_test_and_set(&s->counted, wanted);
	before = __sync_fetch_and_add(&above->sum, change);
	if (change)
		share_changes();
	if ((s64)share_wanted(s) != wanted)
		return number;
	return (before > 0) == (before + change > 0) ? 0 : s->parent;
}

/* Whether a group wants the CPU may have changed: corrects the sums above it. */
__noinline int share_settle(u64 number) {
	for (u32 round = sched_zero; lib_again(round, SHARE_ROUNDS); round++) {
		if (!number || round >= SHARE_ROUNDS)
			break;
		number = share_settle_one(number);
	}
	return 0;
}

static __always_inline void share_add(u64 number, s64 change) {
	struct share *s = share_of(number);
	s64 before;

	if (!s || !change)
		return;
	before = __sync_fetch_and_add(&s->sum, change);
	if (s->below)
		share_changes();
	if ((before > 0) != (before + change > 0))
		share_settle(number);
}

/* A thread becomes runnable. */
static __always_inline void share_ready(struct sched_task *t) {
	if (!t->share || t->counted_nice)
		return;
	t->counted_nice = t->nice;
	share_add(t->share, t->nice);
}

/* A thread is no longer runnable. */
static __always_inline void share_sleep(struct sched_task *t) {
	if (!t->share || !t->counted_nice)
		return;
	share_add(t->share, -(s64)t->counted_nice);
	t->counted_nice = 0;
}

/* A group's part of the whole: its weight, divided by the sum above, times the weight above, and so
 * on. */
__noinline u64 share_part(u64 number) {
	/* The version is read before the sums: if a sum changes meanwhile, this part belongs to an
	 * old version. */
	u64 version = __sync_fetch_and_add(&shares.version, 0);
	struct share *s = share_of(number);
	u64 part, own, quotas;

	if (!s)
		return 0;
	quotas = s->quota.quota_ns;
	own = s->weight;
	part = own << (SHARE_PART_BITS + SHARE_FINE_BITS);
	number = s->parent;
	for (u32 level = sched_zero; lib_again(level, SHARE_LEVELS); level++) {
		const volatile struct share *above = share_of(number);
		if (!above || level >= SHARE_LEVELS)
			break;
		s64 sum = above->sum;
		own = sum > (s64)own ? (u64)sum : own;
		part = part * above->weight / (own ? own : 1);
		own = above->weight;
		quotas |= above->quota.quota_ns;
		number = above->parent;
	}
	part >>= SHARE_FINE_BITS;
	part = (part ? part : 1) | (quotas ? SHARE_LIMITED : 0);
	*(volatile u64 *)&s->part = version << 32 | part;
	return part;
}

/* A thread's weight relative to all other threads. It also finds out whether the thread is under a
 * quota. */
static __always_inline u32 share_weight(struct sched_task *t) {
	u64 weight = (u64)t->nice * SHARE_SCALE, own = t->nice ? t->nice : 1, part;
	struct share *s = share_of(t->share);

	if (s) {
		s64 sum = *(volatile s64 *)&s->sum;
		part = *(volatile u64 *)&s->part;
		part = part && part >> 32 == shares.version ? (u32)part : share_part(t->share);
		if (t->limited != (part & SHARE_LIMITED)) {
			t->limited = part & SHARE_LIMITED;
			t->from_ns = 0;
		}
		part &= ~(u64)SHARE_LIMITED;
		weight = weight * part / (sum > (s64)own ? (u64)sum : own);
		weight = (weight + (1u << (SHARE_PART_BITS - 1))) >> SHARE_PART_BITS;
	}
	return weight > SHARE_LEAST ? weight : SHARE_LEAST;
}

/* The same of a thread in the root, which has no group. */
static __always_inline u32 share_in_root(const struct sched_task *t) {
	u32 weight = t->nice * SHARE_SCALE;

	return weight > SHARE_LEAST ? weight : SHARE_LEAST;
}

/* A thread comes to a control group. Until it has the CPU there, it counts as one under a quota. */
static __always_inline void share_enters(struct sched_task *t, u64 number) {
	t->share = number;
	t->plain.weight = share_in_root(t);
	t->limited = number ? SHARE_LIMITED : 0;
	t->from_ns = 0;
}

/* The kernel's id of a control group, 0 for the root. */
static __always_inline u64 share_id(struct cgroup *group) {
	return group && BPF_CORE_READ(group, self.parent) ? BPF_CORE_READ(group, kn, id) : 0;
}

/* The number of a control group in our table; 0: the root, or a group without an entry. */
static __always_inline u64 share_number(struct cgroup *group) {
	u64 id = share_id(group), *number = id ? bpf_map_lookup_elem(&sched_share_at, &id) : 0;

	return number ? *number : 0;
}

/* Whether a control group was idle before this scheduler started: the argument of init has only its
 * weight. */
static __always_inline bool share_idle(struct cgroup *group) {
	struct cgroup___cpu *cpu = (void *)group;
	struct task_group *known = 0;

	bpf_probe_read_kernel(&known, sizeof(known),
			      &cpu->subsys[0] + SCX_NUMBER(cgroup_subsys_id, cpu_cgrp_id));
	return known && BPF_CORE_READ(known, scx.idle);
}

/* Takes one of a few entries from `from` on; -1: none of them is free. It is a function of its own,
 * so that the verifier does not walk through the whole table. */
__noinline int share_take_near(u32 from) {
	for (u32 round = sched_zero; lib_again(round, SHARE_NEAR); round++) {
		u32 at = (from + round) & (SHARE_GROUPS_MAX - 1);
		struct share *s = share_at(at);
		if (!s || round >= SHARE_NEAR)
			break;
		if (!s->taken && !__sync_lock_test_and_set(&s->taken, 1))
			return (int)at;
	}
	return -1;
}

/* Takes an entry for a group; 0: all are taken. */
static __always_inline struct share *share_take(u32 *place) {
	u32 from = shares.next;
	int at = -1;

	for (u32 round = sched_zero; lib_again(round, SHARE_GROUPS_MAX / SHARE_NEAR); round++) {
		if (at >= 0 || round >= SHARE_GROUPS_MAX / SHARE_NEAR)
			break;
		at = share_take_near(from + round * SHARE_NEAR);
	}
	if (at < 0)
		return 0;
	*place = (u32)at;
	shares.next = *place + 1;
	return share_at(*place);
}

/* A group no longer wants the CPU, and its entry becomes free. */
static __always_inline void share_give_back(struct share *s) {
	struct share *above = share_of(s->parent);

	s->sum = 0;
	share_settle(s->number);
	if (above)
		__sync_fetch_and_add(&above->below, -1);
	s->number = 0;
	__sync_lock_test_and_set(&s->taken, 0);
}

SEC("struct_ops.s/cgroup_init")
s32 BPF_PROG(share_init, struct cgroup *group, struct scx_cgroup_init_args *args) {
	u64 id = share_id(group), number;
	struct share *s, *above;
	u32 place = 0;

	/* Without an entry, the group's threads are weighted as those of the root. */
	s = id ? share_take(&place) : 0;
	if (!s)
		return 0;
	s->weight = share_idle(group) ? SHARE_IDLE : args->weight;
	s->parent = share_number(BPF_CORE_READ(group, self.parent, cgroup));
	s->sum = s->counted = s->below = s->part = 0;
	quota_set(&s->quota, args->bw_period_us, args->bw_quota_us, args->bw_burst_us, now_ns());
	number = (u64)++s->last << 32 | place;
	s->number = number;
	above = share_of(s->parent);
	if (above)
		__sync_fetch_and_add(&above->below, 1);
	share_changes();
	if (bpf_map_update_elem(&sched_share_at, &id, &number, BPF_ANY))
		share_give_back(s);
	return 0;
}

SEC("struct_ops.s/cgroup_exit")
void BPF_PROG(share_exit, struct cgroup *group) {
	struct share *s = share_of(share_number(group));
	u64 id = share_id(group);

	bpf_map_delete_elem(&sched_share_at, &id);
	if (s)
		share_give_back(s);
}

static __always_inline void share_weigh(struct cgroup *group, u32 weight) {
	struct share *s = share_of(share_number(group));

	if (!s)
		return;
	s->weight = weight;
	share_changes();
	share_settle(s->number);
}

SEC("struct_ops/cgroup_set_weight")
void BPF_PROG(share_weighs, struct cgroup *group, u32 weight) {
	share_weigh(group, weight);
}

SEC("struct_ops/cgroup_set_idle")
void BPF_PROG(share_idles, struct cgroup *group, bool idle) {
	share_weigh(group, idle ? SHARE_IDLE : VTIME_WEIGHT);
}

SEC("struct_ops/cgroup_set_bandwidth")
void BPF_PROG(share_limits, struct cgroup *group, u64 period_us, u64 quota_us, u64 burst_us) {
	struct share *s = share_of(share_number(group));

	if (!s)
		return;
	quota_set(&s->quota, period_us, quota_us, burst_us, now_ns());
	share_changes();
}

SEC("struct_ops/cgroup_move")
void BPF_PROG(share_moves, struct task_struct *p, struct cgroup *from, struct cgroup *to) {
	struct sched_task *t = task_of(p);

	if (!t)
		return;
	/* The kernel takes a task out of its queue before this call, and inserts it again
	 * afterwards. */
	share_sleep(t);
	share_enters(t, share_number(to));
	if (t->ready)
		share_ready(t);
}

#endif
