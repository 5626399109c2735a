/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preparation of the timer service at load time: initialises the first few timers, so that setting
 * them for the first time costs no more than later. timer.h is the service; it runs in the programs
 * that handle downcalls.
 */
#include "timer.h"

#define TIMERS_READY 32u /* few: kernels have little memory for timers that programs create */

struct timer_argument {
	u32 first;
	u32 count;
	s32 result; /* out: number of prepared timers */
};

static int timer_setup_once(u32 i, struct timer_argument *a) {
	u32 number = a->first + i;
	struct timer *t = bpf_map_lookup_elem(&timers, &number);

	if (!t || timer_prepare(t))
		return 1;
	a->result++;
	return 0;
}

/* The host may run it once, before the first channel is opened. */
SEC("syscall")
int timer_setup(struct timer_argument *argument) {
	struct timer_argument a = {.first = argument->first};
	u32 count = argument->count < TIMERS_READY ? argument->count : TIMERS_READY;

	bpf_loop(count, timer_setup_once, &a, 0);
	argument->result = a.result;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
