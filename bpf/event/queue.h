/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The event queues in the kernel: bpf/lib/queue.h behind a lock, with the events in its slots.
 *
 * There is one queue per CPU, so that CPUs do not wait for each other, and one for the kernel
 * threads. An event is queued on the CPU that raised it and delivered there: within a CPU the order
 * is earliest deadline first, between CPUs delivery is parallel. All locks are taken with
 * interrupts off (otherwise an interrupt on the same CPU would spin for 1.65 ms); no function is
 * called while one is held. Before Linux 6.15 the lock is bpf_spin_lock, which waits for ever: what
 * an NMI would queue is refused there, since the NMI may have interrupted the lock's holder.
 *
 * Functions here and in the other headers that are neither static nor inline are verified once
 * instead of once per path that leads to them; therefore they check their arguments.
 */
#ifndef ECALLS_EVENT_QUEUE_H
#define ECALLS_EVENT_QUEUE_H

#include "rest.h"
#include "user.h"

/* Nearly every event fits into this number of data words; with the header they are two cache
 * lines. */
#define SMALL_DATA_WORDS 5
#define DATA_WORDS (ECALLS_DATA_INLINE / 8)

/* Linux 6.15 brought this lock, and calls of global functions with preemption off (pinned.h). */
static __always_inline bool has_resilient_lock(void) {
	return bpf_ksym_exists(bpf_res_spin_lock_irqsave);
}

static __always_inline struct queue_cell *queue_cell(u32 index) {
	if (has_resilient_lock())
		return bpf_map_lookup_elem(&queues, &index);
	return bpf_map_lookup_elem(&spin_queues, &index);
}

/* Only before Linux 6.15. Where the count cannot be found, every context counts as an NMI. */
static __always_inline bool in_nmi(void) {
	const struct task_struct *task = bpf_get_current_task_btf();
	const struct pcpu_hot *hot;

	if (bpf_core_field_exists(task->thread_info.preempt_count))
		return task->thread_info.preempt_count & NMI_MASK;
	if (!bpf_ksym_exists(&pcpu_hot))
		return true;
	hot = bpf_this_cpu_ptr(&pcpu_hot);
	return hot->preempt_count & NMI_MASK;
}

/* Returns 0, or an error: the queue cannot be locked here. */
static __always_inline int queue_lock(struct queue_cell *cell, unsigned long *flags) {
	if (has_resilient_lock())
		return bpf_res_spin_lock_irqsave(&cell->lock, flags);
	if (in_nmi())
		return -EBUSY;
	bpf_spin_lock((struct bpf_spin_lock *)&cell->lock);
	return 0;
}

static __always_inline void queue_unlock(struct queue_cell *cell, unsigned long *flags) {
	if (has_resilient_lock())
		bpf_res_spin_unlock_irqrestore(&cell->lock, flags);
	else
		bpf_spin_unlock((struct bpf_spin_lock *)&cell->lock);
}

static __always_inline struct current *current_cpu(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&current_events, &zero);
}

/* Copies an event's record without the data beyond its size, unless it is small. Every copy follows
 * this rule, so that no data of a former event are ever passed on. */
static __always_inline void event_copy(struct ecalls_event *to, const struct ecalls_event *from) {
	const u64 *a = (const u64 *)from;
	u64 *b = (u64 *)to;

#pragma unroll
	for (int i = 0; i < 11 + SMALL_DATA_WORDS; i++)
		b[i] = a[i];
	if (from->size > SMALL_DATA_WORDS * 8) {
#pragma unroll
		for (int i = 11 + SMALL_DATA_WORDS; i < 11 + DATA_WORDS; i++)
			b[i] = a[i];
	}
}

/* A place for an event that a context drops from a queue, until evicted_end(). These places form a
 * stack of their own, because a dispatcher that runs due to an interrupt has the same depth of
 * `nesting` as the interrupted one. */
static __always_inline struct evicted *evicted_begin(struct current *c) {
	u32 depth = *(volatile u32 *)&c->evicting;

	c->evicting = depth + 1;
	barrier();
	return &c->evicted[depth & (EVICTED_PLACES - 1)];
}

static __always_inline void evicted_end(struct current *c) {
	barrier();
	c->evicting--;
}

static __always_inline void evicted_fill(struct evicted *v, const struct ecalls_event *e) {
	v->match = (struct match){};
	v->match.kind = e->kind;
	v->match.target = e->target;
	v->match.pid = event_process(e);
	v->match.uid = e->uid;
	v->service = e->service;
	v->flags = e->flags;
	v->subscription = e->subscription;
	v->chain = (u32)e->sequence;
	v->rest = rest_place(e);
	v->id = e->id;
	v->raise_ns = e->raise_ns;
	v->release_ns = e->release_ns;
	v->deadline_ns = e->deadline_ns;
}

