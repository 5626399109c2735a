/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Readiness of sockets through shared memory (ECalls-01 §3.2, ECalls-05 §5.2).
 *
 * A map is the memory of one thread, which asks it which of its sockets may be read. Bits are
 * descriptors: bit d % 64 of word d / 64. All words are accessed with atomic operations.
 *
 * socket_ready: `flag` has a bit for each word of `fd_active` that may have bits.
 *   - The kernel side sets the bit in `fd_active`. If it was set already, the hint is coalesced.
 *     Else, if the bit in `fd_list` is set, it sets the bit in `flag`, and then takes `sleeping`.
 *   - The process exchanges a word of `flag` for 0, then each word of `fd_active` that it names,
 *     and then reads those sockets until they would block.
 * socket_interest: `fd_list` has the descriptors whose hints are wanted now. A process that sets a
 * bit there then sets the one of `fd_active` and that of `flag` itself, since the socket may have
 * been ready before. So interest is changed without a call. It must be introduced once, by
 *   setsockopt(socket, ECALLS_SETSOCKOPT, ECALLS_SETSOCKOPT_READY, struct ecalls_ready_call, 16)
 * since only a call that names the descriptor shows a socket to a program of BPF. A map has a key,
 * which is given to its owner only. The introduction lasts as long as the socket.
 *
 * Whoever gets the 1 of `sleeping` wakes the sleeper. The sleeper stores 1 and then looks at `flag`
 * once more; the kernel side sets `flag` and then looks at `sleeping`.
 *
 * A hint says "may be ready": data, a connection, the end of the stream, or an error. Everything
 * here is written by the process, too, and hurts only the process if it is wrong.
 */
#ifndef ECALLS_READY_H
#define ECALLS_READY_H

#include "version.h"

#define ECALLS_READY_WORDS 1024u	/* of 64 descriptors each */
#define ECALLS_READY_FLAGS 16u		/* words of flags */
#define ECALLS_READY_SEATS 8u		/* maps to which one socket can be introduced */
#define ECALLS_READY_REMOVE 0xffffffffu /* in place of a descriptor: the introduction ends */
#define ECALLS_SETSOCKOPT_READY 0x4544

struct ecalls_ready_word {
	ecalls_u64 fd_active; /* both sides */
	ecalls_u64 fd_list;   /* process */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_ready_word) == 16, "two words");

struct ecalls_readiness {
	ecalls_u64 flag[ECALLS_READY_FLAGS]; /* both sides */
	ecalls_u64 sleeping;		     /* both sides: 1: the process wants a wake-up */
	ecalls_u64 hints;		     /* kernel side: hints that were not coalesced */
	ecalls_u64 wakes;		     /* kernel side: wake-ups */
	ecalls_u64 pad[13];
	struct ecalls_ready_word word[ECALLS_READY_WORDS];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_readiness) == 256 + 16384, "lines");

/* What introduces a socket to a map. */
struct ecalls_ready_call {
	ecalls_u64 key;
	ecalls_u32 row;
	ecalls_u32 number; /* the descriptor, or ECALLS_READY_REMOVE */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_ready_call) == 16, "two words");

#endif
