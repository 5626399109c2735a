/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events of a service go to the channel among hosts "c-remote", with data `u64 number`, which the
 * test that starts this program has open. Needs root.
 */
#include <errno.h>

#include "check.h"

static ecalls_t *ecalls;

static int subscribe(const char *service, struct ecalls_subscribe_action action,
		     ecalls_subscription_t **subscription) {
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof action,
						   .actions = &action,
						   .action_count = 1};

	return ecalls_subscribe(ecalls, service, &options, subscription);
}

int main(void) {
	struct ecalls_subscribe_action remote = {
		.kind = ECALLS_ACTION_HANDLER, .handler = "remote", .text = "c-remote"};
	struct ecalls_subscribe_action unknown = remote, thread = remote;
	ecalls_service_t *service = NULL, *other = NULL;
	ecalls_subscription_t *subscription = NULL;

	CHECK(ecalls_open(&ecalls) == 0);
	CHECK(ecalls_service_register(ecalls, "c-numbers", "u64 number", "", &service) == 0);
	CHECK(ecalls_service_register(ecalls, "c-others", "u32 cpu", "", &other) == 0);
	CHECK(subscribe("c-numbers", remote, &subscription) == 0);
	for (uint64_t number = 1; number <= 3; number++) {
		struct ecalls_raise raise = {.size = sizeof raise,
					     .target = ECALLS_TARGET_ALL,
					     .data = &number,
					     .data_size = sizeof number};
		int64_t offered = -1;

		CHECK(ecalls_service_raise(service, &raise, &offered) == 0 && offered == 1);
	}
	unknown.text = "c-nowhere";
	REFUSED(subscribe("c-numbers", unknown, &subscription), -ENOENT, "c-nowhere");
	thread.kind = ECALLS_ACTION_THREAD;
	REFUSED(subscribe("c-numbers", thread, &subscription), -EINVAL, "ECALLS_ACTION_HANDLER");
	REFUSED(subscribe("c-others", remote, &subscription), -EINVAL, "u32 cpu");
	ecalls_unsubscribe(subscription);
	ecalls_service_unregister(service);
	ecalls_service_unregister(other);
	ecalls_close(ecalls);
	return check_result();
}
