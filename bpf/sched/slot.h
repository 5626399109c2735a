/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that poll by a slot (abi/coop.h): how a thread becomes an entity of its CPU, what it says
 * in line 0, and what it is told in line 1.
 *
 * A thread says by a downcall which slot is its own (event/coop.h); at its next yield it becomes an
 * entity. It stops being one when it leaves its CPU or ends: the table's place is then only marked,
 * and cleared by its own CPU, which alone may change it. A slot whose channel is gone is not read
 * any more. A thread that left its CPU becomes an entity of the next one when it first runs there.
 */
#ifndef ECALLS_SCHED_SLOT_H
#define ECALLS_SCHED_SLOT_H

#include "binding.h"
#include "observe.h"
#include "lib/sched/admit.h"

/* Places of one CPU's table that the threads of one user, and their groups, take at most. Of root
 * nothing is kept back. */
#define USER_PLACES 32u

/* Line 1 of struct ecalls_coop, which is an element of its own. */
struct told {
	u64 next_release_ns;
	u64 least_importance;
	u64 slice_end_ns;
	u64 dispatch_ns;
	u64 overran;
	u64 slept;
	u64 ahead;
	u32 state;
	u32 answered;
};
_Static_assert(sizeof(struct told) == sizeof(struct ecalls_downcall) &&
		       __builtin_offsetof(struct ecalls_coop, next_release_ns) ==
			       sizeof(struct told) &&
		       __builtin_offsetof(struct ecalls_coop, answered) ==
			       sizeof(struct told) + __builtin_offsetof(struct told, answered),
	       "line 1 of a slot is one element of `down`");

/* A group of one user on one CPU. */
struct group_key {
	u32 cpu;
	u32 uid;
	u32 number;
	u32 pad;
};
struct group_place {
	u32 entity;
	u32 members; /* entities that name it, runnable or not */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* as many as tables have places for them: the loader says */
	__type(key, struct group_key);
	__type(value, struct group_place);
} sched_groups SEC(".maps");

/* Per CPU: which entities are to be removed, and of which user and group each one is. */
struct sched_places {
	u64 left;
	u64 sinks;	   /* those that read the events of a channel */
	u64 heirs;	   /* those without a slot of their own (heir.h) */
	u32 looked;	   /* at which CPU last, to balance (take.h) */
	u32 took;	   /* 1: a thread of it, at the last choice */
	u64 look_ns;	   /* not before */
	u64 rotate_ns;	   /* when it may take one for others' sake; its neighbours write it, too */
	u64 load;	   /* what it carries (load.h) */
	u64 waits_look_ns; /* when to look who waits for too long (wait.h) */
	u32 channel[SCHED_ENTITIES]; /* of a sink */
	struct group_key group[SCHED_ENTITIES];
	u64 summed[SCHED_ENTITIES]; /* of a group's CPU time here, in the sum of all CPUs */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sched_places);
} sched_places SEC(".maps");

static __always_inline struct sched_places *places_of(u32 cpu) {
	return bpf_map_lookup_elem(&sched_places, &cpu);
}

/* One of the two lines of a slot; none if its channel has gone. */
static __always_inline void *line_of(u32 channel, u32 slot, u32 line) {
	u32 index = ECALLS_ID_INDEX(channel);
	u32 element = ECALLS_DOWN_COOP + 2 * (slot & (ECALLS_COOP_SLOTS - 1)) + line;
	struct ecalls_channel *ch = bpf_map_lookup_elem(&channels, &index);
	void *segment;

	if (!channel || !ch || ch->id != channel ||
	    *(volatile u32 *)&ch->state != ECALLS_STATE_ACTIVE)
		return 0;
	segment = bpf_map_lookup_elem(&downs, &index);
	return segment ? bpf_map_lookup_elem(segment, &element) : 0;
}

/* Of a thread's own slot. */
static __always_inline void *slot_line(const struct sched_task *t, u32 line) {
	return line_of(t->channel, t->slot, line);
}

/* Of a set of entities those that are of a user. */
static __noinline u64 of_user(const struct sched_places *places, u64 left, u32 uid) {
	u64 theirs = 0;

	for (u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (!left)
			break;
		u32 i = sched_next(&left);
		if (places->group[sched_at(i)].uid == uid)
			theirs |= sched_bit(i);
	}
	return theirs;
}

/* Whether a user may have one more thread in the table, and one more group. */
static __always_inline bool user_has_place(const struct sched_cpu *c,
					   const struct sched_places *places,
					   const struct group_key *key) {
	u32 more = key->number ? 2 : 1;

	return !key->uid || bits_count(of_user(places, c->used, key->uid)) + more <= USER_PLACES;
}

/* CPU time of a group's members on all CPUs, by user and number; the oldest make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct group_key); /* of no CPU */
	__type(value, u64);
} group_times SEC(".maps");

