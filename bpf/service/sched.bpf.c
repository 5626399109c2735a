/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sched service: raises an event when a thread gets a CPU after it waited for longer than the
 * service's parameter (ns), whether it had been woken or preempted.
 *
 * A thread's wait begins when it is woken, and when another thread replaces it although it is
 * runnable; the time is kept in its task storage. The wait ends when the thread is switched to:
 * there the event is raised, for that thread's process.
 *
 * All of this runs under a run queue's lock, so events are raised with RAISE_LOCKED. Without a
 * subscription each context switch costs one masked test.
 */
#include "event/raise.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64); /* when the thread's wait for a CPU began; 0: it does not wait */
} sched_waits SEC(".maps");

#define SCHED_WORDS (sizeof(struct ecalls_sched_event) / 8)

static __always_inline void wait_begins(struct task_struct *task) {
	u64 *since_ns = bpf_task_storage_get(&sched_waits, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (since_ns)
		*since_ns = bpf_ktime_get_ns();
}

static __always_inline u64 smallest_delay(void) {
	u32 service = ECALLS_SERVICE_SCHED;
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);

	return s ? s->parameter : 0;
}

static __always_inline void raise_delay(struct task_struct *previous, struct task_struct *next,
					u64 delay_ns) {
	union {
		struct ecalls_sched_event event;
		u64 words[SCHED_WORDS];
	} data = {};
	struct raise r = {
		.service = ECALLS_SERVICE_SCHED,
		.type = bpf_get_smp_processor_id(),
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_LOCKED,
		.pid = next->tgid,
		.uid = uid_of(next),
		.size = sizeof(data.event),
	};

	data.event.delay_ns = delay_ns;
	data.event.pid = next->tgid;
	data.event.tid = next->pid;
	data.event.priority = next->prio;
	data.event.previous = previous->pid;
	bpf_probe_read_kernel(data.event.comm, sizeof(data.event.comm), next->comm);
	raise(&r, data.words, SCHED_WORDS);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_woken, struct task_struct *task) {
	if (raise_wanted(ECALLS_SERVICE_SCHED))
		wait_begins(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_woken_new, struct task_struct *task) {
	if (raise_wanted(ECALLS_SERVICE_SCHED))
		wait_begins(task);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switched, bool preempt, struct task_struct *previous, struct task_struct *next,
	     unsigned int previous_state) {
	u64 *since_ns, delay_ns;

	if (!raise_wanted(ECALLS_SERVICE_SCHED))
		return 0;
	/* A thread that is preempted while it goes to sleep still waits for a CPU. Thread 0 is the
	 * idle thread. */
	if ((preempt || previous_state == TASK_RUNNING) && previous->pid)
		wait_begins(previous);
	if (!next->pid)
		return 0;
	since_ns = bpf_task_storage_get(&sched_waits, next, 0, 0);
	if (!since_ns || !*since_ns)
		return 0;
	delay_ns = bpf_ktime_get_ns() - *since_ns;
	*since_ns = 0;
	if (delay_ns >= smallest_delay())
		raise_delay(previous, next, delay_ns);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
