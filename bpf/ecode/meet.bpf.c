/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The program on the tracepoint of a service in E-code: see meeting.h.
 *
 * Failures: a run that ends in a fault raises nothing and is counted as the service's `failed`;
 * without an E-code program nothing happens.
 */
#include "meeting.h"
#include "event/account.h"
#include "event/frame.h"
#include "event/identity.h"
#include "event/wanted.h"

/* Before a tracepoint's own fields there are 8 bytes, which programs do not see. */
#define RECORD_BEGIN 8

/* Copies a text from the place that the record gives. The bytes after its end are set to 0, so that
 * nothing of another event remains. */
static __always_inline void text_fill(u8 *data, const void *record, u32 from, u32 to) {
	u64 *text = (u64 *)(data + to);
	u32 place = *(u32 *)(data + from);

#pragma unroll
	for (int i = 0; i < MEETING_TEXT_BYTES / 8; i++)
		text[i] = 0;
	bpf_probe_read_kernel_str(text, MEETING_TEXT_BYTES, record + (place & 0xffff));
}

static __always_inline void record_fill(struct meeting *m, const void *record) {
	u8 *data = (u8 *)m->event.data;

	if (plan.record_bytes)
		bpf_probe_read_kernel(data, plan.record_bytes, record + RECORD_BEGIN);
#pragma unroll
	for (int i = 0; i < MEETING_TEXTS; i++)
		if (i < plan.texts)
			text_fill(data, record, plan.text[i].from, plan.text[i].to);
}

/* The event that the program sees belongs to the task at the tracepoint. */
static __always_inline void event_fill(struct ecalls_event *e, u64 now_ns) {
	const struct task_struct *task = bpf_get_current_task_btf();

	e->raise_ns = now_ns;
	e->service = plan.service;
	e->pid = task->tgid;
	e->tid = task->pid;
	e->uid = uid_of(task);
	e->cpu = bpf_get_smp_processor_id();
	e->size = plan.input_bytes;
}

/* The code after the tail call runs only if there is no program to call. */
static __noinline int call_ecode(void *ctx) {
	struct ecalls_frame *f;

	bpf_tail_call(ctx, &meeting_ecode, 0);
	f = meeting_frame();
	if (f)
		f->result = 0;
	return 0;
}

SEC("tracepoint")
int ecode_meet(void *ctx) {
	struct ecalls_service_count *n;
	struct ecalls_frame *f;
	struct meeting *m;
	u64 now_ns;

	if (!raise_wanted(plan.service))
		return 0;
	m = meeting_of_cpu();
	f = meeting_frame();
	if (!m || !f)
		return 0;
	now_ns = bpf_ktime_get_ns();
	record_fill(m, ctx);
	event_fill(&m->event, now_ns);
	ecode_frame(f, now_ns, plan.fuel, 0);
	call_ecode(ctx);
	if (f->fault) {
		n = count_of_service(plan.service);
		if (n)
			__sync_fetch_and_add(&n->failed, 1);
		return 0;
	}
	if (!f->result)
		return 0;
	m->told = 1;
	barrier();
	bpf_modify_return_test_tp(TRIGGER_TELL);
	barrier();
	m->told = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
