/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A channel of a cluster from C, on two hosts with a relay each. `cluster create` opens the channel
 * and waits for an event of the other host; then it tells its load, and submits an event. `cluster
 * open` gets the format from the first, submits an event, and hears the answers; it ends when the
 * first has left. cluster.rs starts both, the first one with an input whose end ends it.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../ecalls-c/tests/c/check.h"
#include "ecalls-net-channel.h"

#define CHANNEL "c-cluster"
#define LOAD 3 /* the number of an attribute */
#define WAIT_US 30000000
#define TURN_US 10000

/* The data of an event, as the channel's format says it. */
struct data {
	uint32_t percent;
	uint32_t turn;
};

enum { STATE, WORK };

static ecalls_t *ecalls;
static ecalls_net_channel_t *channel;
static ecalls_publisher_t *publisher;
static ecalls_channel_t *memory;

/* Opens the channel and hears its events. Without a format: with that of the other hosts. */
static void begin(const char *format) {
	struct ecalls_net_channel_options options = {.size = sizeof options,
						     .name = CHANNEL,
						     .format = format,
						     .kinds = format ? "state work" : NULL,
						     .cluster = "lab"};
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY};
	struct ecalls_subscribe_options actions = {.size = sizeof actions,
						   .actions = &action,
						   .action_size = sizeof action,
						   .action_count = 1};
	ecalls_subscription_t *subscription;
	int64_t left_us = WAIT_US;
	int code;

	CHECK(ecalls_open(&ecalls) == 0);
	/* No host has it open before the relays have found each other. */
	while ((code = ecalls_net_channel_open(ecalls, &options, &channel)) == -ENOENT &&
	       left_us > 0) {
		usleep(TURN_US);
		left_us -= TURN_US;
	}
	CHECK(code == 0);
	CHECK(ecalls_channel_open(ecalls, NULL, &memory) == 0);
	action.channel = memory;
	CHECK(ecalls_subscribe(ecalls, CHANNEL, &actions, &subscription) == 0);
	CHECK(ecalls_publisher_open(ecalls, CHANNEL, NULL, 0, &publisher) == 0);
	if (check_failures)
		exit(1);
}

/* Waits until the channel has so many sinks. */
static void wait_for_sinks(int count) {
	int64_t left_us = WAIT_US;

	for (; ecalls_net_channel_sinks(channel) != count && left_us > 0; left_us -= TURN_US)
		usleep(TURN_US);
	CHECK(left_us > 0);
}

/* The next event of another host, which has to be of this kind and turn: that host. */
static uint64_t hear(uint32_t kind, uint32_t turn) {
	struct ecalls_event event;
	struct data data;

	do {
		if (ecalls_channel_recv(memory, WAIT_US, &event)) {
			CHECK(!"an event has arrived");
			return 0;
		}
	} while (!(event.flags & ECALLS_EVENT_HOST));
	memcpy(&data, event.data, sizeof data);
	CHECK(event.kind == kind && event.size == sizeof data && data.turn == turn);
	return event.pid | (uint64_t)event.tid << 32;
}

/* Sends an event to the other host; a state with the load, which is an attribute, too. */
static void say(uint32_t kind, uint32_t turn, uint64_t percent) {
	struct data data = {.percent = percent, .turn = turn};
	struct ecalls_net_attribute load = {.number = LOAD, .value = percent};
	struct ecalls_net_submission submission = {
		.size = sizeof submission, .kind = kind, .data = &data, .data_size = sizeof data};
	struct ecalls_net_sent sent = {0};

	if (kind == STATE) {
		submission.attributes = &load;
		submission.attribute_count = 1;
	}
	CHECK(ecalls_publisher_submit(publisher, &submission, &sent) == 0);
	CHECK(sent.sinks == 1 && !sent.failed && sent.offered == 1);
}

static int created(void) {
	char end;

	begin("u32 percent; u32 turn");
	puts("created");
	fflush(stdout);
	hear(WORK, 1);
	wait_for_sinks(1);
	say(STATE, 2, 42);
	say(WORK, 3, 0);
	CHECK(read(STDIN_FILENO, &end, 1) == 0);
	ecalls_net_channel_close(channel);
	return check_result();
}

static int opened(void) {
	uint64_t values[ECALLS_ATTRIBUTES] = {0}, own = 0, host;

	begin(NULL);
	CHECK(ecalls_net_channel_host(channel, &own) == 0);
	wait_for_sinks(1);
	say(WORK, 1, 0);
	host = hear(STATE, 2);
	CHECK(host != 0 && host != own);
	CHECK(ecalls_net_channel_told(channel, host, values, NULL) == 0);
	CHECK(values[LOAD] == 42);
	CHECK(hear(WORK, 3) == host);
	puts("heard both");
	fflush(stdout);
	wait_for_sinks(0);
	return check_result();
}

int main(int argc, char **argv) {
	return argc == 2 && !strcmp(argv[1], "create") ? created() : opened();
}
