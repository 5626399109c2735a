/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counting and finding bits in a 64-bit word, with plain arithmetic: no loop, no branch, no table.
 *
 * BPF has no instruction for any of it, and the compiler's builtins compile for BPF only from some
 * version on, or never. A branch-free form costs about 25 instructions and gives the verifier one
 * path.
 *
 * A compiler that analyses this arithmetic knows a result's exact range and omits the masks and
 * comparisons that the verifier, which knows less, requires before an index. Two empty assembler
 * statements hide values from the compiler; they cost nothing.
 */
#ifndef ECALLS_BITS_H
#define ECALLS_BITS_H

#include "abi/version.h"
#include "portable.h"

/* The number of set bits: 0..64. Sums in place of 2, 4 and 8 bits, then of all bytes by one
 * product. */
LIB_INLINE ecalls_u32 bits_count(ecalls_u64 word) {
	word -= (word >> 1) & 0x5555555555555555ull;
	word = (word & 0x3333333333333333ull) + ((word >> 2) & 0x3333333333333333ull);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full;
	word = (word * 0x0101010101010101ull) >> 56;
	__asm__("" : "+r"(word)); /* keeps this mask and those of the callers */
	return word & 127;
}

/* Number of the lowest set bit: 0..63; 64 if none is set. */
LIB_INLINE ecalls_u32 bits_lowest(ecalls_u64 word) {
	ecalls_u64 below = ~word & (word - 1);

	/* otherwise the compiler would count trailing zeros, for which BPF has no instruction */
	__asm__("" : "+r"(below));
	return bits_count(below);
}

/* Number of the highest set bit: the logarithm to base 2, rounded down. Of 0: 0. */
LIB_INLINE ecalls_u32 bits_log2(ecalls_u64 word) {
	word |= word >> 1;
	word |= word >> 2;
	word |= word >> 4;
	word |= word >> 8;
	word |= word >> 16;
	word |= word >> 32;
	return bits_count(word >> 1) & 63;
}

#endif
