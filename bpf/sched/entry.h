/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a thread becomes an entity of its CPU, and plain again.
 *
 * A thread names by a downcall the slot by which it polls (event/coop.h). It becomes an entity when
 * it runs next after it has yielded or slept (look_for_binding in sink.h calls enter), and becomes
 * plain again when it leaves that CPU, ends, or names another group. A thread that left its CPU
 * becomes an entity of the next one when it first runs there (`bound`). It keeps its virtual time
 * in both directions, so that it gains nothing by the change.
 *
 * Failures: a thread that finds no place in the table, or whose user has used up its places,
 * remains plain, which its slot shows (ECALLS_COOP_NO_PLACE).
 */
#ifndef ECALLS_SCHED_ENTRY_H
#define ECALLS_SCHED_ENTRY_H

#include "binding.h"
#include "place.h"
#include "slot.h"

/* Makes a thread plain. It keeps the virtual time of its entity, or of its group, and so its debt;
 * the value may be slightly old, because the thread's former CPU may be another one. */
__noinline int leave(struct sched_task *t LIB_NONNULL) {
	struct sched_places *places = places_of(t->cpu);
	struct sched_cpu *former = cpu_of(t->cpu);
	struct sched_entity *e;

	if (t->entity >= SCHED_ENTITIES || !former)
		return 0;
	e = sched_entity(former, t->entity);
	if (e->group < SCHED_ENTITIES)
		e = sched_entity(former, e->group);
	t->plain.vtime = vtime_later(t->plain.vtime, e->vtime);
	if (places)
		__sync_fetch_and_or(&places->left, sched_bit(t->entity));
	t->entity = SCHED_NOBODY;
	t->channel = 0;
	t->bound = 1;
	return 0;
}

/* Reports to a thread that it remains plain, because there is no place for it. */
static __always_inline int no_place(const struct sched_task *t, u32 cpu, int error) {
	volatile struct told *told = slot_line(t, 1);

	SCHED_COUNT(cpu, full);
	if (told)
		told->state = ECALLS_COOP_NO_PLACE;
	return error;
}

/* Makes the running thread an entity of its CPU, by its binding; without one, of the group that its
 * program was given (heir.h). */
__noinline int enter(struct sched_task *t, u32 cpu, u64 now, const struct coop_binding *binding) {
	struct sched_places *places = places_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	struct group_key key = {.cpu = cpu};
	u32 i, group;
	u64 woke;

	if (!t || !c || !places)
		return -ENOENT;
	woke = c->woke;
	clear_left(cpu, now);
	t->channel = binding ? binding->channel : 0;
	t->slot = binding ? binding->slot : 0;
	t->group = binding ? binding->group : t->handed_group;
	t->uid = binding ? binding->uid : t->handed_uid;
	t->wishes = t->bound = 0;
	key.uid = t->uid;
	key.number = t->group;
	if (!user_has_place(c, places, &key))
		return no_place(t, cpu, -EDQUOT);
	turn_stop(c, 0, now);
	t->plain.vtime = vtime_later(t->plain.vtime, c->plain.vtime);
	group = group_join(c, places, &key, t->plain.vtime);
	/* There is no place for the thread's group, so the thread is in no group, and leaves none
	 * later. */
	if (group >= SCHED_ENTITIES)
		key.number = 0;
	i = sched_add(c, t->plain.weight, group);
	if (i >= SCHED_ENTITIES) {
		group_leave(c, &key);
		turn_start(c, SCHED_PLAIN, &t->plain, now);
		return no_place(t, cpu, -ENOSPC);
	}
	SCHED_COUNT(cpu, entered);
	places->group[sched_at(i)] = key;
	/* From here on the thread runs as the entity. */
	turn_sleep_plain(c, &t->plain, now);
	sched_entity(c, i)->vtime =
		group < SCHED_ENTITIES ? sched_entity(c, i)->vtime : t->plain.vtime;
	timed_is_of(c, i, t->timed);
	turn_ready(c, i, now);
	turn_start(c, i, 0, now);
	c->woke = woke;
	t->entity = i;
	t->overran = t->slept = t->ahead = 0;
	t->polls = 0;
	seen_enters(t, cpu, now);
	return 0;
}

/* Makes the running thread plain, because it has named another group. It keeps its debt. */
__noinline int come_out(struct sched_task *t, u32 cpu, u64 now) {
	struct sched_cpu *c = cpu_of(cpu);

	if (!t || !c)
		return -ENOENT;
	turn_stop(c, 0, now);
	leave(t);
	clear_left(cpu, now);
	turn_ready_plain(c, &t->plain, now);
	turn_start(c, SCHED_PLAIN, &t->plain, now);
	return 0;
}

#endif
