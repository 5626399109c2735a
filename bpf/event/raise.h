/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * raise_event (ECalls-05 §3): the single entry point of every event, from the kernel's services,
 * from applications and from other hosts.
 *
 * raise() checks for subscriptions, accounts for the event, adds the time stamp, and
 *   - if nothing waits on this CPU and the release time has come, passes it to the dispatcher
 *     at once;
 *   - else queues it by deadline and lets the dispatcher run.
 * The dispatcher (deliver.bpf.c) is one program on the tracepoint bpf_trigger_tp, which the kernel
 * function bpf_modify_return_test_tp() fires from every context that can raise.
 *
 * Nesting: an interrupt may raise while this CPU is in raise() or in the dispatcher. The kernel
 * does not run the dispatcher recursively; such an event is queued, and the outer raise checks the
 * queue again after its own delivery (drain). Events that remain after DRAIN_ROUNDS are delivered
 * by this CPU's timer. So no event is left in the queue.
 *
 * Every caller runs with preemption off: tracepoint programs always do, others use
 * raise_preemptible().
 */
#ifndef ECALLS_RAISE_H
#define ECALLS_RAISE_H

#include "account.h"
#include "identity.h"
#include "wanted.h"

/* The values with which bpf_trigger_tp is fired. They are unusual on purpose: the tracepoint is the
 * kernel's own test. */
#define TRIGGER_DIRECT 0x45430001 /* deliver current.event, then the queued events */
#define TRIGGER_DRAIN 0x45430002  /* deliver the queued events */

#define DISPATCH_EVENTS 32 /* events per run of the dispatcher */
#define DRAIN_ROUNDS 8	   /* triggers in a row, each for one run */
#define RETRY_NS 20000	   /* after that, the timer continues */

/* Flags of raise(), in addition to ECALLS_EVENT_CPU. */
#define RAISE_LOCKED 0x10000u  /* called under a scheduler lock: start no timer, no thread */
#define RAISE_QUEUED 0x20000u  /* always through the queue (measurements, tests) */
#define RAISE_METERED 0x80000u /* charged to the rate of `user`: a call of an application */
#define RAISE_NO_PID 0x40000u  /* no process is known: `pid` is 0, `uid` is given */

struct raise {
	u32 service;
	u32 kind;
	u32 type;
	u32 priority;
	s32 target;
	u32 flags;
	u32 size;	 /* bytes of data in use */
	u32 pid;	 /* process that raises; 0: the current one */
	u32 uid;	 /* with pid or RAISE_NO_PID: its user, as in identity.h */
	u32 user;	 /* row of abi/user.h in which it is counted while queued; 0: in none */
	u64 deadline_ns; /* absolute, 0: the subscriptions' own */
	u64 release_ns;	 /* absolute, 0: at once */
};

/* Whether the caller gives the event's process; else it is the current one. */
static __always_inline bool is_given(const struct raise *r) {
	return r->pid || r->flags & RAISE_NO_PID;
}

/* The relative deadline of the most urgent subscription in the service's list and the audience at
 * `row`; 0: none. */
static __always_inline u64 soft_ns(const struct ecalls_service *s, u32 row) {
	struct ecalls_audience *a = row ? bpf_map_lookup_elem(&audience_rows, &row) : 0;
	u64 list_ns = s->deadline_ns, own_ns = a ? a->deadline_ns : 0;

	return own_ns && (!list_ns || own_ns < list_ns) ? own_ns : list_ns;
}

