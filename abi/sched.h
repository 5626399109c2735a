/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the scheduler counts, one element per CPU: for people and tests. The scheduler writes it;
 * who started it reads it.
 */
#ifndef ECALLS_SCHED_H
#define ECALLS_SCHED_H

#include "version.h"

/* Why a thread was chosen. */
#define ECALLS_WHY_NOBODY 0u  /* nobody wanted the CPU */
#define ECALLS_WHY_FAIR 1u    /* it had the least virtual time (Coop §3.2) */
#define ECALLS_WHY_RELEASE 2u /* its release was due (Coop §3.2) */
#define ECALLS_WHY_WINDOW 3u  /* its window claims the CPU (ECalls-05 §4.1) */
#define ECALLS_WHY_EVENT 4u   /* it is the sink of the first event (ECalls-05 §4.2) */
#define ECALLS_WHYS 8u

struct ecalls_sched_count {
	ecalls_u64 chosen[ECALLS_WHYS]; /* by reason */
	ecalls_u64 kept;		/* of those: who ran went on */
	ecalls_u64 preempted;		/* who had become ready took the CPU at once */
	ecalls_u64 balanced;		/* threads taken from a CPU that had more */
	ecalls_u64 stolen;		/* threads taken because this CPU had none */
	ecalls_u64 entered;		/* threads that began to poll */
	ecalls_u64 left;		/* threads that ended, or went to another CPU */
	ecalls_u64 full;		/* threads for which there was no place */
	ecalls_u64 polls;
	ecalls_u64 overran;	/* demotions: ran past the slice and the slack */
	ecalls_u64 slept;	/* demotions: slept other than in a poll */
	ecalls_u64 ahead;	/* demotions: virtual time too far beyond the least */
	ecalls_u64 releases;	/* times at which a thread had the CPU after its release */
	ecalls_u64 tardiest_ns; /* of those, the worst tardiness: from the release to the CPU */
	ecalls_u64 windows;	/* wishes for a window that were granted, promised or not */
	ecalls_u64 refused;	/* and that were not */
	ecalls_u64 pad[1];
	ecalls_u64 tardiness[64]; /* of all, in buckets of us as bpf/lib/histogram.h cuts them */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sched_count) == 704, "schedule count");

#endif
