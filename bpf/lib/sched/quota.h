/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The quota of a control group (cpu.max): CPU time that its threads, on all CPUs together, may have
 * in each period.
 *
 * The group has an account. Each period adds the quota to it, up to the quota and the burst
 * together; each turn of a thread of the group, or of a group below it, is subtracted when it ends.
 * While nothing is left, no thread of the group gets another turn. What the last turns took beyond
 * that is a debt, which the next periods pay: so on average a group has no more than its quota,
 * although each CPU only knows of its own turn. In any time of n periods it has at most n + 1
 * quotas, the burst, and one turn on each CPU.
 *
 * A thread is under the quotas of its own group and of all groups above. The caller subtracts each
 * turn from each of these accounts, and lets the thread wait while one of them is empty: so a group
 * has no more than the groups above it.
 *
 * The account is in memory that all CPUs change by atomic additions. The CPU that first sees that a
 * period has ended begins the next one. A turn that ends at the same moment can cost the group that
 * turn's time, but never gains it any.
 *
 * The debt is limited to QUOTA_DEBT quotas: threads that may not wait (quota_waits in
 * sched/quota.h), and many CPUs, can make it any number of times the quota, and a runnable thread
 * must not wait forever.
 */
#ifndef ECALLS_LIB_SCHED_QUOTA_H
#define ECALLS_LIB_SCHED_QUOTA_H

#include "../portable.h"
#include "abi/version.h"

#define QUOTA_NONE (~0ull)	    /* no limit, in the kernel's words */
#define QUOTA_TURN_NS 5000000u	    /* longest turn of a thread with a quota */
#define QUOTA_TURN_LEAST_NS 200000u /* shortest one, though less is left */
#define QUOTA_DEBT 8u		    /* quotas that a group may owe */

struct quota {
	ecalls_u64 quota_ns; /* CPU time per period; 0: no limit */
	ecalls_u64 period_ns;
	ecalls_u64 burst_ns; /* what it may save up beyond one quota */
	ecalls_u64 end_ns;   /* of the current period */
	ecalls_s64 left_ns;  /* less than 0: a debt */
};

/* Sets the limit, also of a group that has one. It begins with one quota. */
LIB_INLINE void quota_set(struct quota *q, ecalls_u64 period_us, ecalls_u64 quota_us,
			  ecalls_u64 burst_us, ecalls_u64 now_ns) {
	q->quota_ns = 0;
	if (quota_us == QUOTA_NONE || !quota_us || !period_us)
		return;
	q->period_ns = period_us * 1000;
	q->burst_ns = burst_us * 1000;
	q->end_ns = now_ns + q->period_ns;
	q->left_ns = (ecalls_s64)(quota_us * 1000);
	*(volatile ecalls_u64 *)&q->quota_ns = quota_us * 1000;
}

/* Adds the quotas of the periods that have ended. */
LIB_INLINE void quota_roll(struct quota *q, ecalls_u64 now_ns) {
	ecalls_u64 end_ns = *(volatile ecalls_u64 *)&q->end_ns, count, gain;
	ecalls_u64 quota_ns = q->quota_ns, period_ns = q->period_ns;
	ecalls_s64 left_ns, most_ns, owed_ns;

	if (now_ns < end_ns || !period_ns)
		return;
	count = (now_ns - end_ns) / period_ns + 1;
	if (__sync_val_compare_and_swap(&q->end_ns, end_ns, end_ns + count * period_ns) != end_ns)
		return;
	left_ns = *(volatile ecalls_s64 *)&q->left_ns;
	owed_ns = -(ecalls_s64)(QUOTA_DEBT * quota_ns);
	most_ns = (ecalls_s64)(quota_ns + q->burst_ns) - left_ns;
	gain = count * quota_ns;
	if (left_ns < owed_ns)
		gain += (ecalls_u64)(owed_ns - left_ns);
	if (most_ns < 0 || gain > (ecalls_u64)most_ns)
		gain = (ecalls_u64)most_ns;
	__sync_fetch_and_add(&q->left_ns, (ecalls_s64)gain);
}

/* What is left now; at most 0: the group's threads wait, until q->end_ns at least. */
LIB_INLINE ecalls_s64 quota_left(struct quota *q, ecalls_u64 now_ns) {
	quota_roll(q, now_ns);
	return *(volatile ecalls_s64 *)&q->left_ns;
}

/* A thread of the group has had the CPU. */
LIB_INLINE void quota_charge(struct quota *q, ecalls_u64 ns) {
	__sync_fetch_and_add(&q->left_ns, -(ecalls_s64)ns);
}

/* The longest turn of a thread, if so much is left in the account that has least. */
LIB_INLINE ecalls_u64 quota_turn(ecalls_s64 left_ns) {
	if (left_ns < (ecalls_s64)QUOTA_TURN_LEAST_NS)
		return QUOTA_TURN_LEAST_NS;
	return left_ns < (ecalls_s64)QUOTA_TURN_NS ? (ecalls_u64)left_ns : QUOTA_TURN_NS;
}

#endif
