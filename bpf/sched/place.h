/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The entries of a CPU's table (bpf/lib/sched/entity.h), called places: the owner of each one, and
 * the groups that have one.
 *
 * A thread that becomes an entity takes a place (entry.h); its group also takes one while it has a
 * member on that CPU. The threads and groups of one user take at most USER_PLACES of a CPU's
 * places. struct sched_places holds the data per place that the policy does not need, and the sets
 * of places per CPU that the other files search.
 *
 * When a thread has left its CPU, its place is only marked (`left`), by the CPU that runs the
 * thread now. The place's own CPU, the only one that may change its table, clears it later
 * (clear_left). The CPU time of a group is summed over all CPUs under the group's user and number
 * (group_sum).
 *
 * Failures: a group without a free place, or without memory, is not created, and its thread is in
 * no group.
 */
#ifndef ECALLS_SCHED_PLACE_H
#define ECALLS_SCHED_PLACE_H

#include "observe.h"
#include "lib/sched/admit.h"

/* The most places of one CPU's table for the threads of one user and their groups. Root has no such
 * limit. */
#define USER_PLACES 32u

/* A group's place on one CPU. */
struct group_place {
	u32 entity;
	u32 members; /* entities in this group, runnable or not */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader: the number of places of all tables */
	__type(key, struct group_key);
	__type(value, struct group_place);
} sched_groups SEC(".maps");

/* The entities of a set that belong to a user. */
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

/* Whether a user may have one more thread in the table, and its group. */
static __always_inline bool user_has_place(const struct sched_cpu *c,
					   const struct sched_places *places,
					   const struct group_key *key) {
	u32 more = key->number ? 2 : 1;

	return !key->uid || bits_count(of_user(places, c->used, key->uid)) + more <= USER_PLACES;
}

/* The CPU time of a group's members on all CPUs, by user and number. When the map is full, the
 * least recently used group is removed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct group_key); /* its cpu is 0 */
	__type(value, u64);
} group_times SEC(".maps");

/* Adds the CPU time of a group on this CPU since the last call to its sum over all CPUs, and
 * returns that sum; 0: there is no memory for it. */
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

/* The place of a group in this CPU's table, for one more member; the first member creates it. A
 * group without runnable members begins at the virtual time of this member. SCHED_NOBODY: no place
 * is free. */
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

/* A group loses one member on this CPU; without members it is removed. */
static __always_inline void group_leave(struct sched_cpu *c, const struct group_key *key) {
	struct group_place *known = bpf_map_lookup_elem(&sched_groups, key);

	if (!known || --known->members)
		return;
	group_sum(key->cpu, known->entity);
	sched_remove(c, known->entity);
	seen_leaves(key->cpu, known->entity);
	bpf_map_delete_elem(&sched_groups, key);
}

/* Removes the entities of this CPU whose threads have left, even if they waited here. It is a
 * function that the verifier checks once: Linux 7.0 rejects it as a part of another function
 * ("backtracking call unexpected regs"). */
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
	/* Runs are not recorded any more. */
	if (sched_is_plain(c))
		watch_ends(cpu, now);
	return 0;
}

#endif
