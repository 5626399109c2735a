/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduling policy's state of one CPU.
 *
 * The policy (bpf/lib/sched) decides which thread runs, for how long, and when the next decision is
 * due. It has no access to tasks of the kernel: the code in bpf/sched reports to it what happened
 * and carries out its decisions. Times are arguments, in nanoseconds of one clock. The caller holds
 * the CPU's lock.
 *
 * Entities. A thread with scheduling attributes of its own (one that polls cooperatively, has a
 * window, or waits for events) is an entity, as is a group of threads. Entities are in a table of
 * 64 per CPU, so each set of them is one word, and each search one pass over its bits. All other
 * threads of the system are *plain*: the caller keeps their virtual time (struct sched_plain) and
 * their order, and passes the least virtual time of the waiting ones with each request (struct
 * sched_queue).
 *
 * A member of a group competes with the other members; the group competes with all other threads.
 *
 * Invariants: the sets contain only used entities; a group is runnable while a member is runnable;
 * an entity is in at most one group, and no group is in another group.
 */
#ifndef ECALLS_SCHED_ENTITY_H
#define ECALLS_SCHED_ENTITY_H

#include "../bits.h"

#define SCHED_ENTITIES 64u  /* one bit each */
#define SCHED_NOBODY 64u    /* no entity: no group, no result */
#define SCHED_PLAIN 65u	    /* the running or the chosen thread is a plain one */
#define SCHED_NEVER (~0ull) /* no release time; no importance */

struct sched_options {
	ecalls_u64 period_ns;	 /* the period in which each runnable thread runs once */
	ecalls_u64 slice_min_ns; /* minimum of a time slice that no release ends */
	ecalls_u64 slack_ns;	 /* time by which a cooperative thread may exceed its slice */
	ecalls_u64 ahead_ns;	 /* CPU time that timely dispatch may add to the fair share */
	ecalls_u64 reserve;	 /* part of the CPU, in 2^20ths, that windows do not use */
	ecalls_u64 server_ns;	 /* service time of the task server per period; 0: none */
	ecalls_u32 window_order; /* WINDOW_DWCS or WINDOW_SPREAD (window.h) */
	ecalls_u32 pad;
};

/* Service by window (window.h): the thread is to get its service time in each period, except in x
 * periods of any y. */
struct sched_window {
	ecalls_u64 period_ns; /* 0: no window */
	ecalls_u64 service_ns;
	ecalls_u64 deadline_ns; /* end of the current period */
	ecalls_u64 served_ns;	/* in the current period */
	ecalls_u32 x;
	ecalls_u32 y;
	ecalls_u32 now_x; /* the current window-constraint, x' and y' */
	ecalls_u32 now_y;
	ecalls_u32 position; /* of the current period in its window of y, for WINDOW_SPREAD */
	ecalls_u32 tagged;   /* the period was missed while x' was 0: a violation */
	ecalls_u64 met;	     /* periods that were met */
	ecalls_u64 missed;
	ecalls_u64 violated;
};

/* A thread without an entity. The caller stores it; that of the running thread is in
 * sched_cpu.plain. */
struct sched_plain {
	ecalls_u64 vtime; /* of a group's member: its virtual time within the group */
	ecalls_u64 slept; /* that of its CPU when it fell asleep there; 0: not known (fair.h) */
	ecalls_u32 weight;
	ecalls_u32 group; /* SCHED_NOBODY: none */
	ecalls_u32 brief; /* so often its turns are believed to be about to end (brief.h) */
	ecalls_u32 pad;
};

/* The plain threads without a group that wait for this CPU. */
struct sched_queue {
	ecalls_u64 vtime; /* the least virtual time of these threads, if there are any */
	ecalls_u64 count;
};

/* What the policy has chosen (choose.h). */
struct sched_choice {
	ecalls_u32 who; /* an entity, a group (its first plain thread), SCHED_PLAIN, SCHED_NOBODY */
	ecalls_u32 why; /* SCHED_WHY_... */
	ecalls_u32 keep; /* 1: the running thread continues */
	ecalls_u32 pad;
};

