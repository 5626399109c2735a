/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timer service: one-shot and periodic timers at absolute times, whose expiry is an event.
 *
 * `timers` is one table of ECALLS_TIMERS_MAX timers for all channels. A timer that belongs to
 * nobody, or to a channel that is no more, is claimed by the channel that sets it first
 * (ECALLS_OP_TIMER) and freed by its cancel; a channel's id has a generation and dies with its
 * process, so no later process inherits a timer.
 *
 * `expiry_ns` is the state of a timer; the other words are read only by whoever found it in force:
 *   0		  cancelled, or one shot that is done
 *   otherwise	  when it expires next
 * timer_set() stores 0, then the other words, then the new expiry, and starts the kernel's timer.
 * The callback moves it from the expiry it found to the next one (or 0) by compare-and-swap: if
 * that fails somebody has set or cancelled the timer meanwhile, and this expiry is no more. So a
 * kernel timer that was started for a former setting does no harm, and none needs to be stopped.
 *
 * A period is counted from the expiry before, not from when that was noticed, so a timer does not
 * drift. When more than one period has passed, one event stands for all of them and the others are
 * counted as overrun. Each expiry is raised for the process that owns the channel.
 *
 * The kernel's own timer is made at the first use. A program gets the memory for it only if the
 * kernel has some at hand (else -ENOMEM), so making all of them at load time is not an option.
 */
#ifndef ECALLS_TIMER_H
#define ECALLS_TIMER_H

#include "event/raise.h"
#include "event/down.h"

#define TIMER_PERIOD_MIN_NS 50000u /* a shorter one would leave no time for anything else */
#define TIMERS_OF_CHANNEL 256u	   /* so that one channel cannot take all of them */

struct timer {
	struct bpf_timer timer;
	u32 owner;     /* id of the channel it belongs to; 0: free */
	u32 ready;     /* 1: the kernel's timer is initialized */
	u64 expiry_ns; /* see above */
	u64 period_ns; /* 0: one shot */
	u64 count;     /* events raised since it was set */
	u64 overrun;   /* periods that passed without one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_TIMERS_MAX);
	__type(key, u32);
	__type(value, struct timer);
} timers SEC(".maps");

/* Whether a channel is still the one that had this id. */
static __always_inline bool channel_lives(u32 id) {
	u32 index = ECALLS_ID_INDEX(id);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);

	return ch && ch->id == id && *(volatile u32 *)&ch->state == ECALLS_STATE_ACTIVE;
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
	};

	raise(&r, (const u64 *)&data, sizeof(data) / 8);
}

/* Starts the kernel's timer again. Somebody may have set another expiry meanwhile and started it
 * before this did: who starts last must have seen the newest. */
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
	u32 owner = *(volatile u32 *)&t->owner, index = ECALLS_ID_INDEX(owner);
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);

	if (!expiry_ns || !ch || !channel_lives(owner))
		return 0;
	if (now_ns < expiry_ns) {
		timer_restart(t, expiry_ns);
		return 0;
	}
	if (period_ns) {
		passed = (now_ns - expiry_ns) / period_ns;
		next_ns = expiry_ns + (passed + 1) * period_ns;
	}
	if (__sync_val_compare_and_swap(&t->expiry_ns, expiry_ns, next_ns) != expiry_ns)
		return 0;
	t->count++;
	t->overrun += passed;
	timer_raise(t, ch, *key, expiry_ns);
	if (next_ns)
		timer_restart(t, next_ns);
	return 0;
}

/* Initializes the kernel's timer, once. Two CPUs may both be here: the second sets the callback
 * again, to the same function. */
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

/* Counts the timers of a channel up. False: it has as many as it may have. */
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

/* Makes a timer the channel's own. 0, -EBUSY (another's) or -ENOSPC (too many). */
static __always_inline int timer_claim(struct timer *t, struct down_state *state, u32 channel) {
	u32 owner = *(volatile u32 *)&t->owner;

	if (owner == channel)
		return 0;
	if (owner && channel_lives(owner))
		return -EBUSY;
	if (!timer_count(state, channel))
		return -ENOSPC;
	if (__sync_val_compare_and_swap(&t->owner, owner, channel) == owner)
		return 0;
	__sync_fetch_and_sub(&state->timers, 1);
	return -EBUSY;
}

static __always_inline int timer_cancel(struct timer *t, struct down_state *state, u32 channel) {
	if (*(volatile u32 *)&t->owner != channel)
		return -EPERM;
	__sync_lock_test_and_set(&t->expiry_ns, 0);
	if (__sync_val_compare_and_swap(&t->owner, channel, 0) == channel)
		__sync_fetch_and_sub(&state->timers, 1);
	return 0;
}

/* ECALLS_OP_TIMER for a channel. 0, -EINVAL, -EPERM (cancel of a stranger's), -EBUSY, -ENOSPC,
 * -ENOMEM. */
__noinline int timer_set(u32 channel, u32 number, u64 expiry_ns, u64 period_ns) {
	u32 index = ECALLS_ID_INDEX(channel);
	struct down_state *state = bpf_map_lookup_elem(&down_states, &index);
	struct timer *t = bpf_map_lookup_elem(&timers, &number);
	int error;

	if (!t || !state || !channel)
		return -EINVAL;
	if (!expiry_ns)
		return timer_cancel(t, state, channel);
	if (period_ns && period_ns < TIMER_PERIOD_MIN_NS)
		return -EINVAL;
	error = timer_claim(t, state, channel);
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
