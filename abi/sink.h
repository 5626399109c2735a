/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sinks: the other hosts to which this host's frames of a channel go (KECho §2), 64 for each
 * channel. Element channel row * ECALLS_SINKS_MAX + number of the table belongs to a sink.
 *
 * An event whose chain has the kernel handler `remote` (abi/handler.h) goes to the channel's sinks
 * without a process that decides: the handler builds its frame and puts it into the channel's
 * buffer. A thread of the program that opened the channel carries the frame from there to the
 * interface, because no program on a tracepoint can create a packet. There the program
 * `lane_egress` numbers it for each sink and sends a copy to each.
 *
 * Each event and each frame is counted. When the buffer is empty:
 *	events = none + filtered + sum(refused) + fanned
 *	frames = sent + late + gone
 * and for each sink `sent` of struct ecalls_sink, which has the frames of publishers too, is what
 * is fresh or missing there (abi/lane.h).
 */
#ifndef ECALLS_SINK_H
#define ECALLS_SINK_H

#include "lane.h"

#define ECALLS_SINKS_MAX 64u /* of one channel: a bit of a 64-bit word for each */

/* Family of a sink that is reached by the relay: the first 8 bytes of `address` are its host. */
#define ECALLS_SINK_HOST 0xffffu

/* A channel's filter at the source (OUT, KECho §2.2), a handler in E-code that sees the event and
 * all sinks: `out` of struct ecalls_lane_channel, which is stored when the filter's program is in
 * its place. The fuel is in the lower 32 bits. */
#define ECALLS_OUT_SET_SHIFT 61u     /* 1: there is one */
#define ECALLS_OUT_ACCEPTS_SHIFT 62u /* 1: sinks that it does not accept get nothing */
#define ECALLS_OUT_PLACE_SHIFT 63u   /* which of the channel's two places its program is in */

/* A sink as the filter sees it (crates/ecode/src/frame.rs). */
struct ecalls_sink_told {
	ecalls_u64 id;	    /* its number */
	ecalls_u64 told_ns; /* when it last told attributes; 0: never */
	ecalls_u64 value[ECALLS_ATTRIBUTES];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sink_told) == 272, "sink told");

/* Bytes of a channel's buffer: more than 100 of the largest frames. */
#define ECALLS_LANE_BUFFER 262144u

/* Written by programs that host the core, under the core's lock, except for the counts. */
struct ecalls_sink {
	ecalls_u64 sent;       /* the number of the last frame to it; senders increment it */
	ecalls_u64 failed;     /* of these: the interface refused the packet */
	ecalls_u32 address[4]; /* network byte order; IPv4: the first word */
	ecalls_u32 source;     /* this host's IPv4 address towards it */
	ecalls_u32 interface;  /* index of the interface that it is behind */
	ecalls_u32 family;     /* AF_INET, AF_INET6, ECALLS_SINK_HOST; 0: the row is free */
	ecalls_u32 member;     /* 1: `remote` sends to it; 0: publishers that name it do */
	ecalls_u64 pad[2];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_sink) == 64, "sink");

/* Reasons for which an event of `remote` goes to no sink. */
#define ECALLS_REMOTE_FULL 0u	/* the buffer was full */
#define ECALLS_REMOTE_SIZE 1u	/* its packet is too long for the interface */
#define ECALLS_REMOTE_FAILED 2u /* the interface refused its packet for another reason */
#define ECALLS_REMOTE_CLOSED 3u /* the channel had been closed; counted in row 0 */
#define ECALLS_REMOTE_FORMAT 4u /* its data are longer than the channel's format describes */
#define ECALLS_REMOTE_SHARE 5u	/* its user has as much in the buffer as is left free for all */
#define ECALLS_REMOTE_REASONS 6u

/* Counts of a channel's events by `remote`, one row for each channel. */
struct ecalls_lane_out {
	ecalls_u64 events;
	ecalls_u64 none;     /* the channel had no sink */
	ecalls_u64 filtered; /* the filter chose no sink */
	ecalls_u64 refused[ECALLS_REMOTE_REASONS];
	ecalls_u64 fanned; /* reached the interface */
	ecalls_u64 frames; /* sinks of these events */
	ecalls_u64 sent;   /* frames that were numbered and sent */
	ecalls_u64 late;   /* frames whose deadline had passed in the buffer */
	ecalls_u64 gone;   /* frames to a sink that had been removed meanwhile */
	ecalls_u64
		failed; /* runs of the filter that ended in a fault: the event went to all sinks */
	ecalls_u64 fault; /* the last one, as argument[1] of an action in E-code (abi/ecode.h) */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lane_out) == 128, "lane out");

/* What a user (abi/user.h) has in a channel's buffer is `put` - `taken`, in bytes. A user with
 * limits may put no more there than is left free: so one user gets at most half of the buffer, two
 * a third each, and there is always room for another one. A table for each channel, made by the
 * program that opened it, by the user's row. */
struct ecalls_lane_share {
	ecalls_u64 put;	  /* incremented by the kernel side */
	ecalls_u64 taken; /* incremented by the thread that empties the buffer */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lane_share) == 16, "lane share");

/* Bytes that a record of so many takes in the buffer: the ring has a header for each. */
#define ECALLS_LANE_RECORD(bytes) ((((ecalls_u64)(bytes) + 7) & ~7ull) + 8)

#endif