struct sched_entity {
	ecalls_u64 vtime;  /* of a member: within its group; of a group: shared by all members */
	ecalls_u32 weight; /* of a group: the sum over its runnable members */
	ecalls_u32 group;  /* SCHED_NOBODY: none */
	/* a cooperative thread: what its last poll published, and its violations (police.h) */
	ecalls_u64 release_ns;
	ecalls_u64 importance; /* a smaller value is more important */
	ecalls_u64 overran;
	ecalls_u64 slept;
	ecalls_u64 ahead;
	ecalls_u64 event_ns; /* deadline of its first event, while it is in sched_cpu.events */
	ecalls_u64 turn_ns;  /* what is left of the turn for its time, in sched_cpu.due (timed.h) */
	struct sched_window window;
	/* a group */
	ecalls_u64 ran_ns;	  /* CPU time of all its members */
	ecalls_u64 inner_vtime;	  /* of the member that was chosen last: new members begin there */
	ecalls_u64 head_vtime;	  /* the least of its waiting plain members, if there are any */
	ecalls_u64 shared_vtime;  /* common to all members that have published an importance */
	ecalls_u32 shared_weight; /* sum over the runnable members of these */
	ecalls_u32 pad;
	ecalls_u32 queued;  /* number of plain members that wait */
	ecalls_u32 members; /* number of runnable members, plain ones and entities */
};

struct sched_cpu {
	struct sched_options options;
	ecalls_u64 used;
	ecalls_u64 groups;	/* the entities that are groups */
	ecalls_u64 inside;	/* the entities that are in a group */
	ecalls_u64 runnable;	/* waiting or running */
	ecalls_u64 cooperative; /* threads in the release queue, runnable or not */
	ecalls_u64 polled;	/* threads that have polled since they last ran */
	ecalls_u64 timed;	/* threads of timed programs (timed.h) */
	ecalls_u64 due;		/* of these, in `cooperative`: they wait, and their time has come */
	ecalls_u64 fresh;	/* of `due`: they have not run since then */
	ecalls_u64 windowed;	/* threads with a window */
	ecalls_u64 promised;	/* threads whose window is guaranteed (admit.h) */
	ecalls_u64 served;	/* threads that have had their service in the current period */
	ecalls_u64 conserving;	/* threads that may also run beyond their service */
	ecalls_u64 counting;	/* threads whose current period claims the CPU, once they wait */
	ecalls_u64 starting;	/* promised threads that wait for an end of claims (admit.h) */
	ecalls_u64 events;	/* threads with pending events */
	ecalls_u64 vtime;	/* the least virtual time; it never decreases */
	ecalls_u64 passed;	/* of plain threads that have run, not in `vtime` yet (fair.h) */
	ecalls_u64 owed;    /* virtual time at which new threads begin, if it is later (fair.h) */
	ecalls_u64 woke;    /* 1: the running thread woke for its turn (fair.h) */
	ecalls_u64 kept;    /* threads that woke in this turn and did not preempt it (brief.h) */
	ecalls_u64 kept_ns; /* when the first of them woke */
	ecalls_u64 quotas;  /* the caller's: what quotas of control groups require (quota.h) */
	ecalls_u64 yields;  /* 1: the running plain thread has yielded (fair.h) */
	ecalls_u64 queued_vtime; /* virtual time of the plain thread that began to wait last */
	struct sched_queue queue;
	/* the running thread: an entity's index, a group's index (then a plain member of the group
	 * runs), SCHED_PLAIN, or SCHED_NOBODY */
	ecalls_u32 running;
	ecalls_u32 zero; /* always 0, for the verifier: see heap.h */
	struct sched_plain plain;
	ecalls_u64 charged_ns;	 /* the running thread has been charged up to this time */
	ecalls_u64 protected_ns; /* until then, few plain threads preempt it (fair.h) */
	ecalls_u64 slice_end_ns; /* when the running thread should yield */
	ecalls_u64 limit_ns;	 /* when the running thread is preempted */
	/* when the turn ends that the running thread has for its time (timed.h); 0: none */
	ecalls_u64 due_end_ns;
	/* how the running thread claims the CPU by its window, which costs it no virtual time
	 * (window.h); 0: it does not claim */
	ecalls_u32 claims;
	ecalls_u32 on_server; /* 1: the running thread runs in place of the task server */
	ecalls_u32 serving;   /* the thread that was chosen in place of the task server */
	ecalls_u32 first;     /* the entity with the least virtual time (fair_update) */
	/* the earliest release of the other threads at the start of the turn */
	ecalls_u64 next_release_ns;
	ecalls_u64 grid_ns;	 /* common period of all windows; 0: each window has its own */
	ecalls_u64 quota_end_ns; /* end of the time for which quota_used_ns counts */
	ecalls_u64 quota_used_ns;
	ecalls_u64 promised_share; /* part of the CPU, in 2^20ths, that promised windows need */
	ecalls_u64 all_fit;	   /* 1: all periods of all windows fit beside the reserve */
	/* while threads want this CPU: how long one of them has had it, and how long somebody else
	 * has, whom this policy does not schedule (away.h); and the latter's part before that, in
	 * 2^20ths */
	ecalls_u64 had_ns;
	ecalls_u64 away_ns;
	ecalls_u64 away_share;
	/* An argument and a result of functions that the verifier checks once (lib/portable.h) */
	struct sched_choice choice; /* the last one of sched_choose */
	struct sched_window wish;   /* the window that admit() is asked for: its T, C, x, y */
	struct sched_window server; /* the task server */
	struct sched_entity entity[SCHED_ENTITIES];
};

