/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * raise_event (ECalls-05 §3): the single entry point of every event, from the kernel's services,
 * from applications and from other hosts.
 *
 * raise() checks for subscriptions, accounts for the event, adds the time stamp, and
 *   - if nothing waits on this CPU and the release time has come, delivers it at once: by itself
 *     if each subscription only stores events in memory (walk.h), by the walk of filter.h if some
 *     have a filter before, else by the dispatcher;
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

#include "displace.h"
#include "identity.h"
#include "walk.h"
#include "wanted.h"

/* The values with which bpf_trigger_tp is fired. They are unusual on purpose: the tracepoint is the
 * kernel's own test. */
#define TRIGGER_DIRECT 0x45430001 /* deliver current.event, then the queued events */
#define TRIGGER_DRAIN 0x45430002  /* deliver the queued events */

/* 1: raise() delivers by itself what needs no dispatcher. Calls of applications do not: their
 * programs are loaded with each core, and the verifier would take half as long again. */
#ifndef RAISE_PLAIN
#define RAISE_PLAIN 1
#endif

#define DISPATCH_EVENTS 32 /* events per run of the dispatcher */
#define DRAIN_ROUNDS 8	   /* triggers in a row, each for one run */
#define RETRY_NS 20000	   /* after that, the timer continues */

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
	for (u32 round = 0; lib_again(round, DRAIN_ROUNDS); round = (round + 1) ^ c->zero) {
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
	u64 next_ns;
	int result;

	if (!e || !c)
		return -EINVAL;
	*(volatile u32 *)&c->waits = 1;
	lost = evicted_begin(c);
	result = queue_add(cpu, e, now_ns, lost);
	if (result != QUEUE_PUSHED)
		account_drop(lost,
			     result == QUEUE_UNPLACED ? ECALLS_DROP_SIZE : ECALLS_DROP_QUEUE_FULL);
	next_ns = lost->next_ns;
	evicted_end(c);
	if (e->release_ns > now_ns && next_ns == e->release_ns)
		arm_queue_timer(cpu, next_ns);
	return result == QUEUE_REFUSED || result == QUEUE_UNPLACED ? -ENOSPC : 0;
}

/* The properties of a raise that are determined before its event is built. */
struct raiser {
	u32 uid;
	u32 cpu;
	u64 now_ns;
};

static __always_inline void raise_stamp(struct ecalls_event *e, const struct raise *r,
					struct current *c, const struct ecalls_service *s,
					const struct raiser *by) {
	/* Three loads; the helpers for this take 25 ns. */
	const struct task_struct *task = bpf_get_current_task_btf();

	e->sequence = 0;
	e->id = (u64)by->cpu << 48 | (__sync_fetch_and_add(&c->raised, 1) + 1);
	e->raise_ns = by->now_ns;
	e->deadline_ns = r->deadline_ns;
	e->flags = r->flags & (ECALLS_EVENT_CPU | ECALLS_EVENT_HOST);
	e->release_ns = r->release_ns;
	e->service = r->service;
	e->kind = r->kind;
	e->type = r->type;
	e->target = r->target;
	e->priority = r->priority;
	bool given = is_given(r);
	e->pid = given ? r->pid : (u32)task->tgid;
	e->tid = given ? r->pid : (u32)task->pid;
	if (r->flags & ECALLS_EVENT_HOST)
		e->tid = r->tid;
	e->uid = by->uid;
	e->cpu = by->cpu;
	e->size = r->size;
	e->subscription = registration(s, r->service);
}

/* For an event that is queued: without a deadline of its own, the most urgent subscription
 * determines its place. */
static __always_inline void raise_soft(struct ecalls_event *e, u64 soft_ns) {
	if (e->deadline_ns || !soft_ns)
		return;
	e->deadline_ns = due_ns(e) + soft_ns;
	e->flags |= ECALLS_EVENT_SOFT;
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
					const struct raiser *by, u32 audience) {
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
	raise_soft(e, soft_ns(s, audience));
	e->flags |= (u32)place;
	raise_data(e, data, words);
	result = raise_has_rest(r) ? raise_rest_placed(e, r, by->cpu) : 0;
	if (!result)
		result = raise_queued(e, by->cpu, by->now_ns);
	else
		user_unqueue(e->flags);
	barrier();
	c->nesting = level;
	return result;
}

