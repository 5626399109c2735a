/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The built-in kernel handlers (ECalls-05 §3.1.2 and §3.1.3): their numbers, and the meaning of
 * each one's `argument[]` in struct ecalls_action.
 *
 * A number below ECALLS_HANDLERS_MAX is a slot of the map `handlers` with one handler program:
 * first the handlers named here, then those created at run time. Such a handler does not sleep, and
 * can be used by HANDLER and THREAD actions. A number from ECALLS_HANDLER_SLEEPING on is a function
 * that may sleep; only THREAD actions can use it.
 *
 * State: each action of each subscription has two 64-bit words (the map `handler_states`, element
 * subscription index * ECALLS_ACTIONS_MAX + action), which the host sets to 0 before the
 * subscription becomes active. A handler never waits for another CPU that uses the same words.
 *
 * A field is identified by an offset into the event's data and a size of 1, 2, 4 or 8 bytes; its
 * offset is a multiple of its size, as with the fields of C structs. An event whose `size` ends
 * before the end of the field lacks the field.
 */
#ifndef ECALLS_HANDLER_NUMBERS_H
#define ECALLS_HANDLER_NUMBERS_H

#include "version.h"

/* sample: one in argument[0] events passes, the first one included; 0 and 1: all.
 * state: [0] events seen */
#define ECALLS_HANDLER_SAMPLE 0u

/* limit: at most argument[0] events per second pass, up to argument[1] of them at once (0 as 1);
 * argument[0] 0: none. state: [0] the bucket (bpf/lib/bucket.h) */
#define ECALLS_HANDLER_LIMIT 1u

/* threshold: an event passes if the comparison of a field with a bound is true.
 * argument[0]: offset | size << 16 | op << 24 | attribute << 32
 *   op         ECALLS_COMPARE_*, with ECALLS_COMPARE_SIGNED for signed comparison
 *   attribute  0: the bound is argument[1]; n: attribute n - 1 of the subscription's channel
 * An event that lacks the field ends. state: [0] events that passed, [1] events that ended */
#define ECALLS_HANDLER_THRESHOLD 2u

/* histogram: counts a field's value in the 64 counters of the subscription's channel
 * (abi/channel.h); every event passes.
 * argument[0]: offset | size << 16 | shift << 24: the value is first shifted right by `shift` bits
 * state: [0] values counted, [1] events that lack the field or have no channel */
#define ECALLS_HANDLER_HISTOGRAM 3u

/* count: counts events. argument[0] 0: they pass, 1: they end. state: [0] events counted */
#define ECALLS_HANDLER_COUNT 4u

/* remote: the event goes to the sinks of a channel among hosts (abi/sink.h), if it has any;
 * otherwise the chain ends. argument[0]: row of the channel (abi/lane.h), [1]: its id, [2]: its
 * epoch here. The event is dropped (RING_FULL) if the channel's buffer is full, and (CHANNEL_GONE)
 * if the channel has been closed; the chain goes on. Only programs that host the core can use
 * it. */
#define ECALLS_HANDLER_REMOTE 5u

#define ECALLS_HANDLERS_BUILT_IN 6u /* the first number for handlers made at run time */

/* Numbers from here on may sleep: THREAD actions only. */
#define ECALLS_HANDLER_SLEEPING 64u

/* copy_user: copies argument[2] bytes (0 as 64, at most 64) from address argument[0] of the
 * receiver's memory into the event's data at offset argument[1], a multiple of 8, and extends the
 * event's size to contain them. The receiver is the subscriber itself, unless root subscribed. The
 * event is dropped (TARGET_GONE) if the memory cannot be read, if its user may not read it (the
 * process has other rights than its user), or if the receiver has exited. */
#define ECALLS_HANDLER_COPY_USER 64u
#define ECALLS_COPY_USER_MAX 64u

/* The fields of argument[0]. */
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
