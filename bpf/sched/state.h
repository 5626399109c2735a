/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the scheduler: the policy's table per CPU (bpf/lib/sched), the scheduling attributes
 * per task, and the queues in which threads wait.
 *
 * A thread that is an entity waits in a dispatch queue of its own; the plain threads of a CPU wait
 * in one that is ordered by virtual time. So the thread that the policy chooses is always the first
 * of some queue.
 *
 * The table of a CPU is changed only under that CPU's run queue lock, which the kernel holds around
 * every operation of this scheduler for that CPU, except select_cpu and the timer, which only read.
 */
#ifndef ECALLS_SCHED_STATE_H
#define ECALLS_SCHED_STATE_H

#include "scx.h"
#include "abi/sched.h"
#include "lib/histogram.h"
#include "lib/sched/choose.h"
#include "lib/sched/quota.h"

_Static_assert(SCHED_WHY_NOBODY == ECALLS_WHY_NOBODY && SCHED_WHY_FAIR == ECALLS_WHY_FAIR &&
		       SCHED_WHY_RELEASE == ECALLS_WHY_RELEASE &&
		       SCHED_WHY_WINDOW == ECALLS_WHY_WINDOW && SCHED_WHY_EVENT == ECALLS_WHY_EVENT,
	       "the policy's reasons are those of abi/sched.h");

#define CPUS_MAX 1024u

/* Dispatch queues: of the entities of all CPUs, then two per CPU, of plain threads and of those
 * that wait for their group's next period (quota.h). */
#define QUEUE_ENTITY(cpu, entity) ((u64)(cpu) * SCHED_ENTITIES + (entity))
#define QUEUE_PLAIN(cpu) (1ull << 32 | (cpu))
#define QUEUE_PARKED(cpu) (2ull << 32 | (cpu))

/* A group on one CPU. Group numbers are per user. */
struct group_key {
	u32 cpu;
	u32 uid;
	u32 number;
	u32 pad;
};
/* Data of a CPU beside the policy's table. Each u64 of entities is a set of places. */
struct sched_places {
	u64 left;	   /* threads that have left, to be cleared; any CPU adds to it */
	u64 sinks;	   /* threads that read the events of a channel (sink.h) */
	u64 heirs;	   /* threads without a slot of their own (heir.h) */
	u32 looked;	   /* the CPU that balancing looked at last (take.h) */
	u32 took;	   /* 1: balancing took a thread at the last choice */
	u64 look_ns;	   /* time of the next look of balancing */
	u64 rotate_ns;	   /* time of the next rotation; other CPUs write it, too */
	u64 load;	   /* load of this CPU (load.h) */
	u64 shown_ns;	   /* until then no thread goes into the local queue (next.h) */
	u32 nexts;	   /* threads in the local queue; any CPU changes it */
	u32 is_free;	   /* 1: one of them may run on other CPUs */
	u32 idle;	   /* 1: no thread has run here since it found none (idle.h) */
	u32 asked;	   /* 1: it would take a thread that is next elsewhere (next.h) */
	u64 last;	   /* address of the thread that stopped last (usual.h); 0: unknown */
	u64 stopped;	   /* the same until it enters its queue, or another thread runs */
	u64 goes;	   /* 1: that thread is next */
	u64 bindings;	   /* the running thread's `bindings`; SCHED_NEVER: not usual */
	u64 ended;	   /* 1: its turn was ended for another thread (timer.h) */
	u64 waits_look_ns; /* time of the next check for long waits (wait.h) */
	u32 channel[SCHED_ENTITIES];		/* the channel that a sink reads */
	struct group_key group[SCHED_ENTITIES]; /* user and group number of each entity */
	u64 summed[SCHED_ENTITIES];		/* a group's CPU time here that is in group_times */
};

/* The timer of a CPU (timer.h). */
struct sched_timer_of {
	struct bpf_timer timer;
	u64 at_ns;   /* when it expires; 0: it is not armed */
	u64 past_ns; /* the last time that was past when the timer was armed */
	u64 look_ns; /* when the CPU looks at threads that wait for a quota (quota.h); 0: none */
};

/* All data of a CPU, so that an operation looks them up once. */
struct sched_here {
	struct sched_cpu cpu;
	struct sched_places places;
	struct sched_timer_of timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* number of CPUs, set by the loader */
	__type(key, u32);
	__type(value, struct sched_here);
} sched_cpus SEC(".maps");

#define COMES_BACK 0u /* it has run, and was inserted into its queue again */
#define COMES_NOW 1u  /* it becomes ready, and enters its queue next */
#define COMES_WAITS 2u

