/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The short way: of an event that one subscription alone may want, and that has no deadline of its
 * own. It does what raise() would do, without what only other cases need:
 *
 *   ring	the event is built where it is stored;
 *   unread	while slots of use READY, or the ring of a subscription that coalesces, hold one
 *		which was not read, it is counted, and not even built;
 *   filter	if the program only decides (ECALLS_ECODE_EARLY), it runs before there is a time
 *		stamp, on no more data than it reads, and is called by the service's own program.
 *
 * Each function may decline: then nothing has happened, and the service raises the event. In
 * particular raise() does everything for an event that finds no room, so its loss is counted and
 * recorded there.
 *
 * A subscription's own deadline counts from the raise. As the event is delivered at once, it is
 * never late here.
 *
 * The host names the subscription in `sole` of the service, and removes it there before another one
 * begins. The subscription itself says with its own `sole` what is constant of it: whatever it is
 * when an event comes, that word is part of the same row.
 */
#ifndef ECALLS_EVENT_SOLE_H
#define ECALLS_EVENT_SOLE_H

#include "ecode.h"
#include "raise.h"

/* An event on the short way. */
struct sole {
	struct ecalls_subscription *s;
	u32 index;
	u32 cpu;
	struct current *c;
	struct ecalls_service_count *total;
	struct ecalls_subscription_count *count;
};

/* What describes such an event beside its data. */
struct sole_event {
	u32 service;
	u32 kind;
	u32 type;
	s32 target;
	u32 pid; /* never 0 */
	u32 uid;
	u32 size;
};

static __always_inline bool sole_matches(const struct ecalls_subscription *s,
					 const struct sole_event *e) {
	if (*(volatile const u32 *)&s->state != ECALLS_STATE_ACTIVE || s->service != e->service)
		return false;
	if (e->target >= 0 ? s->receiver != (u32)e->target : e->target == ECALLS_TARGET_WAKE_ONE)
		return false;
	return (!s->kinds || s->kinds >> (e->kind & 31) & 1) && (!s->pid || s->pid == e->pid);
}

/* Whether deliveries of the service are traced. A trace whose reader was killed leaves its time
 * behind: the first event afterwards removes it, so that no other one looks at the clock. A reader
 * that has extended it meanwhile is not overwritten. */
static __always_inline bool sole_is_traced(struct ecalls_service *v) {
	u32 until = *(volatile u32 *)&v->traced;

	if (!until)
		return false;
	if (bpf_ktime_get_ns() >> TRACE_TIME_SHIFT < until)
		return true;
	__sync_val_compare_and_swap(&v->traced, until, 0);
	return false;
}

/* This CPU's part of an event that goes a short way. Returns false: none can. */
static __always_inline bool sole_prepare(struct sole *o, struct ecalls_service *v, u32 service) {
	if (*(volatile const u32 *)&v->own || sole_is_traced(v))
		return false;
	o->c = current_cpu();
	o->total = count_of_service(service);
	o->cpu = bpf_get_smp_processor_id();
	return o->c && o->total && !*(volatile u32 *)&o->c->busy && !raise_waits(o->c, o->cpu);
}

/* From here to sole_end() this CPU's current event is in use. */
static __always_inline void sole_enter(const struct sole *o) {
	o->c->busy = 1;
	barrier();
}

/* Returns false: not on the short way. */
static __always_inline bool sole_begin(struct sole *o, struct ecalls_service *v,
				       const struct sole_event *e) {
	o->index = *(volatile const u32 *)&v->sole - 1;
	o->s = bpf_map_lookup_elem(&subscriptions, &o->index);
	if (!o->s || !sole_matches(o->s, e) || !o->s->sole)
		return false;
	o->count = count_of(o->index);
	if (!o->count || !sole_prepare(o, v, e->service))
		return false;
	sole_enter(o);
	return true;
}

/* What has been queued meanwhile is delivered. */
static __always_inline void sole_end(const struct sole *o) {
	barrier();
	o->c->busy = 0;
	barrier();
	if (raise_waits(o->c, o->cpu))
		drain(o->cpu, 0);
}