/* What a group has had on this CPU since it was looked at last goes into the sum of all CPUs. That
 * sum; 0: there is no memory for it. */
__noinline u64 group_sum(u32 cpu, u32 entity) {
	struct sched_places *places = places_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	struct group_key key = {};
	u64 *time, fresh = 0, ran;

	if (!places || !c || entity >= SCHED_ENTITIES)
		return 0;
	key.uid = places->group[sched_at(entity)].uid;
	key.number = places->group[sched_at(entity)].number;
	time = bpf_map_lookup_elem(&group_times, &key);
	if (!time) {
		bpf_map_update_elem(&group_times, &key, &fresh, BPF_NOEXIST);
		time = bpf_map_lookup_elem(&group_times, &key);
	}
	if (!time)
		return 0;
	ran = sched_entity(c, entity)->ran_ns;
	__sync_fetch_and_add(time, ran - places->summed[sched_at(entity)]);
	places->summed[sched_at(entity)] = ran;
	return *time;
}

/* The place of a group in this CPU's table, made if it is its first member; SCHED_NOBODY: none. A
 * new group begins where its first member is. */
static __always_inline u32 group_join(struct sched_cpu *c, struct sched_places *places,
				      const struct group_key *key, u64 vtime) {
	struct group_place *known, fresh = {.members = 1};

	if (!key->number)
		return SCHED_NOBODY;
	known = bpf_map_lookup_elem(&sched_groups, key);
	if (known) {
		struct sched_entity *g = sched_entity(c, known->entity);
		if (!sched_in(c->runnable, known->entity))
			g->vtime = vtime_later(g->vtime, vtime);
		known->members++;
		return known->entity;
	}
	fresh.entity = sched_add_group(c);
	if (fresh.entity >= SCHED_ENTITIES)
		return SCHED_NOBODY;
	if (bpf_map_update_elem(&sched_groups, key, &fresh, BPF_ANY)) {
		sched_remove(c, fresh.entity);
		return SCHED_NOBODY;
	}
	places->group[sched_at(fresh.entity)] = *key;
	places->summed[sched_at(fresh.entity)] = 0;
	sched_entity(c, fresh.entity)->vtime = vtime;
	return fresh.entity;
}

static __always_inline void group_leave(struct sched_cpu *c, const struct group_key *key) {
	struct group_place *known = bpf_map_lookup_elem(&sched_groups, key);

	if (!known || --known->members)
		return;
	group_sum(key->cpu, known->entity);
	sched_remove(c, known->entity);
	seen_leaves(key->cpu, known->entity);
	bpf_map_delete_elem(&sched_groups, key);
}

/* Removes the entities of this CPU whose threads have left, though they may have waited here.
 * On its own: it is verified once, and Linux 7.0 loses its way in it where it is part of another
 * function ("backtracking call unexpected regs"). */
__noinline int clear_left(u32 cpu, u64 now) {
	struct sched_places *places = places_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	u64 left;

	if (!c || !places || !places->left)
		return 0;
	left = __sync_fetch_and_and(&places->left, 0);
	for (u32 round = 0; lib_again(round, SCHED_ENTITIES); round++) {
		if (!left)
			break;
		u32 i = sched_next(&left);
		turn_sleep(c, i, 0, now);
		if (sched_in(c->windowed, i))
			admit_end(c, i, now);
		sched_remove(c, i);
		seen_leaves(cpu, i);
		places->sinks &= ~sched_bit(i);
		places->heirs &= ~sched_bit(i);
		group_leave(c, &places->group[sched_at(i)]);
		SCHED_COUNT(cpu, left);
	}
	return 0;
}

/* The thread is plain from now on, and owes what it owed: what that is may be a moment old, for
 * its former CPU may be another one. */
static __always_inline void leave(struct sched_task *t) {
	struct sched_places *places = places_of(t->cpu);
	struct sched_cpu *former = cpu_of(t->cpu);
	struct sched_entity *e;

	if (t->entity >= SCHED_ENTITIES || !former)
		return;
	e = sched_entity(former, t->entity);
	if (e->group < SCHED_ENTITIES)
		e = sched_entity(former, e->group);
	t->plain.vtime = vtime_later(t->plain.vtime, e->vtime);
	if (places)
		__sync_fetch_and_or(&places->left, sched_bit(t->entity));
	t->entity = SCHED_NOBODY;
	t->channel = 0;
	t->bound = 1;
}

/* A thread that stays plain for want of a place is told so. */
static __always_inline int no_place(const struct sched_task *t, u32 cpu, int error) {
	volatile struct told *told = slot_line(t, 1);

	SCHED_COUNT(cpu, full);
	if (told)
		told->state = ECALLS_COOP_NO_PLACE;
	return error;
}

