/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The built-in kernel handlers (ECalls-05 §3.1.2): sample, limit, threshold, histogram and count.
 * abi/handler.h describes their arguments and state.
 *
 * Each is a program in a slot of the map `handlers`, which the dispatcher calls with a tail call;
 * none is attached to a hook. Their state belongs to one action of one subscription, whose events
 * may be delivered on several CPUs at once; so it is changed by atomic operations, and nothing here
 * waits.
 */
#include "handler.h"
#include "field.h"
#include "rate.h"
#include "lib/histogram.h"
#include "lib/sample.h"

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(handler_sample, int nonce) {
	struct call call;

	if (!call_open(&call))
		return 0;
	u64 count = __sync_fetch_and_add(&call.state->word[0], 1);
	call_close(&call, sample_takes(count, call.action->argument[0]));
	return 0;
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(handler_limit, int nonce) {
	struct call call;

	if (!call_open(&call))
		return 0;
	call_close(&call, rate_takes(&call.state->word[0], call.current->now_ns,
				     call.action->argument[0], call.action->argument[1]));
	return 0;
}

/* The bound of a threshold: a constant, or the value that the application last stored as an
 * attribute of its channel. Returns false if there is no such attribute. */
static __always_inline bool threshold_bound(const struct call *call, u64 *bound) {
	u32 attribute = call->action->argument[0] >> ECALLS_FIELD_ATTRIBUTE_SHIFT & 0xff;
	u32 channel = ECALLS_ID_INDEX(call->channel);
	struct ecalls_channel *ch;
	struct attributes *all;

	if (!attribute) {
		*bound = call->action->argument[1];
		return true;
	}
	all = bpf_map_lookup_elem(&attributes, &channel);
	ch = bpf_map_lookup_elem(&channels, &channel);
	attribute--;
	barrier_var(attribute);
	if (!call->channel || !all || attribute >= ECALLS_ATTRIBUTES)
		return false;
	if (!ch || *(volatile u32 *)&ch->id != call->channel)
		return false;
	*bound = *(volatile u64 *)&all->value[attribute];
	return true;
}

static __always_inline bool compare(u64 a, u64 b, u32 op) {
	bool less = op & ECALLS_COMPARE_SIGNED ? (s64)a < (s64)b : a < b;

	switch (op & ~ECALLS_COMPARE_SIGNED) {
	case ECALLS_COMPARE_LESS:
		return less;
	case ECALLS_COMPARE_LESS_EQUAL:
		return less || a == b;
	case ECALLS_COMPARE_EQUAL:
		return a == b;
	case ECALLS_COMPARE_NOT_EQUAL:
		return a != b;
	case ECALLS_COMPARE_GREATER_EQUAL:
		return !less;
	case ECALLS_COMPARE_GREATER:
		return !less && a != b;
	default:
		return false;
	}
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(handler_thresh, int nonce) {
	struct call call;
	u64 value, bound;
	bool passes;

	if (!call_open(&call))
		return 0;
	u64 argument = call.action->argument[0];
	u32 op = argument >> ECALLS_FIELD_OP_SHIFT & 0xff;
	passes = field_read(call.current, field_of(argument), op & ECALLS_COMPARE_SIGNED, &value) &&
		 threshold_bound(&call, &bound) && compare(value, bound, op);
	__sync_fetch_and_add(passes ? &call.state->word[0] : &call.state->word[1], 1);
	call_close(&call, passes);
	return 0;
}

/* Counts a value in the histogram of a channel. Returns false if the channel is gone. */
static __always_inline bool histogram_count(u32 channel, u64 value) {
	u32 bucket = histogram_bucket(value);
	u64 *counters = up_element(channel, ECALLS_UP_HISTOGRAM + bucket / 32);

	if (!counters)
		return false;
	bucket &= 31;
	barrier_var(bucket);
	__sync_fetch_and_add(&counters[bucket & 31], 1);
	return true;
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(handler_hist, int nonce) {
	struct call call;
	u64 value;

	if (!call_open(&call))
		return 0;
	u64 argument = call.action->argument[0];
	u32 shift = argument >> ECALLS_FIELD_OP_SHIFT & 63;
	bool counted = field_read(call.current, field_of(argument), false, &value) &&
		       histogram_count(call.channel, value >> shift);
	__sync_fetch_and_add(counted ? &call.state->word[0] : &call.state->word[1], 1);
	call_close(&call, true);
	return 0;
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(handler_count, int nonce) {
	struct call call;

	if (!call_open(&call))
		return 0;
	__sync_fetch_and_add(&call.state->word[0], 1);
	call_close(&call, call.action->argument[0] != 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
