/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The whole way of an event in C: a service is registered, subscribed to in three ways (ring,
 * slots, user handler), raised, received and taken down; then a timer, a socket, and calls over the
 * channel. Needs root.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define PATIENCE_US 30000000

static ecalls_t *ecalls;

static ecalls_subscription_t *subscribe(const char *name, struct ecalls_subscribe_action *actions,
					uint32_t count) {
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof *actions,
						   .actions = actions,
						   .action_count = count};
	ecalls_subscription_t *subscription = NULL;

	CHECK(ecalls_subscribe(ecalls, name, &options, &subscription) == 0);
	return subscription;
}

static int64_t raise_number(const ecalls_service_t *service, uint64_t number, uint32_t type) {
	struct ecalls_raise raise = {.size = sizeof raise,
				     .target = ECALLS_TARGET_ALL,
				     .kind = 1,
				     .type = type,
				     .data = &number,
				     .data_size = sizeof number};
	int64_t offered = -1;

	CHECK(ecalls_service_raise(service, &raise, &offered) == 0);
	return offered;
}

/* A threshold in the kernel lets the second of two events through to a ring. */
static void event_passes_a_kernel_handler_and_arrives(const ecalls_service_t *service) {
	ecalls_channel_t *channel = NULL;
	struct ecalls_event event;
	struct ecalls_subscription_count counts;
	uint32_t id = 0, index = 0;
	char line[160];

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	struct ecalls_subscribe_action actions[] = {
		{.kind = ECALLS_ACTION_HANDLER,
		 .handler = "threshold",
		 .field = "number",
		 .compare = ECALLS_COMPARE_GREATER,
		 .bound = 10},
		{.kind = ECALLS_ACTION_MEMORY, .channel = channel},
	};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", actions, 2);

	CHECK(raise_number(service, 10, 0) == 1);
	CHECK(raise_number(service, 11, 0) == 1);
	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	CHECK(ecalls_subscription_id(subscription, &id) == 0);
	CHECK(ecalls_service_index(service, &index) == 0);
	CHECK(event.data[0] == 11 && event.size == 8 && event.kind == 1);
	CHECK(event.subscription == id && event.service == index);
	CHECK(event.pid == (uint32_t)getpid());
	CHECK(ecalls_describe(ecalls, &event, line, sizeof line) > 0);
	CHECK(strstr(line, "c_round_trip high") && strstr(line, "number=11"));
	CHECK(ecalls_subscription_counts(subscription, &counts) == 0);
	CHECK(counts.offered == 2 && counts.delivered == 1 && counts.filtered == 1);
	CHECK(ecalls_channel_try_recv(channel, &event) == -EAGAIN);
	ecalls_unsubscribe(subscription);
	CHECK(raise_number(service, 12, 0) == 0);
	ecalls_channel_close(channel);
}

/* When the first thread sleeps: it waits for an event. */
static void *raise_some(void *service) {
	char path[64], stat[512];

	snprintf(path, sizeof path, "/proc/%d/stat", getpid());
	for (char state = 0; state != 'S'; usleep(1000)) {
		FILE *file = fopen(path, "r");
		size_t bytes = fread(stat, 1, sizeof stat - 1, file);

		stat[bytes] = 0;
		state = strrchr(stat, ')')[2];
		fclose(file);
	}
	for (uint64_t i = 0; i < 8; i++)
		CHECK(raise_number(service, i, 0) == 1);
	return NULL;
}

/* A reader that sleeps lets eight events gather, for which it is woken twice at most: by the first
 * one and by the last one. */
