/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy in the kernel, without a scheduler around it: a program that makes one call of it, on
 * a struct sched_cpu in a map and with the times that the caller says. tests/kernel repeats by it
 * what the policy did on the host.
 */
#include "bpf/lib/sched/admit.h"
#include "bpf/lib/sched/choose.h"

#define SEC(name) __attribute__((section(name), used))
#define MAP_TYPE(number) int(*type)[number]

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

/* src/call.rs mirrors it. */
struct call {
	ecalls_u32 op;
	ecalls_u32 i;
	ecalls_u32 flag;
	ecalls_u32 group;
	ecalls_u64 now_ns;
	ecalls_u64 a;
	ecalls_u64 b;
	ecalls_u64 result;
	struct sched_plain plain;
	struct sched_queue queue;
	struct sched_choice choice;
	struct sched_window wish;
};

struct {
	MAP_TYPE(2); /* an array */
	int (*max_entries)[1];
	ecalls_u32 *key;
	struct sched_cpu *value;
} cpus SEC(".maps");

struct {
	MAP_TYPE(2);
	int (*max_entries)[1];
	ecalls_u32 *key;
	struct call *value;
} calls SEC(".maps");

static __attribute__((always_inline)) void change(struct sched_cpu *cpu, struct call *c) {
	switch (c->op) {
	case 0:
		c->result = sched_add(cpu, c->flag, c->group);
		break;
	case 1:
		c->result = sched_add_group(cpu);
		break;
	case 2:
		sched_remove(cpu, c->i);
		break;
	case 3:
		turn_ready(cpu, c->i, c->now_ns);
		break;
	case 4:
		turn_ready_plain(cpu, &c->plain, c->now_ns);
		c->result = c->plain.vtime;
		break;
	case 5:
		turn_sleep(cpu, c->i, c->flag != 0, c->now_ns);
		break;
	case 6:
		turn_sleep_plain(cpu, &c->plain, c->now_ns);
		break;
	case 7:
		turn_start(cpu, c->i, c->flag ? &c->plain : 0, c->now_ns);
		break;
	case 8:
		turn_stop(cpu, c->flag != 0, c->now_ns);
		break;
	case 9:
		police_poll(cpu, c->i, c->now_ns, c->a, c->b);
		break;
	case 10:
		cpu->wish = c->wish;
		c->result = admit(cpu, c->i, c->flag != 0, c->now_ns);
		break;
	case 11:
		admit_end(cpu, c->i, c->now_ns);
		break;
	case 12:
		overlay_event(cpu, c->i, c->a);
		break;
	case 13:
		sched_entity(cpu, c->i)->head_vtime = c->a;
		sched_entity(cpu, c->i)->queued = c->b;
		break;
	}
}

static __attribute__((always_inline)) void ask(struct sched_cpu *cpu, struct call *c) {
	switch (c->op) {
	case 14:
		c->choice = sched_choose(cpu, c->now_ns, &c->queue);
		break;
	case 15:
		c->result = sched_preempts(cpu, c->i, c->b, c->now_ns);
		break;
	case 16:
		c->result = sched_preempts_plain(cpu, c->a, c->flag, c->b, c->now_ns);
		break;
	case 17:
		c->result = sched_timer(cpu);
		break;
	case 18:
		fair_woke(cpu);
		break;
	case 19:
		c->result = turn_yield(cpu);
		break;
	case 20:
		timed_ready(cpu, c->i, c->now_ns);
		break;
	case 21:
		timed_is_of(cpu, c->i, 1);
		break;
	}
}

SEC("syscall")
int policy_call(void *ctx) {
	ecalls_u32 zero = 0;
	struct sched_cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);
	struct call *c = bpf_map_lookup_elem(&calls, &zero);

	if (!cpu || !c)
		return 1;
	if (c->op < 14)
		change(cpu, c);
	else
		ask(cpu, c);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