/* The scheduler's data of a thread. */
struct sched_task {
	struct sched_plain plain;
	u32 cpu;     /* the CPU of its virtual time */
	u32 entity;  /* its index on that CPU, or SCHED_NOBODY */
	u32 ready;   /* 1: the policy counts it as waiting or running */
	u32 comes;   /* COMES_...: how it came to its queue, until it runs */
	u32 channel; /* the channel and the slot by which it polls; 0: none */
	u32 slot;
	u32 bound;  /* 1: it was an entity, and becomes one again where it runs next */
	u32 wishes; /* number of answered wishes of its binding */
	u32 group;  /* the group that it named last, and its user */
	u32 uid;
	u32 sink;	    /* its thread id if it reads the channel's events; else 0 */
	u32 handed_group;   /* group that its program was given, inherited (heir.h); 0: none */
	u32 handed_uid;	    /* user of that group */
	u32 handed_channel; /* the giver's slot, where it reads the group's CPU time; 0: none */
	u32 handed_slot;
	u32 born;	  /* 1: it was created, and has not been enabled yet */
	u32 nice;	  /* weight of its nice value */
	u32 counted_nice; /* part of it in the sum of its control group (share.h) */
	u32 loaded;	  /* its weight in the load of a CPU (load.h), and that CPU */
	u32 loaded_cpu;
	u32 limited;  /* not 0: its control group, or one above, may have a quota (quota.h) */
	u32 next;     /* 1: it waits in the local queue of its CPU (next.h) */
	u32 timed;    /* not 0: its program is timed, inherited like a group (timed.h) */
	u32 parked;   /* 1: it waits for that quota; `ready` is 0 */
	u64 bindings; /* value of coop_changes when its binding was read last (sink.h) */
	u64 from_ns;  /* since when its turn has not been charged to the quota; 0: no turn */
	u64 share;    /* number of its control group (share.h); 0: the root */
	u64 since_ns; /* since when it waits or, if plain, sleeps; 0: from the start */
	u64 polls;    /* counter of the slot, as read last */
	u64 counted;  /* the last poll whose release was counted */
	u64 sleep_ns; /* the time until which it sleeps, and of its timer (timed.h); 0: none */
	u64 timer_ns;
	u64 due_ns; /* the one at which it woke, until it runs; 0: none */
	/* its violations, as counted last */
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

/* Always 0, which the verifier does not know: a loop that counts from it is walked once, and one
 * that counts from a constant in each of its rounds. */
u32 sched_zero SEC(".bss.shares");

/* Options that the loader sets. */
const volatile struct {
	u32 cpus;
	struct sched_options options;
	u64 watchdog_ns; /* the kernel ends a scheduler that lets a thread wait for so long */
} setting SEC(".rodata.setting");

/* For so long a thread waits at most (wait.h, quota.h), by this scheduler's will. */
#define WAIT_MOST_NS (setting.watchdog_ns / 3)

/* Each CPU writes its own entry. */
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

static __always_inline struct sched_here *here_of(u32 cpu) {
	return bpf_map_lookup_elem(&sched_cpus, &cpu);
}

/* The parts of it. The verifier refuses arithmetic before the test, to which the compiler would
 * move it. */
static __always_inline struct sched_cpu *cpu_of(u32 cpu) {
	struct sched_here *here = here_of(cpu);

	if (!here)
		return 0;
	__asm__ volatile("" : "+r"(here));
	return &here->cpu;
}

static __always_inline struct sched_places *places_of(u32 cpu) {
	struct sched_here *here = here_of(cpu);

	if (!here)
		return 0;
	__asm__ volatile("" : "+r"(here));
	return &here->places;
}

static __always_inline struct sched_timer_of *timer_of(u32 cpu) {
	struct sched_here *here = here_of(cpu);

	if (!here)
		return 0;
	__asm__ volatile("" : "+r"(here));
	return &here->timer;
}

static __always_inline struct sched_task *task_of(struct task_struct *p) {
	return bpf_task_storage_get(&sched_tasks, p, 0, 0);
}

static __always_inline u64 now_ns(void) {
	return bpf_ktime_get_ns();
}

/* The index by which the policy knows a running task. */
static __always_inline u32 who_is(const struct sched_task *t) {
	if (t->entity < SCHED_ENTITIES)
		return t->entity;
	return t->plain.group < SCHED_ENTITIES ? t->plain.group : SCHED_PLAIN;
}

#endif
