/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The scheduler's statistics and traces. The scheduler writes all of them; the process that started
 * it, and root, read them.
 *
 * Histograms of times are in us, with the buckets of bpf/lib/histogram.h.
 */
#ifndef ECALLS_SCHED_H
#define ECALLS_SCHED_H

#include "version.h"

/* The reasons for choosing a thread. */
#define ECALLS_WHY_NOBODY 0u  /* no thread wanted the CPU */
#define ECALLS_WHY_FAIR 1u    /* it had the least virtual time (Coop §3.2) */
#define ECALLS_WHY_RELEASE 2u /* its release was due (Coop §3.2) */
#define ECALLS_WHY_WINDOW 3u  /* its window claims the CPU (ECalls-05 §4.1) */
#define ECALLS_WHY_EVENT 4u   /* it is the sink of the first event (ECalls-05 §4.2) */
#define ECALLS_WHYS 8u

struct ecalls_sched_count {
	ecalls_u64 chosen[ECALLS_WHYS]; /* by reason */
	ecalls_u64 kept;		/* of those: the running thread continued */
	ecalls_u64 preempted;		/* a thread that became ready took the CPU at once */
	ecalls_u64 balanced;		/* threads taken from a CPU that had more */
	ecalls_u64 stolen;		/* threads taken because this CPU had none */
	ecalls_u64 entered;		/* threads that began to poll */
	ecalls_u64 left;		/* threads that ended, or went to another CPU */
	ecalls_u64 full;		/* threads for which there was no place */
	ecalls_u64 polls;
	ecalls_u64 overran;	  /* demotions: ran past the slice and the slack */
	ecalls_u64 slept;	  /* demotions: slept other than in a poll */
	ecalls_u64 ahead;	  /* demotions: virtual time too far beyond the least */
	ecalls_u64 releases;	  /* times at which a thread had the CPU after its release */
	ecalls_u64 tardiest_ns;	  /* of those, the worst tardiness: from the release to the CPU */
	ecalls_u64 windows;	  /* windows admitted, with or without a promise */
	ecalls_u64 refused;	  /* windows refused */
	ecalls_u64 untraced;	  /* notes for which the trace's buffer had no room */
	ecalls_u64 parked;	  /* times at which a thread began to wait for its group's quota */
	ecalls_u64 overdue;	  /* threads that ran because they had waited for ten seconds */
	ecalls_u64 tardiness[64]; /* of all releases */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_count) == 720, "schedule count");

/* How the scheduler treats a thread. */
#define ECALLS_KIND_FAIR 0u	   /* fair: a plain thread, or a demoted one */
#define ECALLS_KIND_COOPERATIVE 1u /* it polls, and keeps the rules */
#define ECALLS_KIND_WINDOW 2u	   /* it has a window */

/* A row of the statistics: a thread that polls, has a window or reads events, or a group of such
 * threads on one CPU. A new thread begins with zeroes. */
#define ECALLS_SEEN_FREE 0u
#define ECALLS_SEEN_THREAD 1u
#define ECALLS_SEEN_GROUP 2u

struct ecalls_sched_samples {
	ecalls_u64 max_ns;
	ecalls_u32 count[64]; /* by bucket */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_samples) == 264, "schedule samples");

struct ecalls_sched_seen {
	ecalls_u32 state; /* ECALLS_SEEN_... */
	ecalls_u32 kind;  /* ECALLS_KIND_..., of a thread */
	ecalls_u32 pid;	  /* of a thread */
	ecalls_u32 tid;	  /* of a thread */
	ecalls_u32 uid;
	ecalls_u32 group;  /* its number; 0: the thread is in none */
	ecalls_u32 within; /* the scheduler's own: the group's row */
	ecalls_u32 cpu;
	ecalls_u64 since_ns; /* when the row began */
	ecalls_u64 ready_ns; /* since when the thread waits for its CPU; 0: it does not */
	ecalls_u64 began_ns; /* since when it runs; 0: it does not */
	ecalls_u64 run_ns;   /* CPU time */
	ecalls_u64 overran;  /* demotions, by the rule that was broken */
	ecalls_u64 slept;
	ecalls_u64 ahead;
	ecalls_u8 comm[16];		       /* the thread's name when it began to poll */
	struct ecalls_sched_samples tardiness; /* from the release to the CPU */
	struct ecalls_sched_samples delay;     /* from being ready to the CPU */
	struct ecalls_sched_samples slice;     /* from the CPU to the next thread's turn */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_seen) == 896, "schedule row");

