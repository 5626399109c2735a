/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Statistics of threads with scheduling attributes of their own, and of their groups (abi/sched.h):
 * how late they got the CPU, how long they waited for it and kept it, and which rules they broke;
 * and for the worst cases of lateness, which threads had the CPU meanwhile.
 *
 * Each entity has an entry of `sched_seen` at its index in the policy's table, so that a thread
 * switch needs no search. An entry begins anew with the entity: a thread that migrates to another
 * CPU has a new entry there. A sample of a group's member also counts in the group's entry.
 *
 * `sched_watch` has the last runs of all threads of a CPU; runs of real-time threads and of
 * interrupts are not under this scheduler's control, and are not included. When the lateness of a
 * thread is among the greatest so far, the runs since its release are summed up by thread. While no
 * thread of the CPU polls, none can be late, and runs are not recorded: they are the largest part
 * of the statistics' cost per switch.
 *
 * Most of these are separate functions, with their tests inside: a test in their callers would make
 * the verifier walk all code that follows the call twice.
 *
 * All entries of a CPU are written under its run queue's lock, and read by other processes at any
 * time: an entry that is read during a change is off by one sample. at_ns of a worst case shows
 * that it is complete.
 */
#ifndef ECALLS_SCHED_OBSERVE_H
#define ECALLS_SCHED_OBSERVE_H

#include "trace.h"

/* Indexed by cpu * SCHED_ENTITIES + entity. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_sched_seen);
} sched_seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_sched_watch);
} sched_watch SEC(".maps");

_Static_assert(!(ECALLS_SEEN_RUNS & (ECALLS_SEEN_RUNS - 1)) &&
		       !(ECALLS_SEEN_WORST & (ECALLS_SEEN_WORST - 1)) &&
		       !(ECALLS_SEEN_CULPRITS & (ECALLS_SEEN_CULPRITS - 1)),
	       "places are found by masks");

static __always_inline struct ecalls_sched_seen *seen_of(u32 cpu, u32 entity) {
	u32 at = cpu * SCHED_ENTITIES + entity;

	return entity < SCHED_ENTITIES ? bpf_map_lookup_elem(&sched_seen, &at) : 0;
}

/* The entry of the thread's group, given the thread's entry; none if the thread is in no group. */
static __always_inline struct ecalls_sched_seen *seen_group(const struct ecalls_sched_seen *seen,
							    u32 cpu) {
	return seen_of(cpu, seen->within);
}

static __always_inline void seen_sample(struct ecalls_sched_samples *samples, u64 ns) {
	samples->count[histogram_bucket(ns / 1000) & 63]++;
	if (ns > samples->max_ns)
		samples->max_ns = ns;
}

static __always_inline u32 seen_kind(const struct sched_cpu *c, u32 entity) {
	if (sched_in(c->windowed, entity))
		return ECALLS_KIND_WINDOW;
	return sched_in(c->cooperative, entity) ? ECALLS_KIND_COOPERATIVE : ECALLS_KIND_FAIR;
}

/* Clears an entry that is unused, or was used by another entity. */
static __always_inline void seen_clear(struct ecalls_sched_seen *seen, u64 now) {
	__builtin_memset(seen, 0, sizeof(*seen));
	seen->within = SCHED_NOBODY;
	seen->since_ns = now;
}

/* The run that began last. */
static __always_inline struct ecalls_sched_run *watch_last(struct ecalls_sched_watch *watch) {
	u32 last = watch->next - 1;

	return &watch->run[last & (ECALLS_SEEN_RUNS - 1)];
}

/* The running thread has become an entity: its names are in the last run. */
__noinline int seen_enters(const struct sched_task *t, u32 cpu, u64 now) {
	struct ecalls_sched_watch *watch = bpf_map_lookup_elem(&sched_watch, &cpu);
	struct ecalls_sched_seen *seen, *group;
	struct sched_cpu *c = cpu_of(cpu);
	const struct ecalls_sched_run *run;

	seen = t ? seen_of(cpu, t->entity) : 0;
	if (!seen || !c || !watch)
		return 0;
	run = watch_last(watch);
	seen_clear(seen, now);
	seen->pid = run->pid;
	seen->tid = run->tid;
	__builtin_memcpy(seen->comm, run->comm, sizeof(seen->comm));
	seen->uid = t->uid;
	seen->cpu = cpu;
	seen->began_ns = now;
	seen->within = sched_entity(c, t->entity)->group;
	seen->state = ECALLS_SEEN_THREAD;
	group = seen_group(seen, cpu);
	if (!group)
		return 0;
	seen->group = t->group;
	if (group->state != ECALLS_SEEN_GROUP || group->group != t->group || group->uid != t->uid)
		seen_clear(group, now);
	group->state = ECALLS_SEEN_GROUP;
	group->group = t->group;
	group->uid = t->uid;
	group->cpu = cpu;
	return 0;
}

/* An entity has ended. */
static __always_inline void seen_leaves(u32 cpu, u32 entity) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity);

	if (seen)
		seen->state = ECALLS_SEEN_FREE;
}

