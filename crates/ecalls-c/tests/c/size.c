/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events of every size in C, up to each limit and beyond it. Needs root.
 */
#include <errno.h>

#include "check.h"

#define PATIENCE_US 30000000

static ecalls_t *ecalls;
static ecalls_service_t *service;

/* Byte `at` of an event with so many. */
static unsigned char byte_of(size_t size, size_t at) {
	return at * 31 + at / 248 + size;
}

static int raise_bytes(size_t size, uint64_t release_us) {
	static unsigned char data[ECALLS_DATA_LARGE + 1];
	struct ecalls_raise raise = {.size = sizeof raise,
				     .target = ECALLS_TARGET_ALL,
				     .release_us = release_us,
				     .data = data,
				     .data_size = size};

	for (size_t at = 0; at < size && at < sizeof data; at++)
		data[at] = byte_of(size, at);
	return ecalls_service_raise(service, &raise, NULL);
}

/* The next event has so many bytes, which a buffer with room for one more takes whole. */
static void arrives(ecalls_channel_t *channel, size_t size) {
	static unsigned char data[ECALLS_DATA_LARGE + 1];
	unsigned char head[ECALLS_DATA_INLINE];
	struct ecalls_event event;
	size_t same = 0;

	CHECK(ecalls_channel_recv(channel, PATIENCE_US, &event) == 0);
	CHECK(event.size == size);
	data[size] = 0xa5;
	CHECK(ecalls_channel_data(channel, data, sizeof data) == (int)size);
	while (same < size && data[same] == byte_of(size, same))
		same++;
	CHECK(same == size && data[size] == 0xa5);
	CHECK(ecalls_channel_data(channel, NULL, 0) == (int)size);
	CHECK(ecalls_channel_data(channel, head, sizeof head) == (int)size);
	same = size < sizeof head ? size : sizeof head;
	CHECK(!memcmp(head, data, same) && !memcmp(event.data, data, same));
}

int main(void) {
	const size_t sizes[] = {0,
				1,
				40,
				41,
				168,
				169,
				1088,
				2151,
				ECALLS_DATA_MAX,
				ECALLS_DATA_MAX + 1,
				65535,
				ECALLS_DATA_LARGE};
	struct ecalls_channel_options wide = {.size = sizeof wide,
					      .layout = ECALLS_LAYOUT_SLOTS,
					      .capacity = 4,
					      .data_max = ECALLS_DATA_MAX};
	struct ecalls_subscribe_action actions[2] = {{.kind = ECALLS_ACTION_MEMORY},
						     {.kind = ECALLS_ACTION_MEMORY}};
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .action_size = sizeof *actions,
						   .actions = actions,
						   .action_count = 2};
	ecalls_channel_t *ring = NULL, *slots = NULL;
	ecalls_subscription_t *subscription = NULL;
	struct ecalls_event event;
	struct ecalls_lost lost;

	if (ecalls_open(&ecalls) ||
	    ecalls_service_register(ecalls, "c_size", NULL, NULL, &service)) {
		fprintf(stderr, "%s\n", ecalls_last_error());
		return 1;
	}
	CHECK(ecalls_channel_open(ecalls, NULL, &ring) == 0);
	wide.data_max++;
	REFUSED(ecalls_channel_open(ecalls, &wide, &slots), -EINVAL, "2152");
	wide.data_max--;
	CHECK(ecalls_channel_open(ecalls, &wide, &slots) == 0);
	actions[0].channel = ring;
	actions[1].channel = slots;
	CHECK(ecalls_subscribe(ecalls, "c_size", &options, &subscription) == 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		CHECK(raise_bytes(sizes[i], 0) == 0);
		arrives(ring, sizes[i]);
		if (sizes[i] <= ECALLS_DATA_MAX)
			arrives(slots, sizes[i]);
	}
	CHECK(ecalls_channel_try_recv(slots, &event) == -EAGAIN);
	CHECK(ecalls_channel_lost(slots, &lost) == 0 && lost.dropped[ECALLS_DROP_SIZE] == 3);
	REFUSED(raise_bytes(ECALLS_DATA_LARGE + 1, 0), -EINVAL, "an event holds 65536 bytes");
	/* What waits in the kernel holds less. */
	CHECK(raise_bytes(ECALLS_DATA_MAX, 1000) == 0);
	arrives(ring, ECALLS_DATA_MAX);
	arrives(slots, ECALLS_DATA_MAX);
	REFUSED(raise_bytes(ECALLS_DATA_MAX + 1, 1000), -EINVAL, "at most 2152 bytes");
	CHECK(ecalls_channel_try_recv(ring, &event) == -EAGAIN);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(slots);
	ecalls_channel_close(ring);
	ecalls_service_unregister(service);
	ecalls_close(ecalls);
	return check_result();
}