#define ECALLS_SEEN_RUNS 64u	/* number of last runs kept per CPU */
#define ECALLS_SEEN_WORST 16u	/* number of worst tardinesses kept per CPU */
#define ECALLS_SEEN_CULPRITS 8u /* threads named for each of them */

/* One run of a thread of any kind on the CPU. */
struct ecalls_sched_run {
	ecalls_u64 from_ns;
	ecalls_u64 to_ns; /* 0: it runs */
	ecalls_u32 pid;
	ecalls_u32 tid;
	ecalls_u32 kind; /* ECALLS_KIND_... */
	ecalls_u32 pad;
	ecalls_u8 comm[16];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_run) == 48, "schedule run");

/* A thread that ran while a thread was late; it can be the late thread itself. */
struct ecalls_sched_culprit {
	ecalls_u64 ran_ns;
	ecalls_u32 pid;
	ecalls_u32 tid; /* 0: no thread */
	ecalls_u32 kind;
	ecalls_u32 pad;
	ecalls_u8 comm[16];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_culprit) == 40, "schedule culprit");

/* One of the worst tardinesses. */
struct ecalls_sched_worst {
	ecalls_u64 at_ns; /* when the thread had the CPU; 0: nothing, or it is being written */
	ecalls_u64 release_ns;
	ecalls_u64 tardy_ns;
	ecalls_u64 before_ns; /* of that, time in which it did not wait: it slept, or ran */
	ecalls_u64 rest_ns;   /* of none below: interrupts, real-time threads, further threads */
	ecalls_u32 pid;
	ecalls_u32 tid;
	ecalls_u32 cpu;
	ecalls_u32 group;
	ecalls_u8 comm[16];
	struct ecalls_sched_culprit by[ECALLS_SEEN_CULPRITS];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_worst) == 392, "schedule worst");

/* The records of a CPU. */
struct ecalls_sched_watch {
	ecalls_u64 least_ns;	 /* the scheduler's own: the least of the worst, */
	ecalls_u64 forgotten_ns; /* since then */
	ecalls_u32 next;	 /* runs so far */
	ecalls_u32 pad;
	struct ecalls_sched_run run[ECALLS_SEEN_RUNS];
	struct ecalls_sched_worst worst[ECALLS_SEEN_WORST];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_watch) == 9368, "schedule watch");

/* The kinds of notes of a trace (bpf/sched/trace.h). */
#define ECALLS_TRACE_SWITCH                                                                        \
	1u			/* the CPU goes from thread `other` to this one; value: the former's
				   state; more: their priorities; which: ECALLS_KIND_... */
#define ECALLS_TRACE_WAKE 2u	/* is woken; which: for which CPU; more: its priority */
#define ECALLS_TRACE_POLL 3u	/* polls; value: its release time */
#define ECALLS_TRACE_RELEASE 4u /* has the CPU after its release; value: the release time */
#define ECALLS_TRACE_DEMOTED 5u /* breaks a rule; which: ECALLS_TRACE_OVERRAN, ... */
#define ECALLS_TRACE_WINDOW 6u	/* runs by its window; value: end of the period */
#define ECALLS_TRACE_CHOSEN 7u	/* is chosen, not by its share; which: ECALLS_WHY_... */
#define ECALLS_TRACE_EVENT                                                                         \
	8u /* raised an event that is delivered now; value: when; more: its id;
				   other: the service; which: the kind */

#define ECALLS_TRACE_OVERRAN 0u
#define ECALLS_TRACE_SLEPT 1u
#define ECALLS_TRACE_AHEAD 2u

struct ecalls_sched_note {
	ecalls_u64 at_ns;
	ecalls_u64 value;
	ecalls_u64 more;
	ecalls_u32 what; /* ECALLS_TRACE_... */
	ecalls_u32 cpu;
	ecalls_u32 pid;
	ecalls_u32 tid;
	ecalls_u32 other;
	ecalls_u32 which;
	ecalls_u8 comm[16];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_note) == 64, "schedule note");

/* Requests to trace_ask. */
#define ECALLS_ASK_TRACE 1u  /* keep the trace active for a while */
#define ECALLS_ASK_END 2u    /* end it */
#define ECALLS_ASK_FORGET 3u /* forget the worst cases */

#endif