/* The running thread becomes an entity of its CPU. */
__noinline int enter(struct sched_task *t, u32 cpu, u64 now, const struct coop_binding *binding) {
	struct sched_places *places = places_of(cpu);
	struct sched_cpu *c = cpu_of(cpu);
	struct group_key key = {.cpu = cpu};
	u32 i, group;

	if (!t || !binding || !c || !places)
		return -ENOENT;
	clear_left(cpu, now);
	t->channel = binding->channel;
	t->slot = binding->slot;
	t->group = binding->group;
	t->uid = binding->uid;
	t->wishes = t->bound = 0;
	key.uid = binding->uid;
	key.number = binding->group;
	if (!user_has_place(c, places, &key))
		return no_place(t, cpu, -EDQUOT);
	turn_stop(c, 0, now);
	t->plain.vtime = vtime_later(t->plain.vtime, c->plain.vtime);
	group = group_join(c, places, &key, t->plain.vtime);
	/* Without a place for the group it is in none, and leaves none. */
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
	/* It goes on as the entity from here. */
	turn_sleep_plain(c, &t->plain, now);
	sched_entity(c, i)->vtime =
		group < SCHED_ENTITIES ? sched_entity(c, i)->vtime : t->plain.vtime;
	turn_ready(c, i, now);
	turn_start(c, i, 0, now);
	t->entity = i;
	t->overran = t->slept = t->ahead = 0;
	t->polls = 0;
	seen_enters(t, cpu, now);
	return 0;
}

/* The running thread is plain again, because it has named another group. It owes what it owed. */
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

/* Takes over what the running thread has written into line 0, if it is in a poll. */
static __always_inline void take_poll(struct sched_task *t, struct sched_cpu *c, u64 now) {
	volatile struct ecalls_coop *said = slot_line(t, 0);
	u64 polls;

	if (!said || !(said->flags & ECALLS_COOP_POLLING))
		return;
	polls = said->polls;
	if (polls == t->polls)
		return;
	t->polls = polls;
	SCHED_COUNT(t->cpu, polls);
	seen_polls(t->cpu, t->entity, said->release_ns);
	police_poll(c, t->entity, now, said->release_ns, said->importance);
}

/* A thread has the CPU: if its release was due, how late that is. Once per poll. */
static __always_inline void count_release(struct sched_task *t, struct sched_cpu *c, u64 now) {
	struct ecalls_sched_count *counts = counts_of(t->cpu);
	u64 release = sched_entity(c, t->entity)->release_ns, tardy;

	if (!counts || t->counted == t->polls || !release_due(c, t->entity, now))
		return;
	t->counted = t->polls;
	tardy = now - release;
	counts->releases++;
	counts->tardiness[histogram_bucket(tardy / 1000) & 63]++;
	if (tardy > counts->tardiest_ns)
		counts->tardiest_ns = tardy;
	seen_released(t->cpu, t->entity, release, now);
}

/* Counts the offences of a thread since it was looked at last. */
static __always_inline void count_offences(struct sched_task *t, const struct sched_entity *e) {
	struct ecalls_sched_count *counts = counts_of(t->cpu);

	if (!counts)
		return;
	counts->overran += e->overran - t->overran;
	counts->slept += e->slept - t->slept;
	counts->ahead += e->ahead - t->ahead;
	if (e->overran + e->slept + e->ahead != t->overran + t->slept + t->ahead)
		seen_offends(t->cpu, t->entity, e->overran - t->overran, e->slept - t->slept,
			     e->ahead - t->ahead);
	t->overran = e->overran;
	t->slept = e->slept;
	t->ahead = e->ahead;
}

/* A thread has the CPU. On its own, for the verifier walks what follows once for each way through
 * it. */
__noinline int count_turn(struct sched_task *t, u64 now) {
	struct sched_cpu *c = t ? cpu_of(t->cpu) : 0;

	if (!c || t->entity >= SCHED_ENTITIES)
		return 0;
	count_release(t, c, now);
	count_offences(t, sched_entity(c, t->entity));
	return 0;
}

/* Tells the thread that begins to run what coop_poll returns (Coop §3.1). */
static __always_inline void tell(struct sched_task *t, struct sched_cpu *c, u64 now) {
	struct sched_entity *e = sched_entity(c, t->entity);
	volatile struct told *told = slot_line(t, 1);

	if (!told)
		return;
	told->next_release_ns = c->next_release_ns;
	told->least_importance =
		e->group < SCHED_ENTITIES ? group_least_importance(c, t->entity) : ECALLS_COOP_NONE;
	told->slice_end_ns = c->slice_end_ns;
	told->dispatch_ns = now;
	told->overran = e->overran;
	told->slept = e->slept;
	told->ahead = e->ahead;
	told->state =
		sched_in(c->cooperative, t->entity) ? ECALLS_COOP_COOPERATIVE : ECALLS_COOP_DEMOTED;
	told->answered = (u32)t->polls;
}

#endif
