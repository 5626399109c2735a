/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dispatcher: takes events in order of their deadlines, finds the subscriptions, and runs each
 * one's actions in order, each result deciding about the next (ECalls-05 §3.1).
 *
 * It is one program on the tracepoint bpf_trigger_tp, fired by raise(), by a queue's timer and by
 * the kernel threads. The kernel never runs it inside itself on one CPU, and preemption is off, so
 * `current_events` is its own. Kernel handlers are programs on the same tracepoint in slots of the
 * map `handlers`, called by a tail call from a function that returns here (an empty slot: nothing
 * happens). The kernel allows 33 tail calls per run and skips the rest without a word; so after
 * DISPATCH_CALLS the dispatcher stops where it is (`left`) and its caller fires it again.
 *
 * Fails how: a subscription whose channel is gone, whose handler is missing or whose receiver has
 * exited drops with that reason; nothing here waits.
 */
#include "lib/select.h"
#include "raise.h"
#include "memory.h"
#include "signal.h"
#include "sink.h"
#include "thread.h"
#include "ecode.h"

#define DISPATCH_EVENTS 32 /* events of one run */
#define DISPATCH_CALLS 24  /* tail calls after which a run ends at the next subscription */

/* Subscriptions of one event, and looks into its lists. */
#define OFFERS_MAX (ECALLS_SUBSCRIBERS_MAX + ECALLS_AUDIENCE_MAX + MATCH_ROUNDS)

static __noinline int call_handler(void *ctx, u32 slot) {
	bpf_tail_call(ctx, &handlers, slot);
	return 0;
}

/* What stands behind the tail call runs only if there was no program to go to. */
static __noinline int call_ecode(void *ctx, u32 place) {
	struct current *c;

	bpf_tail_call(ctx, &ecodes, place);
	c = current_cpu();
	if (c)
		c->result = HANDLER_MISSING;
	return 0;
}

/* Notes what became of a delivery. A loss is shown at once in the channel it concerns, whatever
 * becomes of the chain. */
static __always_inline void delivery(struct outcome *o, int result, u32 channel) {
	struct ecalls_lost *lost;

	if (result >= 0) {
		o->delivered++;
		return;
	}
	o->dropped = -result;
	lost = lost_of(channel);
	if (lost && o->dropped <= ECALLS_DROP_REASONS)
		__sync_fetch_and_add(&lost->dropped[(o->dropped - 1) & 15], 1);
}

/* Calls the action's own program. HANDLER_*. */
__noinline int run_ecode(void *ctx __arg_ctx, u32 index, u32 action) {
	struct current *c = current_cpu();
	u32 place;

	if (!c)
		return HANDLER_STOP;
	c->result = HANDLER_CONTINUE;
	place = ecode_begin(index, action);
	if (place == ECODE_NONE)
		return HANDLER_CONTINUE;
	call_ecode(ctx, place);
	if (*(volatile s32 *)&c->result == HANDLER_MISSING)
		return HANDLER_MISSING;
	return ecode_end(index, action);
}

/* Calls a kernel handler. True: go on with the next action. */
static __always_inline bool run_handler(void *ctx, struct current *c,
					const struct ecalls_subscription *s, u32 slot, u32 index,
					u32 action, struct outcome *o,
					struct ecalls_subscription_count *n) {
	u32 user = s->user;
	u64 begin_ns = user ? user_handler_begin(user) : 0;

	if (begin_ns == 1) {
		delivery(o, MEMORY_DROPPED(ECALLS_DROP_QUOTA), s->channel);
		return false;
	}
	c->subscription = index;
	c->action = action;
	c->calls++;
	if (slot == ECALLS_HANDLER_ECODE) {
		c->result = run_ecode(ctx, index, action);
	} else {
		c->result = HANDLER_MISSING;
		call_handler(ctx, slot);
	}
	n->handlers++;
	if (begin_ns)
		user_handler_end(user, begin_ns);
	if (c->result == HANDLER_MISSING)
		delivery(o, MEMORY_DROPPED(ECALLS_DROP_NO_HANDLER), s->channel);
	o->filtered = c->result != HANDLER_CONTINUE;
	return c->result == HANDLER_CONTINUE;
}

