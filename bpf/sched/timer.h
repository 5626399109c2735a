/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timer of each CPU: at the time of the policy's next decision, the CPU asks again which thread
 * to run.
 *
 * set_timer() arms it when a task gets the CPU, when a thread with a window begins to wait, and
 * when a choice finds only threads that may not run yet. When the timer expires, it kicks its CPU,
 * and the kernel calls dispatch there. The kernel's own tick, every 4 ms at 250 Hz, is coarser than
 * a slice: it ends only that of a thread that is alone on its CPU (is_fine: and has no cooperative
 * threads or windows beside it).
 *
 * Failures: no kick is sent from a CPU that goes offline (kick). A CPU that was kicked and has not
 * asked is kicked again after UNASKED_NS.
 */
#ifndef ECALLS_SCHED_TIMER_H
#define ECALLS_SCHED_TIMER_H

#include "state.h"

#define UNASKED_NS 1000000u /* until a CPU that was kicked and has not asked is kicked again */

/* Whether the tick is too coarse for a CPU, whichever thread runs. */
static __always_inline bool is_fine(const struct sched_cpu *c) {
	return c->cooperative | c->windowed;
}

/* Makes a CPU ask again which thread to run. A CPU that goes offline sends no kick: a kick is sent
 * by an interrupt to the sender itself, and in its last moments that CPU receives no interrupt,
 * although it still chooses and wakes threads. A kick that is lost in this way stays pending: all
 * later kicks from that CPU would have no effect, and a process that ends the scheduler would wait
 * for the kick forever. */
static __always_inline void kick(s32 cpu, u64 flags) {
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool can = bpf_cpumask_test_cpu(bpf_get_smp_processor_id(), online);

	scx_bpf_put_cpumask(online);
	if (can)
		scx_bpf_kick_cpu(cpu, flags);
}

/* Ends the turn of the thread that runs on a CPU with these places, and makes the CPU ask again. */
static __always_inline void kick_off(s32 cpu, struct sched_places *places) {
	places->ended = 1;
	kick(cpu, SCX_NUMBER(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* When a CPU decides again: for the policy, or for a quota. */
static __always_inline u64 timer_next(struct sched_cpu *c, const struct sched_timer_of *timer) {
	u64 at = sched_timer(c);

	return timer->look_ns && timer->look_ns < at ? timer->look_ns : at;
}

/* Arms a timer for the time in at_ns, or a later one. In an operation of the scheduler, Linux 7.0
 * and later need memory for that, and may have none: the timer then counts as not armed. */
static __always_inline void timer_start(struct sched_timer_of *timer, u64 at) {
	if (bpf_timer_start(&timer->timer, at, BPF_F_TIMER_ABS))
		timer->at_ns = 0;
}

/* The timer of a CPU has expired. */
static int timer_comes(void *map, u32 *cpu, struct sched_here *here) {
	struct sched_timer_of *timer = &here->timer;
	u64 at;

	timer->at_ns = 0;
	at = timer_next(&here->cpu, timer);
	/* The thread for which the timer was armed has gone or has run, and the next time is later.
	 * If the CPU has armed the timer meanwhile, that time is the newer one. */
	if (at > now_ns()) {
		if (at != SCHED_NEVER && !__sync_val_compare_and_swap(&timer->at_ns, 0, at))
			timer_start(timer, at);
		return 0;
	}
	kick_off((s32)*cpu, &here->places);
	return 0;
}

/* Arms the timer of this CPU for the policy's next decision, unless it expires before. */
static __always_inline void set_timer(u32 cpu, struct sched_cpu *c, u64 now) {
	struct sched_timer_of *timer = timer_of(cpu);
	u64 at;

	if (!timer)
		return;
	at = timer_next(c, timer);
	if (at == SCHED_NEVER || (timer->at_ns && timer->at_ns <= at))
		return;
	timer->at_ns = at;
	if (at <= now) {
		/* If the CPU was kicked for this time already, it has not asked: Linux 7.0 does not
		 * call dispatch for a CPU that goes offline. Without the delay the timer would
		 * expire again and again. */
		at = now + (timer->past_ns == at ? UNASKED_NS : 0);
		timer->past_ns = timer->at_ns;
	}
	timer_start(timer, at);
}

#endif
