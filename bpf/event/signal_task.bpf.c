/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Signals that wait for their receiver (signal.h tells why they must).
 *
 * The program signal_wait is fired by the dispatcher, in its own context, for a chain that cannot
 * send now. It queues the chain and asks the receiver, by task work, to run before it returns to
 * its program; the kernel wakes it for that. There the chains that wait, be they this receiver's or
 * another's, go to this CPU's queue and through the dispatcher, which can now send.
 *
 * Each subscription has two works, for one that is just ending does not look at the queue again but
 * still refuses to be asked; only then does the second get used. So a receiver that is stopped
 * blocks nobody: it leaves its own signals to the next receiver that runs.
 *
 * A receiver that exits between the two steps leaves its signals in the queue until somebody else's
 * work finds and counts them.
 *
 * An object of its own, because it needs a function that kernels before 6.18 lack.
 */
#include "raise.h"
#include "signal.h"

#define WORKS 2u	/* of one subscription */
#define WORK_CHAINS 64u /* chains that one work takes; others' works take the rest */

/* Named in a function's type, which the loader compares; a mere declaration would differ. */
struct bpf_map {
	u32 id;
} __attribute__((preserve_access_index));

struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

struct signal_work {
	struct bpf_task_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_SUBSCRIPTIONS_MAX *WORKS);
	__type(key, u32);
	__type(value, struct signal_work);
} signal_works SEC(".maps");

/* < 7.0 */
extern int bpf_task_work_schedule_signal_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map,
					      int(callback)(struct bpf_map *, void *, void *),
					      void *aux__prog) __ksym __weak;
/* >= 7.0 */
extern int bpf_task_work_schedule_signal(struct task_struct *task, struct bpf_task_work *tw,
					 void *map, int(callback)(struct bpf_map *, void *, void *))
	__ksym __weak;

/* Takes one waiting chain to this CPU's queue and lets the dispatcher run. False: none waits. */
static __always_inline bool pass_one(void) {
	struct current *c = current_cpu();
	u32 cpu = bpf_get_smp_processor_id(), level;
	u64 now_ns = bpf_ktime_get_ns();
	bool taken;

	if (!c)
		return false;
	level = *(volatile u32 *)&c->nesting;
	if (level >= NESTED_EVENTS)
		return false;
	c->nesting = level + 1;
	barrier();
	taken = !queue_take(QUEUE_SIGNALS, now_ns, &c->nested[level]);
	if (taken)
		raise_queued(&c->nested[level], cpu, now_ns);
	barrier();
	c->nesting = level;
	if (taken)
		drain(cpu, 0);
	return taken;
}

/* Runs in a receiver, in process context. */
static int pass(struct bpf_map *map, void *key, void *value) {
	for (u32 i = 0; lib_again(i, WORK_CHAINS); i++) {
		bool taken;

		if (i >= WORK_CHAINS)
			break;
		bpf_preempt_disable();
		taken = pass_one();
		bpf_preempt_enable();
		if (!taken)
			break;
	}
	return 0;
}

static __always_inline int ask(struct task_struct *task, u32 at) {
	struct signal_work *w = bpf_map_lookup_elem(&signal_works, &at);

	if (!w)
		return -EINVAL;
	if (bpf_ksym_exists(bpf_task_work_schedule_signal_impl))
		return bpf_task_work_schedule_signal_impl(task, &w->work, &signal_works, pass, 0);
	return bpf_task_work_schedule_signal(task, &w->work, &signal_works, pass);
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(signal_wait, int nonce) {
	struct current *c = current_cpu();
	struct ecalls_subscription *s;
	struct task_struct *task;
	u32 index, id;

	/* Another core's trigger reaches this program too, and finds nothing. */
	if (nonce != TRIGGER_SIGNAL || !c || !c->signal.waiter)
		return 0;
	id = c->signal.waiter;
	c->signal.waiter = 0;
	index = ECALLS_ID_INDEX(id);
	s = bpf_map_lookup_elem(&subscriptions, &index);
	task = s ? receiver_of(s) : 0;
	if (!task) {
		c->signal.result = SIGNAL_DROPPED(ECALLS_DROP_TARGET_GONE);
		return 0;
	}
	int lost = chain_add(QUEUE_SIGNALS, id, c->signal.chain,
			     ECALLS_EVENT_RESUME | ECALLS_EVENT_THREAD);
	c->signal.result = lost ? lost : SIGNAL_PENDING;
	if (ask(task, index * WORKS) == -EBUSY)
		ask(task, index * WORKS + 1);
	bpf_task_release(task);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
