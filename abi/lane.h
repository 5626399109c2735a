/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The lane: how frames (abi/wire.h) become events of this host. Programs on the network interfaces
 * that an administrator has named look up a frame's channel, check the frame, and raise an event of
 * the service that has the channel's name here.
 *
 * For each source, which is another host on one channel, there is a row with its sequence window
 * and its counts (bpf/lib/window.h):
 *	frames that the source sent from the first one that arrived on = fresh + missing
 *	frames that arrived = fresh + duplicate + stale
 */
#ifndef ECALLS_LANE_H
#define ECALLS_LANE_H

#include "wire.h"

#define ECALLS_LANE_CHANNELS 64u /* channels of one core; row 0 stands for no channel */
#define ECALLS_LANE_SOURCES 1024u

/* Reasons for which a frame is refused: the counters of a channel, in order. */
#define ECALLS_FRAME_SIZE 0u	  /* truncated, or another size than it says */
#define ECALLS_FRAME_VERSION 1u	  /* of another version */
#define ECALLS_FRAME_MALFORMED 2u /* a field has an impossible value */
#define ECALLS_FRAME_FORMAT 3u	  /* another format than the channel's here, or longer data */
#define ECALLS_FRAME_OWN 4u	  /* it says that this host sent it */
#define ECALLS_FRAME_CLOSED 5u	  /* the program that opened the channel here has ended */
#define ECALLS_FRAME_DUPLICATE 6u /* it arrived before */
#define ECALLS_FRAME_STALE 7u	  /* of an earlier epoch, or too old to tell */
#define ECALLS_FRAME_SOURCES 8u	  /* no row is left for a further source */
#define ECALLS_FRAME_REASONS 9u

/* How a channel's frames go to other hosts. */
#define ECALLS_WAY_LANE 0u /* by the interface, to its neighbours */
#define ECALLS_WAY_RELAY                                                                           \
	1u /* by the host's relay (abi/relay.h): the lane's programs are not attached */

/* A channel that is open on this host. Written by programs that host the core, under its lock. */
struct ecalls_lane_channel {
	ecalls_u64 id;		/* of its name; 0: the row is free */
	ecalls_u64 format;	/* id of its format */
	ecalls_u64 host;	/* this host */
	ecalls_u64 epoch;	/* of this host's frames */
	ecalls_u64 sinks;	/* bit per sink that is a member (abi/sink.h) */
	ecalls_u64 out;		/* the filter that chooses among them: ECALLS_OUT_* of abi/sink.h */
	ecalls_u64 owner_start; /* start time of the owner (since boot, ns), against pid reuse */
	ecalls_u32 owner;	/* process that opened it, and owns the service */
	ecalls_u32 uid;		/* its user: that of the events */
	ecalls_u32 service;	/* index of the service */
	ecalls_u32 way;		/* ECALLS_WAY_* */
	ecalls_u32 data_max;	/* bytes of data that its format describes */
	ecalls_u32 pad;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lane_channel) == 80, "lane channel");

/* Counts of a channel (one per CPU; sum them): frames = raised + sum(refused). Row 0: of frames
 * that name no channel of this host, so that only their size and version could be checked. */
struct ecalls_lane_count {
	ecalls_u64 frames;
	ecalls_u64 raised; /* became events; the service's counters tell the rest */
	ecalls_u64 refused[ECALLS_FRAME_REASONS];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lane_count) == 88, "lane count");

struct ecalls_lane_key {
	ecalls_u64 channel;
	ecalls_u64 host;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lane_key) == 16, "lane key");

/* The frames of one source, by bpf/lib/window.h. */
struct ecalls_window {
	ecalls_u64 epoch;     /* the current one; 0: no frame has arrived */
	ecalls_u64 first;     /* the smallest sequence number of the epoch that has arrived, */
	ecalls_u64 highest;   /* and the largest one */
	ecalls_u64 seen;      /* bit i: highest - i has arrived */
	ecalls_u64 former;    /* frames from first to highest of former epochs, arrived or not */
	ecalls_u64 fresh;     /* arrived for the first time, of all epochs */
	ecalls_u64 duplicate; /* had arrived before */
	ecalls_u64 stale;     /* too old to tell, or of an earlier epoch */
	ecalls_u64 last_ns;   /* when the last fresh one arrived */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_window) == 72, "window");

struct ecalls_lane_source {
	ecalls_u64 lock; /* the kernel side's */
	struct ecalls_window window;
	ecalls_u64 told_ns; /* when the source last told attributes; 0: never */
	ecalls_u64 value[ECALLS_ATTRIBUTES];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_lane_source) == 344, "lane source");

#endif
