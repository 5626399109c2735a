/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measurements, and load for tests: programs that raise, queue, take or trigger n times in a row
 * and measure the time. They use the service ECALLS_SERVICE_CORE, and only the host runs them.
 *
 * Each reads the clock before the first and after the last round, so a round costs total_ns / done;
 * the loop itself costs a few ns.
 */
#include "pinned.h"

#define MEASURE_MAX 1000000u /* rounds of one run */
#define MEASURE_BATCH 16u

struct measure {
	u32 n;		 /* rounds */
	s32 target;	 /* raise, push */
	u32 flags;	 /* raise: ECALLS_EVENT_CPU, RAISE_QUEUED */
	u32 kind;	 /* raise, push */
	u32 type;	 /* raise, push */
	u32 priority;	 /* raise, push */
	u32 size;	 /* raise, push: bytes of data */
	u32 queue;	 /* push, pop: which queue */
	u64 deadline_ns; /* relative, 0: none; push: the deadlines are spread below it */
	u64 release_ns;	 /* raise: relative, 0: at once */
	u64 data;	 /* raise, push: data word of the first event; then incremented */
	u64 total_ns;	 /* out */
	u64 done;	 /* out: rounds that succeeded */
	s64 result;	 /* out: of the last round */
};

/* Too large for the stack. */
static u64 measure_data[ECALLS_DATA_MAX / 8] = {1};
static struct ecalls_event measure_event;
static struct evicted measure_evicted;

/* The measurement that an argument asks for. The argument itself receives only the results. */
static __always_inline int measure_begin(struct measure *m, const struct measure *argument) {
	__builtin_memcpy(m, argument, sizeof(*m));
	m->done = 0;
	m->result = 0;
	return m->n > MEASURE_MAX ? -EINVAL : 0;
}

static __always_inline int measure_rounds(struct measure *argument, struct measure *m, u32 rounds,
					  void *once) {
	u64 start_ns = bpf_ktime_get_ns();

	bpf_loop(rounds, once, m, 0);
	argument->total_ns = bpf_ktime_get_ns() - start_ns;
	argument->done = m->done;
	argument->result = m->result;
	return 0;
}

static __always_inline int measure_one(const struct raise *r, const u64 *data, const u32 words) {
	return has_resilient_lock() ? raise(r, data, words) : raise_preemptible(r, data, words);
}

static int measure_raise_once(u32 i, struct measure *m) {
	u64 data[SMALL_DATA_WORDS] = {m->data};
	u64 now_ns = m->deadline_ns || m->release_ns ? bpf_ktime_get_ns() : 0;
	struct raise r = {
		.service = ECALLS_SERVICE_CORE,
		.kind = m->kind & 31,
		.type = m->type,
		.priority = m->priority,
		.target = m->target,
		.flags = m->flags & (ECALLS_EVENT_CPU | RAISE_QUEUED),
		.size = m->size,
		.deadline_ns = m->deadline_ns ? now_ns + m->deadline_ns : 0,
		.release_ns = m->release_ns ? now_ns + m->release_ns : 0,
	};

	/* As services do it: most have no event with more data than its record holds, which makes
	 * their raises cheaper. */
	if (m->size > ECALLS_DATA_INLINE) {
		r.rest = (u64)&measure_data[DATA_WORDS];
		m->result = measure_one(&r, measure_data, DATA_WORDS);
	} else if (m->size > SMALL_DATA_WORDS * 8) {
		m->result = measure_one(&r, measure_data, DATA_WORDS);
	} else {
		m->result = measure_one(&r, data, SMALL_DATA_WORDS);
	}
	m->done += m->result >= 0;
	m->data++;
	return 0;
}

/* Several raises at a time, so that the cost of keeping this program on its CPU (10 ns, which
 * services do not have) is negligible. */
static int measure_raise_some(u32 i, struct measure *m) {
	u32 left = m->n - i * MEASURE_BATCH;

	bpf_preempt_disable();
	bpf_loop(left < MEASURE_BATCH ? left : MEASURE_BATCH, measure_raise_once, m, 0);
	bpf_preempt_enable();
	return 0;
}

SEC("syscall")
int measure_raise(struct measure *argument) {
	struct measure m;
	int error = measure_begin(&m, argument);

	if (error)
		return error;
	return measure_rounds(argument, &m, (m.n + MEASURE_BATCH - 1) / MEASURE_BATCH,
			      measure_raise_some);
}

/* Deadlines are spread by a multiplication (Knuth's), so that events do not arrive in order. */
static int measure_push_once(u32 i, struct measure *m) {
	struct ecalls_event *e = &measure_event;

	e->data[0] = m->data + i;
	if (m->deadline_ns)
		e->deadline_ns = e->raise_ns + (i * 2654435761u) % m->deadline_ns + 1;
	m->result = queue_add(m->queue, e, e->raise_ns, &measure_evicted);
	m->done += m->result == QUEUE_PUSHED;
	return 0;
}

SEC("syscall")
int measure_push(struct measure *argument) {
	struct ecalls_event *e = &measure_event;
	struct measure m;
	int error = measure_begin(&m, argument);

	if (error)
		return error;
	__builtin_memset(e, 0, sizeof(*e));
	e->service = ECALLS_SERVICE_CORE;
	e->kind = m.kind & 31;
	e->type = m.type;
	e->target = m.target;
	e->priority = m.priority;
	e->size = sizeof(u64);
	e->raise_ns = bpf_ktime_get_ns();
	return measure_rounds(argument, &m, m.n, measure_push_once);
}

static int measure_pop_once(u32 i, struct measure *m) {
	struct ecalls_event *e = &measure_event;

	m->result = queue_take(m->queue, ~0ull >> 1, e);
	if (!m->result)
		queue_taken(e);
	m->done += m->result == 0;
	return m->result != 0;
}

SEC("syscall")
int measure_pop(struct measure *argument) {
	struct measure m;
	int error = measure_begin(&m, argument);

	if (error)
		return error;
	return measure_rounds(argument, &m, m.n, measure_pop_once);
}

static int measure_trigger_once(u32 i, struct measure *m) {
	bpf_modify_return_test_tp(0);
	m->done++;
	return 0;
}

/* Only the tracepoint: the dispatcher ignores the number, which is not one of its own. */
SEC("syscall")
int measure_trigger(struct measure *argument) {
	struct measure m;
	int error = measure_begin(&m, argument);

	if (error)
		return error;
	return measure_rounds(argument, &m, m.n, measure_trigger_once);
}

char LICENSE[] SEC("license") = "GPL";
