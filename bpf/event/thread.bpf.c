/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The work of the kernel handler threads (ECalls-05 §3.1.3): chains from the threads' queue,
 * earliest deadline first.
 *
 * A work item (bpf_wq) runs in process context: it may sleep and be preempted. So it does not use a
 * CPU's `current`, works on an event of its own (struct thread), and counts atomically. A chain
 * arrives here for one THREAD action. A handler that sleeps is a function below, selected by its
 * number; then the rest of the chain goes back to this CPU's queue. Any other handler is a program
 * in `handlers`, which only the dispatcher can call: the chain goes back unchanged, but marked
 * ECALLS_EVENT_THREAD, and the dispatcher runs the handler and the rest in this thread's context.
 *
 * The pump starts a work item each millisecond while something waits, and arms the watch for
 * waiting signals (signal.h). It is needed where neither can be started, under a scheduler lock;
 * the host runs it while a service that raises there has a subscription with such actions.
 *
 * Failures: a late chain, or one whose subscription is closed, is counted and ends. Each handler
 * that sleeps forever occupies one of THREADS work items.
 */
#include "pinned.h"
#include "signal.h"
#include "handler.h"
#include "abi/handler.h"

#define THREAD_EVENTS 64u  /* chains of one run; then other work gets the worker */
#define PUMP_NS 1000000ull /* period of the pump */

extern int bpf_wq_init(struct bpf_wq *wq, void *map, unsigned int flags) __ksym __weak;
/* < 7.0 */
extern int bpf_wq_set_callback_impl(struct bpf_wq *wq, int(callback)(void *, int *, void *),
				    unsigned int flags, void *aux__ign) __ksym __weak;
/* >= 7.0 */
extern int bpf_wq_set_callback(struct bpf_wq *wq, int(callback)(void *, int *, void *),
			       unsigned int flags) __ksym __weak;

struct pump {
	struct bpf_timer timer;
	u32 runs; /* 1: restarts itself; written by pump_run */
	u32 turn; /* work item to start next */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pump);
} pumps SEC(".maps");

/* Returns the chain of work item `item`, whose event is `e`, to the dispatcher on this CPU. */
static __always_inline void chain_return(u32 item, struct ecalls_event *e, u32 chain, u32 flags) {
	struct pinned *p;
	u32 cpu;

	e->sequence = (e->sequence & ~(u64)~0u) | chain;
	e->flags = (e->flags & ~ECALLS_EVENT_THREAD) | flags;
	bpf_preempt_disable();
	if (has_resilient_lock()) {
		cpu = bpf_get_smp_processor_id();
		raise_queued(e, cpu, bpf_ktime_get_ns());
		drain(cpu, 0);
	} else {
		p = pinned_place();
		if (p) {
			p->item = item;
			pinned_run(p, PINNED_RETURN);
		}
	}
	bpf_preempt_enable();
	rest_place_set(e, 0);
}

/* Handler copy_user (abi/handler.h). It reads only the subscriber's own memory, and only while the
 * user may read it; root may read all. */
static __always_inline int copy_user(struct thread *t, const struct ecalls_subscription *s,
				     const struct ecalls_action *a) {
	u64 offset = a->argument[1], size = a->argument[2];
	struct task_struct *task;
	long error;

	if (size == 0 || size > ECALLS_COPY_USER_MAX)
		size = ECALLS_COPY_USER_MAX;
	if (offset & 7 || offset > ECALLS_DATA_INLINE - ECALLS_COPY_USER_MAX ||
	    (s->owner_uid && s->owner != s->receiver))
		return SIGNAL_DROPPED(ECALLS_DROP_NO_HANDLER);
	task = receiver_of(s);
	if (!task)
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	if (!may_read(task, s->owner_uid)) {
		bpf_task_release(task);
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	}
	/* The data beyond the event's size belong to an earlier event. */
	if (t->event.size <= SMALL_DATA_WORDS * 8)
		__builtin_memset(&t->event.data[SMALL_DATA_WORDS], 0,
				 (DATA_WORDS - SMALL_DATA_WORDS) * 8);
	error = bpf_copy_from_user_task((char *)t->event.data + offset, size,
					(const void *)a->argument[0], task, 0);
	bpf_task_release(task);
	if (error)
		return SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
	if (t->event.size < offset + size)
		t->event.size = offset + size;
	return HANDLER_CONTINUE;
}

/* Runs a handler that may sleep. Returns HANDLER_* or dropped. */
static __always_inline int run_sleeping(struct thread *t, const struct ecalls_subscription *s,
					const struct ecalls_action *a,
					struct ecalls_subscription_count *n) {
	u32 user = s->user;
	u64 begin_ns = user ? user_handler_begin(user) : 0;
	int result;

	if (begin_ns == 1)
		return SIGNAL_DROPPED(ECALLS_DROP_QUOTA);
	switch (a->handler) {
	case ECALLS_HANDLER_COPY_USER:
		__sync_fetch_and_add(&n->handlers, 1);
		result = copy_user(t, s, a);
		break;
	default:
		result = SIGNAL_DROPPED(ECALLS_DROP_NO_HANDLER);
	}
	if (begin_ns)
		user_handler_end(user, begin_ns);
	return result;
}

