/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The version and the limits of the contract between kernel side, library and clients.
 *
 * Everything under abi/ is plain C that compiles for the kernel (eBPF), for C and for C++. It is
 * the only definition: crates/ecalls-abi mirrors it by hand, and a test compares both with the BTF
 * of the compiled kernel side. The version is written into the core's `host` map when the core is
 * loaded, and compared by every process that joins.
 *
 * Rules: fixed-width types, explicit padding, no pointers, no bit fields. Times are nanoseconds of
 * CLOCK_MONOTONIC unless a name says otherwise.
 */
#ifndef ECALLS_VERSION_H
#define ECALLS_VERSION_H

#ifndef __bpf__
#include <stdint.h>
typedef uint8_t ecalls_u8;
typedef uint16_t ecalls_u16;
typedef uint32_t ecalls_u32;
typedef int32_t ecalls_s32;
typedef uint64_t ecalls_u64;
typedef int64_t ecalls_s64;
#else
typedef unsigned char ecalls_u8;
typedef unsigned short ecalls_u16;
typedef unsigned int ecalls_u32;
typedef int ecalls_s32;
typedef unsigned long long ecalls_u64;
typedef long long ecalls_s64;
#endif

#ifdef __cplusplus
#define ECALLS_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define ECALLS_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define ECALLS_ABI_VERSION 4u

/* Limits. Each is a compile-time constant of both sides; an error at a limit has its name. */
#define ECALLS_DATA_INLINE 168u	       /* bytes of data in an event's record (abi/event.h) */
#define ECALLS_DATA_MAX 2152u	       /* bytes of data in an event, on every path */
#define ECALLS_DATA_LARGE 65536u       /* the same from an application's memory to others' */
#define ECALLS_SERVICES_MAX 256u       /* services of one core, built-in ones included */
#define ECALLS_SUBSCRIPTIONS_MAX 4096u /* subscriptions of one core */
#define ECALLS_SUBSCRIBERS_MAX 64u     /* subscriptions of one service */
#define ECALLS_CHANNELS_MAX 1024u      /* channels of one core */
#define ECALLS_ACTIONS_MAX 8u	       /* actions of one subscription */
#define ECALLS_HANDLERS_MAX 64u	       /* registered kernel handlers */
#define ECALLS_NAME_MAX 32u	       /* bytes of a name, its final 0 included */
#define ECALLS_FORMAT_MAX 512u	       /* bytes of a format text, its final 0 included */
#define ECALLS_TIMERS_MAX 1024u	       /* timers of the timer service */
#define ECALLS_USERS_MAX 256u	       /* users whose use is limited (abi/user.h) */

#endif
