/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A service that is added while the core runs: tells when a thread changes its name.
 *
 * Shows:  ECALLS_SERVICE, ecalls_wanted() and ecalls_raise() of ecalls/service.bpf.h.
 * Needs:  clang, the installed headers (make install), root to add it.
 * Build:  clang -target bpf -mcpu=v3 -O2 -g -D__TARGET_ARCH_x86 \
 *		-I/usr/local/include/ecalls/bpf -c rename.bpf.c -o rename.bpf.o
 * Run:    ecalls service add rename.bpf.o     and, beside it,     ecalls watch rename
 * Expect: one line for each thread that is given a name: programs that start others do it.
 */
#include "ecalls/service.bpf.h"

ECALLS_SERVICE("rename", "u32 tid; u32 pad; char before[16]; char after[16]", "rename");

struct rename_event {
	u32 tid;
	u32 pad;
	char before[16];
	char after[16];
} __attribute__((aligned(8)));

SEC("tp_btf/task_rename")
int BPF_PROG(rename, struct task_struct *task, const char *comm) {
	struct rename_event event = {};

	if (!ecalls_wanted())
		return 0;
	event.tid = task->pid;
	bpf_probe_read_kernel(event.before, sizeof(event.before), task->comm);
	bpf_probe_read_kernel_str(event.after, sizeof(event.after), comm);
	ecalls_raise(0, &event, sizeof(event));
	return 0;
}
