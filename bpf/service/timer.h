/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timer service: one-shot and periodic timers at absolute times, whose expiry is an event.
 *
 * `timers` is one table of ECALLS_TIMERS_MAX timers for all channels. A timer without an owner, or
 * of a channel that is closed, is claimed by the channel that sets it first (ECALLS_OP_TIMER) and
 * freed by its cancellation; a channel's id has a generation and ends with its process, so no later
 * process inherits a timer.
 *
 * `expiry_ns` (event/shared.h) is the state of a timer; the other fields are valid only while it is
 * not 0:
 *   0		  cancelled, or a one-shot timer that has expired
 *   otherwise	  the time of the next expiry
 * timer_set() stores 0, then the other fields, then the new expiry, and starts the kernel's timer.
 * The callback replaces the expiry that it found by the next one (or 0) by compare-and-swap: if
 * that fails, the timer has been set or cancelled meanwhile, and this expiry is void. So a kernel
 * timer that was started for a former setting has no effect, and none needs to be stopped.
 *
 * A period counts from the previous expiry, not from the time of its callback, so a timer does not
 * drift. When more than one period has passed, one event stands for all of them, and the others are
 * counted as overrun. Each expiry is raised for the process that owns the channel. It is charged to
 * the raises of its user; if these are used up it is dropped, counts as overrun, and the next one
 * is at least TIMER_PUT_OFF_NS away, so that a user who raises too much does not keep a CPU busy. A
 * one-shot timer then expires again.
 *
 * Setting a timer, and each expiry of a periodic one, is also charged to the rate of expiries of
 * its user, because the callback runs in an interrupt at the cost of the interrupted program.
 * Beyond that rate, setting a timer is refused, and an expiry is postponed in the same way.
 *
 * The kernel's own timer is created at the first use. A program gets memory for it only if the
 * kernel has some available (else -ENOMEM), so it is not possible to create all of them at load
 * time.
 */
#ifndef ECALLS_TIMER_H
#define ECALLS_TIMER_H

#include "event/raise.h"
#include "event/down.h"
#include "event/shared.h"

#define TIMER_PERIOD_MIN_NS 50000u /* a shorter one would leave no time for other work */
#define TIMERS_OF_CHANNEL 256u	   /* so that one channel cannot take all of them */
#define TIMER_PUT_OFF_NS 10000000u /* least time to the next expiry beyond the rate */
#define TIMER_NS_MAX (1ull << 62)  /* 146 years: latest expiry, longest period; no sum wraps */

/* Whether a channel still has this id. */
static __always_inline bool channel_lives(u32 id) {
	u32 index = ECALLS_ID_INDEX(id);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);

	return ch && ch->id == id && *(volatile u32 *)&ch->state == ECALLS_STATE_ACTIVE;
}

static __always_inline u32 timer_channel(u64 owner) {
	return (u32)owner;
}

static __always_inline u32 timer_user(u64 owner) {
	return owner >> 32;
}

/* An expiry beyond its user's rates is raised and dropped. `stage`: the rate. */
static __always_inline void timer_throttled(const struct ecalls_channel *ch, u32 stage) {
	struct ecalls_service_count *n = count_of_service(ECALLS_SERVICE_TIMER);

	if (!n)
		return;
	__sync_fetch_and_add(&n->raised, 1);
	__sync_fetch_and_add(&n->dropped[ECALLS_DROP_QUOTA], 1);
	fate_refused(ECALLS_SERVICE_TIMER, 0, ch->owner, ch->uid,
		     FATE(ECALLS_FATE_DROPPED, ECALLS_DROP_QUOTA, stage, 0));
}

static __always_inline void timer_raise(const struct timer *t, const struct ecalls_channel *ch,
					u32 number, u64 expiry_ns) {
	struct ecalls_timer_event data = {
		.expiry_ns = expiry_ns,
		.count = t->count,
		.overrun = t->overrun,
		.timer = number,
	};
	struct raise r = {
		.service = ECALLS_SERVICE_TIMER,
		.type = number,
		.target = (s32)ch->owner,
		.size = sizeof(data),
		.pid = ch->owner,
		.uid = ch->uid,
		.user = ch->user,
	};

	raise(&r, (const u64 *)&data, sizeof(data) / 8);
}

/* Starts the kernel's timer again. Another CPU may have set and started another expiry before: the
 * last one to start must have seen the newest expiry. */
static __always_inline void timer_restart(struct timer *t, u64 expiry_ns) {
	u64 now;

	bpf_timer_start(&t->timer, expiry_ns, BPF_F_TIMER_ABS);
	now = *(volatile u64 *)&t->expiry_ns;
	if (now && now != expiry_ns)
		bpf_timer_start(&t->timer, now, BPF_F_TIMER_ABS);
}

static int timer_expired(void *map, u32 *key, struct timer *t) {
	u64 expiry_ns = *(volatile u64 *)&t->expiry_ns, now_ns = bpf_ktime_get_ns();
	u64 period_ns = t->period_ns, next_ns = 0, passed = 0;
	u32 owner = timer_channel(*(volatile u64 *)&t->owner), index = ECALLS_ID_INDEX(owner);
	u32 throttled = 0; /* the limit: ECALLS_STAGE_* */
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);

	if (!expiry_ns || !ch || !channel_lives(owner))
		return 0;
	if (now_ns < expiry_ns) {
		timer_restart(t, expiry_ns);
		return 0;
	}
	if (ch->user && period_ns && !user_expiry(ch->user, now_ns))
		throttled = ECALLS_STAGE_TIMER;
	else if (ch->user && !user_raise(ch->user, now_ns, 1))
		throttled = ECALLS_STAGE_RAISE;
	if (period_ns) {
		u64 until_ns = throttled ? now_ns + TIMER_PUT_OFF_NS : now_ns;
		passed = (until_ns - expiry_ns) / period_ns;
		next_ns = expiry_ns + (passed + 1) * period_ns;
	} else if (throttled) {
		next_ns = now_ns + TIMER_PUT_OFF_NS;
	}
	if (__sync_val_compare_and_swap(&t->expiry_ns, expiry_ns, next_ns) != expiry_ns)
		return 0;
	t->overrun += passed + !!throttled;
	if (throttled) {
		timer_throttled(ch, throttled);
	} else {
		t->count++;
		timer_raise(t, ch, *key, expiry_ns);
	}
	if (next_ns)
		timer_restart(t, next_ns);
	return 0;
}