/* Runs one action. True: go on with the next. */
static __always_inline bool run_action(void *ctx, struct current *c,
				       const struct ecalls_subscription *s, u32 index, u32 action,
				       bool in_thread, struct outcome *o,
				       struct ecalls_subscription_count *n) {
	const struct ecalls_action *a = action_of(s, action);
	u32 kind = a->kind;

	if (kind == ECALLS_ACTION_HANDLER || (kind == ECALLS_ACTION_THREAD && in_thread)) {
		return run_handler(ctx, c, s, a->handler, index, action, o, n);
	}
	switch (kind) {
	case ECALLS_ACTION_THREAD: {
		int lost = thread_add(c, s->id, chain_at(action, o));
		if (lost) {
			delivery(o, lost, s->channel);
			return false;
		}
		o->pending = 1;
		return false;
	}
	case ECALLS_ACTION_SIGNAL: {
		int result =
			signal_send(index, chain_at(action, o) | (in_thread ? CHAIN_IN_THREAD : 0));
		o->signals += result == SIGNAL_SENT;
		o->pending = result == SIGNAL_PENDING;
		if (result != SIGNAL_PENDING) {
			delivery(o, result, s->channel);
			__sync_fetch_and_add(&n->signals, result == SIGNAL_SENT);
		}
		return !o->pending;
	}
	case ECALLS_ACTION_USER:
	case ECALLS_ACTION_MEMORY: {
		int result = memory_put(a->channel, &c->event, s->id);
		if (result == MEMORY_REPLACED) {
			drop_for_subscription(index, s->channel, ECALLS_DROP_REPLACED, false);
			__sync_fetch_and_sub(&n->delivered, 1);
		}
		delivery(o, result, a->channel);
		if (result >= 0 && c->event.flags & ECALLS_EVENT_CPU)
			sink_note(a->channel, &c->event);
		if (result >= 0 && memory_wake(a->channel))
			n->wakes++;
		/* The upcall decides about the rest: it comes back by ECALLS_OP_RESUME. */
		return a->kind == ECALLS_ACTION_MEMORY || result < 0;
	}
	default:
		return true;
	}
}

/* Runs a subscription's chain from the action in `chain` on. */
__noinline int run_chain(void *ctx __arg_ctx, u32 index, u32 chain) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);
	struct current *c = current_cpu();
	bool in_thread = chain & CHAIN_IN_THREAD;
	u32 action = 0;
	struct outcome *o;

	if (!s || !n || !c)
		return 0;
	o = &c->outcome;
	*o = chain_outcome(chain);
	for (u32 a = chain & CHAIN_ACTION; lib_again(a, ECALLS_ACTIONS_MAX); a++) {
		if (a >= ECALLS_ACTIONS_MAX || a >= s->actions)
			break;
		action = a;
		if (!run_action(ctx, c, s, index, a, in_thread, o, n))
			break;
		in_thread = false;
	}
	ecode_restore(c);
	if (c->signal.subscription == index + 1)
		c->signal.shared = o->delivered > o->signals;
	settle(o, s, index, n, &c->event, action, c->now_ns);
	return 0;
}

/* When the event was raised, or is released if that is later: where relative deadlines begin. */
static __always_inline u64 due_ns(const struct ecalls_event *e) {
	return e->release_ns > e->raise_ns ? e->release_ns : e->raise_ns;
}

/* The deadline that holds for a subscription: the earlier of the event's and its own; 0: none. */
static __always_inline u64 deadline_for(const struct ecalls_subscription *s,
					const struct ecalls_event *e, u64 deadline_ns) {
	u64 own_ns = s->deadline_ns ? due_ns(e) + s->deadline_ns : 0;

	if (!own_ns || (deadline_ns && deadline_ns < own_ns))
		return deadline_ns;
	return own_ns;
}

