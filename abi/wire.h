/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A frame: an event on its way to another host (KECho §2), as one UDP packet from ECALLS_WIRE_PORT
 * to ECALLS_WIRE_PORT. It is this header, followed by `size` bytes of data, and nothing else.
 *
 * All numbers are little endian, every field is at a constant offset, and each text is represented
 * by its id (FNV-1a, 64 bits): so a program in the kernel can check a frame without a loop. Both
 * ends know the texts; a frame with another format than the receiver's is refused.
 *
 * Hosts have no common clock: a deadline travels as the time that is left, and continues at the
 * receiver when the frame arrives.
 *
 * The port is one of those from which only privileged programs can send. So a host's users cannot
 * forge its frames; other computers of the same network can, see doc/channels.md.
 */
#ifndef ECALLS_WIRE_H
#define ECALLS_WIRE_H

#include "downcall.h"

#define ECALLS_WIRE_MAGIC 0x4c4c4345u /* "ECLL" */
#define ECALLS_WIRE_VERSION 1u
#define ECALLS_WIRE_PORT 914u
#define ECALLS_WIRE_ATTRIBUTES 8u
#define ECALLS_WIRE_KINDS 32u

struct ecalls_wire {
	ecalls_u32 magic;
	ecalls_u16 version;
	ecalls_u16 size;       /* bytes of data, at most ECALLS_DATA_MAX */
	ecalls_u64 channel;    /* id of its name */
	ecalls_u64 host;       /* the sending host; not 0 */
	ecalls_u64 epoch;      /* when the host opened the channel: ns of its real-time clock */
	ecalls_u64 sequence;   /* number of the frame within the epoch: 1, 2, 3, ... */
	ecalls_u64 format;     /* id of the text of its format */
	ecalls_u64 request;    /* 0: for frames that ask or answer, in a later version */
	ecalls_u64 sinks;      /* 0; within its host, before it is sent: bit per sink */
	ecalls_u64 left_ns;    /* time until the deadline; 0: no deadline */
	ecalls_u32 kind;       /* of the event: below ECALLS_WIRE_KINDS */
	ecalls_u32 type;       /* of the event */
	ecalls_u32 priority;   /* of the event */
	ecalls_u32 attributes; /* of the sending host that follow, at most ECALLS_WIRE_ATTRIBUTES */
	ecalls_u8 number[ECALLS_WIRE_ATTRIBUTES]; /* which ones, each below ECALLS_ATTRIBUTES */
	ecalls_u64 value[ECALLS_WIRE_ATTRIBUTES];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_wire) == 160, "the header of a frame is 160 bytes");

#endif
