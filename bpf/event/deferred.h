/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Deferred calls (ECalls-01 §2.3.1): stores into the `down` segment, handled later and in batches.
 *
 * They are handled by the channel's next downcall, by its timer (ECALLS_OP_DELAY, here) and before
 * its owner's next scheduling (downcall_switch.bpf.c). They are stored in a ring, and in
 * latest-value cells of which only the last store counts. At most ECALLS_DRAIN_MAX are handled at a
 * time.
 *
 * Only one CPU drains a channel at a time (down_state.lock). Another CPU that finds the lock taken
 * skips the drain, and the CPU with the lock checks once more after releasing it, so that no call
 * is left.
 *
 * A call of the ring leaves its place when it has been handled: until then the application cannot
 * store another one there. One that is not possible now (-EAGAIN: a timer under a scheduler lock)
 * keeps its place and ends the drain, so the order of the ring is kept.
 *
 * Every caller runs with preemption off.
 */
#ifndef ECALLS_DEFERRED_H
#define ECALLS_DEFERRED_H

#include "operation.h"

#define LATEST_BITS ((1u << ECALLS_LATEST) - 1)
#define DOWN_DELAY_MIN_NS 50000u /* shorter delays are this long */

/* Large calls that may be deferred, in addition to SET and NOP; the results of the others would be
 * lost. */
static __always_inline bool deferred_large(u32 op) {
	return op == ECALLS_OP_RAISE || op == ECALLS_OP_RESUME || op == ECALLS_OP_TIMER;
}

static __always_inline void deferred_copy(struct downcall *call,
					  const struct ecalls_downcall *from) {
	call->op = *(volatile const u32 *)&from->op;
	call->a = *(volatile const u64 *)&from->argument[0];
	call->b = *(volatile const u64 *)&from->argument[1];
	call->c = *(volatile const u64 *)&from->argument[2];
}

/* Runs the call in state->call if it is a small one. Returns false if the caller has to run it. */
static __always_inline bool deferred_run(struct down_state *state, u32 index) {
	const struct downcall *call = &state->call;

	if (call->op == ECALLS_OP_SET)
		state->refused += (u64)attribute_set(index, call->a, call->b) >> 63;
	else if (call->op != ECALLS_OP_NOP)
		return false;
	state->handled++;
	return true;
}

/* Handles the calls in the ring. Returns true if it stopped at a call that is not a small one,
 * which is then in state->call, and still in the ring. */
static __always_inline bool drain_ring(struct down *d, struct down_state *state,
				       struct down_counts *counts, struct current *c) {
	u64 front = *(volatile u64 *)&counts->front;
	u64 waiting = *(volatile u64 *)&d->head->back - front;
	bool large = false;
	u32 n = c->zero, max = ECALLS_DRAIN_MAX - state->handled;

	if (!waiting || max > ECALLS_DRAIN_MAX)
		return false;
	if (waiting > ECALLS_DOWN_CAPACITY) {
		/* The library never stores such positions, so the calls are invalid, too. */
		*(volatile u64 *)&counts->front = front + waiting;
		state->refused++;
		return false;
	}
	order_loads();
	for (; lib_again(n, ECALLS_DRAIN_MAX);) {
		n ^= c->zero;
		if (large || n >= waiting || n >= max)
			break;
		u32 element = ECALLS_DOWN_RING + (u32)((front + n) & (ECALLS_DOWN_CAPACITY - 1));
		struct ecalls_downcall *from = bpf_map_lookup_elem(d->segment, &element);
		if (!from)
			break;
		deferred_copy(&state->call, from);
		large = !deferred_run(state, d->index);
		n += !large;
	}
	/* The calls are copied before their places are free. */
	order_loads();
	*(volatile u64 *)&counts->front = front + n;
	return large;
}

/* Copies a latest-value cell unless it is being written; its writer sets the bit when it is
 * done. */
static __always_inline bool latest_copy(struct down_state *state,
					const struct ecalls_downcall *cell) {
	u64 sequence = *(volatile const u64 *)&cell->sequence;

	if (sequence & 1)
		return false;
	order_loads();
	deferred_copy(&state->call, cell);
	order_loads();
	return *(volatile const u64 *)&cell->sequence == sequence;
}

/* Handles the latest values that were written since the last drain. Returns true as above. */
static __always_inline bool drain_latest(struct down *d, struct down_state *state,
					 struct current *c) {
	bool large = false;

	if (*(volatile u64 *)&d->head->latest)
		state->latest |= __sync_lock_test_and_set(&d->head->latest, 0) & LATEST_BITS;
	if (!state->latest)
		return false;
	for (u32 i = c->zero; lib_again(i, ECALLS_LATEST); i++) {
		i ^= c->zero;
		if (large || i >= ECALLS_LATEST)
			break;
		u64 bit = 1ull << i;
		u32 element = ECALLS_DOWN_LATEST + i;
		struct ecalls_downcall *cell = bpf_map_lookup_elem(d->segment, &element);
		if (!cell)
			break;
		if (!(state->latest & bit))
			continue;
		state->latest &= ~bit;
		state->taken = bit;
		if (latest_copy(state, cell))
			large = !deferred_run(state, d->index);
	}
	return large;
}

