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
 * of those that want the CPU. It is computed whenever the thread gets the CPU. Sums are over all
 * CPUs, as a group's share is.
 *
 * A group's sum is changed by atomic additions when threads become ready and sleep. Only when the
 * first one comes or the last one goes, or the weight changes, is the sum above changed: `settle`
 * makes `counted` right and then looks again, so that of two who do it at once the later one sees
 * what the other did. A sum that is read meanwhile is wrong for one time slice.
 *
 * Groups stand in a table, and a thread knows the place of its own. A place that is given back goes
 * to another group with another number, so that nobody takes one for the other. A group's part of
 * all is kept with it, and good while `shares.version` is what it was then: any sum of groups, and
 * any weight, that changes makes a new version, while the threads of a group that goes on wanting
 * the CPU come and go without one.
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

#define SHARE_GROUPS_MAX 4096u /* a power of two */
#define SHARE_NEAR 64u	       /* of them are looked at at a time */
#define SHARE_LEVELS 16u       /* groups within groups; above, no more is divided */
#define SHARE_ROUNDS 64u       /* of settling: two per level, and room for others who do it */
#define SHARE_SCALE 64u	       /* weights are so much larger than the kernel's, for parts of them */
#define SHARE_PART_BITS 16     /* after the point, of a group's part */
#define SHARE_FINE_BITS 16     /* and more of them while it is computed */
#define SHARE_IDLE 1u	       /* weight of an idle group */
#define SHARE_NICE_0 (VTIME_WEIGHT * SHARE_SCALE)
#define SHARE_LEAST (SHARE_NICE_0 / 256) /* else it waits until the kernel's watchdog notices */

struct share {
	u64 number; /* of the group that has this place now; 0: none */
	u64 taken;  /* 1: by a group that comes, is here, or goes */
	u64 last;   /* of all that had it: how many */
	u64 parent; /* number of the group above; 0: the root */
	s64 sum;    /* weights of the threads in it, and of the groups below, that want the CPU */
	u64 weight;
	u64 counted; /* of it, in the parent's sum */
	u64 below;   /* groups in it */
	u64 part;    /* its part of all, and in the upper half of which version that is; 0: none */
};

/* The root has none. A group's number has its place here in the lower half. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARE_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct share);
} sched_shares SEC(".maps");

/* The number of a control group, by the kernel's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHARE_GROUPS_MAX);
	__type(key, u64);
	__type(value, u64);
} sched_share_at SEC(".maps");

struct {
	u32 version; /* of all groups' parts */
	u32 next;    /* where to look for a free place */
} shares SEC(".bss.shares");

static __always_inline struct share *share_at(u32 at) {
	return bpf_map_lookup_elem(&sched_shares, &at);
}

static __always_inline struct share *share_of(u64 number) {
	struct share *s = number ? share_at((u32)number) : 0;

	return s && s->number == number ? s : 0;
}

/* Groups' parts may be others from now on. After the change, which is atomic or one store. */
static __always_inline void share_changes(void) {
	__sync_fetch_and_add(&shares.version, 1);
}

static __always_inline u64 share_wanted(const volatile struct share *s) {
	return s->sum > 0 ? s->weight : 0;
}

/* Makes the sum above a group right. Which group is next: the same one again, the one above, or
 * none (0). It is a function that is verified once, not in each round. */
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

