/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The requests of handlers in E-code (abi/ecode.h): signals, events, counts, and deferring the rest
 * of the chain.
 *
 * The dispatcher (ecode.h) fires the program `effects` in its own context, after a handler that
 * made requests; the program is attached while a subscription has such a handler. All requests are
 * carried out with the rights of the subscription's owner: a signal goes to the receiver, if
 * kill(2) would permit it; an event is raised only of a service whose events the owner may raise,
 * and is charged to the owner's rate; counters are those of the subscription's own channel. The
 * subscription is taken from `current`, where no handler can write.
 *
 * Failures: a request that is not permitted, or not possible now (an interrupt can hand over one
 * signal at a time; under a scheduler lock no timer can be set), is counted as `undone`, and the
 * chain continues. A deferred chain that finds no room in the queue is dropped with that reason.
 */
#include "right.h"
#include "signal.h"
#include "ecode.h"
#include "lib/histogram.h"

#define EFFECT_UNDONE (-1)

#define SIGNAL_FIRST 34u /* SIGRTMIN and SIGRTMAX of the C library */
#define SIGNAL_LAST 64u

/* A signal whose verdict is not waited for; see signal_hand_over(). */
__noinline int effect_signal(u32 index, u32 number, u64 value) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct current *c = current_cpu();
	struct task_struct *task;
	int error = EFFECT_UNDONE;
	u32 noted;

	if (!s || !c || number < SIGNAL_FIRST || number > SIGNAL_LAST)
		return EFFECT_UNDONE;
	if (!bpf_ksym_exists(bpf_send_signal_task))
		return EFFECT_UNDONE;
	task = receiver_of(s);
	if (!task)
		return EFFECT_UNDONE;
	noted = c->signal.subscription;
	if (!(task->flags & (PF_EXITING | PF_KTHREAD)) && may_signal(task, s->owner_uid)) {
		/* The next verdict does not belong to a signal action. */
		c->signal.subscription = 0;
		barrier();
		error = bpf_send_signal_task(task, number, PIDTYPE_TGID, value);
		barrier();
		if (error)
			c->signal.subscription = noted;
	}
	bpf_task_release(task);
	return error ? EFFECT_UNDONE : 0;
}

/* Raises an event of a service whose events the subscription's owner may raise. */
__noinline int effect_raise(u32 index, const struct ecalls_effect *e) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct current *c = current_cpu();
	struct raise r = {};
	u64 data[3];
	int result;

	if (!s || !c || !e || !service_of(e->number, s->owner, s->owner_start, s->owner_uid))
		return EFFECT_UNDONE;
	r.service = e->number;
	r.target = ECALLS_TARGET_ALL;
	r.size = sizeof(data);
	r.flags = RAISE_METERED | (c->locked ? RAISE_LOCKED : 0);
	r.user = s->user;
	r.pid = s->owner;
	r.uid = s->owner_uid;
	data[0] = e->value[0];
	data[1] = e->value[1];
	data[2] = e->value[2];
	result = raise(&r, data, 3);
	/* A missing subscription is no failure of this request, and counted by the service. */
	return result < 0 && result != -ENOENT ? EFFECT_UNDONE : 0;
}

/* Adds to a counter of the subscription's channel. */
__noinline int effect_count(u32 index, u32 counter, u64 by) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	u64 *counters;

	if (!s || counter >= HISTOGRAM_BUCKETS)
		return EFFECT_UNDONE;
	counters = up_element(s->channel, ECALLS_UP_HISTOGRAM + counter / 32);
	if (!counters)
		return EFFECT_UNDONE;
	counter &= 31;
	barrier_var(counter);
	__sync_fetch_and_add(&counters[counter & 31], by);
	return 0;
}

/* Queues the current event on this CPU until `release_ns`; then its chain continues as `chain`
 * says. An event that finds no room there is accounted for. Returns false if its user has used up
 * the quota of queued events. */