/* Offers the current event to one subscription, with the deadline that holds for it. */
static __always_inline void offer(void *ctx, struct current *c, u32 index) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);
	u64 deadline_ns = c->event.deadline_ns;
	u32 flags = c->event.flags;
	u64 limit_ns;

	if (!s || !n || !match_still(s, c->event.service, c->event.uid))
		return;
	__sync_fetch_and_add(&n->offered, 1);
	limit_ns = deadline_for(s, &c->event, flags & ECALLS_EVENT_SOFT ? 0 : deadline_ns);
	if (is_late(limit_ns, c->now_ns)) {
		count_late(s, n);
		fate_note(&c->event, s->id, FATE(ECALLS_FATE_LATE, 0, ECALLS_STAGE_OFFER, 0));
		return;
	}
	if (s->user && !user_offer(s->user, c->now_ns)) {
		drop_for_subscription(index, s->channel, ECALLS_DROP_QUOTA, false);
		fate_note(&c->event, s->id,
			  FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, ECALLS_STAGE_OFFER, 0));
		return;
	}
	c->event.deadline_ns = limit_ns;
	c->event.flags = flags & ~ECALLS_EVENT_SOFT;
	run_chain(ctx, index, 0);
	c->event.deadline_ns = deadline_ns;
	c->event.flags = flags;
}

/* What the current event is matched by. */
static __always_inline struct match match_of(const struct ecalls_event *e) {
	return (struct match){
		.kind = e->kind,
		.target = e->target,
		.pid = e->pid,
		.uid = e->uid,
	};
}

/* Audiences come after the service's own list, and who stands in one sees of its own user only:
 * from here on the event no longer tells of others. */
static __always_inline void hide_others(struct ecalls_event *e) {
	struct ecalls_sched_event *sched = (void *)e->data;

	if (e->service == ECALLS_SERVICE_SCHED)
		sched->previous = 0;
}

/* Goes on with the list `row`. */
static __always_inline void take_list(struct current *c, u32 row, const struct match *m) {
	if (row)
		hide_others(&c->event);
	c->row = row;
	c->list = m->list;
	c->mask = m->mask;
	c->next_row = m->next;
}

/* Looks through all lists, counts who wants the current event, and makes the first list that has
 * one the current one. False: nobody wants it. */
static __always_inline bool match_all(struct current *c) {
	struct match m = match_of(&c->event);
	u32 service = c->event.service, offered = 0;

	for (u32 i = 0; lib_again(i, MATCH_ROUNDS); i++) {
		u32 row = m.next;
		match_list(service, row, &m);
		if (m.mask && !offered)
			take_list(c, row, &m);
		offered += bits_count(m.mask);
		if (!m.next || i >= MATCH_ROUNDS)
			break;
	}
	c->offered = offered;
	return offered;
}

/* Narrows what match_all() found down to the one whose turn it is (bpf/lib/select.h); positions
 * count on from list to list. */
__noinline int wake_one(u32 service) {
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct current *c = current_cpu();
	u32 turn, base = 0, first = 0;
	struct match m;

	if (!s || !c)
		return 0;
	m = match_of(&c->event);
	turn = s->next;
	c->mask = 0;
	for (u32 i = 0; lib_again(i, MATCH_ROUNDS); i++) {
		u32 row = m.next;
		match_list(service, row, &m);
		u64 from_turn = select_from(m.mask, base, turn);
		u64 candidates = from_turn ? from_turn : m.mask;
		if (from_turn || (m.mask && !c->mask)) {
			u32 at = bits_lowest(candidates) & (SELECT_MAX - 1);
			take_list(c, row, &m);
			c->mask = 1ull << at;
			first = base + at;
		}
		base += SELECT_MAX;
		if (from_turn || !m.next || i >= MATCH_ROUNDS)
			break;
	}
	s->next = first + 1;
	c->next_row = 0;
	c->offered = !!c->mask;
	return 0;
}

/* Goes on with the next list of the current event's audience. */
static __always_inline void match_next(struct current *c) {
	struct match m = match_of(&c->event);
	u32 row = c->next_row;

	match_list(c->event.service, row, &m);
	take_list(c, row, &m);
}

/* Offers the current event to what `mask` still holds, then to the lists behind it. False: stopped
 * for lack of tail calls. */
