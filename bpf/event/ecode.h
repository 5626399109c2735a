/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Running a handler that was written in E-code (abi/ecode.h; ECalls-05 §3.3): what it finds, and
 * what becomes of what it leaves.
 *
 * The handler is a program in the action's slot of the map `ecodes`. It runs in the dispatcher's
 * context, finds the event in `current_events` and everything else in its CPU's element of
 * `frames`, and cannot go beyond them: what it reads outside an array or repeats too often is a
 * fault. A fault is counted; the action is then as if it were not there, so that a mistake in a
 * filter loses no event.
 *
 * What it wants done is rare beside its decision, needs much stack, and some of it needs functions
 * that older kernels lack. So a program of its own does it (effect.bpf.c), fired only if there is
 * something to do.
 */
#ifndef ECALLS_EVENT_ECODE_H
#define ECALLS_EVENT_ECODE_H

#include "handler.h"

#define TRIGGER_EFFECTS 0x45430005 /* for effect.bpf.c: do what this CPU's frame tells */

#define ECODE_NONE (~0u)

#define OUTPUT_WORDS (ECALLS_DATA_MAX / 8)

static __always_inline struct ecalls_frame *frame_of_cpu(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&frames, &zero);
}

/* Counts a run that failed. */
static __always_inline void ecode_failed(u32 index) {
	struct ecalls_subscription_count *n = count_of(index);

	if (n)
		__sync_fetch_and_add(&n->failed, 1);
}

/* The same, and notes why and where for who looks at the subscription. */
__noinline int ecode_fault(u32 index, u32 action) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_frame *f = frame_of_cpu();
	u64 place;

	ecode_failed(index);
	if (!s || !f)
		return 0;
	place = f->fault == ECALLS_FAULT_INPUT ? 0 : f->fault_place;
	*(volatile u64 *)&action_of(s, action)->argument[1] =
		place << ECALLS_ECODE_FAULT_SHIFT | f->fault;
	return 0;
}

/* Whether the channel whose attributes a handler may read is still the subscription's. Without one
 * it reads none. */
static __always_inline bool ecode_channel(const struct ecalls_subscription *s, u32 channel) {
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &channel);

	return !s->channel || (ch && *(volatile u32 *)&ch->id == s->channel);
}

/* Fills the frame for one call. The place of the program, or ECODE_NONE: it must not be called. */
__noinline u32 ecode_begin(u32 index, u32 action) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct ecalls_frame *f = frame_of_cpu();
	struct current *c = current_cpu();
	u32 channel;
	u64 call;

	if (!s || !f || !c)
		return ECODE_NONE;
	channel = ECALLS_ID_INDEX(s->channel);
	if (!ecode_channel(s, channel)) {
		ecode_failed(index);
		return ECODE_NONE;
	}
	call = *(volatile const u64 *)&action_of(s, action)->argument[0];
	f->now_ns = c->now_ns;
	if (!f->random)
		f->random = (u64)bpf_get_prandom_u32() << 32 | 1;
	f->result = 1;
	f->fuel = (u32)call;
	f->fault = 0;
	f->effects = 0;
	f->drop = 0;
	f->output_bytes = call >> ECALLS_ECODE_OUTPUT_SHIFT & ECALLS_ECODE_OUTPUT_MASK;
	f->channel = channel;
	f->sinks_present = 0;
	f->accepted = 0;
	f->rejected = 0;
	f->zero = 0;
	return 2 * (index * ECALLS_ACTIONS_MAX + action) + (u32)(call >> ECALLS_ECODE_PLACE_SHIFT);
}

/* Puts the output in the place of the event's data, for the rest of this chain; the data as they
 * were are kept in `current.original`. */
static __always_inline void ecode_output(struct current *c, const struct ecalls_frame *f) {
	u32 bytes = f->output_bytes;

	if (bytes > ECALLS_DATA_MAX)
		bytes = ECALLS_DATA_MAX;
	if (!c->changed) {
		c->changed = 1;
		c->original_size = c->event.size;
#pragma unroll
		for (int i = 0; i < OUTPUT_WORDS; i++)
			c->original[i] = c->event.data[i];
	}
#pragma unroll
	for (int i = 0; i < OUTPUT_WORDS; i++)
		c->event.data[i] = i * 8 < bytes ? f->output[i] : 0;
	c->event.size = bytes;
}

/* Lets effect.bpf.c do what the handler asked for. Without that program nothing is done. */
static __always_inline void ecode_effects(struct ecalls_frame *f,
					  struct ecalls_subscription_count *n) {
	u32 left;

	bpf_modify_return_test_tp(TRIGGER_EFFECTS);
	left = *(volatile u32 *)&f->effects;
	if (left)
		__sync_fetch_and_add(&n->undone, left);
}

/* Looks at what a handler left: HANDLER_CONTINUE or _STOP. */
__noinline int ecode_end(u32 index, u32 action) {
	struct ecalls_subscription_count *n = count_of(index);
	struct ecalls_frame *f = frame_of_cpu();
	struct current *c = current_cpu();

	if (!n || !f || !c)
		return HANDLER_STOP;
	if (f->fault) {
		ecode_fault(index, action);
		return HANDLER_CONTINUE;
	}
	c->result = f->result && !f->drop ? HANDLER_CONTINUE : HANDLER_STOP;
	c->outcome.said = f->drop;
	if (f->output_bytes && c->result == HANDLER_CONTINUE)
		ecode_output(c, f);
	if (f->effects)
		ecode_effects(f, n);
	/* A chain that was put off stops here for now. */
	return *(volatile s32 *)&c->result;
}

/* The chain is at its end: the next subscription sees the event as it was raised. */
static __always_inline void ecode_restore(struct current *c) {
	if (!c->changed)
		return;
	c->changed = 0;
	c->event.size = c->original_size;
#pragma unroll
	for (int i = 0; i < OUTPUT_WORDS; i++)
		c->event.data[i] = c->original[i];
}

#endif
