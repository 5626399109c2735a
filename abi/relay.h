/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The messages between a program that has opened a channel among hosts and the relay of its host
 * (ecalls-relay, doc/channels.md), which knows the hosts of a cluster.
 *
 * They go over a unix socket of type SOCK_SEQPACKET, one message to a packet: a struct
 * ecalls_relay_message, followed by what the table says and nothing else.
 *
 *	to the relay	ASK	a channel	which format has the channel of this name?
 *			ENTER	a channel	this host has opened it
 *			SEND	a frame		to `host`, on the channel that it names; no answer
 *			LIST	a channel	FOUND for each channel of its cluster, then NONE
 *			COUNT			what have other hosts said in vain?
 *	from the relay	FOUND	a channel	to ASK: a host has it open
 *			NONE	a channel	to ASK: no host has
 *			ENTERED			to ENTER
 *			REFUSED			to ASK or ENTER: `reason`; the connection stays
 *			JOINED			another host has it: `host`, `format`, `address`
 *			LEFT			it has no more
 *			SETTLED			hosts that have not been told are not there
 *			FRAME	a frame		has arrived (abi/wire.h)
 *			COUNTED	counts		to COUNT
 *
 * A connection that enters is for one channel, and this host is in the channel until the connection
 * ends. Every text of a message that comes from the relay may have been written by another host.
 */
#ifndef ECALLS_RELAY_H
#define ECALLS_RELAY_H

#include "version.h"

#define ECALLS_RELAY_VERSION 1u
#define ECALLS_RELAY_MAX 4096u /* bytes of the largest message */

#define ECALLS_RELAY_ASK 1u
#define ECALLS_RELAY_ENTER 2u
#define ECALLS_RELAY_SEND 3u
#define ECALLS_RELAY_LIST 4u
#define ECALLS_RELAY_COUNT 5u
#define ECALLS_RELAY_FOUND 16u
#define ECALLS_RELAY_NONE 17u
#define ECALLS_RELAY_ENTERED 18u
#define ECALLS_RELAY_REFUSED 19u
#define ECALLS_RELAY_JOINED 20u
#define ECALLS_RELAY_LEFT 21u
#define ECALLS_RELAY_SETTLED 22u
#define ECALLS_RELAY_FRAME 23u
#define ECALLS_RELAY_COUNTED 24u

/* Reasons of REFUSED. */
#define ECALLS_RELAY_INVALID 1u /* a name or a text is impossible, or it is not the time for it */
#define ECALLS_RELAY_TAKEN 2u	/* a program of this host is in this channel */
#define ECALLS_RELAY_DIFFERS 3u /* hosts have the channel with different formats */
#define ECALLS_RELAY_NETWORK 4u /* the relay could not tell the other hosts */
#define ECALLS_RELAY_OTHER 5u	/* hosts have the channel whose relays have another version */

/*
 * The first four fields are those of every version. Who gets a message of another version answers
 * with REFUSED in its own, and ends the connection.
 */
struct ecalls_relay_message {
	ecalls_u32 version; /* ECALLS_RELAY_VERSION */
	ecalls_u32 kind;    /* ECALLS_RELAY_ASK, .. */
	ecalls_u32 size;    /* of the whole message */
	ecalls_u32 reason;
	ecalls_u64 host;      /* ENTER: this host; SEND, JOINED, LEFT: the other one */
	ecalls_u64 format;    /* id of its format (abi/wire.h) */
	ecalls_u8 address[4]; /* its IPv4 address for the lane; zeros: none */
	ecalls_u32 pad[3];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_relay_message) == 48, "relay message");

/* A channel of a cluster. ASK needs the first two texts only, LIST the first one. */
struct ecalls_relay_channel {
	char cluster
		[ECALLS_NAME_MAX]; /* letters, digits, '.', '-' and '_', as the channel's name */
	char name[ECALLS_NAME_MAX];
	char interface[ECALLS_NAME_MAX]; /* FOUND, NONE: that of the lane, by the configuration */
	char format[ECALLS_FORMAT_MAX];
	char kinds[ECALLS_FORMAT_MAX];
	ecalls_u64 creator; /* host that created it; ENTER: 0 is this one */
	ecalls_u32 policy;  /* ECALLS_RELAY_FAST or ECALLS_RELAY_RELIABLE */
	ecalls_u32 pad;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_relay_channel) == 1136, "relay channel");

/* Why what another host said had no effect. The first four: [[access]] does not allow it. */
#define ECALLS_RELAY_NO_FRAME 0u
#define ECALLS_RELAY_NO_ANSWER 1u
#define ECALLS_RELAY_NO_QUESTION 2u
#define ECALLS_RELAY_NO_PRESENCE 3u /* that it has a channel open, or wants its events */
#define ECALLS_RELAY_OWN 4u	    /* it says that it is this host */
#define ECALLS_RELAY_IMPOSSIBLE 5u  /* a key, an answer or a frame that cannot be */
#define ECALLS_RELAY_LOST 6u	    /* there was no place for it, or nobody to take it */
#define ECALLS_RELAY_SECOND 7u	    /* it says that it is another host, which is there */
#define ECALLS_RELAY_REASONS 8u

struct ecalls_relay_counts {
	ecalls_u64 count[ECALLS_RELAY_REASONS]; /* since the relay started */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_relay_counts) == 64, "relay counts");

#define ECALLS_RELAY_FAST 1u	 /* frames go over the lane */
#define ECALLS_RELAY_RELIABLE 2u /* by the relays */

#endif
