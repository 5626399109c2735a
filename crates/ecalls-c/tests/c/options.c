/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Bad options, unknown names and wrong calls are refused by a real core with a code and a text that
 * says what would be right. Needs root.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

static ecalls_t *ecalls;
static ecalls_channel_t *channel;

static void channel_options_are_checked(void) {
	ecalls_channel_t *none = NULL;
	struct ecalls_channel_options wrong[] = {
		{.size = 4},
		{.size = sizeof wrong[0], .layout = 2},
		{.size = sizeof wrong[0], .capacity = 100},
		{.size = sizeof wrong[0], .capacity = 1u << 20},
		{.size = sizeof wrong[0], .slot_use = 4},
		{.size = sizeof wrong[0], .defer = 4},
		{.size = sizeof wrong[0], .defer = ECALLS_DEFER_DELAY},
		{.size = sizeof wrong[0], .delay_us = 5},
		{.size = sizeof wrong[0], .keep_late = 2},
		{.size = sizeof wrong[0], .gather_us = 5},
		{.size = sizeof wrong[0],
		 .layout = ECALLS_LAYOUT_SLOTS,
		 .gather_us = 5,
		 .gather_events = 5},
	};
	const char *texts[] = {
		"size",		  "layout is 2", "capacity is 100",   "capacity is 1048576",
		"slot_use is 4",  "defer is 4",	 "go together",	      "go together",
		"keep_late is 2", "go together", "bounds of wake-ups"};
	struct {
		struct ecalls_channel_options known;
		uint64_t unknown;
	} newer = {.known.size = sizeof newer, .unknown = 1};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		REFUSED(ecalls_channel_open(ecalls, &wrong[i], &none), -EINVAL, texts[i]);
	REFUSED(ecalls_channel_open(ecalls, &newer.known, &none), -E2BIG, "does not know");
	REFUSED(ecalls_channel_open(ecalls, NULL, NULL), -EINVAL, "the place for the channel");
	CHECK(none == NULL);
	newer.unknown = 0;
	CHECK(ecalls_channel_open(ecalls, &newer.known, &none) == 0);
	ecalls_channel_close(none);
}

/* Subscribes with one action, which shall be refused. */
static void action_is_refused(struct ecalls_subscribe_action action, int code, const char *part) {
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof action,
						   .actions = &action,
						   .action_count = 1};
	ecalls_subscription_t *none = NULL;

	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), code, part);
	CHECK(none == NULL);
	ecalls_unsubscribe(none);
}

#define ACTION(...) ((struct ecalls_subscribe_action){__VA_ARGS__})
#define HANDLER(...) ACTION(.kind = ECALLS_ACTION_HANDLER, __VA_ARGS__)

static void actions_are_checked(void) {
	action_is_refused(ACTION(.kind = 0), -EINVAL, "action 0: kind is 0");
	action_is_refused(ACTION(.kind = ECALLS_ACTION_MEMORY), -EINVAL, "channel is NULL");
	action_is_refused(ACTION(.kind = ECALLS_ACTION_USER), -EINVAL, "callback is NULL");
	action_is_refused(ACTION(.kind = ECALLS_ACTION_SIGNAL, .signal = 10), -EINVAL, "signal");
	action_is_refused(ACTION(.kind = ECALLS_ACTION_SIGNAL, .signal = 40, .flags = 8), -EINVAL,
			  "flags is 8");
	action_is_refused(HANDLER(.handler = NULL), -EINVAL, "handler's name is NULL");
	action_is_refused(HANDLER(.handler = "\xff"), -EINVAL, "no UTF-8");
	action_is_refused(HANDLER(.handler = "nothing"), -ENOENT, "sample, limit, threshold");
	action_is_refused(HANDLER(.handler = "copy_user"), -EINVAL, "kernel thread");
	action_is_refused(HANDLER(.handler = "threshold", .field = "size"), -ENOENT, "comm");
	action_is_refused(HANDLER(.handler = "threshold", .field = "pid", .compare = 6), -EINVAL,
			  "compare is 6");
	action_is_refused(HANDLER(.handler = "threshold", .field = "pid", .attribute = 33), -EINVAL,
			  "attribute is 33");
	action_is_refused(HANDLER(.handler = "ecode"), -EINVAL, "handler's text is NULL");
	action_is_refused(HANDLER(.handler = "ecode", .text = "pidd > 1", .text_name = "mine.ec"),
			  -EINVAL, "mine.ec:1:1: error: 'pidd' is not declared");
	action_is_refused(HANDLER(.handler = "histogram", .field = "pid", .argument = {64}),
			  -EINVAL, "shift is 64");
}

