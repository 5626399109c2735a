/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading one field of an event's data, identified by offset and size (abi/handler.h).
 *
 * A field lies at a multiple of its size, so it lies within one 8-byte word: one load, a shift
 * and a mask, no loop and no case per size.
 */
#ifndef ECALLS_FIELD_H
#define ECALLS_FIELD_H

#include "queue.h"
#include "abi/handler.h"

struct field {
	u32 offset;
	u32 size;
};

static __always_inline struct field field_of(u64 argument) {
	return (struct field){
		.offset = argument & 0xffff,
		.size = argument >> ECALLS_FIELD_SIZE_SHIFT & 0xff,
	};
}

/* Reads a field, optionally as a signed number. Returns false if the event lacks the field, or if
 * the offset and size are invalid. */
static __always_inline bool field_read(const struct current *c, struct field f, bool is_signed,
				       u64 *value) {
	const struct ecalls_event *e = &c->event;
	/* The rest follows the record. */
	const u64 *data = (const u64 *)c + offsetof(struct ecalls_event, data) / 8;
	u32 size = f.size, word = f.offset / 8, unused;

	if (size != 1 && size != 2 && size != 4 && size != 8)
		return false;
	if (f.offset & (size - 1) || f.offset + size > e->size)
		return false;
	barrier_var(word);
	if (word >= DATA_WORDS + REST_WORDS)
		return false;
	unused = 64 - size * 8;
	/* Shifting up to the top of the word and down again extends the value with zeros or with
	 * its sign. */
	*value = data[word] << (unused - f.offset % 8 * 8);
	*value = is_signed ? (u64)((s64)*value >> unused) : *value >> unused;
	return true;
}

#endif
