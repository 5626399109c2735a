/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The Internet's checksum (RFC 1071): the complement of the sum of 16-bit words, in which a carry
 * is added again. Words are taken as they are in memory: the sum of swapped words is the swapped
 * sum. So two sums of even numbers of bytes may be added in any order, and folded last.
 */
#ifndef ECALLS_CHECKSUM_H
#define ECALLS_CHECKSUM_H

#include "abi/version.h"
#include "portable.h"

/* Adds a constant number of 32-bit words, at most 2^31. */
LIB_INLINE ecalls_u64 checksum_add(ecalls_u64 sum, const ecalls_u32 *word, ecalls_u32 words) {
#pragma unroll
	for (ecalls_u32 i = 0; i < words; i++)
		sum += word[i];
	return sum;
}

/* Any sum but 0 folds to a number other than 0. */
LIB_INLINE ecalls_u16 checksum_fold(ecalls_u64 sum) {
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (ecalls_u16)((sum & 0xffff) + (sum >> 16));
}

#endif
