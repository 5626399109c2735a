/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes the inline functions of bpf/lib/sched callable from Rust, by the name policy_NAME.
 * src/policy.rs declares each. For BPF the same functions are global, so that the compiler has to
 * produce all of them.
 */
#include "bpf/lib/sched/admit.h"
#include "bpf/lib/sched/balance.h"
#include "bpf/lib/sched/arrive.h"
#include "bpf/lib/sched/choose.h"
#include "bpf/lib/sched/quota.h"

const ecalls_u64 policy_sizes[] = {sizeof(struct sched_cpu), sizeof(struct sched_entity),
				   sizeof(struct sched_options), sizeof(struct sched_choice),
				   sizeof(struct sched_window)};

void policy_init(struct sched_cpu *cpu, const struct sched_options *options) {
	sched_init(cpu, options);
}

ecalls_u32 policy_add(struct sched_cpu *cpu, ecalls_u32 weight, ecalls_u32 group) {
	return sched_add(cpu, weight, group);
}

ecalls_u32 policy_add_group(struct sched_cpu *cpu) {
	return sched_add_group(cpu);
}

void policy_remove(struct sched_cpu *cpu, ecalls_u32 i) {
	sched_remove(cpu, i);
}

void policy_ready(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	turn_ready(cpu, i, now_ns);
}

void policy_timed(struct sched_cpu *cpu, ecalls_u32 i) {
	timed_is_of(cpu, i, 1);
}

void policy_timed_ready(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	timed_ready(cpu, i, now_ns);
}

void policy_ready_plain(struct sched_cpu *cpu, struct sched_plain *plain, ecalls_u64 now_ns) {
	turn_ready_plain(cpu, plain, now_ns);
}

void policy_sleep(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u32 asleep, ecalls_u64 now_ns) {
	turn_sleep(cpu, i, asleep != 0, now_ns);
}

void policy_sleep_plain(struct sched_cpu *cpu, const struct sched_plain *plain, ecalls_u64 now_ns) {
	turn_sleep_plain(cpu, plain, now_ns);
}

void policy_start(struct sched_cpu *cpu, ecalls_u32 who, const struct sched_plain *plain,
		  ecalls_u64 now_ns) {
	turn_start(cpu, who, plain, now_ns);
}

void policy_stop(struct sched_cpu *cpu, ecalls_u32 waits, ecalls_u64 now_ns) {
	turn_stop(cpu, waits != 0, now_ns);
}

int policy_is_next(const struct sched_cpu *cpu, const struct sched_plain *plain, ecalls_u64 nexts,
		   ecalls_u32 woken) {
	return fair_is_next(cpu, plain, nexts, woken != 0);
}

void policy_shorten(struct sched_cpu *cpu, ecalls_u64 end_ns) {
	turn_shorten(cpu, end_ns);
}

int policy_yield(struct sched_cpu *cpu) {
	return turn_yield(cpu);
}

void policy_poll(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns, ecalls_u64 release_ns,
		 ecalls_u64 importance) {
	police_poll(cpu, i, now_ns, release_ns, importance);
}

void policy_choose(struct sched_cpu *cpu, ecalls_u64 now_ns, const struct sched_queue *queue,
		   struct sched_choice *choice) {
	*choice = sched_choose(cpu, now_ns, queue);
}

int policy_preempts(struct sched_cpu *cpu, ecalls_u32 who, ecalls_u64 since_ns, ecalls_u64 now_ns) {
	return sched_preempts(cpu, who, since_ns, now_ns);
}

int policy_preempts_plain(struct sched_cpu *cpu, ecalls_u64 vtime, ecalls_u32 weight,
			  ecalls_u64 since_ns, ecalls_u64 now_ns) {
	return sched_preempts_plain(cpu, vtime, weight, since_ns, now_ns);
}

ecalls_u64 policy_timer(struct sched_cpu *cpu) {
	return sched_timer(cpu);
}

ecalls_u64 policy_next_release(struct sched_cpu *cpu, ecalls_u32 except, ecalls_u64 now_ns) {
	return release_next(cpu, except, now_ns);
}

ecalls_u64 policy_least_importance(struct sched_cpu *cpu, ecalls_u32 except) {
	return group_least_importance(cpu, except);
}

void policy_woke(struct sched_cpu *cpu) {
	fair_woke(cpu);
}

ecalls_u64 policy_begin(const struct sched_cpu *cpu) {
	return fair_begin(cpu);
}

ecalls_u32 policy_weight(ecalls_u32 weight, ecalls_u32 is_kernel) {
	return vtime_weight(weight, is_kernel != 0);
}

int policy_is_owed(const struct sched_cpu *cpu) {
	return fair_is_owed(cpu);
}

ecalls_u64 policy_move(ecalls_u64 vtime, ecalls_u64 from_least, ecalls_u64 to_least) {
	return vtime_move(vtime, from_least, to_least);
}

ecalls_u64 policy_away(const struct sched_cpu *cpu, ecalls_u64 now_ns) {
	return away_share(cpu, now_ns);
}

ecalls_u64 policy_arrive(const struct sched_cpu *from, struct sched_cpu *to,
			 const struct fair_move *move) {
	return fair_arrive(from, to, move);
}

ecalls_u32 policy_admit(struct sched_cpu *cpu, ecalls_u32 i, const struct sched_window *wish,
			ecalls_u32 conserving, ecalls_u64 now_ns) {
	cpu->wish = *wish;
	return admit(cpu, i, conserving != 0, now_ns);
}

void policy_admit_end(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 now_ns) {
	admit_end(cpu, i, now_ns);
}

void policy_event(struct sched_cpu *cpu, ecalls_u32 i, ecalls_u64 deadline_ns) {
	overlay_event(cpu, i, deadline_ns);
}

int policy_window_before(const struct sched_window *a, const struct sched_window *b,
			 ecalls_u32 order) {
	return window_before(a, b, order);
}

void policy_window_met(struct sched_window *w) {
	window_met(w);
}

void policy_window_miss(struct sched_window *w) {
	window_miss(w);
}

int policy_window_counts(const struct sched_window *w, ecalls_u32 position) {
	return window_counts(w, position);
}

ecalls_u64 policy_balance_left(ecalls_u64 promised_share) {
	return balance_load(0, promised_share).left;
}

ecalls_u32 policy_balance_wants(const struct balance_load *mine, const struct balance_load *theirs,
				ecalls_u64 weight) {
	return balance_wants(mine, theirs, weight);
}

ecalls_u32 policy_balance_takes(const struct balance_look *look, ecalls_u64 vtime,
				ecalls_u64 weight) {
	return balance_takes(look, vtime, weight);
}

const ecalls_u64 policy_quota_size = sizeof(struct quota);

void policy_quota_set(struct quota *q, ecalls_u64 period_us, ecalls_u64 quota_us,
		      ecalls_u64 burst_us, ecalls_u64 now_ns) {
	quota_set(q, period_us, quota_us, burst_us, now_ns);
}

ecalls_s64 policy_quota_left(struct quota *q, ecalls_u64 now_ns) {
	return quota_left(q, now_ns);
}

void policy_quota_charge(struct quota *q, ecalls_u64 ns) {
	quota_charge(q, ns);
}

ecalls_u64 policy_quota_turn(ecalls_s64 left_ns) {
	return quota_turn(left_ns);
}
