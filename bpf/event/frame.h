/* SPDX-License-Identifier: GPL-2.0-only */
/* The frame of a program in E-code (abi/ecode.h), before it is called. */
#ifndef ECALLS_EVENT_FRAME_H
#define ECALLS_EVENT_FRAME_H

#include "kernel.h"
#include "abi/ecode.h"

/* Fills the part of the frame that a handler reads. `sinks`: those among which it chooses. */
static __always_inline void ecode_frame(struct ecalls_frame *f, u64 now_ns, u32 fuel, u64 sinks) {
	f->now_ns = now_ns;
	if (!f->random)
		f->random = (u64)bpf_get_prandom_u32() << 32 | 1;
	f->result = 1;
	f->fuel = fuel;
	f->fault = 0;
	f->effects = 0;
	f->drop = 0;
	f->output_bytes = 0;
	f->channel = 0;
	f->sinks_present = sinks;
	f->accepted = 0;
	f->rejected = 0;
	f->zero = 0;
}

#endif
