/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a program that can be preempted runs with preemption off.
 *
 * From Linux 6.15 on it turns preemption off and calls the function. Before, the verifier permits
 * no call of a global function there, and everything that raises has some. So the caller writes the
 * call into this CPU's place and fires the program in pinned.bpf.c, on whose tracepoint preemption
 * is off anyway. The verifier counts the stack of code that never runs, too; where both ways in one
 * program are too much for it, there are two programs, of which the loader takes one (PINNED in
 * objects.rs). The host attaches the program of pinned.bpf.c only on such a kernel, because it
 * makes every trigger dearer by 50 ns.
 *
 * All callers run in process context, and the program is not entered again on its CPU: so a CPU
 * needs one place. Failures: if the program is not attached, the result is -ENOSYS.
 */
#ifndef ECALLS_EVENT_PINNED_H
#define ECALLS_EVENT_PINNED_H

#include "raise.h"

#define TRIGGER_PINNED 0x45430008

#define PINNED_RAISE 1	 /* raise() of `raise` and `data` */
#define PINNED_RETURN 2	 /* the event of work item `item` to this CPU's queue */
#define PINNED_CALL 3	 /* `call`, by the owner of its channel */
#define PINNED_GENERIC 4 /* this CPU's element of generic_calls */

struct pinned_call {
	u32 channel;
	u32 op;
	u64 argument[3];
};

struct pinned {
	u32 what; /* PINNED_* */
	u32 item;
	s64 result;
	struct raise raise;
	struct pinned_call call;
	u64 data[DATA_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pinned);
} pinned_calls SEC(".maps");

/* This CPU's place. Preemption is off until pinned_run() has returned. */
static __always_inline struct pinned *pinned_place(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&pinned_calls, &zero);
}

static __always_inline s64 pinned_run(struct pinned *p, u32 what) {
	p->what = what;
	p->result = -ENOSYS;
	barrier();
	bpf_modify_return_test_tp(TRIGGER_PINNED);
	barrier();
	return *(volatile s64 *)&p->result;
}

static __always_inline s64 pinned_downcall(u64 call, u64 a, u64 b, u64 c) {
	struct pinned *p = pinned_place();

	if (!p)
		return -EINVAL;
	p->call.channel = call >> 32;
	p->call.op = call & 0xffff;
	p->call.argument[0] = a;
	p->call.argument[1] = b;
	p->call.argument[2] = c;
	return pinned_run(p, PINNED_CALL);
}

/* A raise by a program that can be preempted (a system call program, a kernel thread). */
static __always_inline int raise_preemptible(const struct raise *r, const u64 *data,
					     const u32 words) {
	struct pinned *p;
	int result = -EINVAL;

	bpf_preempt_disable();
	if (has_resilient_lock()) {
		result = raise(r, data, words);
	} else {
		p = pinned_place();
		if (p) {
			p->raise = *r;
#pragma unroll
			for (u32 i = 0; i < words; i++)
				p->data[i] = data[i];
			result = pinned_run(p, PINNED_RAISE);
		}
	}
	bpf_preempt_enable();
	return result;
}

#endif