/* Whether a group wants the CPU may have changed: makes the sums above right. */
__noinline int share_settle(u64 number) {
	for (u32 round = 0; lib_again(round, SHARE_ROUNDS); round++) {
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

/* A group's part of all: its weight, by the sum above, times the weight above, and so on. */
__noinline u64 share_part(u64 number) {
	/* Before the sums: if one changes meanwhile, this part is of a version that has gone. */
	u64 version = __sync_fetch_and_add(&shares.version, 0);
	struct share *s = share_of(number);
	u64 part, own;

	if (!s)
		return 0;
	own = s->weight;
	part = own << (SHARE_PART_BITS + SHARE_FINE_BITS);
	number = s->parent;
	for (u32 level = 0; lib_again(level, SHARE_LEVELS); level++) {
		const volatile struct share *above = share_of(number);
		if (!above || level >= SHARE_LEVELS)
			break;
		s64 sum = above->sum;
		own = sum > (s64)own ? (u64)sum : own;
		part = part * above->weight / (own ? own : 1);
		own = above->weight;
		number = above->parent;
	}
	part >>= SHARE_FINE_BITS;
	part = part ? part : 1;
	*(volatile u64 *)&s->part = version << 32 | part;
	return part;
}

/* A thread's weight towards all others. */
static __always_inline u32 share_weight(const struct sched_task *t) {
	u64 weight = (u64)t->nice * SHARE_SCALE, own = t->nice ? t->nice : 1, part;
	struct share *s = share_of(t->share);

	if (s) {
		s64 sum = *(volatile s64 *)&s->sum;
		part = *(volatile u64 *)&s->part;
		part = part && part >> 32 == shares.version ? (u32)part : share_part(t->share);
		weight = weight * part / (sum > (s64)own ? (u64)sum : own);
		weight = (weight + (1u << (SHARE_PART_BITS - 1))) >> SHARE_PART_BITS;
	}
	return weight > SHARE_LEAST ? weight : SHARE_LEAST;
}

/* The number of a control group as the kernel gives it, 0 for the root. */
static __always_inline u64 share_id(struct cgroup *group) {
	return group && BPF_CORE_READ(group, self.parent) ? BPF_CORE_READ(group, kn, id) : 0;
}

/* And ours; 0: the root, or one that has no place. */
static __always_inline u64 share_number(struct cgroup *group) {
	u64 id = share_id(group), *number = id ? bpf_map_lookup_elem(&sched_share_at, &id) : 0;

	return number ? *number : 0;
}

/* Whether a control group was idle before we came: who weighs is not told. */
static __always_inline bool share_idle(struct cgroup *group) {
	struct cgroup___cpu *cpu = (void *)group;
	struct task_group *known = 0;

	bpf_probe_read_kernel(&known, sizeof(known),
			      &cpu->subsys[0] + SCX_NUMBER(cgroup_subsys_id, cpu_cgrp_id));
	return known && BPF_CORE_READ(known, scx.idle);
}

/* Takes one of a few places from there on; -1: none of them is free. On its own, so that the
 * verifier does not walk through the whole table. */
__noinline int share_take_near(u32 from) {
	for (u32 round = 0; lib_again(round, SHARE_NEAR); round++) {
		u32 at = (from + round) & (SHARE_GROUPS_MAX - 1);
		struct share *s = share_at(at);
		if (!s || round >= SHARE_NEAR)
			break;
		if (!s->taken && !__sync_lock_test_and_set(&s->taken, 1))
			return (int)at;
	}
	return -1;
}

/* A place for a group, taken; none if all are. */
static __always_inline struct share *share_take(u32 *place) {
	u32 from = shares.next;
	int at = -1;

	for (u32 round = 0; lib_again(round, SHARE_GROUPS_MAX / SHARE_NEAR); round++) {
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

/* Nobody wants the CPU for this group any more, and its place is free. */
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

	/* Without room for it, its threads are weighed as those of the root. */
	s = id ? share_take(&place) : 0;
	if (!s)
		return 0;
	s->weight = share_idle(group) ? SHARE_IDLE : args->weight;
	s->parent = share_number(BPF_CORE_READ(group, self.parent, cgroup));
	s->sum = s->counted = s->below = s->part = 0;
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

SEC("struct_ops/cgroup_move")
void BPF_PROG(share_moves, struct task_struct *p, struct cgroup *from, struct cgroup *to) {
	struct sched_task *t = task_of(p);

	if (!t)
		return;
	/* The kernel takes a task out of its queue first, and puts it back after. */
	share_sleep(t);
	t->share = share_number(to);
	if (t->ready)
		share_ready(t);
}

#endif