/* A thread begins to wait for its CPU. */
static __always_inline void seen_waits(u32 cpu, u32 entity, u64 now) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity);

	if (seen)
		seen->ready_ns = now;
}

/* A waiting thread begins to run. */
__noinline int seen_runs(u32 cpu, u32 entity, u64 now) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity), *group;
	struct sched_cpu *c = cpu_of(cpu);
	u64 waited;

	if (!seen || !c)
		return 0;
	seen->kind = seen_kind(c, entity);
	seen->began_ns = now;
	if (!seen->ready_ns)
		return 0;
	waited = now > seen->ready_ns ? now - seen->ready_ns : 0;
	seen->ready_ns = 0;
	seen_sample(&seen->delay, waited);
	group = seen_group(seen, cpu);
	if (group)
		seen_sample(&group->delay, waited);
	return 0;
}

/* A thread stops running, and waits again if it is `runnable`. */
__noinline int seen_stops(u32 cpu, u32 entity, u32 runnable, u64 now) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity), *group;
	u64 ran;

	if (!seen)
		return 0;
	seen->ready_ns = runnable ? now : 0;
	if (!seen->began_ns)
		return 0;
	ran = now > seen->began_ns ? now - seen->began_ns : 0;
	seen->began_ns = 0;
	seen->run_ns += ran;
	seen_sample(&seen->slice, ran);
	group = seen_group(seen, cpu);
	if (group) {
		group->run_ns += ran;
		seen_sample(&group->slice, ran);
	}
	return 0;
}

/* A thread has broken rules, as often as the counts say. */
__noinline int seen_offends(u32 cpu, u32 entity, u32 overran, u32 slept, u32 ahead) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity), *group;

	if (!seen)
		return 0;
	seen->overran += overran;
	seen->slept += slept;
	seen->ahead += ahead;
	group = seen_group(seen, cpu);
	if (group) {
		group->overran += overran;
		group->slept += slept;
		group->ahead += ahead;
	}
	if (is_traced(now_ns()))
		trace_note(ECALLS_TRACE_DEMOTED, cpu, seen,
			   overran ? ECALLS_TRACE_OVERRAN
				   : (slept ? ECALLS_TRACE_SLEPT : ECALLS_TRACE_AHEAD),
			   0);
	return 0;
}

/* A poll. */
__noinline int seen_polls(u32 cpu, u32 entity, u64 release_ns) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity);

	if (seen && is_traced(now_ns()))
		trace_note(ECALLS_TRACE_POLL, cpu, seen, 0, release_ns);
	return 0;
}

/* Records a choice in the trace, unless it was made by virtual time. */
__noinline int trace_choice(u32 cpu, u32 entity, u32 why) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity);

	if (seen && why > ECALLS_WHY_FAIR && is_traced(now_ns()))
		trace_note(ECALLS_TRACE_CHOSEN, cpu, seen, why, 0);
	return 0;
}

/* A thread with a window runs. */
__noinline int seen_window(u32 cpu, u32 entity, u64 deadline_ns) {
	struct ecalls_sched_seen *seen = seen_of(cpu, entity);

	if (seen && is_traced(now_ns()))
		trace_note(ECALLS_TRACE_WINDOW, cpu, seen, 0, deadline_ns);
	return 0;
}

static __always_inline void watch_run(struct ecalls_sched_watch *watch, const struct task_struct *p,
				      u32 kind, u64 now) {
	struct ecalls_sched_run *run;

	watch->next++;
	run = watch_last(watch);
	run->from_ns = now;
	run->to_ns = 0;
	run->pid = p->tgid;
	run->tid = p->pid;
	run->kind = kind;
	/* A call of a helper would cost more than this whole function. */
	for (u32 i = 0; i < sizeof(run->comm); i++)
		run->comm[i] = p->comm[i];
}

/* Any thread gets this CPU. */
__noinline int watch_begins(struct task_struct *p __arg_trusted, u32 cpu, u32 entity) {
	struct ecalls_sched_watch *watch = bpf_map_lookup_elem(&sched_watch, &cpu);
	struct sched_cpu *c = cpu_of(cpu);

	/* The previous thread has been charged for its run up to now. */
	if (watch && c && c->cooperative)
		watch_run(watch, p, seen_kind(c, entity), c->charged_ns);
	return 0;
}

/* The running thread is about to become an entity: its run is recorded from here on at the
 * latest. */
__noinline int watch_enters(struct task_struct *p __arg_trusted, u32 cpu, u64 now) {
	struct ecalls_sched_watch *watch = bpf_map_lookup_elem(&sched_watch, &cpu);

	if (watch && (watch_last(watch)->tid != (u32)p->pid || watch_last(watch)->to_ns))
		watch_run(watch, p, ECALLS_KIND_FAIR, now);
	return 0;
}

__noinline int watch_ends(u32 cpu, u64 now) {
	struct ecalls_sched_watch *watch = bpf_map_lookup_elem(&sched_watch, &cpu);

	if (watch && !watch_last(watch)->to_ns)
		watch_last(watch)->to_ns = now;
	return 0;
}