/* Entries of each queue that users' raises cannot take, so that all users together never displace,
 * or keep out, events of the kernel's own services. */
#define QUEUE_RESERVE (QUEUE_CAPACITY / 4)

/* Whether users' raises find no entry in this queue. */
static __always_inline bool queue_full_for(const struct queue *q, u32 flags) {
	return flags & USER_FLAGS &&
	       q->ready.count + q->held.count >= QUEUE_CAPACITY - QUEUE_RESERVE;
}

/* The event has more data than its record, and no place for them (rest.h): it was dropped. */
#define QUEUE_UNPLACED 3

/* Queues a copy of `e`, with the place of its rest, on queue `index`. Returns QUEUE_*; unless it is
 * QUEUE_PUSHED, `lost` describes the dropped event. */
__noinline int queue_add(u32 index, const struct ecalls_event *e, u64 now_ns,
			 struct evicted *lost) {
	struct queue_cell *cell = queue_cell(index);
	unsigned long flags;
	u32 slot = 0;
	int result;

	if (!cell || !e || !lost)
		return QUEUE_REFUSED;
	lost->next_ns = 0;
	result = QUEUE_REFUSED;
	if (e->size > ECALLS_DATA_INLINE && !rest_place(e))
		result = QUEUE_UNPLACED;
	if (result == QUEUE_UNPLACED || queue_lock(cell, &flags)) {
		evicted_fill(lost, e);
		user_unqueue(lost->flags);
		rest_give(lost->rest);
		return result;
	}
	if (!queue_full_for(&cell->queue, e->flags))
		result = queue_push(&cell->queue, e->deadline_ns, e->release_ns, now_ns, &slot);
	struct ecalls_event *place = &cell->event[heap_at(slot)];
	if (result == QUEUE_REPLACED)
		evicted_fill(lost, place);
	if (result != QUEUE_REFUSED)
		event_copy(place, e);
	lost->next_ns = queue_next_release(&cell->queue);
	queue_unlock(cell, &flags);
	if (result == QUEUE_REFUSED)
		evicted_fill(lost, e);
	if (result != QUEUE_PUSHED) {
		user_unqueue(lost->flags);
		rest_give(lost->rest);
	}
	return result;
}

/* Takes the earliest event that may be delivered into `e`. Returns 0, or -1 if there is none. The
 * event remains in its user's count until queue_taken(). */
__noinline int queue_take(u32 index, u64 now_ns, struct ecalls_event *e) {
	struct queue_cell *cell = queue_cell(index);
	unsigned long flags;
	u32 slot = 0;
	int result;

	if (!cell || !e)
		return -1;
	if (queue_lock(cell, &flags))
		return -1;
	if (cell->queue.held.count)
		queue_release(&cell->queue, now_ns);
	result = queue_pop(&cell->queue, &slot);
	if (!result)
		event_copy(e, &cell->event[heap_at(slot)]);
	queue_unlock(cell, &flags);
	return result;
}

/* The subscription of the chain at place `at` (from 1) of those that are ready, and the chain's
 * deadline; 0: there is none. Reads without the lock, so the result may be outdated. */
static __always_inline u32 queue_look(u32 index, u32 at, u64 *deadline_ns) {
	struct queue_cell *cell = queue_cell(index);
	const struct ecalls_event *e;

	if (!cell || at > *(volatile u32 *)&cell->queue.ready.count)
		return 0;
	e = &cell->event[heap_at(cell->queue.ready.entry[heap_at(at)].slot)];
	*deadline_ns = e->deadline_ns;
	return e->subscription;
}

/* Takes the chain at place `at` if it still belongs to this subscription. Returns 0 or -1. */
__noinline int queue_pull(u32 index, u32 at, u32 subscription, struct ecalls_event *e) {
	struct queue_cell *cell = queue_cell(index);
	unsigned long flags;
	u32 slot;
	int result = -1;

	if (!cell || !e)
		return -1;
	if (queue_lock(cell, &flags))
		return -1;
	slot = heap_at(cell->queue.ready.entry[heap_at(at)].slot);
	if (cell->event[slot].subscription == subscription)
		result = queue_remove(&cell->queue, at, &slot);
	if (!result)
		event_copy(e, &cell->event[heap_at(slot)]);
	queue_unlock(cell, &flags);
	return result;
}

/* An event has left the queues. */
static __always_inline void queue_taken(struct ecalls_event *e) {
	u32 flags = e->flags;

	if (!(flags & USER_FLAGS))
		return;
	user_unqueue(flags);
	e->flags = flags & ~USER_FLAGS;
}

/* Number of events that can be delivered now; reads without the lock. */
static __always_inline bool queue_waits(u32 index) {
	struct queue_cell *cell = queue_cell(index);

	return cell && *(volatile u32 *)&cell->queue.ready.count != 0;
}

#endif