/* Whether the current event needs neither the queue nor the dispatcher, provided that its
 * subscriptions do not. */
static __always_inline bool raise_is_plain(const struct current *c,
					   const struct ecalls_service *s) {
	return !(c->event.flags & ECALLS_EVENT_CPU) && c->event.target != ECALLS_TARGET_WAKE_ONE &&
	       c->now_ns >> TRACE_TIME_SHIFT >= s->traced &&
	       !is_late(c->event.deadline_ns, c->now_ns);
}

/* Counts an event that raise() itself has offered to so many subscriptions. */
static __always_inline void raise_counted(struct ecalls_service_count *n, int offered) {
	if (offered) {
		n->direct++;
		return;
	}
	__sync_fetch_and_add(&n->raised, 1);
	__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NO_SUBSCRIBER], 1);
}

/* The dispatcher did not run: queues the current event. */
static __always_inline int raise_undelivered(const struct raise *r, struct current *c,
					     const struct ecalls_service *s) {
	const struct ecalls_event *e = &c->event;
	struct ecalls_service_count *n = count_of_service(e->service);
	int result;

	c->direct = 0;
	if (n)
		__sync_fetch_and_add(&n->raised, 1);
	raise_soft(&c->event, soft_ns(s, c->walk.audience));
	if (raise_has_rest(r))
		rest_keep(c, !!r->user);
	result = raise_queued(e, e->cpu, e->raise_ns);
	barrier();
	c->busy = 0;
	if (!(r->flags & RAISE_LOCKED))
		arm_queue_timer(e->cpu, e->raise_ns + RETRY_NS);
	return result;
}

/* Delivers the current event by the dispatcher. */
static __always_inline int raise_dispatched(const struct raise *r, struct current *c,
					    const struct ecalls_service *s) {
	const struct ecalls_event *e = &c->event;
	u32 runs = c->runs;

	c->direct = 1;
	barrier();
	bpf_modify_return_test_tp(TRIGGER_DIRECT);
	if (*(volatile u32 *)&c->runs == runs)
		return raise_undelivered(r, c, s);
	if (*(volatile u32 *)&c->left)
		return subscribers(e->service, e->kind, e->target, event_process(e), e->uid);
	return *(volatile u32 *)&c->walk.offered;
}

/* Whether events wait in this CPU's queue: before those a new one must not be delivered. */
static __always_inline bool raise_waits(struct current *c, u32 cpu) {
	return *(volatile u32 *)&c->waits && queue_waits(cpu);
}

/* Offers the current event to plain subscriptions and filters, `which` of DIRECT_*. Returns false
 * if the program of the filters did not run. */
static __always_inline bool raise_filtered(struct current *c, u32 which) {
	barrier();
	c->direct = which;
	barrier();
	bpf_modify_return_test_tp(TRIGGER_DIRECT);
	return !*(volatile u32 *)&c->direct;
}

/* Offers the current event to each subscription in its lists; all of them are plain, or with `slow`
 * some are filters, or the only one is another chain. Most often there is one: then there is no
 * walk. Returns false if the program of the filters did not run. */
static __always_inline bool raise_offered(struct current *c, const struct ecalls_service *s,
					  u32 list, u32 slow, bool sole) {
	u32 index = s->list[list & 1][0];

	walk_begin(c, list);
	c->walk.sole = index;
	if (slow)
		return raise_filtered(c, sole ? DIRECT_SOLE : DIRECT_FILTERS);
	if (sole)
		offer(c, index, false);
	else
		walk_plain(c);
	return true;
}

