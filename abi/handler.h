/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The kernel handlers that come with the core (ECalls-05 §3.1.2 and §3.1.3): their numbers, and
 * what each one's `argument[]` in struct ecalls_action means.
 *
 * A number below ECALLS_HANDLERS_MAX is a slot of the map `handlers`: one handler program each,
 * those named here first, handlers made at run time behind them. Such a handler may be the
 * handler of a HANDLER or a THREAD action; it does not sleep. A number from
 * ECALLS_HANDLER_SLEEPING on is a function that may sleep; only a THREAD action can name it.
 *
 * State: each action of each subscription has two 64-bit words of its own (the map
 * `handler_states`, element subscription index * ECALLS_ACTIONS_MAX + action), set to 0 by the
 * host before the subscription becomes active. A handler never waits for another CPU that uses
 * the same words.
 *
 * A field is named by an offset into the event's data and a size of 1, 2, 4 or 8 bytes; it lies
 * at a multiple of its size, as the fields of C structs do. An event whose `size` ends before the
 * field does not have it.
 */
#ifndef ECALLS_HANDLER_NUMBERS_H
#define ECALLS_HANDLER_NUMBERS_H

#include "version.h"

/* sample: one in argument[0] events goes on, the first one first; 0 and 1: all.
 * state: [0] events seen */
#define ECALLS_HANDLER_SAMPLE 0u

/* limit: at most argument[0] events per second go on, up to argument[1] of them at once (0 as 1);
 * argument[0] 0: none. state: [0] the bucket (bpf/lib/bucket.h) */
#define ECALLS_HANDLER_LIMIT 1u

/* threshold: an event goes on if a field compares with a bound.
 * argument[0]: offset | size << 16 | op << 24 | attribute << 32
 *   op         ECALLS_COMPARE_*, with ECALLS_COMPARE_SIGNED for signed comparison
 *   attribute  0: the bound is argument[1]; n: attribute n - 1 of the subscription's channel
 * An event without the field ends. state: [0] events that went on, [1] events that ended */
#define ECALLS_HANDLER_THRESHOLD 2u

/* histogram: counts a field's value in the 64 counters of the subscription's channel
 * (abi/channel.h); every event goes on.
 * argument[0]: offset | size << 16 | shift << 24: the value is shifted right by `shift` bits first
 * state: [0] values counted, [1] events without the field or without a channel */
#define ECALLS_HANDLER_HISTOGRAM 3u

/* count: counts; argument[0] 0: the event goes on, 1: it ends here. state: [0] events counted */
#define ECALLS_HANDLER_COUNT 4u

#define ECALLS_HANDLERS_BUILT_IN 5u /* the first number for handlers made at run time */

/* Numbers from here on may sleep: THREAD actions only. */
#define ECALLS_HANDLER_SLEEPING 64u

/* copy_user: copies argument[2] bytes (0 as 64, at most 64) from address argument[0] of the
 * receiver's memory into the event's data at offset argument[1], a multiple of 8, and extends the
 * event's size to contain them. The receiver is the subscriber
 * itself, unless root subscribed. Memory that cannot be read, or is not its user's to read (a
 * process that has other rights than its user), or a receiver that has exited: dropped,
 * TARGET_GONE. */
#define ECALLS_HANDLER_COPY_USER 64u
#define ECALLS_COPY_USER_MAX 64u

/* Handlers' argument[0]. */
#define ECALLS_FIELD_SIZE_SHIFT 16u
#define ECALLS_FIELD_OP_SHIFT 24u
#define ECALLS_FIELD_ATTRIBUTE_SHIFT 32u

#define ECALLS_COMPARE_LESS 0u
#define ECALLS_COMPARE_LESS_EQUAL 1u
#define ECALLS_COMPARE_EQUAL 2u
#define ECALLS_COMPARE_NOT_EQUAL 3u
#define ECALLS_COMPARE_GREATER_EQUAL 4u
#define ECALLS_COMPARE_GREATER 5u
#define ECALLS_COMPARE_SIGNED 8u

#endif
