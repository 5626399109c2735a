/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Scheduler activations: what a process and the kernel side tell each other (SA §3.1).
 *
 * A process has virtual processors and activations: kernel threads, each of which has such a
 * processor, waits for one, or is blocked. This page is the process's own memory, shared with the
 * program that sees its threads block.
 *
 * The kernel side takes from a processor the activation that blocks: it sets `active` to 0, and
 * whoever exchanges it from 0 first has the processor. It does not if
 *   - the activation's `lock` is set (SA §4.2): it is in the process's scheduler;
 *   - no activation waits for the processor (`spares` is 0): nobody could take it.
 * Then the block is counted as untold, and the activation is considered running.
 *
 * An activation that unblocks runs on in user mode. Before it uses anything of its processor it
 * sets its lock, and then finds out whether `active` is still its number.
 *
 * Everything here is written by the process, and hurts only the process if it is wrong: the kernel
 * side uses numbers from here only as indices, within limits.
 */
#ifndef ECALLS_ACTIVATION_H
#define ECALLS_ACTIVATION_H

#include "version.h"

#define ECALLS_PROCESSORS_MAX 64u
#define ECALLS_ACTIVATIONS_MAX 16384u /* their numbers begin with 1; 0 is nobody */

struct ecalls_processor {
	ecalls_u32 active; /* both sides: the activation that has it, 0: none */
	ecalls_u32 spares; /* process: activations that wait for it */
	ecalls_u64 told;   /* kernel side: blocks upon which it took the processor */
	ecalls_u64 untold; /* kernel side: those upon which it did not */
	ecalls_u64 pad[5];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_processor) == 64, "a line");

struct ecalls_activation {
	ecalls_u32 lock;      /* the activation: 1: a block is not told */
	ecalls_u32 processor; /* process: the processor that it has, or had when it blocked */
};

struct ecalls_activations {
	struct ecalls_processor processor[ECALLS_PROCESSORS_MAX];
	struct ecalls_activation activation[ECALLS_ACTIVATIONS_MAX];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_activations) == 4096 + 131072, "whole pages");

#endif