static __always_inline void arm_queue_timer(u32 cpu, u64 at_ns) {
	struct queue_timer *t = bpf_map_lookup_elem(&queue_timers, &cpu);

	if (t)
		bpf_timer_start(&t->timer, at_ns, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

/* Lets the dispatcher run until this CPU's queue is empty. `now_ns`: the time if the caller has
 * just read the clock (which takes 30 ns), else 0. */
__noinline int drain_at(u32 cpu, u32 locked, u64 now_ns) {
	struct current *c = current_cpu();

	if (!c)
		return 0;
	for (u32 round = 0; lib_again(round, DRAIN_ROUNDS); round++) {
		if (!c->left && (c->busy || !queue_waits(cpu)))
			return 0;
		if (round >= DRAIN_ROUNDS)
			break;
		c->locked = locked;
		if (now_ns) {
			c->now_ns = now_ns;
			c->fresh = 1;
			now_ns = 0;
		}
		bpf_modify_return_test_tp(TRIGGER_DRAIN);
		c->fresh = 0;
	}
	if (!locked)
		arm_queue_timer(cpu, bpf_ktime_get_ns() + RETRY_NS);
	return 0;
}

static __always_inline int drain(u32 cpu, u32 locked) {
	return drain_at(cpu, locked, 0);
}

/* Queues `e` and arms the timer for its release time. */
__noinline int raise_queued(const struct ecalls_event *e, u32 cpu, u64 now_ns) {
	struct current *c = current_cpu();
	struct evicted *lost;
	u64 release_ns = 0;
	int result;

	if (!e || !c)
		return -EINVAL;
	lost = evicted_begin(c);
	result = queue_add(cpu, e, now_ns, lost, &release_ns);
	if (result != QUEUE_PUSHED)
		account_drop(lost, ECALLS_DROP_QUEUE_FULL);
	evicted_end(c);
	if (e->release_ns > now_ns && release_ns == e->release_ns)
		arm_queue_timer(cpu, release_ns);
	return result == QUEUE_REFUSED ? -ENOSPC : 0;
}

/* The properties of a raise that are determined before its event is built. */
struct raiser {
	u32 uid;
	u32 cpu;
	u64 now_ns;
	u64 soft_ns; /* see soft_ns() */
};

static __always_inline void raise_stamp(struct ecalls_event *e, const struct raise *r,
					struct current *c, const struct ecalls_service *s,
					const struct raiser *by) {
	u64 now_ns = by->now_ns;
	u64 from_ns = r->release_ns > now_ns ? r->release_ns : now_ns;
	/* Three loads; the helpers for this take 25 ns. */
	const struct task_struct *task = bpf_get_current_task_btf();

	e->sequence = 0;
	e->id = (u64)by->cpu << 48 | (__sync_fetch_and_add(&c->raised, 1) + 1);
	e->raise_ns = now_ns;
	e->deadline_ns = r->deadline_ns;
	e->flags = r->flags & ECALLS_EVENT_CPU;
	if (!r->deadline_ns && by->soft_ns) {
		/* The most urgent subscription determines its place in the queue. */
		e->deadline_ns = from_ns + by->soft_ns;
		e->flags |= ECALLS_EVENT_SOFT;
	}
	e->release_ns = r->release_ns;
	e->service = r->service;
	e->kind = r->kind;
	e->type = r->type;
	e->target = r->target;
	e->priority = r->priority;
	bool given = is_given(r);
	e->pid = given ? r->pid : (u32)task->tgid;
	e->tid = given ? r->pid : (u32)task->pid;
	e->uid = by->uid;
	e->cpu = by->cpu;
	e->size = r->size;
	e->subscription = registration(s, r->service);
}

/* Copies `words` 8-byte words of data after the header, at least the small ones. */
static __always_inline void raise_data(struct ecalls_event *e, const u64 *data, const u32 words) {
#pragma unroll
	for (u32 i = 0; i < (words > SMALL_DATA_WORDS ? DATA_WORDS : SMALL_DATA_WORDS); i++)
		e->data[i] = i < words ? data[i] : 0;
}

/* Queues an event while another one is being delivered. It is built on this CPU's stack of events,
 * because a program's stack is too small. */
static __always_inline int raise_nested(const struct raise *r, const u64 *data, const u32 words,
					struct current *c, const struct ecalls_service *s,
					const struct raiser *by) {
	u32 level = *(volatile u32 *)&c->nesting;
	struct ecalls_service_count *n;
	struct ecalls_event *e;
	int result, place = 0;

	if (level >= NESTED_EVENTS) {
		n = count_of_service(r->service);
		if (n)
			__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NESTED], 1);
		return -ENOSPC;
	}
	if (r->user)
		place = user_queue(r->user);
	if (place == USER_FULL) {
		n = count_of_service(r->service);
		if (n)
			__sync_fetch_and_add(&n->dropped[ECALLS_DROP_QUOTA], 1);
		fate_refused(r->service, r->kind, r->pid, by->uid,
			     FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, ECALLS_STAGE_QUEUE, 0));
		return -EDQUOT;
	}
	c->nesting = level + 1;
	barrier();
	e = &c->nested[level];
	raise_stamp(e, r, c, s, by);
	e->flags |= (u32)place;
	raise_data(e, data, words);
	result = raise_queued(e, by->cpu, by->now_ns);
	barrier();
	c->nesting = level;
	return result;
}

