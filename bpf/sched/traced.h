/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs of a trace, which its reader attaches (bpf/sched/trace.h): they record thread
 * switches and wake-ups of all threads, in all scheduling classes, and deliveries of events. The
 * reader's requests are executed here as well.
 */
#ifndef ECALLS_SCHED_TRACED_H
#define ECALLS_SCHED_TRACED_H

#include "sink.h"

SEC("tp_btf/sched_switch")
int BPF_PROG(trace_switch, bool preempt, struct task_struct *previous, struct task_struct *next,
	     unsigned int state) {
	u32 cpu = bpf_get_smp_processor_id();
	struct sched_task *t = task_of(next);
	struct sched_cpu *c = cpu_of(cpu);
	struct ecalls_sched_note *note;

	if (!is_traced(bpf_ktime_get_ns()))
		return 0;
	note = trace_place(ECALLS_TRACE_SWITCH, cpu);
	if (!note)
		return 0;
	note->value = (u64)preempt << 32 | state;
	note->more = (u64)(u32)previous->prio << 32 | (u32)next->prio;
	note->pid = next->tgid;
	note->tid = next->pid;
	note->other = previous->pid;
	note->which = t && c ? seen_kind(c, t->entity) : ECALLS_KIND_FAIR;
	bpf_probe_read_kernel(note->comm, sizeof(note->comm), next->comm);
	trace_done(note);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(trace_wake, struct task_struct *p) {
	u32 cpu = bpf_get_smp_processor_id();
	struct ecalls_sched_note *note;

	if (!is_traced(bpf_ktime_get_ns()))
		return 0;
	note = trace_place(ECALLS_TRACE_WAKE, cpu);
	if (!note)
		return 0;
	note->value = 0;
	note->more = (u32)p->prio;
	note->pid = p->tgid;
	note->tid = p->pid;
	note->other = (u32)bpf_get_current_pid_tgid();
	note->which = task_cpu(p);
	bpf_probe_read_kernel(note->comm, sizeof(note->comm), p->comm);
	trace_done(note);
	return 0;
}

/* The dispatcher triggers this program at the delivery of this CPU's current event
 * (event/deliver.bpf.c). */
SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(trace_event, int nonce) {
	u32 zero = 0, cpu = bpf_get_smp_processor_id();
	struct ecalls_sched_note *note;
	struct current *c;

	if (nonce != TRIGGER_TRACE || !is_traced(bpf_ktime_get_ns()))
		return 0;
	c = bpf_map_lookup_elem(&current_events, &zero);
	note = c ? trace_place(ECALLS_TRACE_EVENT, cpu) : 0;
	if (!note)
		return 0;
	note->value = c->event.raise_ns;
	note->more = c->event.id;
	note->pid = event_process(&c->event);
	note->tid = note->pid ? c->event.tid : 0;
	note->other = c->event.service;
	note->which = c->event.kind;
	__builtin_memset(note->comm, 0, sizeof(note->comm));
	trace_done(note);
	return 0;
}

/* Sets the time at which the dispatcher stops tracing events. */
static __always_inline void trace_services(u64 now, u32 until) {
	for (u32 i = 0; lib_again(i, ECALLS_SERVICES_MAX); i++) {
		i ^= lib_zero(now);
		u32 service = i;
		struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
		if (i >= ECALLS_SERVICES_MAX || !s)
			break;
		*(volatile u32 *)&s->traced = until;
	}
}

SEC("syscall")
int trace_ask(u32 *ask) {
	u64 now = bpf_ktime_get_ns();

	switch (*ask) {
	case ECALLS_ASK_TRACE:
		asked.traced_ns = now + TRACE_LIFE_NS;
		trace_services(now, (u32)(asked.traced_ns >> TRACE_TIME_SHIFT));
		return 0;
	case ECALLS_ASK_END:
		asked.traced_ns = 0;
		trace_services(now, 0);
		return 0;
	case ECALLS_ASK_FORGET:
		asked.forgotten_ns = now;
		return 0;
	default:
		return -EINVAL;
	}
}

#endif
