/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of accesses to memory that another CPU or a process reads or writes at the same time.
 *
 * BPF has no barrier instruction, but an atomic instruction that returns a value is a full barrier
 * on every processor. x86-64 keeps loads in the order of the program, and stores, and a store after
 * an earlier load, so there only the compiler has to be held back. arm64 keeps none of them.
 *
 * A store followed by a load is reordered by x86-64, too: where that matters, the store itself is
 * an exchange. A load whose address depends on an earlier load needs nothing on any processor.
 *
 * crates/ecalls-ring/tests/loom/order.rs has a model of each use, which fails without the barrier.
 */
#ifndef ECALLS_ORDER_H
#define ECALLS_ORDER_H

#include "lib/portable.h"

#ifdef __TARGET_ARCH_x86
#define order_hardware() barrier()
#else
static __always_inline void order_hardware(void) {
	unsigned long long word = 0;

	__sync_lock_test_and_set(&word, 1);
	barrier_var(word);
}
#endif

/* Loads before it are complete before loads and stores after it. */
static __always_inline void order_loads(void) {
	order_hardware();
}

/* Stores before it are visible before stores after it. */
static __always_inline void order_stores(void) {
	order_hardware();
}

#endif