/* An index within the table. The compiler may know that the index is in range, and omit the mask;
 * the verifier needs the mask, so the value is hidden from the compiler. */
LIB_INLINE ecalls_u32 sched_at(ecalls_u32 i) {
	__asm__("" : "+r"(i));
	return i & (SCHED_ENTITIES - 1u);
}

LIB_INLINE ecalls_u64 sched_bit(ecalls_u32 i) {
	return i < SCHED_ENTITIES ? 1ull << sched_at(i) : 0;
}

LIB_INLINE _Bool sched_in(ecalls_u64 set, ecalls_u32 i) {
	return (set & sched_bit(i)) != 0;
}

/* Whether no thread of this CPU is an entity, as on most CPUs. Then virtual time alone decides, and
 * each function below does only what concerns plain threads: the result is the same. */
LIB_INLINE _Bool sched_is_plain(const struct sched_cpu *cpu) {
	return !cpu->used;
}

LIB_INLINE struct sched_entity *sched_entity(struct sched_cpu *cpu, ecalls_u32 i) {
	return &cpu->entity[sched_at(i)];
}

/* Number of the only bit of a word, looked up by the 6 highest bits of its product with this
 * number, which differ for each bit (a de Bruijn sequence). BPF has no instruction that counts
 * zeros, and each search of the policy needs this number once for each entity. */
#define SCHED_SEQUENCE 0x03f79d71b4cb0a89ull
static const ecalls_u8 sched_bit_number[SCHED_ENTITIES] = {
	0,  1,	48, 2,	57, 49, 28, 3,	61, 58, 50, 42, 38, 29, 17, 4,	62, 55, 59, 36, 53, 51,
	43, 22, 45, 39, 33, 30, 24, 18, 12, 5,	63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
	44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,	13, 8,	7,  6,
};

/* Removes the lowest entity from a set, which is not empty, and returns its index. */
LIB_INLINE ecalls_u32 sched_next(ecalls_u64 *set) {
	ecalls_u64 lowest = *set & -*set;

	*set ^= lowest;
	return sched_at(sched_bit_number[(lowest * SCHED_SEQUENCE) >> 58]);
}

/* The caller has zeroed the memory. */
LIB_INLINE void sched_init(struct sched_cpu *cpu, const struct sched_options *options) {
	cpu->options = *options;
	cpu->running = SCHED_NOBODY;
	cpu->serving = SCHED_NOBODY;
}

/* A new entity, not runnable. SCHED_NOBODY: the table is full, so the thread remains plain. */
LIB_GLOBAL ecalls_u32 sched_add(struct sched_cpu *cpu LIB_NONNULL, ecalls_u32 weight,
				ecalls_u32 group) {
	ecalls_u32 i = bits_lowest(~cpu->used);

	if (i >= SCHED_ENTITIES)
		return SCHED_NOBODY;
	struct sched_entity *e = sched_entity(cpu, i);
	*e = (struct sched_entity){
		.vtime = cpu->vtime,
		.weight = weight,
		.group = SCHED_NOBODY,
		.release_ns = SCHED_NEVER,
		.importance = SCHED_NEVER,
		.event_ns = SCHED_NEVER,
	};
	cpu->used |= sched_bit(i);
	if (sched_in(cpu->groups, group)) {
		e->group = group;
		e->vtime = sched_entity(cpu, group)->inner_vtime;
		cpu->inside |= sched_bit(i);
	}
	return i;
}

/* A new group without members. */
LIB_INLINE ecalls_u32 sched_add_group(struct sched_cpu *cpu) {
	ecalls_u32 g = sched_add(cpu, 0, SCHED_NOBODY);

	cpu->groups |= sched_bit(g);
	return g;
}

/* Removes an entity, which must not be runnable (a thread blocks first). A group that still has
 * members must not be removed. */
LIB_INLINE void sched_remove(struct sched_cpu *cpu, ecalls_u32 i) {
	ecalls_u64 others = ~sched_bit(i);

	cpu->used &= others;
	cpu->groups &= others;
	cpu->inside &= others;
	cpu->runnable &= others;
	cpu->cooperative &= others;
	cpu->windowed &= others;
	cpu->promised &= others;
	cpu->served &= others;
	cpu->conserving &= others;
	cpu->counting &= others;
	cpu->starting &= others;
	cpu->events &= others;
	cpu->polled &= others;
	cpu->timed &= others;
	cpu->due &= others;
	cpu->fresh &= others;
}

#endif
