/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Channels among hosts (KECho) of libecalls: what one host submits becomes an event on others. Such
 * a channel is, on each host, a service of its name; ecalls_channel_t is something else: the memory
 * from which a program reads the events of a service. Results, handles, options and times are as in
 * ecalls.h. This file is written by crates/ecalls-c/tests/header.rs; change the source there.
 */


#ifndef ECALLS_NET_CHANNEL_H
#define ECALLS_NET_CHANNEL_H

#include <stddef.h>
#include <stdint.h>
#include "ecalls.h"

/* A channel among hosts that this program has open. */
typedef struct ecalls_net_channel_t ecalls_net_channel_t;
/* A way to submit events to one that a program of this host has open. */
typedef struct ecalls_publisher_t ecalls_publisher_t;

/* Which channel among hosts to open, and how. */
struct ecalls_net_channel_options {
	/* Size of this struct. */
	uint32_t size;
	/*
	 * With a cluster, 1: a channel that no host has open yet becomes a reliable one, whose
	 * frames go by the relays, which repeat what is lost. 0: one of the lane.
	 */
	uint32_t reliable;
	/* Its name, which is that of its service on this host, too. */
	const char *name;
	/*
	 * Format of its data and names of its kinds, as of ecalls_service_register(). With a
	 * cluster, format NULL: those that the other hosts have.
	 */
	const char *format;
	/* See format. */
	const char *kinds;
	/*
	 * The network interface on which its frames arrive, whose hosts are trusted. With a
	 * cluster, NULL: the one that the relay's configuration names.
	 */
	const char *interface;
	/*
	 * The cluster whose hosts are its sinks, by this host's relay. NULL: its sinks are added by
	 * ecalls_net_channel_add_sink().
	 */
	const char *cluster;
};

/* An attribute of this host, which travels with an event. */
struct ecalls_net_attribute {
	/* Its number, below ECALLS_ATTRIBUTES. */
	uint64_t number;
	/* Its value. */
	uint64_t value;
};

/* An event to submit to a channel among hosts. */
struct ecalls_net_submission {
	/* Size of this struct. */
	uint32_t size;
	/* Kind of the event, 0 to 31. */
	uint32_t kind;
	/* Selects the slot in channels whose slots are used by type. */
	uint32_t type;
	/* Selects the slot in channels whose slots are used by priority; 0 is the most urgent. */
	uint32_t priority;
	/*
	 * The event is discarded and counted where it is not delivered within this time, us;
	 * hosts need no common clock. 0: no deadline.
	 */
	uint64_t deadline_us;
	/* The data, in the channel's format. NULL: none. */
	const void *data;
	/* Size of the data in bytes, at most ECALLS_DATA_MAX. */
	uint64_t data_size;
	/* Attributes of this host that it tells. NULL: none. */
	const struct ecalls_net_attribute *attributes;
	/* Number of attributes, at most 8. */
	uint64_t attribute_count;
};

