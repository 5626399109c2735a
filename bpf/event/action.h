/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The actions of a subscription: run_chain() runs a chain of them in order; the result of each
 * decides whether the next one runs (ECalls-05 §3.1).
 *
 * The dispatcher (deliver.bpf.c) calls run_chain() for each event that it offers, and for a chain
 * that continues after a thread, a signal or an upcall. Kernel handlers are programs on the
 * dispatcher's tracepoint in slots of the map `handlers`; E-code programs are in slots of the map
 * `ecodes`. Both are called by a tail call from a small function (call_handler, call_ecode): the
 * program replaces only that function, and returns to the dispatcher. If the slot is empty, the
 * small function itself returns.
 *
 * Failures: an action whose channel is gone, whose handler is missing or whose receiver has exited
 * drops the event with that reason. The outcome of a chain is counted at its end (account.h).
 * Nothing here waits.
 */
#ifndef ECALLS_EVENT_ACTION_H
#define ECALLS_EVENT_ACTION_H

#include "memory.h"
#include "signal.h"
#include "sink.h"
#include "thread.h"
#include "ecode.h"

static __noinline int call_handler(void *ctx, u32 slot) {
	bpf_tail_call(ctx, &handlers, slot);
	return 0;
}

/* The code after the tail call runs only if the slot is empty. */
static __noinline int call_ecode(void *ctx, u32 place) {
	struct current *c;

	bpf_tail_call(ctx, &ecodes, place);
	c = current_cpu();
	if (c)
		c->call.result = HANDLER_MISSING;
	return 0;
}

/* Stores the result of a delivery. A loss is counted at once in its channel, whatever the rest of
 * the chain does. */
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

/* Calls the E-code program of an action. Returns HANDLER_*. */
static __always_inline int call_program(void *ctx, struct current *c,
					const struct ecalls_subscription *s, u32 index,
					u32 action) {
	struct ecalls_frame *f = frame_of_cpu();
	u32 place;

	if (!f)
		return HANDLER_STOP;
	c->call.result = HANDLER_CONTINUE;
	place = ecode_begin(c, s, f, index, action);
	if (place == ECODE_NONE)
		return HANDLER_CONTINUE;
	call_ecode(ctx, place);
	if (*(volatile s32 *)&c->call.result == HANDLER_MISSING)
		return HANDLER_MISSING;
	return ecode_end(c, f, index, action);
}

/* The same as a function of its own, which costs its caller no stack. */
__noinline int run_ecode(void *ctx __arg_ctx, struct current *c,
			 const struct ecalls_subscription *s, u32 index, u32 action) {
	return c && s ? call_program(ctx, c, s, index, action) : HANDLER_STOP;
}

/* Calls a kernel handler. Returns true if the next action runs. */
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
	c->call.subscription = index;
	c->call.action = action;
	c->calls++;
	if (slot == ECALLS_HANDLER_ECODE) {
		c->call.result = run_ecode(ctx, c, s, index, action);
	} else {
		c->call.result = HANDLER_MISSING;
		call_handler(ctx, slot);
	}
	n->handlers++;
	if (begin_ns)
		user_handler_end(user, begin_ns);
	if (c->call.result == HANDLER_MISSING)
		delivery(o, MEMORY_DROPPED(ECALLS_DROP_NO_HANDLER), s->channel);
	o->filtered = c->call.result != HANDLER_CONTINUE;
	return c->call.result == HANDLER_CONTINUE;
}

/* Runs one action. Returns true if the next one runs. */
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
		bool stored = result >= 0;
		if (stored && result & (MEMORY_REPLACED | MEMORY_COALESCED)) {
			drop_for_subscription(index, s->channel, memory_reason(result), false);
			__sync_fetch_and_sub(&n->delivered, 1);
		}
		delivery(o, result, a->channel);
		if (stored && c->event.flags & ECALLS_EVENT_CPU)
			sink_note(a->channel, &c->event);
		if (stored && result & MEMORY_ASLEEP && memory_wake(a->channel))
			n->wakes++;
		/* The upcall decides whether the chain continues, by ECALLS_OP_RESUME. */
		return a->kind == ECALLS_ACTION_MEMORY || !stored;
	}
	default:
		return true;
	}
}

/* Runs a subscription's chain from the action in `chain` on. */
__noinline int run_chain(void *ctx __arg_ctx, struct current *c,
			 const struct ecalls_subscription *s, u32 index, u32 chain) {
	struct ecalls_subscription_count *n = count_of(index);
	bool in_thread = chain & CHAIN_IN_THREAD;
	u32 action = 0;
	struct outcome *o;

	if (!s || !n || !c)
		return 0;
	o = &c->outcome;
	*o = chain_outcome(chain);
	for (u32 a = chain & CHAIN_ACTION; lib_again(a, ECALLS_ACTIONS_MAX); a++) {
		a ^= c->zero;
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

#endif
