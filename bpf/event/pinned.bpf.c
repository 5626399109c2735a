/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The program behind pinned.h, attached as long as the core lives, but only before Linux 6.15.
 *
 * Each call is a function of its own, so that the verifier checks it once and their stacks are not
 * added up.
 */
#include "downcall.h"
#include "pinned.h"
#include "thread.h"

__noinline int pinned_raise(struct pinned *p) {
	struct raise r;

	if (!p)
		return -EINVAL;
	/* Read here: the compiler would read it, or the current task's, by one instruction. */
	r = p->raise;
	barrier_var(r.pid);
	return raise(&r, p->data, DATA_WORDS);
}

__noinline int pinned_return(u32 item) {
	struct thread *t = bpf_map_lookup_elem(&threads, &item);
	u32 cpu = bpf_get_smp_processor_id();

	if (!t)
		return -EINVAL;
	raise_queued(&t->event, cpu, bpf_ktime_get_ns());
	return drain(cpu, 0);
}

static __noinline s64 pinned_down(const struct pinned_call *call) {
	struct down d;

	if (!down_open(&d, call->channel))
		return -EPERM;
	return downcall(&d, call->channel, call->op, call->argument[0], call->argument[1],
			call->argument[2]);
}

static __noinline s64 pinned_generic(void) {
	struct ecalls_generic *g;
	u32 zero = 0;

	g = bpf_map_lookup_elem(&generic_calls, &zero);
	if (!g)
		return -EINVAL;
	return generic_raise(g, service_named(g->service), bpf_get_current_task_btf());
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(pinned, int nonce) {
	struct pinned *p;

	if (nonce != TRIGGER_PINNED)
		return 0;
	p = pinned_place();
	if (!p)
		return 0;
	switch (p->what) {
	case PINNED_RAISE:
		p->result = pinned_raise(p);
		break;
	case PINNED_RETURN:
		p->result = pinned_return(p->item);
		break;
	case PINNED_CALL:
		p->result = pinned_down(&p->call);
		break;
	case PINNED_GENERIC:
		p->result = pinned_generic();
		break;
	}
	p->what = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