static __always_inline bool offer_all(void *ctx, struct current *c) {
	for (u32 i = 0; lib_again(i, OFFERS_MAX); i++) {
		u64 mask = c->mask;
		if (!mask && !c->next_row)
			return true;
		if (!mask) {
			match_next(c);
			continue;
		}
		if (c->calls >= DISPATCH_CALLS)
			return false;
		u32 at = bits_lowest(mask);
		c->mask = mask & (mask - 1);
		offer(ctx, c, match_index(c->event.service, c->row, c->list, at));
	}
	return !c->mask && !c->next_row;
}

static __always_inline void count_dispatch(struct ecalls_service_count *n,
					   const struct current *c) {
	u32 service = c->event.service, bucket;
	struct ecalls_service_latency *l = bpf_map_lookup_elem(&latencies, &service);
	u64 from_ns = due_ns(&c->event);
	u64 took_ns;

	took_ns = c->now_ns > from_ns ? c->now_ns - from_ns : 0;
	bucket = took_ns >> 32 ? ECALLS_LATENCY_BUCKETS - 1 : bits_log2(took_ns | 1);
	if (l)
		l->count[bucket & (ECALLS_LATENCY_BUCKETS - 1)]++;
	n->latency_ns += took_ns;
	if (took_ns > n->latency_ns_max)
		n->latency_ns_max = took_ns;
	__sync_fetch_and_add(&n->dispatched, 1);
}

/* A chain that goes on after a thread, a signal or an upcall. From here on the event looks as it
 * did when it was raised. If the subscription has made room for another one, nobody is left to
 * tell. */
static __always_inline void resume(void *ctx, struct current *c) {
	u32 index = ECALLS_ID_INDEX(c->event.subscription), flags = c->event.flags;
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_subscription_count *n = count_of(index);
	u32 chain = (u32)c->event.sequence;

	if (!s || !n || s->id != c->event.subscription)
		return;
	c->event.flags = flags & ~(ECALLS_EVENT_RESUME | ECALLS_EVENT_THREAD);
	chain &= ~CHAIN_IN_THREAD;
	if (flags & ECALLS_EVENT_THREAD)
		chain |= CHAIN_IN_THREAD;
	if (s->state != ECALLS_STATE_ACTIVE)
		chain_closed(s, index, chain, &c->event);
	else if (is_late(c->event.deadline_ns, c->now_ns))
		chain_late(s, chain, n, &c->event);
	else
		run_chain(ctx, index, chain);
	/* After the signal, so that those behind it do not overtake it. */
	chain_waited(s, index, chain, flags);
}

