/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Running a handler in E-code (abi/ecode.h; ECalls-05 §3.3): preparing its frame, and processing
 * its results.
 *
 * The handler is a program in the action's slot of the map `ecodes`. It runs in the dispatcher's
 * context, finds the event in `current_events` and everything else in its CPU's element of
 * `frames`, and cannot access anything beyond them: an access outside an array and too many
 * iterations are faults. A fault is counted, and the chain continues as if the action did not
 * exist, so that a mistake in a filter loses no event.
 *
 * Requests of a handler are rarer than its decision, need much stack, and some of them need
 * functions that older kernels lack. So a separate program carries them out (effect.bpf.c), which
 * is fired only if there are requests.
 */
#ifndef ECALLS_EVENT_ECODE_H
#define ECALLS_EVENT_ECODE_H

#include "frame.h"
#include "handler.h"

#define TRIGGER_EFFECTS 0x45430005 /* for effect.bpf.c: carry out this CPU's requests */

#define ECODE_NONE (~0u)

#define OUTPUT_WORDS (ECALLS_DATA_INLINE / 8)

static __always_inline struct ecalls_frame *frame_of_cpu(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&frames, &zero);
}

/* Counts a run that ended in a fault. */
static __always_inline void ecode_failed(u32 index) {
	struct ecalls_subscription_count *n = count_of(index);

	if (n)
		__sync_fetch_and_add(&n->failed, 1);
}

/* The same, and records the fault and its place for `faults` of the subscription. */
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

/* Whether the channel whose attributes a handler may read still belongs to the subscription.
 * Otherwise the handler reads none. */
static __always_inline bool ecode_channel(const struct ecalls_subscription *s, u32 channel) {
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &channel);

	return !s->channel || (ch && *(volatile u32 *)&ch->id == s->channel);
}

/* Fills the frame for one call. Returns the program's place, or ECODE_NONE if it must not be
 * called. */
static __always_inline u32 ecode_begin(const struct current *c, const struct ecalls_subscription *s,
				       struct ecalls_frame *f, u32 index, u32 action) {
	u32 channel;
	u64 call;

	channel = ECALLS_ID_INDEX(s->channel);
	if (!ecode_channel(s, channel)) {
		ecode_failed(index);
		return ECODE_NONE;
	}
	call = *(volatile const u64 *)&action_of(s, action)->argument[0];
	ecode_frame(f, c->now_ns, (u32)call, 0);
	f->output_bytes = call >> ECALLS_ECODE_OUTPUT_SHIFT & ECALLS_ECODE_OUTPUT_MASK;
	f->channel = channel;
	return 2 * (index * ECALLS_ACTIONS_MAX + action) + (u32)(call >> ECALLS_ECODE_PLACE_SHIFT);
}

/* Replaces the event's data by the output for the rest of this chain; the former data are kept in
 * `current.original`. */
static __always_inline void ecode_output(struct current *c, const struct ecalls_frame *f) {
	u32 bytes = f->output_bytes;

	if (bytes > ECALLS_DATA_MAX)
		bytes = ECALLS_DATA_MAX;
	if (!c->text.changed && c->event.size > ECALLS_DATA_INLINE)
		rest_copy(&c->text.rest, &c->rest, c->event.size);
	if (!c->text.changed) {
		c->text.changed = 1;
		c->text.size = c->event.size;
#pragma unroll
		for (int i = 0; i < OUTPUT_WORDS; i++)
			c->text.data[i] = c->event.data[i];
	}
#pragma unroll
	for (int i = 0; i < OUTPUT_WORDS; i++)
		c->event.data[i] = i * 8 < bytes ? f->output[i] : 0;
	if (bytes > ECALLS_DATA_INLINE)
		rest_read(&c->rest, bytes, (u64)&f->output[OUTPUT_WORDS], false);
	c->event.size = bytes;
}

/* Lets effect.bpf.c carry out the handler's requests. Without that program nothing is done. */
static __always_inline void ecode_effects(struct ecalls_frame *f, u32 index) {
	struct ecalls_subscription_count *n = count_of(index);
	u32 left;

	bpf_modify_return_test_tp(TRIGGER_EFFECTS);
	left = *(volatile u32 *)&f->effects;
	if (left && n)
		__sync_fetch_and_add(&n->undone, left);
}

/* Processes the handler's results. Returns HANDLER_CONTINUE or _STOP. */
static __always_inline int ecode_end(struct current *c, struct ecalls_frame *f, u32 index,
				     u32 action) {
	if (f->fault) {
		ecode_fault(index, action);
		return HANDLER_CONTINUE;
	}
	c->call.result = f->result && !f->drop ? HANDLER_CONTINUE : HANDLER_STOP;
	c->outcome.said = f->drop;
	if (f->output_bytes && c->call.result == HANDLER_CONTINUE)
		ecode_output(c, f);
	if (f->effects)
		ecode_effects(f, index);
	/* A deferred chain stops here for now. */
	return *(volatile s32 *)&c->call.result;
}

/* Not inline, so that its calls cost run_chain() no stack. */
__noinline int ecode_restore_data(void) {
	struct current *c = current_cpu();

	if (!c)
		return 0;
	c->text.changed = 0;
	c->event.size = c->text.size;
#pragma unroll
	for (int i = 0; i < OUTPUT_WORDS; i++)
		c->event.data[i] = c->text.data[i];
	if (c->text.size > ECALLS_DATA_INLINE)
		rest_copy(&c->rest, &c->text.rest, c->text.size);
	return 0;
}

/* At the end of the chain: the next subscription sees the event as it was raised. */
static __always_inline void ecode_restore(struct current *c) {
	if (c->text.changed)
		ecode_restore_data();
}

#endif
