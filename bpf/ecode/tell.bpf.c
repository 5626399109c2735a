/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Raises the event of a service in E-code with its output as data, for the task at the tracepoint.
 * See meeting.h.
 *
 * Failures: as every raise does (raise.h), and is counted there.
 */
#include "meeting.h"
#include "event/raise.h"

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(ecode_tell, int nonce) {
	struct ecalls_frame *f;
	struct meeting *m;
	struct raise r = {
		.service = plan.service,
		.target = ECALLS_TARGET_ALL,
		.size = plan.output_bytes,
		.flags = plan.locked ? RAISE_LOCKED : 0,
	};

	if (nonce != TRIGGER_TELL)
		return 0;
	f = meeting_frame();
	m = meeting_of_cpu();
	if (!f || !m || !m->told)
		return 0;
	if (plan.output_bytes > ECALLS_DATA_INLINE)
		r.rest = (u64)&f->output[DATA_WORDS];
	if (plan.deadline_ns)
		r.deadline_ns = m->event.raise_ns + plan.deadline_ns;
	raise(&r, f->output, DATA_WORDS);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
