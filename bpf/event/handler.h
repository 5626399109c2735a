/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kernel handler is a program on bpf_trigger_tp in a slot of the map `handlers`. It finds its
 * event and its call in this CPU's `current`, and stores a result that continues or ends the chain.
 */
#ifndef ECALLS_HANDLER_H
#define ECALLS_HANDLER_H

#include "account.h"

#define HANDLER_CONTINUE 0
#define HANDLER_STOP 1
#define HANDLER_MISSING 2 /* the result while the slot is empty */

/* One handler call: the event, the action and its two words of state. */
struct call {
	struct current *current;
	const struct ecalls_action *action;
	struct handler_state *state;
	u32 channel; /* the subscription's channel, 0: none */
	u32 user;    /* its user's row (abi/user.h) */
};

/* Returns false if the call is not complete: the handler then leaves HANDLER_MISSING. */
static __always_inline bool call_open(struct call *call) {
	struct current *c = current_cpu();
	struct ecalls_subscription *s;
	u32 index, action, state;

	if (!c)
		return false;
	index = c->call.subscription;
	action = c->call.action & (ECALLS_ACTIONS_MAX - 1);
	s = bpf_map_lookup_elem(&subscriptions, &index);
	state = index * ECALLS_ACTIONS_MAX + action;
	call->state = bpf_map_lookup_elem(&handler_states, &state);
	if (!s || !call->state)
		return false;
	call->current = c;
	call->action = action_of(s, action);
	call->channel = s->channel;
	call->user = s->user;
	return true;
}

static __always_inline void call_close(struct call *call, bool go_on) {
	call->current->call.result = go_on ? HANDLER_CONTINUE : HANDLER_STOP;
}

#endif
