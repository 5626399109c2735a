/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks the header of a frame (abi/wire.h) that came from a network: everything that can be wrong
 * with it by itself. Whether this host has its channel is the caller's question.
 *
 * Failures: a header that passes may still lie about its host and its epoch.
 */
#ifndef ECALLS_FRAME_CHECK_H
#define ECALLS_FRAME_CHECK_H

#include "abi/lane.h"
#include "portable.h"

#define FRAME_GOOD (-1)

LIB_INLINE _Bool frame_is_whole(const struct ecalls_wire *w, ecalls_u32 bytes) {
	return w->size <= ECALLS_DATA_MAX && bytes == sizeof(*w) + w->size;
}

/* Numbers of attributes, checked for all places alike: those that are not in use are 0. */
LIB_INLINE _Bool frame_has_attributes(const struct ecalls_wire *w) {
	ecalls_u8 all = 0;

	if (w->attributes > ECALLS_WIRE_ATTRIBUTES)
		return 0;
	for (int i = 0; i < (int)ECALLS_WIRE_ATTRIBUTES; i++)
		all |= w->number[i];
	return all < ECALLS_ATTRIBUTES;
}

/* The header of a UDP packet with so many bytes, header included, which has at least a whole
 * header: FRAME_GOOD, or why it is refused (ECALLS_FRAME_*). */
LIB_INLINE int frame_check(const struct ecalls_wire *w, ecalls_u32 bytes) {
	if (w->version != ECALLS_WIRE_VERSION)
		return ECALLS_FRAME_VERSION;
	if (!frame_is_whole(w, bytes))
		return ECALLS_FRAME_SIZE;
	if (!w->channel || !w->host || !w->epoch || !w->sequence || w->request || w->sinks)
		return ECALLS_FRAME_MALFORMED;
	if (w->kind >= ECALLS_WIRE_KINDS || !frame_has_attributes(w))
		return ECALLS_FRAME_MALFORMED;
	return FRAME_GOOD;
}

#endif