static void events_gather_for_a_reader_that_sleeps(ecalls_service_t *service) {
	struct ecalls_channel_options options = {
		.size = sizeof options, .gather_us = 10 * PATIENCE_US, .gather_events = 8};
	ecalls_channel_t *channel = NULL;
	struct ecalls_subscription_count counts;
	struct ecalls_event event;
	pthread_t other;

	CHECK(ecalls_channel_open(ecalls, &options, &channel) == 0);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", &action, 1);
	CHECK(pthread_create(&other, NULL, raise_some, service) == 0);
	for (uint64_t i = 0; i < 8; i++) {
		CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
		CHECK(event.data[0] == i);
	}
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(ecalls_subscription_counts(subscription, &counts) == 0);
	CHECK(counts.delivered == 8 && counts.wakes >= 1 && counts.wakes <= 2);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

/* Events that are fewer than those that should gather come to the reader after a while. */
static void few_events_come_after_a_while(ecalls_service_t *service) {
	struct ecalls_channel_options options = {
		.size = sizeof options, .gather_us = 200000, .gather_events = 8};
	ecalls_channel_t *channel = NULL;
	struct ecalls_event event;

	CHECK(ecalls_channel_open(ecalls, &options, &channel) == 0);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", &action, 1);
	for (uint64_t i = 0; i < 9; i++) {
		if (i % 8 == 0)
			for (uint64_t j = i; j < 9 && j < i + 8; j++)
				CHECK(raise_number(service, j, 0) == 1);
		CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
		CHECK(event.data[0] == i);
	}
	CHECK(ecalls_channel_recv(channel, 1000, &event) == -ETIMEDOUT);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

/* While the subscription's last event was not read, it stands for others: they are counted. */
static void what_was_not_read_stands_for_further_events(const ecalls_service_t *service) {
	ecalls_channel_t *channel = NULL;
	struct ecalls_subscription_count counts;
	struct ecalls_event event;

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof action,
						   .actions = &action,
						   .action_count = 1,
						   .coalesce = 1};
	ecalls_subscription_t *subscription = NULL;

	CHECK(ecalls_subscribe(ecalls, "c_round_trip", &options, &subscription) == 0);
	for (uint64_t round = 1; round <= 2; round++) {
		for (uint64_t i = 0; i < 4; i++)
			CHECK(raise_number(service, 10 * round + i, 0) == 1);
		CHECK(ecalls_channel_try_recv(channel, &event) == 0);
		CHECK(event.data[0] == 10 * round);
		CHECK(ecalls_channel_try_recv(channel, &event) == -EAGAIN);
		CHECK(ecalls_subscription_counts(subscription, &counts) == 0);
		CHECK(counts.offered == 4 * round && counts.delivered == round);
		CHECK(counts.dropped[ECALLS_DROP_COALESCED] == 3 * round);
	}
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

/* A filter in E-code by an attribute of the channel, which changes what is behind it, and is
 * replaced. */
static void event_passes_a_handler_in_ecode(const ecalls_service_t *service) {
	ecalls_channel_t *channel = NULL;
	struct ecalls_event event;
	const char *attributes[] = {"step", "least"};
	char format[64], warnings[512];

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	struct ecalls_subscribe_action actions[] = {
		{.kind = ECALLS_ACTION_HANDLER,
		 .handler = "ecode",
		 .text = "static long n;\n"
			 "struct output { u64 number; u32 seen; };\n"
			 "output.number = number * 2; output.seen = ++n;\n"
			 "return (long)number >= attr(\"least\");"},
		{.kind = ECALLS_ACTION_MEMORY, .channel = channel},
	};
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof *actions,
						   .actions = actions,
						   .action_count = 2,
						   .attributes = attributes,
						   .attribute_count = 2};
	ecalls_subscription_t *subscription = NULL;

	CHECK(ecalls_subscribe(ecalls, "c_round_trip", &options, &subscription) == 0);
	CHECK(ecalls_subscription_format(subscription, format, sizeof format) > 0);
	CHECK(strcmp(format, "u64 number; u32 seen; u8 pad[4]") == 0);
	CHECK(ecalls_call_fast(channel, ECALLS_OP_SET, 1, 10, 0, NULL) == 0);
	raise_number(service, 9, 0);
	raise_number(service, 10, 0);
	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	CHECK(event.size == 16 && event.data[0] == 20 && (uint32_t)event.data[1] == 2);
	REFUSED(ecalls_subscription_replace(subscription, 0, "new.ec", "numbr"), -EINVAL,
		"new.ec:1:1: error: 'numbr' is not declared");
	REFUSED(ecalls_subscription_replace(subscription, 1, NULL, "1"), -ESHUTDOWN, "E-code");
	CHECK(ecalls_subscription_warnings(subscription, warnings, sizeof warnings) == 0);
	CHECK(ecalls_subscription_replace(subscription, 0, "odd.ec",
					  "static long n; int unused = 1; return ++n == 3;") == 0);
	CHECK(ecalls_subscription_warnings(subscription, warnings, sizeof warnings) > 0);
	CHECK(strncmp(warnings, "odd.ec:1:20: warning: ", 22) == 0 && strstr(warnings, "unused"));
	CHECK(warnings[strlen(warnings) - 1] == '\n');
	raise_number(service, 5, 0);
	raise_number(service, 6, 0);
	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	CHECK(event.size == 8 && event.data[0] == 5);
	CHECK(ecalls_channel_try_recv(channel, &event) == -EAGAIN);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

/* Readiness by slots: one bit per type. */
static void slots_show_what_is_ready(const ecalls_service_t *service) {
	struct ecalls_channel_options options = {.size = sizeof options,
						 .layout = ECALLS_LAYOUT_SLOTS,
						 .capacity = 128,
						 .slot_use = ECALLS_SLOT_TYPE};
	ecalls_channel_t *channel = NULL;
	uint64_t bitmap[2] = {7, 7};

	CHECK(ecalls_channel_open(ecalls, &options, &channel) == 0);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", &action, 1);

	CHECK(ecalls_channel_take_ready(channel, 1, bitmap) == -EINVAL);
	CHECK(raise_number(service, 1, 3) == 1);
	CHECK(raise_number(service, 2, 100) == 1);
	CHECK(raise_number(service, 3, 100) == 1);
	CHECK(ecalls_channel_take_ready(channel, 2, bitmap) == 2);
	CHECK(bitmap[0] == 1ull << 3 && bitmap[1] == 1ull << 36);
	CHECK(ecalls_channel_take_ready(channel, 2, bitmap) == 0);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

static int on_event(const struct ecalls_event *event, void *context) {
	atomic_fetch_add((atomic_ulong *)context, event->data[0]);
	return event->data[0] == 1 ? ECALLS_STOP : ECALLS_CONTINUE;
}

/* A user handler stops the chain for one event and lets it go on for the other. */
static void user_handler_decides(const ecalls_service_t *service) {
	ecalls_channel_t *channel = NULL;
	struct ecalls_event event;
	atomic_ulong sum = 0;

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	struct ecalls_subscribe_action actions[] = {
		{.kind = ECALLS_ACTION_USER, .callback = on_event, .context = &sum},
		{.kind = ECALLS_ACTION_MEMORY, .channel = channel},
	};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", actions, 2);

	raise_number(service, 1, 0);
	raise_number(service, 2, 0);
	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	CHECK(event.data[0] == 2);
	CHECK(atomic_load(&sum) == 3);
	CHECK(ecalls_channel_try_recv(channel, &event) == -EAGAIN);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

static void *wait_for_event(void *channel) {
	static struct ecalls_event event;

	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	return &event;
}

/* A thread that waits on a channel does not keep others from subscribing and calling with it. */
static void others_use_a_channel_whose_reader_waits(const ecalls_service_t *service) {
	ecalls_channel_t *channel = NULL;
	pthread_t reader;
	void *received = NULL;

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	CHECK(pthread_create(&reader, NULL, wait_for_event, channel) == 0);
	usleep(20000);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", &action, 1);

	CHECK(ecalls_call_fast(channel, ECALLS_OP_NOP, 0, 0, 0, NULL) == 0);
	CHECK(raise_number(service, 21, 0) == 1);
	CHECK(pthread_join(reader, &received) == 0);
	CHECK(((struct ecalls_event *)received)->data[0] == 21);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

/* Fast and deferred calls, and waiting with poll for a timer's expiry. */
static void calls_and_timers_work(void) {
	ecalls_channel_t *channel = NULL;
	ecalls_timer_t *timer = NULL;
	struct ecalls_event event;
	int64_t result = 0;
	uint64_t pending = 0;
	uint32_t number = 0;

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	CHECK(ecalls_call_fast(channel, ECALLS_OP_GETPID, 0, 0, 0, &result) == 0);
	CHECK(result == getpid());
	CHECK(ecalls_call_defer(channel, ECALLS_OP_SET, 0, 5, 0) == 0);
	CHECK(ecalls_call_defer_latest(channel, 1, ECALLS_OP_SET, 1, 6, 0) == 0);
	CHECK(ecalls_call_pending(channel, &pending) == 0 && pending >= 1);
	CHECK(ecalls_call_fast(channel, ECALLS_OP_GET, 0, 0, 0, &result) == 0 && result == 5);
	CHECK(ecalls_call_flush(channel) == 0);
	CHECK(ecalls_call_fast(channel, ECALLS_OP_GET, 1, 0, 0, &result) == 0 && result == 6);

	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	ecalls_subscription_t *subscription = subscribe("timer", &action, 1);
	struct pollfd ready = {.fd = ecalls_channel_fd(channel), .events = POLLIN};

	CHECK(ecalls_channel_prepare_wait(channel) == 1);
	CHECK(ecalls_timer_after(channel, 20000, &timer) == 0);
	CHECK(ecalls_timer_number(timer, &number) == 0);
	CHECK(poll(&ready, 1, PATIENCE_US / 1000) == 1);
	CHECK(ecalls_channel_end_wait(channel) == 0);
	CHECK(ecalls_channel_try_recv(channel, &event) == 0);
	CHECK(event.service == ECALLS_SERVICE_TIMER && event.type == number);
	ecalls_timer_cancel(timer);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

/* Data at a registered socket is an event; after the socket was forgotten it is none. */
static void socket_tells_of_data(void) {
	struct ecalls_interest interest = {.size = sizeof interest,
					   .flags =
						   ECALLS_INTEREST_TYPE | ECALLS_INTEREST_DATA_ONLY,
					   .type = 9};
	ecalls_channel_t *channel = NULL;
	struct ecalls_event event;
	int pair[2];

	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	ecalls_subscription_t *subscription = subscribe("socket", &action, 1);

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(ecalls_watch_socket(ecalls, pair[0], &interest) == 0);
	CHECK(write(pair[1], "x", 1) == 1);
	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	CHECK(event.service == ECALLS_SERVICE_SOCKET && event.type == 9);
	CHECK(ecalls_forget_socket(ecalls, pair[0]) == 0);
	CHECK(write(pair[1], "x", 1) == 1);
	CHECK(ecalls_channel_recv(channel, 20000, &event) == -ETIMEDOUT);
	close(pair[0]);
	close(pair[1]);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
}

struct watched {
	ecalls_channel_t *channel;
	uint64_t numbers[2];
	int count;
};

static void events_wait(ecalls_loop_t *events, uint64_t source, uint32_t ready, void *context) {
	struct watched *watched = context;
	struct ecalls_event event;

	CHECK(ready == ECALLS_LOOP_READABLE);
	while (ecalls_channel_try_recv(watched->channel, &event) == 0 && watched->count < 2)
		watched->numbers[watched->count++] = event.data[0];
	if (watched->count == 2)
		CHECK(ecalls_loop_unwatch(events, source) == 1);
}

static const ecalls_service_t *raised_later;

static void raise_another(ecalls_loop_t *events, uint64_t event, void *context) {
	(void)events, (void)event, (void)context;
	CHECK(raise_number(raised_later, 22, 0) == 1);
}

/* A subscription becomes events of a loop, whose thread polls by a slot of the same channel. */
static void loop_watches_a_channel(const ecalls_service_t *service) {
	struct watched watched = {.count = 0};
	struct ecalls_loop_event later = {.size = sizeof later, .callback = raise_another};
	ecalls_loop_t *events = NULL;
	ecalls_coop_t *poll = NULL;
	uint64_t source;

	CHECK(ecalls_channel_open(ecalls, NULL, &watched.channel) == 0);
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY,
						 .channel = watched.channel};
	ecalls_subscription_t *subscription = subscribe("c_round_trip", &action, 1);

	REFUSED(ecalls_loop_open_slot(watched.channel, 16, 0, &events), -EINVAL, "0 to 15");
	REFUSED(ecalls_coop_open(watched.channel, 16, 0, &poll), -EINVAL, "0 to 15");
	CHECK(ecalls_loop_open_slot(watched.channel, 0, 7, &events) == 0);
	struct ecalls_loop_source channel = {.size = sizeof channel,
					     .type = ECALLS_LOOP_BEST_EFFORT,
					     .callback = events_wait,
					     .context = &watched,
					     .channel = watched.channel};
	CHECK(raise_number(service, 21, 0) == 1);
	raised_later = service;
	CHECK(ecalls_loop_submit(events, &later, NULL) == 0);
	CHECK(ecalls_loop_watch(events, &channel, &source) == 0);
	CHECK(ecalls_loop_run(events) == 0);
	CHECK(watched.numbers[0] == 21 && watched.numbers[1] == 22);
	ecalls_loop_close(events);
	CHECK(ecalls_coop_open(watched.channel, 1, 7, &poll) == 0);
	CHECK(ecalls_coop_poll(poll, ECALLS_COOP_NONE, 1, NULL) >= 0);
	ecalls_coop_close(poll);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(watched.channel);
}

int main(void) {
	ecalls_service_t *service = NULL;

	if (ecalls_open(&ecalls) ||
	    ecalls_service_register(ecalls, "c_round_trip", "u64 number", "low high", &service)) {
		fprintf(stderr, "%s\n", ecalls_last_error());
		return 1;
	}
	event_passes_a_kernel_handler_and_arrives(service);
	events_gather_for_a_reader_that_sleeps(service);
	few_events_come_after_a_while(service);
	what_was_not_read_stands_for_further_events(service);
	event_passes_a_handler_in_ecode(service);
	slots_show_what_is_ready(service);
	user_handler_decides(service);
	others_use_a_channel_whose_reader_waits(service);
	loop_watches_a_channel(service);
	calls_and_timers_work();
	socket_tells_of_data();
	CHECK(ecalls_complete(ecalls) == 0);
	ecalls_service_unregister(service);
	CHECK(ecalls_raise(ecalls, "c_round_trip", NULL, NULL) == -ENOENT);
	ecalls_close(ecalls);
	return check_result();
}
