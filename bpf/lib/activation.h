/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel side does when an activation blocks (abi/activation.h): pure algorithm.
 *
 * It runs on the CPU and in the thread that blocks, so what the thread has written before is
 * visible, in program order. Another activation can take the processor on another CPU from the
 * store of 0 on.
 */
#ifndef ECALLS_LIB_ACTIVATION_H
#define ECALLS_LIB_ACTIVATION_H

#include "abi/activation.h"
#include "portable.h"

/* Whether the processor was taken from activation `number`. */
LIB_INLINE int activation_block(struct ecalls_activations *all, ecalls_u32 number) {
	struct ecalls_activation *activation;
	struct ecalls_processor *processor;

	activation = &all->activation[number & (ECALLS_ACTIVATIONS_MAX - 1)];
	processor = &all->processor[activation->processor & (ECALLS_PROCESSORS_MAX - 1)];
	if (*(volatile ecalls_u32 *)&processor->active != number)
		return 0;
	if (activation->lock || !*(volatile ecalls_u32 *)&processor->spares) {
		processor->untold++;
		return 0;
	}
	processor->told++;
	*(volatile ecalls_u32 *)&processor->active = 0;
	return 1;
}

#endif
