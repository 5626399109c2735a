/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A channel among hosts from C: sinks, what is submitted and told to them, the filter that chooses
 * among them, and frames of another host. Needs root; it has a network of its own, with nothing
 * but the loopback interface, on which the other hosts are addresses.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "ecalls/wire.h"

#define CHANNEL "c-net"
#define LOAD 3 /* the number of an attribute */
#define OTHER 0x020000000007ull
#define WAIT_US 20000000

/* A frame with the channel's data, and what is before it in a packet. */
struct frame {
	struct ecalls_wire wire;
	uint64_t number;
};
enum { TARGET = 30, FRAME = 42 };

static ecalls_t *ecalls;
static ecalls_net_channel_t *channel;
static ecalls_publisher_t *publisher;
static ecalls_channel_t *memory;
static int tap = -1;

static void own_network(void) {
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	struct timeval wait = {.tv_sec = WAIT_US / 1000000};
	int any;

	CHECK(unshare(CLONE_NEWNET) == 0);
	any = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(ioctl(any, SIOCSIFFLAGS, &lo) == 0);
	close(any);
	tap = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	CHECK(tap >= 0);
	CHECK(setsockopt(tap, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
}

/* The next frame that is sent: its target's last byte, or 0 if there is none. */
static int next_frame(struct frame *frame, int flags) {
	uint8_t packet[FRAME + sizeof *frame + 1];

	for (;;) {
		struct sockaddr_ll from;
		socklen_t length = sizeof from;
		ssize_t size = recvfrom(tap, packet, sizeof packet, flags, (struct sockaddr *)&from,
					&length);

		if (size < 0)
			return 0;
		if (size != FRAME + (ssize_t)sizeof *frame || from.sll_pkttype != PACKET_OUTGOING)
			continue;
		memcpy(frame, packet + FRAME, sizeof *frame);
		if (frame->wire.magic == ECALLS_WIRE_MAGIC)
			return packet[TARGET + 3];
	}
}

static int is_sent_to(int target, uint64_t number) {
	struct frame frame;

	return next_frame(&frame, 0) == target && frame.number == number;
}

static int nothing_is_sent(void) {
	struct frame frame;

	return next_frame(&frame, MSG_DONTWAIT) == 0;
}

static struct ecalls_net_submission submission(const uint64_t *number) {
	return (struct ecalls_net_submission){.size = sizeof(struct ecalls_net_submission),
					      .data = number,
					      .data_size = sizeof *number};
}

static void channel_is_opened(void) {
	struct ecalls_net_channel_options options = {.size = sizeof options};
	uint64_t host = 0;

	REFUSED(ecalls_net_channel_open(NULL, &options, &channel), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_net_channel_open(ecalls, NULL, &channel), -EINVAL, "options");
	REFUSED(ecalls_net_channel_open(ecalls, &options, &channel), -EINVAL, "name is NULL");
	options.name = CHANNEL;
	options.format = "u64 number";
	REFUSED(ecalls_net_channel_open(ecalls, &options, &channel), -EINVAL, "interface");
	options.interface = "lo";
	options.reliable = 1;
	REFUSED(ecalls_net_channel_open(ecalls, &options, &channel), -EINVAL, "in a cluster");
	options.reliable = 2;
	REFUSED(ecalls_net_channel_open(ecalls, &options, &channel), -EINVAL, "0 or 1");
	options.reliable = 0;
	CHECK(channel == NULL);
	CHECK(ecalls_net_channel_open(ecalls, &options, &channel) == 0);
	CHECK(ecalls_net_channel_host(channel, &host) == 0 && host != 0);
	CHECK(ecalls_net_channel_sinks(channel) == 0);
	REFUSED(ecalls_net_channel_add_sink(channel, "nowhere"), -EINVAL, "no address");
	CHECK(ecalls_net_channel_add_sink(channel, "127.0.0.2") == 0);
	CHECK(ecalls_net_channel_add_sink(channel, "127.0.0.3") == 0);
	CHECK(ecalls_net_channel_sinks(channel) == 2);
	CHECK(ecalls_net_channel_remove_sink(channel, "127.0.0.3") == 1);
	CHECK(ecalls_net_channel_remove_sink(channel, "127.0.0.3") == 0);
	CHECK(ecalls_net_channel_sinks(channel) == 1);
	CHECK(ecalls_net_channel_add_sink(channel, "127.0.0.3") == 0);
}

static void publisher_is_opened(void) {
	const char *const nowhere[] = {"nowhere"};

	REFUSED(ecalls_publisher_open(ecalls, "c-none", NULL, 0, &publisher), -ENOENT, "c-none");
	REFUSED(ecalls_publisher_open(ecalls, CHANNEL, nowhere, 1, &publisher), -EINVAL, "address");
	REFUSED(ecalls_publisher_open(ecalls, CHANNEL, NULL, 1, &publisher), -EINVAL, "sinks");
	REFUSED(ecalls_publisher_open(ecalls, CHANNEL, nowhere, 65, &publisher), -EINVAL, "64");
	CHECK(publisher == NULL);
	CHECK(ecalls_publisher_open(ecalls, CHANNEL, NULL, 0, &publisher) == 0);
}

static void impossible_submissions_are_refused(void) {
	uint64_t number = 1;
	struct ecalls_net_attribute attribute = {.number = 32};
	struct ecalls_net_submission given = submission(&number);

	REFUSED(ecalls_publisher_submit(publisher, NULL, NULL), -EINVAL, "submission is NULL");
	given.data_size = 9;
	REFUSED(ecalls_publisher_submit(publisher, &given, NULL), -EINVAL, "format");
	given.data_size = ECALLS_DATA_MAX + 1;
	REFUSED(ecalls_publisher_submit(publisher, &given, NULL), -EINVAL, "data_size");
	given.data_size = 8;
	given.kind = 32;
	REFUSED(ecalls_publisher_submit(publisher, &given, NULL), -EINVAL, "kind");
	given.kind = 0;
	given.attribute_count = 9;
	REFUSED(ecalls_publisher_submit(publisher, &given, NULL), -EINVAL, "attribute_count");
	given.attribute_count = 1;
	REFUSED(ecalls_publisher_tell(publisher, &given, NULL), -EINVAL, "array of attributes");
	given.attributes = &attribute;
	REFUSED(ecalls_publisher_tell(publisher, &given, NULL), -EINVAL, "below 32");
	attribute.number = 256;
	REFUSED(ecalls_publisher_tell(publisher, &given, NULL), -EINVAL, "below 32");
	CHECK(nothing_is_sent());
}

static void event_goes_to_each_sink_and_to_this_host(void) {
	struct ecalls_net_sent sent = {0};
	struct ecalls_event event;
	uint64_t number = 11;
	struct ecalls_net_submission given = submission(&number);

	CHECK(ecalls_publisher_submit(publisher, &given, &sent) == 0);
	CHECK(!sent.filtered && sent.sinks == 2 && !sent.failed && sent.offered == 1);
	CHECK(is_sent_to(2, 11));
	CHECK(is_sent_to(3, 11));
	CHECK(ecalls_channel_recv(memory, WAIT_US, &event) == 0);
	CHECK(event.data[0] == 11 && !(event.flags & ECALLS_EVENT_HOST));
	CHECK(event.pid == (uint32_t)ecalls_pid(ecalls));
}

/* Host OTHER, which is the sink 127.0.0.2, tells its load by a frame of its own. */
static void another_host_tells(void) {
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(ECALLS_WIRE_PORT)};
	struct sockaddr_in to = from;
	int other = socket(AF_INET, SOCK_DGRAM, 0), yes = 1;
	uint64_t number = 12, values[ECALLS_ATTRIBUTES] = {0}, told_ns = 0;
	struct ecalls_net_submission given = submission(&number);
	struct ecalls_event event;
	struct frame frame;

	/* What this host sends has the ids of channel and format. */
	CHECK(ecalls_publisher_submit(publisher, &given, NULL) == 0);
	CHECK(next_frame(&frame, 0) == 2 && is_sent_to(3, 12));
	CHECK(ecalls_channel_recv(memory, WAIT_US, &event) == 0 && event.data[0] == 12);
	frame.wire.host = OTHER;
	frame.wire.epoch = frame.wire.sequence = 1;
	frame.wire.attributes = 1;
	frame.wire.number[0] = LOAD;
	frame.wire.value[0] = 90;
	frame.number = 13;
	from.sin_addr.s_addr = inet_addr("127.0.0.2");
	to.sin_addr.s_addr = inet_addr("127.0.0.1");
	REFUSED(ecalls_net_channel_told(channel, OTHER, values, NULL), -ENOENT, "no frame");
	CHECK(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
	CHECK(bind(other, (struct sockaddr *)&from, sizeof from) == 0);
	CHECK(sendto(other, &frame, sizeof frame, 0, (struct sockaddr *)&to, sizeof to) ==
	      sizeof frame);
	close(other);
	CHECK(is_sent_to(1, 13));
	CHECK(ecalls_channel_recv(memory, WAIT_US, &event) == 0 && event.data[0] == 13);
	CHECK(event.flags & ECALLS_EVENT_HOST);
	CHECK(event.pid == (uint32_t)OTHER && event.tid == OTHER >> 32);
	CHECK(ecalls_net_channel_told(channel, OTHER, values, &told_ns) == 0);
	CHECK(values[LOAD] == 90 && values[0] == 0 && told_ns != 0);
}

static void filter_chooses_among_the_sinks(void) {
	static const char *const names[] = {"a", "b", "c", "load"};
	struct ecalls_net_attribute load = {.number = LOAD, .value = 7};
	struct ecalls_subscription_count fates;
	struct ecalls_net_sent sent = {0};
	uint64_t number = 14;
	struct ecalls_net_submission given = submission(&number);

	REFUSED(ecalls_net_channel_set_out(channel, "return nothing;", NULL, 0), -EINVAL,
		"nothing");
	CHECK(ecalls_net_channel_set_out(channel, "for (s in sinks) if (s.load > 80) reject(s);",
					 names, 4) == 0);
	CHECK(ecalls_publisher_fates(publisher, 0, &fates) == 0 && fates.offered == 0);
	CHECK(ecalls_publisher_submit(publisher, &given, &sent) == 0);
	CHECK(sent.filtered == 1 && sent.sinks == 0 && sent.offered == 1);
	CHECK(ecalls_publisher_fates(publisher, WAIT_US, &fates) == 0 && fates.delivered == 1);
	CHECK(is_sent_to(3, 14) && nothing_is_sent());

	number = 15;
	given.attributes = &load;
	given.attribute_count = 1;
	REFUSED(ecalls_publisher_submit(publisher, &given, NULL), -EINVAL, "tell");
	CHECK(ecalls_publisher_tell(publisher, &given, &sent) == 0);
	CHECK(!sent.filtered && sent.sinks == 2);
	CHECK(is_sent_to(2, 15) && is_sent_to(3, 15));

	number = 16;
	given.attribute_count = 0;
	CHECK(ecalls_net_channel_set_out(channel, NULL, NULL, 0) == 0);
	CHECK(ecalls_publisher_submit(publisher, &given, &sent) == 0 && sent.sinks == 2);
	CHECK(is_sent_to(2, 16) && is_sent_to(3, 16));
}

static void named_hosts_alone_get_an_event(void) {
	const char *const sinks[] = {"127.0.0.3"};
	ecalls_publisher_t *named = NULL;
	struct ecalls_net_sent sent = {0};
	uint64_t number = 17;
	struct ecalls_net_submission given = submission(&number);

	CHECK(ecalls_publisher_open(ecalls, CHANNEL, sinks, 1, &named) == 0);
	CHECK(ecalls_publisher_submit(named, &given, &sent) == 0 && sent.sinks == 1);
	CHECK(is_sent_to(3, 17) && nothing_is_sent());
	ecalls_publisher_close(named);
}

int main(void) {
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY};
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof action,
						   .actions = &action,
						   .action_count = 1};
	ecalls_subscription_t *subscription = NULL;

	own_network();
	CHECK(ecalls_open(&ecalls) == 0);
	channel_is_opened();
	publisher_is_opened();
	CHECK(ecalls_channel_open(ecalls, NULL, &memory) == 0);
	action.channel = memory;
	CHECK(ecalls_subscribe(ecalls, CHANNEL, &options, &subscription) == 0);
	impossible_submissions_are_refused();
	event_goes_to_each_sink_and_to_this_host();
	another_host_tells();
	filter_chooses_among_the_sinks();
	named_hosts_alone_get_an_event();
	ecalls_net_channel_close(channel);
	ecalls_publisher_close(publisher);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(memory);
	ecalls_close(ecalls);
	return check_result();
}
