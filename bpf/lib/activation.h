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

#define ACTIVATION_TOLD 1    /* the processor was taken from the activation */
#define ACTIVATION_UNTOLD -1 /* it was not */
#define ACTIVATION_NONE 0    /* the activation had none */

/* Activation `number` blocks. */
LIB_INLINE int activation_block(struct ecalls_activations *all, ecalls_u32 number) {
	struct ecalls_activation *activation;
	struct ecalls_processor *processor;

	activation = &all->activation[number & (ECALLS_ACTIVATIONS_MAX - 1)];
	processor = &all->processor[activation->processor & (ECALLS_PROCESSORS_MAX - 1)];
	if (*(volatile ecalls_u32 *)&processor->active != number)
		return ACTIVATION_NONE;
	if (activation->lock || !*(volatile ecalls_u32 *)&processor->spares) {
		processor->untold++;
		return ACTIVATION_UNTOLD;
	}
	processor->told++;
	*(volatile ecalls_u32 *)&processor->active = 0;
	return ACTIVATION_TOLD;
}

#endif