static void subscriptions_are_checked(void) {
	struct ecalls_subscribe_action action = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof action,
						   .actions = &action,
						   .action_count = 1};
	ecalls_subscription_t *none = NULL;

	REFUSED(ecalls_subscribe(ecalls, "nobody", &options, &none), -ENOENT, "nobody");
	REFUSED(ecalls_subscribe(ecalls, NULL, &options, &none), -EINVAL, "name is NULL");
	REFUSED(ecalls_subscribe(ecalls, "task", NULL, &none), -EINVAL, "options is NULL");
	REFUSED(ecalls_subscribe(ecalls, "task", &options, NULL), -EINVAL, "the place for");
	options.kinds = 1u << 31;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL, "fork");
	options.kinds = 0;
	options.action_count = ECALLS_ACTIONS_MAX + 1;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL, "action_count is 9");
	options.action_count = 1;
	options.attribute_count = 33;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL,
		"attribute_count is 33");
	options.attribute_count = 1;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL, "array of attributes");
	options.attribute_count = 0;
	options.action_size = 8;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL, "size in the actions");
	options.action_size = sizeof action;
	options.coalesce = 2;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL, "coalesce is 2");
	options.coalesce = 0;
	options.actions = NULL;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -EINVAL, "array of actions");
	options.actions = &action;
	options.receiver = 0x7ffffff0;
	REFUSED(ecalls_subscribe(ecalls, "task", &options, &none), -ESHUTDOWN, "gone");
	CHECK(none == NULL);
}

static void calls_are_checked(void) {
	struct ecalls_event event;
	struct ecalls_raise raise = {.size = sizeof raise};
	ecalls_timer_t *timer = NULL;
	uint64_t bitmap;
	int pair[2];

	REFUSED(ecalls_call_fast(channel, ECALLS_OP_RESUME, 0, 0, 0, NULL), -EINVAL, "op is 5");
	REFUSED(ecalls_call_fast(channel, ECALLS_OP_SET, 32, 1, 0, NULL), -EINVAL, "refused");
	REFUSED(ecalls_call_defer(channel, 99, 0, 0, 0), -EINVAL, "op is 99");
	REFUSED(ecalls_call_defer_latest(channel, 16, ECALLS_OP_NOP, 0, 0, 0), -EINVAL, "0 to 15");
	REFUSED(ecalls_channel_recv(channel, -2, &event), -EINVAL, "the timeout is -2");
	REFUSED(ecalls_channel_recv(channel, 0, NULL), -EINVAL, "the place for the event");
	CHECK(ecalls_channel_try_recv(channel, &event) == -EAGAIN);
	CHECK(ecalls_channel_recv(channel, 1000, &event) == -ETIMEDOUT);
	CHECK(ecalls_channel_take_ready(channel, 1, &bitmap) == 0);
	REFUSED(ecalls_raise(ecalls, "nobody", NULL, NULL), -ENOENT, "nobody");
	REFUSED(ecalls_raise(ecalls, "nobody", &raise, NULL), -EINVAL, "target is 0");
	raise.target = ECALLS_TARGET_ALL;
	raise.data_size = 65537;
	REFUSED(ecalls_raise(ecalls, "nobody", &raise, NULL), -EINVAL, "data_size is 65537");
	raise.data_size = 8;
	REFUSED(ecalls_raise(ecalls, "nobody", &raise, NULL), -EINVAL, "the data is NULL");
	REFUSED(ecalls_timer_every(channel, 1, &timer), -EINVAL, "at least 50 us");
	REFUSED(ecalls_watch_socket(ecalls, -1, NULL), -EBADF, "descriptor -1 is not open");
	CHECK(pipe(pair) == 0);
	CHECK(ecalls_watch_socket(ecalls, pair[0], NULL) == -EINVAL);
}

static void names_are_checked(void) {
	ecalls_service_t *service = NULL;
	struct ecalls_event event = {.service = 77};
	char text[8];

	REFUSED(ecalls_service_register(ecalls, "", NULL, NULL, &service), -EINVAL, "name");
	REFUSED(ecalls_service_register(ecalls, "a b", NULL, NULL, &service), -EINVAL, "blanks");
	REFUSED(ecalls_service_register(ecalls, "a", "u7 b", NULL, &service), -EINVAL, "u7 b");
	CHECK(service == NULL);
	CHECK(ecalls_describe(ecalls, &event, text, sizeof text) > 8);
	CHECK(strcmp(text, "service") == 0);
	REFUSED(ecalls_format(ecalls, "nobody", text, sizeof text), -ENOENT, "nobody");
	CHECK(ecalls_format(ecalls, "task", NULL, 0) > 8);
	CHECK(ecalls_format(ecalls, "task", text, sizeof text) > 8);
	CHECK(strcmp(text, "u32 pid") == 0);
}

int main(void) {
	if (ecalls_open(&ecalls) || ecalls_channel_open(ecalls, NULL, &channel)) {
		fprintf(stderr, "%s\n", ecalls_last_error());
		return 1;
	}
	channel_options_are_checked();
	actions_are_checked();
	subscriptions_are_checked();
	calls_are_checked();
	names_are_checked();
	ecalls_channel_close(channel);
	ecalls_close(ecalls);
	return check_result();
}