/* Raises an event. `words` is the constant size of *data in 8-byte words, at most DATA_WORDS;
 * r->size is the number of valid bytes. Returns the number of subscriptions to which it was offered
 * at once (0: none matched, or it is queued), or -EINVAL (unknown service), -E2BIG (size), -ENOENT
 * (no subscription), -ENOSPC (the queue is full and this deadline is the latest), -EDQUOT (the
 * user's rate or quota of queued events is used up). */
static __always_inline int raise(const struct raise *r, const u64 *data, const u32 words) {
	u32 service = r->service, locked = !!(r->flags & RAISE_LOCKED);
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct ecalls_service_count *n = count_of_service(service);
	struct current *c = current_cpu();
	u32 cpu = bpf_get_smp_processor_id(), audience = 0;
	struct raiser by = {.cpu = cpu};
	u64 now_ns;

	if (!s || !n || !c)
		return -EINVAL;
	if (r->size > words * 8 || r->size > ECALLS_DATA_MAX) {
		__sync_fetch_and_add(&n->refused, 1);
		return -E2BIG;
	}
	__sync_fetch_and_add(&n->raised, 1);
	if (r->flags & RAISE_METERED && !user_raise(r->user, bpf_ktime_get_ns())) {
		__sync_fetch_and_add(&n->dropped[ECALLS_DROP_QUOTA], 1);
		fate_refused(service, r->kind, r->pid, r->uid,
			     FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, ECALLS_STAGE_RAISE, 0));
		return -EDQUOT;
	}
	if (service_wanted(s))
		by.uid = is_given(r) ? r->uid : uid_of(bpf_get_current_task_btf());
	if (*(volatile u32 *)&s->own)
		audience = audience_of(service, r->target, by.uid);
	if (!audience && !s->count[s->active & 1]) {
		__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NO_SUBSCRIBER], 1);
		return -ENOENT;
	}
	now_ns = bpf_ktime_get_ns();
	by.now_ns = now_ns;
	by.soft_ns = soft_ns(s, audience);
	if (!c->busy && !queue_waits(cpu) && r->release_ns <= now_ns &&
	    !(r->flags & RAISE_QUEUED)) {
		u32 runs = c->runs;
		int result = 0;

		c->busy = 1;
		barrier();
		raise_stamp(&c->event, r, c, s, &by);
		raise_data(&c->event, data, words);
		c->now_ns = now_ns;
		c->locked = locked;
		barrier();
		c->direct = 1;
		bpf_modify_return_test_tp(TRIGGER_DIRECT);
		if (*(volatile u32 *)&c->runs == runs) {
			c->direct = 0;
			result = raise_queued(&c->event, cpu, now_ns);
			barrier();
			c->busy = 0;
			if (!locked)
				arm_queue_timer(cpu, now_ns + RETRY_NS);
			return result;
		}
		result = *(volatile u32 *)&c->walk.offered;
		if (c->left || queue_waits(cpu))
			drain(cpu, locked);
		return result;
	}
	int result = raise_nested(r, data, words, c, s, &by);
	drain_at(cpu, locked, now_ns);
	return result;
}

#endif