static __always_inline bool chain_hold(struct current *c, const struct ecalls_subscription *s,
				       u32 chain, u64 now_ns, u64 release_ns) {
	u32 before = c->event.flags, subscription = c->event.subscription;
	u64 sequence = c->event.sequence, released_ns = c->event.release_ns;
	int place = 0;

	if (s->user)
		place = user_queue(s->user);
	if (place == USER_FULL)
		return false;
	c->event.flags = before | ECALLS_EVENT_RESUME | (u32)place;
	c->event.subscription = s->id;
	c->event.sequence = chain;
	rest_keep(c, s->user);
	c->event.release_ns = release_ns;
	raise_queued(&c->event, bpf_get_smp_processor_id(), now_ns);
	c->event.release_ns = released_ns;
	c->event.sequence = sequence;
	c->event.subscription = subscription;
	c->event.flags = before;
	return true;
}

/* Defers the rest of the chain. */
__noinline int effect_defer(u32 index, u64 us) {
	struct ecalls_subscription *s = bpf_map_lookup_elem(&subscriptions, &index);
	struct current *c = current_cpu();
	u64 now_ns = bpf_ktime_get_ns();
	struct ecalls_lost *lost;
	u32 next;

	if (!s || !c)
		return EFFECT_UNDONE;
	next = (c->call.action & (ECALLS_ACTIONS_MAX - 1)) + 1;
	if (c->call.result != HANDLER_CONTINUE || !us || next >= s->actions || next > CHAIN_ACTION)
		return 0; /* there is no rest, or it need not wait */
	if (c->locked)
		return EFFECT_UNDONE;
	if (us > ECALLS_DEFER_MAX_US)
		us = ECALLS_DEFER_MAX_US;
	c->call.result = HANDLER_STOP;
	if (chain_hold(c, s, chain_at(next, &c->outcome), now_ns, now_ns + us * 1000)) {
		c->outcome.pending = 1;
		return 0;
	}
	c->outcome.dropped = ECALLS_DROP_QUOTA + 1;
	lost = lost_of(s->channel);
	if (lost)
		__sync_fetch_and_add(&lost->dropped[ECALLS_DROP_QUOTA], 1);
	return 0;
}

/* Returns 0 or EFFECT_UNDONE. */
static __always_inline int effect_do(u32 index, const struct ecalls_effect *e) {
	switch (e->kind) {
	case ECALLS_EFFECT_SIGNAL:
		return effect_signal(index, e->number, e->value[0]);
	case ECALLS_EFFECT_RAISE:
		return effect_raise(index, e);
	case ECALLS_EFFECT_DEFER:
		return effect_defer(index, e->value[0]);
	case ECALLS_EFFECT_COUNT:
		return effect_count(index, e->number, e->value[0]);
	case ECALLS_EFFECT_HISTOGRAM:
		return effect_count(index, histogram_bucket(e->value[0]), 1);
	default:
		return EFFECT_UNDONE;
	}
}

/* Carries out one of the effects in this CPU's frame; counts it if that is not possible. */
__noinline int effect_at(u32 at) {
	struct ecalls_frame *f = frame_of_cpu();
	struct ecalls_subscription_count *n;
	struct current *c = current_cpu();

	if (!f || !c)
		return 0;
	barrier_var(at);
	at &= ECALLS_ECODE_EFFECTS - 1;
	barrier_var(at);
	n = count_of(c->call.subscription);
	if (effect_do(c->call.subscription, &f->effect[at]) && n)
		__sync_fetch_and_add(&n->undone, 1);
	return 0;
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(effects, int nonce) {
	struct ecalls_frame *f;
	struct current *c;
	u32 count, at;

	if (nonce != TRIGGER_EFFECTS)
		return 0;
	f = frame_of_cpu();
	c = current_cpu();
	/* Another core's trigger reaches this program too, and finds no request. */
	if (!f || !c || !f->effects)
		return 0;
	count = f->effects;
	at = c->zero;
	for (u32 i = 0; lib_again(i, ECALLS_ECODE_EFFECTS); i++) {
		if (at >= count || at >= ECALLS_ECODE_EFFECTS)
			break;
		effect_at(at);
		at = (at + 1) ^ c->zero;
	}
	f->effects = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