/* Handles small calls up to the first large one. Returns true if there is one, in state->call. */
__noinline int drain_small(u32 id) {
	struct current *c = current_cpu();
	struct down_counts *counts;
	struct down_state *state;
	struct down d;

	if (!down_find(&d, id) || !c)
		return 0;
	state = bpf_map_lookup_elem(&down_states, &d.index);
	counts = down_counts_of(&d);
	if (!state || !counts)
		return 0;
	state->taken = 0;
	if (drain_ring(&d, state, counts, c))
		return 1;
	return drain_latest(&d, state, c);
}

/* The call at which drain_small() stopped has been handled, or waits for the next drain. */
static __always_inline void drain_large(struct down_state *state, struct down_counts *counts,
					bool handled) {
	if (state->taken)
		state->latest |= handled ? 0 : state->taken;
	else
		*(volatile u64 *)&counts->front += handled;
}

/* Runs the calls that drain_small() finds, until none is left or the limit is reached. */
static __always_inline void drain_all(u32 id, struct down_state *state,
				      struct down_counts *counts) {
	while (lib_again(state->handled, ECALLS_DRAIN_MAX)) {
		if (state->handled >= ECALLS_DRAIN_MAX || !drain_small(id))
			break;
		s64 result = deferred_large(state->call.op) ? downcall_more(&state->call) : -EINVAL;
		drain_large(state, counts, result != -EAGAIN);
		if (result == -EAGAIN)
			break;
		state->handled++;
		state->refused += (u64)result >> 63;
	}
}

/* Handles the deferred calls of an active channel. Returns their number. */
__noinline int drain_deferred(u32 id, u32 how) {
	struct down_counts *counts;
	struct down_state *state;
	struct down d;
	u32 handled;

	if (!down_find(&d, id))
		return 0;
	state = bpf_map_lookup_elem(&down_states, &d.index);
	counts = down_counts_of(&d);
	if (!state || !counts)
		return 0;
	if (__sync_lock_test_and_set(&state->lock, 1))
		return 0;
	state->call.channel = id;
	state->call.how = how;
	state->handled = 0;
	state->refused = 0;
	state->latest = 0;
	drain_all(id, state, counts);
	if (state->latest)
		__sync_fetch_and_or(&d.head->latest, state->latest);
	handled = state->handled;
	counts->handled += handled;
	counts->refused += state->refused;
	counts->drains += handled != 0;
	__sync_lock_test_and_set(&state->lock, 0);
	return handled;
}

/* Drains, and checks once more: another CPU may have skipped its drain meanwhile. */
static __always_inline int drain_if_waiting(struct down *d, u32 id, u32 how) {
	struct down_counts *counts = down_counts_of(d);
	int handled;

	if (!counts || !down_waits(d, *(volatile u64 *)&counts->front))
		return 0;
	handled = drain_deferred(id, how);
	if (handled && handled < ECALLS_DRAIN_MAX && down_waits(d, *(volatile u64 *)&counts->front))
		handled += drain_deferred(id, how);
	return handled;
}

/* Starts the channel's timer. The first call of a drain sets the time, and later ones must not
 * postpone it. */
static __always_inline int delay_start(const struct ecalls_channel *ch, struct down_state *state) {
	u64 delay_ns = ch->delay_ns > DOWN_DELAY_MIN_NS ? ch->delay_ns : DOWN_DELAY_MIN_NS;
	int error;

	/* A longer time would overflow the kernel's signed times and expire at once: the timer
	 * would run again and again for as long as calls are stored, and keep its CPU busy. */
	if (delay_ns > TIMER_NS_MAX)
		delay_ns = TIMER_NS_MAX;

	/* It was armed by a former channel of this row: not for these calls, and maybe for a
	 * long time. */
	if (__sync_lock_test_and_set(&state->armed, ch->id) == ch->id)
		return 0;
	/* It expires as often as its user's timers may; otherwise later, with more calls at a
	 * time. */
	if (ch->user && delay_ns < TIMER_PUT_OFF_NS && !user_expiry(ch->user, bpf_ktime_get_ns()))
		delay_ns = TIMER_PUT_OFF_NS;
	error = bpf_timer_start(&state->timer, delay_ns, 0);
	if (error)
		state->armed = 0;
	return error;
}

/* The timer has expired. Calls that exceed one drain are handled after another delay. */
static int delay_expired(void *map, u32 *key, struct down_state *state) {
	u32 index = *key;
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);
	struct down_counts *counts;
	struct down d;

	__sync_lock_test_and_set(&state->armed, 0);
	if (!ch || !down_find(&d, ch->id))
		return 0;
	counts = down_counts_of(&d);
	if (!counts)
		return 0;
	drain_if_waiting(&d, ch->id, 0);
	if (down_waits(&d, *(volatile u64 *)&counts->front))
		delay_start(ch, state);
	return 0;
}

/* As timer_prepare() of service/timer.h. */
static __always_inline int delay_prepare(struct down_state *state) {
	int error;

	if (*(volatile u32 *)&state->ready)
		return 0;
	error = bpf_timer_init(&state->timer, &down_states, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	error = bpf_timer_set_callback(&state->timer, delay_expired);
	if (!error)
		state->ready = 1;
	return error;
}

/* ECALLS_OP_DELAY. */
__noinline int down_delay(u32 id) {
	u32 index = ECALLS_ID_INDEX(id);
	struct down_state *state = bpf_map_lookup_elem(&down_states, &index);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);
	int error;

	if (!state || !ch || !(ch->defer & ECALLS_DEFER_DELAY))
		return -EINVAL;
	error = delay_prepare(state);
	return error ? error : delay_start(ch, state);
}

#endif
