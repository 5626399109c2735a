/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads with a window (abi/coop.h): their requests (wishes), the answers, and the counts of their
 * periods.
 *
 * A wish is part of the thread's binding (event/coop.h). It is evaluated when the thread has
 * yielded, and again when the thread has become an entity of another CPU, or of a scheduler that
 * was started later: then admission has to decide anew.
 *
 * The windows of a user other than root get at most half of a CPU. So, beside the common reserve,
 * the same amount is left to other users' windows.
 */
#ifndef ECALLS_SCHED_WISH_H
#define ECALLS_SCHED_WISH_H

#include "place.h"
#include "slot.h"

#define USER_SHARE (WINDOW_WHOLE / 2) /* of a CPU, for windows of one user */

_Static_assert(ECALLS_WINDOW_REFUSED == ADMIT_REFUSED + 1 &&
		       ECALLS_WINDOW_UNPROMISED == ADMIT_UNPROMISED + 1 &&
		       ECALLS_WINDOW_PROMISED == ADMIT_PROMISED + 1 &&
		       ECALLS_WINDOW_PERIOD_MIN_NS == ADMIT_PERIOD_MIN_NS &&
		       ECALLS_WINDOW_PERIOD_MAX_NS == ADMIT_PERIOD_MAX_NS &&
		       ECALLS_WINDOW_Y_MAX == ADMIT_WINDOW_MAX &&
		       ECALLS_WINDOW_WHOLE == WINDOW_WHOLE,
	       "the policy's answers and limits are those of abi/coop.h");

/* The part of this CPU that a user's windows may still need. */
static __noinline u64 window_left(struct sched_cpu *c, const struct sched_places *places, u32 uid) {
	u64 most = WINDOW_WHOLE - c->options.reserve, used = admit_sum(c, c->windowed, 1), left;

	left = used < most ? most - used : 0;
	if (!uid)
		return left;
	used = admit_sum(c, of_user(places, c->windowed, uid), 1);
	most = used < USER_SHARE ? USER_SHARE - used : 0;
	return most < left ? most : left;
}

static __always_inline void window_tell_answer(const struct sched_task *t, u32 answer, u64 left) {
	volatile struct ecalls_coop *said = slot_line(t, 0);

	if (!said)
		return;
	said->window = answer;
	said->window_left = left;
	said->met = said->missed = said->violated = 0;
	order_stores();
	said->window_wishes++;
}

/* Evaluates the running thread's new wish. */
__noinline int window_wish(struct sched_task *t, u32 cpu, u64 now,
			   const struct coop_binding *binding) {
	struct sched_places *places = places_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	u32 answer = ECALLS_WINDOW_NO_PLACE;
	u64 left = 0;

	if (!t || !binding || !c || !places)
		return -ENOENT;
	c->wish.period_ns = binding->period_ns;
	c->wish.service_ns = binding->service_ns;
	c->wish.x = binding->x;
	c->wish.y = binding->y;
	t->wishes = binding->wishes;
	if (t->entity < SCHED_ENTITIES) {
		admit_end(c, t->entity, now);
		left = window_left(c, places, binding->uid);
		answer = ECALLS_WINDOW_REFUSED;
	}
	if (!c->wish.period_ns)
		answer = ECALLS_WINDOW_NONE;
	else if (answer == ECALLS_WINDOW_REFUSED && overlay_needed(&c->wish) <= left)
		answer = 1 + admit(c, t->entity, binding->flags & ECALLS_WINDOW_CONSERVING, now);
	if (answer == ECALLS_WINDOW_UNPROMISED || answer == ECALLS_WINDOW_PROMISED)
		SCHED_COUNT(cpu, windows);
	if (answer == ECALLS_WINDOW_REFUSED || answer == ECALLS_WINDOW_NO_PLACE)
		SCHED_COUNT(cpu, refused);
	window_tell_answer(t, answer, left);
	return 0;
}

/* Writes the CPU time of a thread's group: into the thread's slot, and into that of the process
 * which handed the group to it. */
__noinline int group_tell(const struct sched_task *t, u32 group) {
	volatile struct ecalls_coop *said;
	u64 ran_ns;

	if (!t)
		return -ENOENT;
	ran_ns = group_sum(t->cpu, group);
	said = slot_line(t, 0);
	if (said)
		said->met = ran_ns;
	/* The thread may have named another group itself. */
	if (t->handed_group != t->group || t->handed_uid != t->uid ||
	    t->handed_channel == t->channel)
		return 0;
	said = line_of(t->handed_channel, t->handed_slot, 0);
	if (said)
		said->met = ran_ns;
	return 0;
}

/* Writes for the thread that begins to run how its periods went, or the CPU time of its group. */
static __always_inline void window_tell(const struct sched_task *t, struct sched_cpu *c) {
	const struct sched_window *w = &sched_entity(c, t->entity)->window;
	u32 group = sched_entity(c, t->entity)->group;
	volatile struct ecalls_coop *said;

	if (group < SCHED_ENTITIES)
		group_tell(t, group);
	if (!sched_in(c->windowed, t->entity))
		return;
	said = slot_line(t, 0);
	if (!said)
		return;
	said->met = w->met;
	said->missed = w->missed;
	said->violated = w->violated;
	seen_window(t->cpu, t->entity, w->deadline_ns);
}

/* Whether a thread waits for its next period, even if no other thread wants the CPU. */
static __always_inline bool window_holds(const struct sched_cpu *c, u32 i) {
	return sched_in(c->windowed & c->served & ~c->conserving, i);
}

#endif