/* How an event was submitted. */
struct ecalls_net_sent {
	/*
	 * 1: the kernel side sends it, to those sinks that the channel's filter chooses, if it
	 * has one; ecalls_publisher_fates() says what it has done. Then `sinks` and `failed`
	 * are 0.
	 */
	uint64_t filtered;
	/* Sinks to which it was sent. */
	uint64_t sinks;
	/* Sinks to which it could not be sent; they will count it as missing. */
	uint64_t failed;
	/* Subscriptions on this host to which it was offered. */
	int64_t offered;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * Opens a channel among hosts (KECho): frames that other hosts send become events of a service
 * with its name, which this program registers, in the kernel and without a process.
 * -EPERM: without root or CAP_NET_ADMIN; -EINVAL: the name is taken, the interface unknown, or
 * other hosts have another format; -ENOENT: no relay runs, or no host of the cluster has the
 * channel open and there is no format; -ENOSYS: before Linux 6.6.
 */
int ecalls_net_channel_open(const ecalls_t *ecalls,
			    const struct ecalls_net_channel_options *options,
			    ecalls_net_channel_t **channel);

/* Closes the channel on this host: its service ends, and its frames are refused. */
void ecalls_net_channel_close(ecalls_net_channel_t *channel);

/* Writes this host's number, as events on other hosts name it (ECALLS_EVENT_HOST). */
int ecalls_net_channel_host(const ecalls_net_channel_t *channel, uint64_t *host);

/*
 * Makes the host with this IPv4 address a sink: it gets what publishers submit to the channel's
 * sinks, and the events of subscriptions with the handler "remote". A sink stays one.
 * -ENOSPC: frames have been sent to 64 other addresses; -ENOSYS: an IPv6 address, or an interface
 * without Ethernet headers; those of the network, without a route.
 */
int ecalls_net_channel_add_sink(const ecalls_net_channel_t *channel, const char *address);

/* The host with this address is a sink no more. Returns 1 if it was one, 0 otherwise. */
int ecalls_net_channel_remove_sink(const ecalls_net_channel_t *channel, const char *address);

/*
 * Returns the number of the channel's sinks at this moment: those that were added, or the other
 * hosts of its cluster that have it open.
 */
int ecalls_net_channel_sinks(const ecalls_net_channel_t *channel);

/*
 * Makes a text in E-code the channel's filter at the source (OUT, KECho §2.3): it sees each event
 * and all sinks with their attributes, whose names are given in the order of their numbers, and
 * chooses those that get it. Replaced while events pass; static variables of the same name and
 * type keep their values. `text` NULL: no filter, each event goes to all sinks.
 * -EINVAL: the text has errors, an output or requests; then the former filter remains.
 */
int ecalls_net_channel_set_out(const ecalls_net_channel_t *channel,
			       const char *text,
			       const char *const *attributes,
			       uint32_t attribute_count);

/*
 * Writes what another host has told of itself last: the values of its attributes 0 to
 * ECALLS_ATTRIBUTES - 1, and when that arrived, ns of CLOCK_MONOTONIC; 0: it has told none.
 * `told_ns` may be NULL. -ENOENT: no frame of that host has arrived.
 */
int ecalls_net_channel_told(const ecalls_net_channel_t *channel,
			    uint64_t host,
			    uint64_t *values,
			    uint64_t *told_ns);

/*
 * Prepares to submit events to a channel that a program of this host has open: to its sinks of
 * each moment if `sink_count` is 0, otherwise to the hosts with these addresses, at most 64.
 * -ENOENT: no program of this host has it open; -EPERM: without root, and without a daemon whose
 * configuration permits this user to publish on it.
 */
int ecalls_publisher_open(const ecalls_t *ecalls,
			  const char *channel,
			  const char *const *sinks,
			  uint32_t sink_count,
			  ecalls_publisher_t **publisher);

/* Ends a publisher. An event that the kernel side has under way for it is lost. */
void ecalls_publisher_close(ecalls_publisher_t *publisher);

/*
 * Submits an event (KECho §2): a frame to each sink, of which the channel's filter chooses if the
 * publisher names none, and the same event on this host. A sink that cannot be reached does not
 * keep it from the others. `sent` may be NULL.
 * -EINVAL: data that the channel's format does not describe, an impossible kind, or attributes
 * where the filter chooses; -EDQUOT: this user may submit no more now, which is counted.
 */
int ecalls_publisher_submit(const ecalls_publisher_t *publisher,
			    const struct ecalls_net_submission *submission,
			    struct ecalls_net_sent *sent);

/*
 * The same to all sinks, past the channel's filter: for what this host tells of itself, by
 * attributes, and by which the filters of other hosts choose. -EPERM: without root.
 */
int ecalls_publisher_tell(const ecalls_publisher_t *publisher,
			  const struct ecalls_net_submission *submission,
			  struct ecalls_net_sent *sent);

/*
 * Writes what has become of the events that were submitted with `filtered` 1, once that is known
 * of all, after `timeout_us` at the latest: delivered to the channel's buffer, from where the
 * kernel side sends them; filtered, since the filter chose no sink or there is none; or dropped.
 */
int ecalls_publisher_fates(const ecalls_publisher_t *publisher,
			   uint64_t timeout_us,
			   struct ecalls_subscription_count *counts);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ECALLS_NET_CHANNEL_H */