/* Delivers the current event. False: stopped in the middle, `left` is set. */
__noinline int deliver_event(void *ctx __arg_ctx, u32 again) {
	struct current *c = current_cpu();

	if (!c)
		return 1;
	if (c->event.flags & ECALLS_EVENT_RESUME) {
		resume(ctx, c);
		return 1;
	}
	u32 service = c->event.service;
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct ecalls_service_count *n = count_of_service(service);
	if (!s || !n || c->event.subscription != registration(s, service))
		return 1;
	if (!again) {
		bool late = !(c->event.flags & ECALLS_EVENT_SOFT) &&
			    is_late(c->event.deadline_ns, c->now_ns);
		if (!match_all(c)) {
			__sync_fetch_and_add(&n->dropped[ECALLS_DROP_NO_SUBSCRIBER], 1);
			return 1;
		}
		if (c->event.target == ECALLS_TARGET_WAKE_ONE)
			wake_one(service);
		if (late)
			__sync_fetch_and_add(&n->late, 1);
		else
			count_dispatch(n, c);
		/* See sched/traced.h. */
		if (c->now_ns >> TRACE_TIME_SHIFT < s->traced)
			bpf_modify_return_test_tp(TRIGGER_TRACE);
	}
	return offer_all(ctx, c);
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(deliver, int nonce) {
	struct current *c = current_cpu();
	u32 again, direct;

	if (!c || (nonce != TRIGGER_DIRECT && nonce != TRIGGER_DRAIN))
		return 0;
	again = c->left;
	direct = c->direct;
	if (!again && !direct && c->busy)
		return 0;
	c->busy = 1;
	c->left = 0;
	c->direct = 0;
	c->calls = 0;
	c->runs++;
	u32 cpu = bpf_get_smp_processor_id();
	u32 given = again || direct;
	for (u32 i = 0; lib_again(i, DISPATCH_EVENTS); i++) {
		if (!given) {
			if (i >= DISPATCH_EVENTS || c->calls >= DISPATCH_CALLS || !queue_waits(cpu))
				break;
			if (i || !c->fresh)
				c->now_ns = bpf_ktime_get_ns();
			if (queue_take(cpu, c->now_ns, &c->event))
				break;
			queue_taken(&c->event);
		}
		given = 0;
		if (!deliver_event(ctx, again)) {
			c->left = 1;
			return 0;
		}
		again = 0;
	}
	barrier();
	c->busy = 0;
	return 0;
}

/* Makes what is held in a queue and due ready. */
static __always_inline void release_due(struct queue_cell *cell, u64 now_ns) {
	unsigned long flags;

	if (!bpf_res_spin_lock_irqsave(&cell->lock, &flags)) {
		queue_release(&cell->queue, now_ns);
		bpf_res_spin_unlock_irqrestore(&cell->lock, &flags);
	}
}

/* The timer of a CPU that was switched off expires on another one: what is due there goes on from
 * this one's queue. */
__noinline int queue_adopt(u32 from, u32 cpu) {
	struct queue_cell *cell = bpf_map_lookup_elem(&queues, &from);
	struct current *c = current_cpu();
	u64 now_ns = bpf_ktime_get_ns(), next_ns;
	u32 level;

	if (!cell || !c)
		return 0;
	release_due(cell, now_ns);
	level = *(volatile u32 *)&c->nesting;
	for (u32 i = 0; level < NESTED_EVENTS && lib_again(i, DISPATCH_EVENTS); i++) {
		if (i >= DISPATCH_EVENTS)
			break;
		c->nesting = level + 1;
		barrier();
		if (!queue_take(from, now_ns, &c->nested[level]))
			raise_queued(&c->nested[level], cpu, now_ns);
		barrier();
		c->nesting = level;
	}
	drain(cpu, 0);
	next_ns = *(volatile u64 *)&cell->queue.held.entry[1].key;
	if (queue_waits(from))
		arm_queue_timer(from, bpf_ktime_get_ns() + RETRY_NS);
	else if (*(volatile u32 *)&cell->queue.held.count)
		arm_queue_timer(from, next_ns);
	return 0;
}

/* A queue's timer: makes what is held ready, delivers, and sets itself for what is held next. */
static int queue_timer_expired(void *map, u32 *key, struct queue_timer *t) {
	u32 cpu = bpf_get_smp_processor_id();
	struct queue_cell *cell = bpf_map_lookup_elem(&queues, &cpu);
	struct current *c = current_cpu();
	u64 next_ns;

	if (!cell || !c)
		return 0;
	if (*key != cpu && *key < cpus)
		queue_adopt(*key, cpu);
	release_due(cell, bpf_ktime_get_ns());
	drain(cpu, 0);
	next_ns = *(volatile u64 *)&cell->queue.held.entry[1].key;
	/* What could not be delivered now must not wait for the next release. */
	if (c->left || queue_waits(cpu))
		arm_queue_timer(cpu, bpf_ktime_get_ns() + RETRY_NS);
	else if (*(volatile u32 *)&cell->queue.held.count)
		arm_queue_timer(cpu, next_ns);
	return 0;
}

/* Run once by the loader for each CPU. */
struct cpu_argument {
	u32 cpu;
};

SEC("syscall")
int queue_setup(struct cpu_argument *a) {
	u32 cpu = a->cpu;
	struct queue_timer *t = bpf_map_lookup_elem(&queue_timers, &cpu);

	if (!t || cpu > cpus)
		return -EINVAL;
	if (bpf_timer_init(&t->timer, &queue_timers, CLOCK_MONOTONIC))
		return -EBUSY;
	return bpf_timer_set_callback(&t->timer, queue_timer_expired);
}

char LICENSE[] SEC("license") = "GPL";
