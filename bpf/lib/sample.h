/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sampling: one of n events passes, selected by a counter that the caller keeps and increments per
 * event.
 *
 * The first of each n events passes, so that rare events are seen at once, and exactly one of any n
 * consecutive ones. The selection is not random: if kinds of events repeat with a period that
 * shares a factor with n, some kinds never pass and others too often. A prime n avoids that.
 */
#ifndef ECALLS_SAMPLE_H
#define ECALLS_SAMPLE_H

#include "abi/version.h"
#include "portable.h"

/* Whether event number `count` (from 0) passes. `one_in` 0 and 1: all pass. */
LIB_INLINE _Bool sample_takes(ecalls_u64 count, ecalls_u64 one_in) {
	if (one_in <= 1)
		return 1;
	return count % one_in == 0;
}

#endif
