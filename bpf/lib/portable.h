/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The means by which one source runs in the kernel, in host tests and in a simulator.
 *
 * The algorithms of bpf/lib call no BPF helper and follow only the pointers that they are given.
 * Their loops are written `for (u32 i = 0; lib_again(i, limit); i++)`: on the host `limit` ends the
 * loop; in the kernel the may_goto instruction does, so that the verifier does not explore every
 * round. Each such loop also has an end condition that holds long before `limit`.
 */
#ifndef ECALLS_PORTABLE_H
#define ECALLS_PORTABLE_H

#ifdef __bpf__
#define LIB_INLINE static inline __attribute__((always_inline))
#define LIB_CALL static __attribute__((noinline, unused))
/* The verifier walks such a function once, not once for each way to each of its calls. It then
 * knows nothing of the arguments but what LIB_NONNULL says of a pointer, and the caller nothing of
 * the result. A pointer into the caller's stack is dear: the verifier of Linux 7.3 then follows
 * what such a function does to that stack, once more for each call. So what these functions return
 * beside a number is in a map. */
#define LIB_GLOBAL __attribute__((noinline))
#define LIB_NONNULL __attribute__((btf_decl_tag("arg:nonnull")))

/* True until the kernel's own limit ends the loop. The instruction jumps over nothing or out:
 * opcode 0xe5 is BPF_JMP | BPF_JCOND with source register 0 (may_goto); its 16-bit offset counts
 * 8-byte instructions from the next one. Clang cannot emit it yet, so it is spelled in bytes. */
#define lib_may_goto()                                                                             \
	({                                                                                         \
		__label__ out_, done_;                                                             \
		_Bool again_ = 1;                                                                  \
		asm goto("1: .byte 0xe5; .byte 0; .long ((%l[out_] - 1b - 8) / 8) & 0xffff; "      \
			 ".short 0"                                                                \
			 :                                                                         \
			 :                                                                         \
			 :                                                                         \
			 : out_);                                                                  \
		goto done_;                                                                        \
out_:                                                                                              \
		again_ = 0;                                                                        \
done_:;                                                                                            \
		again_;                                                                            \
	})
#define lib_again(i, limit) ((void)(i), lib_may_goto())
/* 0 whenever the time is, for 292 years, but the verifier does not know it: an index that is XORed
 * with it differs from round to round by no known number, so the rounds are walked as one. */
#define lib_zero(time_ns) ((ecalls_s64)(time_ns) >> 63)
#else
#define LIB_INLINE static inline
#define LIB_CALL static inline
#define LIB_GLOBAL static inline
#define LIB_NONNULL
#define lib_again(i, limit) ((i) < (limit))
#define lib_zero(time_ns) 0
#endif

#endif
