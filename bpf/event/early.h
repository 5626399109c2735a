/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The short way of an event that several subscriptions may want, in a service whose program calls
 * filters by itself (sole.h): the event is built once, in this CPU's current event, and offered to
 * each subscription of the list where it is raised.
 *
 *	early_begin()	declines, or takes the current event;
 *	...		the service fills its data in;
 *	early_deliver()	offers it.
 *
 * A filter that only decides (ECALLS_ECODE_EARLY) is called by the service's own program, which
 * costs less than to fire the dispatcher's; other filters are left to that one, one by one. It
 * sees the complete event, since other subscriptions need it, too.
 *
 * Failures: if early_begin() declines, nothing has happened, and the service raises the event. What
 * a subscription does not get later on is counted for it, as in walk.h. If the kernel skips the
 * dispatcher's program, because this context has interrupted it outside of `busy`, the chain waits
 * in the queue.
 */
#ifndef ECALLS_EVENT_EARLY_H
#define ECALLS_EVENT_EARLY_H

#include "sole.h"

/* Returns false: raise() is to deliver the event. Otherwise the current event has its head. */
static __always_inline bool early_begin(struct sole *o, struct ecalls_service *v,
					const struct sole_event *e) {
	u32 list = *(volatile const u32 *)&v->active & 1;
	struct ecalls_event *at;
	u64 now_ns;

	if (v->slow[list] > ECALLS_SLOW_FILTERS || e->target == ECALLS_TARGET_WAKE_ONE ||
	    !sole_prepare(o, v, e->service))
		return false;
	sole_enter(o);
	now_ns = bpf_ktime_get_ns();
	o->c->now_ns = now_ns;
	o->c->locked = 0;
	o->c->walk.audience = 0;
	at = &o->c->event;
	at->sequence = 0;
	sole_head(at, e, sole_id(o->c, o->cpu), now_ns, o->cpu);
	at->deadline_ns = 0;
	at->flags = 0;
	at->subscription = 0;
	walk_begin(o->c, list);
	return true;
}

/* Queues the current event for the subscription's chain alone. */
static __always_inline void early_queued(const struct sole *o) {
	struct ecalls_event *e = &o->c->event;
	u32 flags = e->flags;

	o->c->direct = 0;
	__sync_fetch_and_add(&o->count->offered, 1);
	e->flags = flags | ECALLS_EVENT_RESUME;
	e->subscription = o->s->id;
	raise_queued(e, e->cpu, e->raise_ns);
	e->flags = flags;
	e->subscription = 0;
}

/* Runs the filter of a subscription to which the current event is offered. */
__noinline int early_run(void *ctx __arg_ctx, struct current *c, u32 index) {
	struct sole o = {
		.s = bpf_map_lookup_elem(&subscriptions, &index),
		.index = index,
		.c = c,
		.count = count_of(index),
	};
	struct sole_call call;
	int result = SOLE_MISSING;

	/* Another chain has begun just now, and gets the next event. */
	if (!c || !o.s || !o.count || !o.s->plain || o.s->actions != 2)
		return 0;
	if (!o.s->user && sole_filters(&o, &call))
		result = sole_filter(ctx, &o, &call);
	if (result == SOLE_REFUSED)
		return 0;
	if (result == SOLE_MISSING) {
		c->walk.sole = index;
		if (!raise_filtered(c, DIRECT_RUN))
			early_queued(&o);
		return 0;
	}
	result = memory_put(o.s->plain, &c->event, o.s->id);
	if (result != MEMORY_PUT)
		return offer_stored(c, index, result);
	o.count->direct++;
	return 0;
}

static __always_inline void early_chain(void *ctx, struct current *c, u32 index) {
	early_run(ctx, c, index);
}

/* Offers the current event, which is complete, to the subscriptions of the list, and ends it. */
__noinline int early_deliver(void *ctx __arg_ctx, u32 service) {
	struct ecalls_service_count *n = count_of_service(service);
	struct current *c = current_cpu();
	u32 cpu = bpf_get_smp_processor_id();

	if (!c || !n)
		return 0;
	walk_lists(ctx, c, 0, early_chain);
	raise_counted(n, c->walk.offered);
	barrier();
	c->busy = 0;
	barrier();
	if (raise_waits(c, cpu))
		drain(cpu, 0);
	return 0;
}

#endif
