/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel side does when a socket may be ready (abi/ready.h): pure algorithm.
 *
 * The caller has made the socket ready before. The first exchange is a full barrier, also if the
 * hint is coalesced: either the process takes the bit after that, and then finds the socket ready,
 * or the bit is set again here.
 */
#ifndef ECALLS_LIB_READY_H
#define ECALLS_LIB_READY_H

#include "abi/ready.h"
#include "portable.h"

/* Returns true if the caller must wake the process. */
LIB_INLINE int ready_hint(struct ecalls_readiness *map, ecalls_u32 descriptor) {
	ecalls_u32 at = descriptor / 64 & (ECALLS_READY_WORDS - 1);
	struct ecalls_ready_word *word = &map->word[at];
	ecalls_u64 bit = 1ull << (descriptor & 63);

	if (__sync_fetch_and_or(&word->fd_active, bit) & bit)
		return 0;
	if (!(*(volatile ecalls_u64 *)&word->fd_list & bit))
		return 0;
	__sync_fetch_and_or(&map->flag[at / 64], 1ull << (at & 63));
	map->hints++;
	return *(volatile ecalls_u64 *)&map->sleeping &&
	       __sync_lock_test_and_set(&map->sleeping, 0);
}

#endif