/* Delivers the current event at once, to the service's list `list` and to its audience. */
static __always_inline int raise_now(const struct raise *r, struct current *c,
				     const struct ecalls_service *s, struct ecalls_service_count *n,
				     u32 list) {
	u32 cpu = c->event.cpu, slow = s->slow[list & 1] + s->slow_own;
	bool sole = !c->walk.audience && s->count[list & 1] == 1;
	int result;

	if (!RAISE_PLAIN || (slow > ECALLS_SLOW_FILTERS && !sole) || !raise_is_plain(c, s)) {
		result = raise_dispatched(r, c, s);
	} else {
		if (raise_offered(c, s, list, slow, sole)) {
			result = *(volatile u32 *)&c->walk.offered;
			raise_counted(n, result);
			barrier();
			c->busy = 0;
			barrier();
		} else {
			result = raise_undelivered(r, c, s);
		}
	}
	if (c->left || raise_waits(c, cpu))
		drain(cpu, !!(r->flags & RAISE_LOCKED));
	if (r->flags & RAISE_REST_USER)
		c->far_task = 0;
	return result;
}

/* Raises an event of the service `s`, which is that of r->service. `words` is the constant size of
 * *data in 8-byte words, at most DATA_WORDS; r->size is the number of valid bytes, those in r->rest
 * included. Returns the number of subscriptions to which it was offered at once (0: none matched,
 * or it is queued), or -EINVAL (unknown service), -E2BIG (size), -ENOENT (no subscription), -ENOSPC
 * (the queue is full and this deadline is the latest), -EDQUOT (the user's rate or quota of queued
 * events is used up), -EFAULT (r->rest is not in memory now), -EAGAIN (an event with more than
 * ECALLS_DATA_MAX bytes cannot be delivered at once). */
static __always_inline int raise_of(struct ecalls_service *s, u32 service, const struct raise *r,
				    const u64 *data, const u32 words) {
	u32 locked = !!(r->flags & RAISE_LOCKED);
	struct ecalls_service_count *n = count_of_service(service);
	struct current *c = current_cpu();
	u32 cpu = bpf_get_smp_processor_id(), audience = 0, list;
	struct raiser by = {.cpu = cpu};
	int result;

	if (!s || !n || !c)
		return -EINVAL;
	if (r->size > raise_max(r, words * 8)) {
		__sync_fetch_and_add(&n->refused, 1);
		return -E2BIG;
	}
	if (r->flags & RAISE_METERED &&
	    !user_raise(r->user, bpf_ktime_get_ns(), ECALLS_ENTRIES(r->size))) {
		__sync_fetch_and_add(&n->raised, 1);
		__sync_fetch_and_add(&n->dropped[ECALLS_DROP_QUOTA], 1);
		fate_refused(service, r->kind, r->pid, r->uid,
			     FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, ECALLS_STAGE_RAISE, 0));
		return -EDQUOT;
	}
	if (service_wanted(s))
		by.uid = is_given(r) ? r->uid : uid_of(bpf_get_current_task_btf());
	if (*(volatile u32 *)&s->own)
		audience = audience_of(service, r->target, by.uid);
	list = *(volatile u32 *)&s->active & 1;
	if (!audience && !s->count[list]) {
		__sync_fetch_and_add(&n->raised, 1);
		__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NO_SUBSCRIBER], 1);
		return -ENOENT;
	}
	if (raise_is_far(r) && !c->busy && raise_waits(c, cpu))
		drain(cpu, locked);
	by.now_ns = bpf_ktime_get_ns();
	if (c->busy || raise_waits(c, cpu) || r->release_ns > by.now_ns ||
	    r->flags & RAISE_QUEUED) {
		if (raise_is_far(r))
			return -EAGAIN;
		__sync_fetch_and_add(&n->raised, 1);
		result = raise_nested(r, data, words, c, s, &by, audience);
		if (r->rest && result == -EFAULT)
			__sync_fetch_and_add(&n->raised, -1);
		drain_at(cpu, locked, by.now_ns);
		return result;
	}
	c->busy = 1;
	barrier();
	raise_stamp(&c->event, r, c, s, &by);
	raise_data(&c->event, data, words);
	if (raise_has_rest(r) && raise_rest(c, r)) {
		c->busy = 0;
		drain(cpu, locked);
		return -EFAULT;
	}
	c->now_ns = by.now_ns;
	c->locked = locked;
	c->walk.audience = audience;
	return raise_now(r, c, s, n, list);
}

/* The same for a caller that has not looked the service up. */
static __always_inline int raise(const struct raise *r, const u64 *data, const u32 words) {
	u32 service = r->service;

	return raise_of(bpf_map_lookup_elem(&services, &service), service, r, data, words);
}

#endif