/* Adds a run to the sums of a late thread. 0: the table of threads is full, so the run counts in
 * rest_ns. */
__noinline int watch_blame(struct ecalls_sched_worst *worst LIB_NONNULL,
			   const struct ecalls_sched_run *run LIB_NONNULL, u64 ran_ns) {
	for (u32 i = 0; lib_again(i, ECALLS_SEEN_CULPRITS); i++) {
		if (i >= ECALLS_SEEN_CULPRITS)
			break;
		struct ecalls_sched_culprit *by = &worst->by[i & (ECALLS_SEEN_CULPRITS - 1)];
		if (by->tid == run->tid) {
			by->ran_ns += ran_ns;
			return 1;
		}
		if (by->tid)
			continue;
		by->pid = run->pid;
		by->tid = run->tid;
		by->kind = run->kind;
		by->ran_ns = ran_ns;
		__builtin_memcpy(by->comm, run->comm, sizeof(by->comm));
		return 1;
	}
	return 0;
}

/* The least lateness of the worst cases, whose entry is reused next; a forgotten case counts as
 * 0. */
__noinline u64 watch_least(const struct ecalls_sched_watch *watch LIB_NONNULL, u64 forgotten_ns,
			   u32 *place LIB_NONNULL) {
	u64 least_ns = SCHED_NEVER;

	for (u32 i = 0; lib_again(i, ECALLS_SEEN_WORST); i++) {
		if (i >= ECALLS_SEEN_WORST)
			break;
		const struct ecalls_sched_worst *worst = &watch->worst[i & (ECALLS_SEEN_WORST - 1)];
		u64 tardy_ns = worst->at_ns > forgotten_ns ? worst->tardy_ns : 0;
		if (tardy_ns >= least_ns)
			continue;
		least_ns = tardy_ns;
		*place = i;
	}
	return least_ns;
}

/* Records a late thread as one of the worst cases, with the threads that had the CPU from its
 * release until now. */
__noinline int watch_note(struct ecalls_sched_watch *watch LIB_NONNULL,
			  const struct ecalls_sched_seen *seen LIB_NONNULL, u32 place,
			  u64 release_ns, u64 now) {
	struct ecalls_sched_worst *worst = &watch->worst[place & (ECALLS_SEEN_WORST - 1)];
	u64 known_ns = 0;
	u32 at = watch->next;

	*(volatile u64 *)&worst->at_ns = 0;
	__builtin_memset(worst->by, 0, sizeof(worst->by));
	for (u32 i = sched_zero; lib_again(i, ECALLS_SEEN_RUNS); i++) {
		if (i >= ECALLS_SEEN_RUNS)
			break;
		at--;
		const struct ecalls_sched_run *run = &watch->run[at & (ECALLS_SEEN_RUNS - 1)];
		u64 from_ns = run->from_ns > release_ns ? run->from_ns : release_ns;
		u64 to_ns = run->to_ns ? run->to_ns : now;
		if (!run->from_ns || to_ns <= release_ns)
			break;
		if (watch_blame(worst, run, to_ns - from_ns))
			known_ns += to_ns - from_ns;
	}
	worst->release_ns = release_ns;
	worst->tardy_ns = now - release_ns;
	worst->rest_ns = now - release_ns > known_ns ? now - release_ns - known_ns : 0;
	worst->before_ns = seen->ready_ns > release_ns ? seen->ready_ns - release_ns : 0;
	worst->pid = seen->pid;
	worst->tid = seen->tid;
	worst->cpu = seen->cpu;
	worst->group = seen->group;
	__builtin_memcpy(worst->comm, seen->comm, sizeof(worst->comm));
	__sync_lock_test_and_set(&worst->at_ns, now);
	return 0;
}

/* A thread gets the CPU after its release. */
__noinline int seen_released(u32 cpu, u32 entity, u64 release_ns, u64 now) {
	struct ecalls_sched_watch *watch = bpf_map_lookup_elem(&sched_watch, &cpu);
	struct ecalls_sched_seen *seen = seen_of(cpu, entity), *group;
	u64 tardy_ns = now > release_ns ? now - release_ns : 0, forgotten_ns = asked.forgotten_ns;
	u32 place = 0;

	if (!seen || !watch)
		return 0;
	seen_sample(&seen->tardiness, tardy_ns);
	group = seen_group(seen, cpu);
	if (group)
		seen_sample(&group->tardiness, tardy_ns);
	if (is_traced(now))
		trace_note(ECALLS_TRACE_RELEASE, cpu, seen, 0, release_ns);
	/* The least lateness of a full table is cached, so that most releases cost one
	 * comparison. */
	if (watch->forgotten_ns == forgotten_ns && tardy_ns <= watch->least_ns)
		return 0;
	if (tardy_ns > watch_least(watch, forgotten_ns, &place))
		watch_note(watch, seen, place, release_ns, now);
	watch->least_ns = watch_least(watch, forgotten_ns, &place);
	watch->forgotten_ns = forgotten_ns;
	return 0;
}

#endif