/* Writes the head of the event's record, but for its `sequence` and its deadline. */
static __always_inline void sole_head(struct ecalls_event *place, const struct sole_event *e,
				      u64 id, u64 raise_ns, u32 cpu) {
	place->id = id;
	place->raise_ns = raise_ns;
	place->release_ns = 0;
	place->service = e->service;
	place->kind = e->kind;
	place->type = e->type;
	place->target = e->target;
	place->priority = 0;
	place->pid = e->pid;
	place->tid = e->pid;
	place->uid = e->uid;
	place->cpu = cpu;
	place->size = e->size;
}

/* What of it differs from one subscription to another. Returns the deadline. */
static __always_inline u64 sole_own(struct ecalls_event *place, u64 raise_ns,
				    const struct ecalls_subscription *s) {
	u64 deadline_ns = s->deadline_ns ? raise_ns + s->deadline_ns : 0;

	place->deadline_ns = deadline_ns;
	place->flags = s->event_flags;
	place->subscription = s->id;
	return deadline_ns;
}

static __always_inline u64 sole_id(struct current *c, u32 cpu) {
	return (u64)cpu << 48 | (__sync_fetch_and_add(&c->raised, 1) + 1);
}

/* An entry of the subscription's ring. */
struct sole_place {
	void *up;
	struct ecalls_up *head;
	struct ecalls_event *entry;
	u64 position;
	u64 deadline_ns;
};

/* Takes an entry, and writes the head of its record. Returns false: memory_put() is to decide. */
static __always_inline bool sole_take(const struct sole *o, const struct sole_event *e,
				      struct sole_place *p) {
	u32 zero = 0, capacity;
	struct ecalls_channel *ch;
	u64 now_ns;

	p->up = segment_of(o->s->plain, &ch);
	if (!p->up || ch->layout != ECALLS_LAYOUT_RING)
		return false;
	capacity = ch->capacity;
	p->head = bpf_map_lookup_elem(p->up, &zero);
	if (!p->head || ring_try(p->head, capacity - 1, 1, &p->position))
		return false;
	p->entry = ring_place(p->up, capacity, p->position);
	if (!p->entry)
		return false;
	now_ns = bpf_ktime_get_ns();
	sole_head(p->entry, e, sole_id(o->c, o->cpu), now_ns, o->cpu);
	p->deadline_ns = sole_own(p->entry, now_ns, o->s);
	return true;
}

/* The entry has its data, too. */
static __always_inline void sole_stored(const struct sole *o, const struct sole_place *p) {
	ring_done(p->head, p->entry, p->position);
	if (o->s->event_flags)
		*(volatile u64 *)&o->s->stored = p->position + 1;
	o->count->direct++;
	o->total->direct++;
	if (*(volatile u64 *)&p->head->sleeping && wake_is_due(p->head, p->deadline_ns) &&
	    memory_wake(o->s->plain))
		o->count->wakes++;
}

/* Whether what stands for an event of this type was not read yet. */
static __always_inline bool sole_is_unread(const struct sole *o, const struct ecalls_channel *ch,
					   struct ecalls_up *head, u32 type) {
	u64 raised;

	if (ch->layout == ECALLS_LAYOUT_SLOTS)
		return type < ch->capacity && type < ECALLS_SLOTS_MAX && slot_is_unread(head, type);
	/* The barrier of ring_is_unread(). */
	raised = __sync_fetch_and_add(&o->c->raised, 1);
	barrier_var(raised);
	return ring_is_unread(head, o->s);
}

/* Whether the subscription's `ready` channel holds an event that was not read and stands for this
 * one, and its reader needs no wake-up: then it is counted, since it would add nothing. */
static __always_inline bool sole_is_told(const struct sole *o, u32 type) {
	u32 channel = o->s->ready, zero = 0, one = 1;
	struct ecalls_channel *ch;
	void *up = segment_of(channel, &ch);
	struct ecalls_lost *lost;
	struct ecalls_up *head;

	head = up ? bpf_map_lookup_elem(up, &zero) : 0;
	if (!head || !sole_is_unread(o, ch, head, type) || *(volatile u64 *)&head->sleeping)
		return false;
	lost = o->s->channel == channel ? bpf_map_lookup_elem(up, &one) : lost_of(o->s->channel);
	if (lost)
		__sync_fetch_and_add(&lost->dropped[ECALLS_DROP_COALESCED], 1);
	__sync_fetch_and_add(&o->count->offered, 1);
	__sync_fetch_and_add(&o->count->dropped[ECALLS_DROP_COALESCED], 1);
	__sync_fetch_and_add(&o->total->raised, 1);
	__sync_fetch_and_add(&o->total->dropped[ECALLS_DROP_COALESCED], 1);
	return true;
}