/* Initialises the kernel's timer once. If two CPUs do so at the same time, the second sets the same
 * callback again. */
static __always_inline int timer_prepare(struct timer *t) {
	int error;

	if (*(volatile u32 *)&t->ready)
		return 0;
	error = bpf_timer_init(&t->timer, &timers, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	error = bpf_timer_set_callback(&t->timer, timer_expired);
	if (!error)
		t->ready = 1;
	return error;
}

/* Counts a timer of a channel. Returns false if the channel has reached its limit. */
static __always_inline bool timer_count(struct down_state *state, u32 channel) {
	if (state->timers_of != channel) {
		state->timers_of = channel;
		state->timers = 0;
	}
	if (__sync_fetch_and_add(&state->timers, 1) < TIMERS_OF_CHANNEL)
		return true;
	__sync_fetch_and_sub(&state->timers, 1);
	return false;
}

/* Frees a timer of `owner`. Returns false if it has another owner by now. */
static __always_inline bool timer_free(struct timer *t, u64 owner) {
	__sync_lock_test_and_set(&t->expiry_ns, 0);
	if (__sync_val_compare_and_swap(&t->owner, owner, 0) != owner)
		return false;
	user_timer_end(timer_user(owner));
	return true;
}

/* Frees the timers of a user's closed channels. */
__noinline int timer_sweep(u32 user) {
	struct current *c = current_cpu();

	if (!c)
		return 0;
	for (u32 i = c->zero; lib_again(i, ECALLS_TIMERS_MAX); i++) {
		i ^= c->zero;
		u32 at = i;
		struct timer *t = bpf_map_lookup_elem(&timers, &at);
		if (!t)
			break;
		u64 owner = *(volatile u64 *)&t->owner;
		if (owner && timer_user(owner) == user && !channel_lives(timer_channel(owner)))
			timer_free(t, owner);
	}
	return 0;
}

/* Claims a timer for the channel. Returns 0, -EBUSY (it belongs to another one), -ENOSPC (the
 * channel's limit) or -EDQUOT (the user's). */
static __always_inline int timer_claim(struct timer *t, struct down_state *state, u32 channel,
				       u32 user) {
	u64 before = *(volatile u64 *)&t->owner;

	if (timer_channel(before) == channel)
		return 0;
	if (before && channel_lives(timer_channel(before)))
		return -EBUSY;
	if (!timer_count(state, channel))
		return -ENOSPC;
	if (!user_timer(user)) {
		timer_sweep(user);
		before = *(volatile u64 *)&t->owner;
		if (!user_timer(user)) {
			user_timer_refused(user);
			__sync_fetch_and_sub(&state->timers, 1);
			return -EDQUOT;
		}
	}
	if ((!before || !channel_lives(timer_channel(before))) &&
	    __sync_val_compare_and_swap(&t->owner, before, channel | (u64)user << 32) == before) {
		user_timer_end(timer_user(before));
		return 0;
	}
	user_timer_end(user);
	__sync_fetch_and_sub(&state->timers, 1);
	return -EBUSY;
}

static __always_inline int timer_cancel(struct timer *t, struct down_state *state, u32 channel) {
	u64 owner = *(volatile u64 *)&t->owner;

	if (timer_channel(owner) != channel)
		return -EPERM;
	if (timer_free(t, owner))
		__sync_fetch_and_sub(&state->timers, 1);
	return 0;
}

/* ECALLS_OP_TIMER for a channel. Returns 0, -EINVAL, -EPERM (cancelling another channel's timer),
 * -EBUSY, -ENOSPC, -EDQUOT, -ENOMEM. */
__noinline int timer_set(u32 channel, u32 number, u64 expiry_ns, u64 period_ns) {
	u32 index = ECALLS_ID_INDEX(channel);
	struct down_state *state = bpf_map_lookup_elem(&down_states, &index);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);
	struct timer *t = bpf_map_lookup_elem(&timers, &number);
	int error;

	if (!t || !state || !channel || !ch)
		return -EINVAL;
	if (!expiry_ns)
		return timer_cancel(t, state, channel);
	/* A sum that wraps, or a time that the kernel takes for one in the past, would expire again
	 * and again without a pause and occupy its CPU. */
	if (expiry_ns > TIMER_NS_MAX || period_ns > TIMER_NS_MAX)
		return -EINVAL;
	if (period_ns && period_ns < TIMER_PERIOD_MIN_NS)
		return -EINVAL;
	if (ch->user && !user_expiry(ch->user, bpf_ktime_get_ns()))
		return -EDQUOT;
	error = timer_claim(t, state, channel, ch->user);
	if (error)
		return error;
	error = timer_prepare(t);
	if (error) {
		timer_cancel(t, state, channel);
		return error;
	}
	__sync_lock_test_and_set(&t->expiry_ns, 0);
	t->period_ns = period_ns;
	t->count = 0;
	t->overrun = 0;
	__sync_lock_test_and_set(&t->expiry_ns, expiry_ns);
	return bpf_timer_start(&t->timer, expiry_ns, BPF_F_TIMER_ABS);
}

#endif
