/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The times of timed threads (lib/sched/timed.h), which say nothing themselves: when a thread of
 * a timed program arms a timer of the kernel, the tracepoint hrtimer_start shows it.
 *
 *	- The timer of a timed sleep (epoll_wait, poll, select, nanosleep, a futex with a timeout)
 *	  holds the task that it wakes. If that is the current one, it is about to sleep.
 *	- The timer of a timerfd counts for the thread that has armed it. It is known by its
 *	  function, whose address the holder learns by arming a timerfd itself (timed_learns): the
 *	  kernel's list of symbols may be hidden, and takes long to read.
 *
 * A sleep that ends before its time was ended by something else, and the time is forgotten. A
 * timerfd that was disarmed is not noticed: the next wake-up after its time counts as due, once,
 * which is bounded like any lie.
 *
 * The tracepoint fires under the lock of the CPU's timers, possibly within this scheduler: the
 * program only writes to data of the current thread that exist already. It costs each timer of the
 * machine a look at that thread, so the holder attaches it while timed threads exist
 * (timed.threads), and within a moment after the first one.
 */
#ifndef ECALLS_SCHED_TIMED_GLUE_H
#define ECALLS_SCHED_TIMED_GLUE_H

#include "entry.h"
#include "lib/sched/timed.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct hrtimer_clock_base {
	s64 offset; /* from CLOCK_MONOTONIC */
};
struct hrtimer {
	s64 _softexpires; /* by the clock of its base */
	void *function;
	struct hrtimer_clock_base *base;
};
struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};
#pragma clang attribute pop

/* For the holder. */
struct {
	u64 threads; /* number of timed threads */
	u64 timerfd; /* address of the function of a timerfd's timer; 0: unknown */
	u64 learner; /* address of the thread that arms one to show it; 0: none */
	u64 lesson;  /* the time for which it arms it */
} timed SEC(".bss.timed");

/* A thread becomes timed, or is no longer. */
static __always_inline void timed_is(struct sched_task *t, u32 is) {
	if (!t->timed == !is)
		return;
	t->timed = is;
	__sync_fetch_and_add(&timed.threads, is ? 1 : -1);
}

/* A thread falls asleep. A time that has come by now was of a sleep that ended before it began:
 * this sleep is another one. */
static __always_inline void timed_rests(struct sched_task *t, u64 now) {
	if (t->sleep_ns <= now)
		t->sleep_ns = 0;
}

/* A thread has woken, and is ready as an entity of its CPU. */
static __always_inline void timed_wakes(struct sched_task *t, struct sched_cpu *c, u64 now) {
	u64 due = 0;

	if (!t->timed)
		return;
	if (t->timer_ns && t->timer_ns <= now) {
		due = t->timer_ns;
		t->timer_ns = 0;
	}
	if (t->sleep_ns && t->sleep_ns <= now)
		due = t->sleep_ns;
	t->sleep_ns = 0;
	t->due_ns = due;
	if (due)
		timed_ready(c, t->entity, now);
}

/* The thread that calls this arms a timerfd next, for this time of its clock, while the program
 * below is attached. */
SEC("syscall")
int timed_learns(const u64 *lesson) {
	timed.lesson = *lesson;
	timed.learner = (u64)bpf_get_current_task_btf();
	return 0;
}

SEC("tp_btf/hrtimer_start")
int BPF_PROG(timed_sleeps, struct hrtimer *timer) {
	struct task_struct *current = bpf_get_current_task_btf();
	struct hrtimer_sleeper *sleeper = (void *)timer;
	struct sched_task *t = task_of(current);
	s64 at;

	if ((!t || !t->timed) && timed.learner != (u64)current)
		return 0;
	/* Interrupts of the thread that learns may arm timers, too: for other times. */
	if (timed.learner == (u64)current && (u64)timer->_softexpires == timed.lesson) {
		timed.timerfd = (u64)timer->function;
		timed.learner = 0;
	}
	if (!t || !t->timed)
		return 0;
	at = timer->_softexpires - timer->base->offset;
	/* A time before the machine's first one is past, and is none if it is 0. */
	if (at <= 0)
		at = 1;
	if ((u64)timer->function == timed.timerfd)
		t->timer_ns = at;
	else if (BPF_CORE_READ(sleeper, task) == current)
		t->sleep_ns = at;
	return 0;
}

#endif