/* The programs of filters that run early, loaded for this service's tracepoint: two places for each
 * subscription, as in `ecodes`. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX * 2);
	__type(key, u32);
	__type(value, u32);
} early_filters SEC(".maps");

/* How the filter of the subscription is called, and the words of the data that it reads; 0: it does
 * not run early. */
struct sole_call {
	u64 call;
	u32 reads;
};

static __always_inline bool sole_filters(const struct sole *o, struct sole_call *f) {
	f->call = *(volatile const u64 *)&o->s->action[0].argument[0];
	f->reads = f->call >> ECALLS_ECODE_EARLY_SHIFT & ECALLS_ECODE_EARLY_MASK;
	return f->reads & ECALLS_ECODE_EARLY;
}

#define SOLE_MISSING 1 /* its program is not there: nothing has happened */
#define SOLE_REFUSED 2 /* the event is counted for the subscription */
#define SOLE_PASSED 3

/* The program returns 0, instead of what is below. Not static: some verifiers would take that for
 * the only result. */
__noinline int early_call(void *ctx __arg_ctx, u32 place) {
	int missing = SOLE_MISSING;

	bpf_tail_call(ctx, &early_filters, place);
	barrier_var(missing);
	return missing;
}

/* Records a refused event, at most once in a tick: only a record needs the time, unless the event
 * has one already. The deadline of one that has none counts from 0. */
__noinline int sole_note(struct current *c, u32 subscription, u32 said) {
	u32 what = said ? ECALLS_FATE_FILTERED_FOR : ECALLS_FATE_FILTERED;
	u32 reason = said ? (said - 1) & 0xff : 0;

	if (!c)
		return 0;
	c->fate.tick[!!said] = bpf_jiffies64();
	if (!c->event.raise_ns) {
		c->event.raise_ns = bpf_ktime_get_ns();
		c->event.id = sole_id(c, bpf_get_smp_processor_id());
		if (c->event.deadline_ns)
			c->event.deadline_ns += c->event.raise_ns;
	}
	if (fate_filtered(c, said, c->event.raise_ns))
		fate_note(&c->event, subscription, FATE(what, reason, ECALLS_STAGE_CHAIN, 0));
	return 0;
}

static __always_inline void sole_refused(const struct sole *o, u32 said) {
	struct ecalls_lost *lost = lost_of(o->s->channel);

	o->count->stopped++;
	if (lost)
		__sync_fetch_and_add(&lost->filtered, 1);
	if (o->c->fate.tick[!!said] != bpf_jiffies64())
		sole_note(o->c, o->s->id, said);
}

/* Runs the filter on the current event, whose data are complete as far as it reads them. */
static __always_inline int sole_filter(void *ctx, const struct sole *o,
				       const struct sole_call *call) {
	struct ecalls_frame *f = frame_of_cpu();

	if (!f)
		return SOLE_MISSING;
	f->now_ns = 0;
	f->result = 1;
	f->fuel = (u32)call->call;
	f->fault = 0;
	f->effects = 0;
	f->drop = 0;
	if (early_call(ctx, 2 * o->index + (u32)(call->call >> ECALLS_ECODE_PLACE_SHIFT)))
		return SOLE_MISSING;
	o->count->handlers++;
	if (*(volatile u32 *)&f->fault) {
		ecode_fault(o->index, 0);
		return SOLE_PASSED;
	}
	if (*(volatile s64 *)&f->result && !*(volatile u32 *)&f->drop)
		return SOLE_PASSED;
	sole_refused(o, f->drop);
	return SOLE_REFUSED;
}

/* Stores the current event, which the filter has let pass, and whose data are complete. */
static __always_inline void sole_passed(const struct sole *o) {
	struct ecalls_event *e = &o->c->event;
	int result;

	e->id = sole_id(o->c, o->cpu);
	e->raise_ns = bpf_ktime_get_ns();
	sole_own(e, e->raise_ns, o->s);
	o->c->now_ns = e->raise_ns;
	result = memory_put(o->s->plain, e, o->s->id);
	if (result != MEMORY_PUT)
		offer_stored(o->c, o->index, result);
	else
		o->count->direct++;
}

#endif
