/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The frame that an E-code handler shares with the dispatcher (ECalls-05 §3.3; its Rust mirror is
 * crates/ecode/src/frame.rs): one element of a per-CPU map. The dispatcher fills the first part
 * before it calls the handler, and carries out the handler's requests afterwards.
 *
 * The only kernel functions that an E-code handler calls are lookups in these maps. It writes its
 * requests to the frame as effects; they are carried out with the rights of the subscription, as if
 * its owner had made them.
 *
 * Such a handler is an action HANDLER or THREAD whose `handler` is ECALLS_HANDLER_ECODE. It has
 * two places in the map `ecodes`: element 2 * (subscription index * ECALLS_ACTIONS_MAX + action)
 * and the next one. One word, argument[0], names the place that holds its program, and the
 * parameters of the call; so the host replaces a program by filling the other place and storing
 * that word.
 */
#ifndef ECALLS_ECODE_H
#define ECALLS_ECODE_H

#include "handler.h"

#define ECALLS_HANDLER_ECODE 128u

/* argument[0]: the fuel (iterations) in the lower 32 bits, and: */
#define ECALLS_ECODE_OUTPUT_SHIFT 32u /* bytes of its output, which replaces the event's data */
#define ECALLS_ECODE_OUTPUT_MASK 0xffffu
#define ECALLS_ECODE_EARLY_SHIFT 48u /* ECALLS_ECODE_EARLY_* */
#define ECALLS_ECODE_EARLY_MASK 0x3fu
#define ECALLS_ECODE_PLACE_SHIFT 63u /* which of its two places */

/* A program that only decides, by data and by attributes of the event other than times and the id,
 * may run before the event is complete (bpf/event/sole.h). Then it is loaded once more for the
 * service's own tracepoint. Bits 0 to 4: the words of the data that it reads. */
#define ECALLS_ECODE_EARLY 0x20u

/* argument[1]: the latest fault of the program in use, written by the dispatcher, 0: none. Its
 * number is in the lower 32 bits, and `fault_place` above them. The host clears it when it replaces
 * the program; a run of the former program that fails at that moment can be recorded afterwards. */
#define ECALLS_ECODE_FAULT_SHIFT 32u

#define ECALLS_ECODE_EFFECTS 16u
#define ECALLS_ECODE_BYTES 4096u /* of the output; of the locals twice as many */

/* Requests of a handler. A request that cannot be carried out is counted as `undone`. */
#define ECALLS_EFFECT_SIGNAL 1u /* number: real-time signal, to the receiver; value[0]: its value */
#define ECALLS_EFFECT_RAISE 2u	/* number: service, of the owner's own; value[0..2]: the data */
#define ECALLS_EFFECT_DEFER 3u	/* value[0]: us, after which the chain continues */
/* The channel's 64 counters are the same for both (abi/channel.h). */
#define ECALLS_EFFECT_COUNT 4u		  /* number: which counter; value[0]: by how much */
#define ECALLS_EFFECT_HISTOGRAM 5u	  /* value[0]: counted in its bucket */
#define ECALLS_DEFER_MAX_US 3600000000ull /* the maximum, also for larger values */

struct ecalls_effect {
	ecalls_u32 kind;
	ecalls_u32 number;
	ecalls_u64 value[3];
};

/* Faults that end a run: the action has failed, and the chain continues. */
#define ECALLS_FAULT_INDEX 1u	/* an index was outside its array */
#define ECALLS_FAULT_FUEL 2u	/* more iterations than allowed */
#define ECALLS_FAULT_INPUT 3u	/* the event has less data than the handler reads */
#define ECALLS_FAULT_EFFECTS 4u /* more than ECALLS_ECODE_EFFECTS */

struct ecalls_frame {
	ecalls_u64 now_ns;	  /* in: time now */
	ecalls_u64 random;	  /* in, out: state of random(), never 0 */
	ecalls_s64 result;	  /* out: 0 ends the chain */
	ecalls_u32 fuel;	  /* in: iterations allowed; out: those that are left */
	ecalls_u32 fault;	  /* out: ECALLS_FAULT_*, 0: none */
	ecalls_u32 effects;	  /* out: effects in use */
	ecalls_u32 drop;	  /* out: 1 + the reason of drop(), 0: none */
	ecalls_u32 output_bytes;  /* of the output; the handler does not read it */
	ecalls_u32 channel;	  /* in: index of the subscription's channel */
	ecalls_u64 sinks_present; /* in: bit per sink */
	ecalls_u64 accepted;	  /* out */
	ecalls_u64 rejected;	  /* out */
	ecalls_u64 zero;	  /* always 0, which the kernel's verifier does not know */
	ecalls_u32 fault_place;	  /* out, not with INPUT: 1 + the byte of the text; 0: unknown */
	ecalls_u32 pad0;
	ecalls_u64 pad1;
	struct ecalls_effect effect[ECALLS_ECODE_EFFECTS];
	ecalls_u64 output[ECALLS_ECODE_BYTES / 8];
	ecalls_u64 locals[2 * ECALLS_ECODE_BYTES / 8];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_frame) == 96 + 16 * 32 + 3 * 4096, "frame");

#endif