/* Runs the action for which the chain of `t->event` was queued, and continues the chain. */
static __always_inline void thread_action(u32 item, struct thread *t,
					  const struct ecalls_subscription *s, u32 index, u32 chain,
					  struct ecalls_subscription_count *n) {
	u32 action = chain & CHAIN_ACTION;
	const struct ecalls_action *a = action_of(s, action);
	struct outcome o = chain_outcome(chain);
	int result;

	if (a->handler < ECALLS_HANDLER_SLEEPING || a->handler == ECALLS_HANDLER_ECODE) {
		chain_return(item, &t->event, chain, ECALLS_EVENT_THREAD);
		return;
	}
	result = run_sleeping(t, s, a, n);
	/* The handler may have slept for long, and the subscription may have ended. */
	if (*(volatile u32 *)&s->id != t->event.subscription)
		return;
	if (result < 0)
		o.dropped = -result;
	o.filtered = result == HANDLER_STOP;
	if (result == HANDLER_CONTINUE && action + 1 < s->actions && action < CHAIN_ACTION)
		chain_return(item, &t->event, chain_at(action + 1, &o), 0);
	else
		settle(&o, s, index, n, &t->event, action, bpf_ktime_get_ns());
}

/* Continues the chain that work item `item` has taken. Global, so that the verifier checks it once
 * and not in each round of the loop. */
__noinline int thread_chain(u32 item) {
	struct thread *t = bpf_map_lookup_elem(&threads, &item);
	struct ecalls_subscription_count *n;
	struct ecalls_subscription *s;
	u32 id, index, chain;

	if (!t)
		return 0;
	id = t->event.subscription;
	index = ECALLS_ID_INDEX(id);
	chain = (u32)t->event.sequence;
	s = bpf_map_lookup_elem(&subscriptions, &index);
	n = count_of(index);
	if (!s || !n || s->id != id)
		return 0;
	__sync_fetch_and_add(&n->threads, 1);
	if (*(volatile u32 *)&s->state != ECALLS_STATE_ACTIVE)
		chain_closed(s, index, chain, &t->event);
	else if (is_late(t->event.deadline_ns, bpf_ktime_get_ns()))
		chain_late(s, chain, n, &t->event);
	else
		thread_action(item, t, s, index, chain, n);
	return 0;
}

static int thread_run(void *map, int *key, void *value) {
	struct thread *t = value;
	u32 item = *key;

	t->runs = 1;
	for (u32 i = 0; lib_again(i, THREAD_EVENTS); i++) {
		u64 now_ns = bpf_ktime_get_ns();

		i ^= lib_zero(now_ns);
		if (i >= THREAD_EVENTS || queue_take(QUEUE_THREADS, now_ns, &t->event))
			break;
		queue_taken(&t->event);
		thread_chain(item);
		rest_drop(&t->event);
	}
	t->runs = 0;
	/* A chain that is queued after this look starts an item, so none is left behind. */
	if (queue_waits(QUEUE_THREADS))
		bpf_wq_start(&t->work, 0);
	return 0;
}

struct thread_argument {
	u32 index;
};

/* Run by the loader for each of THREADS. A former instance of this part may have made the work
 * item: then it gets the callback of this one. */
SEC("syscall")
int thread_setup(struct thread_argument *argument) {
	u32 index = argument->index;
	struct thread *t = bpf_map_lookup_elem(&threads, &index);
	int error;

	if (!t)
		return -EINVAL;
	error = bpf_wq_init(&t->work, &threads, 0);
	if (error && error != -EBUSY)
		return error;
	if (bpf_ksym_exists(bpf_wq_set_callback_impl))
		return bpf_wq_set_callback_impl(&t->work, thread_run, 0, 0);
	return bpf_wq_set_callback(&t->work, thread_run, 0);
}

static int pump_expired(void *map, u32 *key, struct pump *pump) {
	if (!*(volatile u32 *)&pump->runs)
		return 0;
	if (queue_waits(QUEUE_THREADS))
		thread_start(pump->turn++);
	if (queue_waits(QUEUE_SIGNALS))
		signals_watch();
	bpf_timer_start(&pump->timer, PUMP_NS, 0);
	return 0;
}

/* Run once by the loader. */
SEC("syscall")
int pump_setup(void *ctx) {
	u32 zero = 0;
	struct pump *pump = bpf_map_lookup_elem(&pumps, &zero);

	if (!pump)
		return -EINVAL;
	if (bpf_timer_init(&pump->timer, &pumps, CLOCK_MONOTONIC))
		return -EBUSY;
	return bpf_timer_set_callback(&pump->timer, pump_expired);
}

struct pump_argument {
	u32 runs; /* 1: start, 0: stop */
};

SEC("syscall")
int pump_run(struct pump_argument *argument) {
	u32 zero = 0, runs = !!argument->runs;
	struct pump *pump = bpf_map_lookup_elem(&pumps, &zero);

	if (!pump)
		return -EINVAL;
	pump->runs = runs;
	return runs ? bpf_timer_start(&pump->timer, PUMP_NS, 0) : 0;
}

char LICENSE[] SEC("license") = "GPL";
