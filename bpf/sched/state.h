/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler keeps: per CPU the policy's table (bpf/lib/sched), per task what the policy
 * says of a thread, and the queues in which threads wait.
 *
 * A thread that is an entity waits in a dispatch queue of its own, the plain threads of a CPU in
 * one by virtual time: so whoever the policy chooses is the first of some queue.
 *
 * The table of a CPU is changed under that CPU's run queue lock only, which the kernel holds around
 * every operation of this scheduler for that CPU (select_cpu and the timer excepted: they only
 * read).
 */
#ifndef ECALLS_SCHED_STATE_H
#define ECALLS_SCHED_STATE_H

#include "scx.h"
#include "abi/sched.h"
#include "lib/histogram.h"
#include "lib/sched/choose.h"

_Static_assert(SCHED_WHY_NOBODY == ECALLS_WHY_NOBODY && SCHED_WHY_FAIR == ECALLS_WHY_FAIR &&
		       SCHED_WHY_RELEASE == ECALLS_WHY_RELEASE &&
		       SCHED_WHY_WINDOW == ECALLS_WHY_WINDOW && SCHED_WHY_EVENT == ECALLS_WHY_EVENT,
	       "the policy's reasons are those of abi/sched.h");

#define CPUS_MAX 1024u

/* Dispatch queues: of the entities of all CPUs, then one per CPU. */
#define QUEUE_ENTITY(cpu, entity) ((u64)(cpu) * SCHED_ENTITIES + (entity))
#define QUEUE_PLAIN(cpu) (1ull << 32 | (cpu))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs: the loader says how many */
	__type(key, u32);
	__type(value, struct sched_cpu);
} sched_cpus SEC(".maps");

#define COMES_BACK 0u /* it has run, and was put back */
#define COMES_NOW 1u  /* it becomes ready, and enters its queue next */
#define COMES_WAITS 2u

/* A thread. */
struct sched_task {
	struct sched_plain plain;
	u32 cpu;     /* whose virtual time it goes by */
	u32 entity;  /* of that CPU, or SCHED_NOBODY */
	u32 ready;   /* 1: the policy knows that it waits or runs */
	u32 comes;   /* COMES_...: how it came here, until it runs */
	u32 channel; /* whose slot it polls by, and which slot; 0: none */
	u32 slot;
	u32 bound;  /* 1: it was an entity, and is to be one again where it runs next */
	u32 wishes; /* of its binding, that were answered */
	u32 group;  /* and whose: as it named it last */
	u32 uid;
	u32 sink;	    /* its number if it reads that channel's events; 0: it does not */
	u32 handed_group;   /* its program was given: it inherits that (heir.h); 0: none */
	u32 handed_uid;	    /* whose group that is */
	u32 handed_channel; /* the slot where the giver looks; 0: none */
	u32 handed_slot;
	u32 born;	  /* 1: it was made by another thread, and has not run yet */
	u32 nice;	  /* its weight by its nice value */
	u32 counted_nice; /* of it, in the sum of its control group (share.h) */
	u32 loaded;	  /* of its weight, in what a CPU carries (load.h), and which CPU */
	u32 loaded_cpu;
	u64 share;    /* number of its control group (share.h); 0: the root */
	u64 waits_ns; /* since when it waits; 0: it did not yet (wait.h) */
	u64 polls;    /* of the slot, as seen last */
	u64 counted;  /* the poll whose release was counted last */
	/* its offences, as counted last */
	u64 overran;
	u64 slept;
	u64 ahead;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sched_task);
} sched_tasks SEC(".maps");

/* What the loader says. */
const volatile struct {
	u32 cpus;
	struct sched_options options;
} setting SEC(".rodata.setting");

/* Written by the CPU it is about. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_sched_count);
} sched_counts SEC(".maps");

static __always_inline struct ecalls_sched_count *counts_of(u32 cpu) {
	return bpf_map_lookup_elem(&sched_counts, &cpu);
}

#define SCHED_COUNT(cpu, what)                                                                     \
	do {                                                                                       \
		struct ecalls_sched_count *counts_ = counts_of(cpu);                               \
		if (counts_)                                                                       \
			counts_->what++;                                                           \
	} while (0)

static __always_inline struct sched_cpu *cpu_of(u32 cpu) {
	return bpf_map_lookup_elem(&sched_cpus, &cpu);
}

static __always_inline struct sched_task *task_of(struct task_struct *p) {
	return bpf_task_storage_get(&sched_tasks, p, 0, 0);
}

static __always_inline u64 now_ns(void) {
	return bpf_ktime_get_ns();
}

/* As whom a task runs, for the policy. */
static __always_inline u32 who_is(const struct sched_task *t) {
	if (t->entity < SCHED_ENTITIES)
		return t->entity;
	return t->plain.group < SCHED_ENTITIES ? t->plain.group : SCHED_PLAIN;
}

#endif
