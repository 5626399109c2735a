/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread's slot, window and standing. Needs root. Without our scheduler nobody answers; with it,
 * which the test machine has, the window is promised, refused, counted and given up.
 */
#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* What the kernel says of its schedulers: the name of ours begins with `ecalls`. */
static int scheduler_runs(void) {
	char name[16] = "";
	FILE *file = fopen("/sys/kernel/sched_ext/root/ops", "r");

	if (!file)
		return 0;
	if (!fgets(name, sizeof name, file))
		name[0] = 0;
	fclose(file);
	return strncmp(name, "ecalls", 6) == 0;
}

/* Has the CPU for some periods. */
static void spin(void) {
	struct timespec now;
	time_t end;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec + 2;
	while (now.tv_sec < end)
		clock_gettime(CLOCK_MONOTONIC, &now);
	sched_yield();
}

static void windows_are_answered(const ecalls_channel_t *channel) {
	struct ecalls_coop_window window = {
		.size = sizeof window, .period_us = 100000, .service_us = 20000, .x = 1, .y = 5};
	struct ecalls_coop_periods periods;

	CHECK(ecalls_coop_window(channel, 0, &window) == ECALLS_WINDOW_PROMISED);
	CHECK(ecalls_coop_standing(channel, 0) != ECALLS_COOP_UNBOUND);
	spin();
	CHECK(ecalls_coop_periods(channel, 0, &periods) == 0);
	CHECK(periods.met + periods.missed > 0);
	window.service_us = 99000;
	window.x = 0;
	REFUSED(ecalls_coop_window(channel, 0, &window), -ENOSPC, "is left");
	CHECK(ecalls_coop_end_window(channel, 0) == 0);
	CHECK(ecalls_sink_slot(channel, 0, 3) == 0);
	window.service_us = 20000;
	CHECK(ecalls_coop_window(channel, 0, &window) == -EINVAL);
}

int main(void) {
	struct ecalls_coop_window window = {
		.size = sizeof window, .period_us = 100000, .service_us = 20000, .x = 1, .y = 5};
	struct ecalls_coop_periods periods = {.met = 7};
	ecalls_channel_t *channel;
	ecalls_t *ecalls;

	CHECK(ecalls_coop_slot(NULL, 0, 0) == -EINVAL);
	CHECK(ecalls_open(&ecalls) == 0);
	CHECK(ecalls_channel_open(ecalls, NULL, &channel) == 0);
	CHECK(ecalls_coop_window(channel, 0, &window) == -ENOENT);
	REFUSED(ecalls_coop_slot(channel, 16, 0), -EINVAL, "slot");
	REFUSED(ecalls_sink_slot(channel, 16, 0), -EINVAL, "slot");
	REFUSED(ecalls_coop_window(channel, 0, NULL), -EINVAL, "the window");
	REFUSED(ecalls_coop_periods(channel, 0, NULL), -EINVAL, "the place");
	CHECK(ecalls_coop_slot(channel, 0, 0) == 0);
	CHECK(ecalls_coop_periods(channel, 0, &periods) == 0 && periods.met == 0);
	window.flags = 2;
	REFUSED(ecalls_coop_window(channel, 0, &window), -EINVAL, "flags are 2");
	window.flags = 0;
	window.y = 70000;
	REFUSED(ecalls_coop_window(channel, 0, &window), -EINVAL, "y is 70000");
	window.y = 1;
	CHECK(ecalls_coop_window(channel, 0, &window) == -EINVAL);
	window.y = 5;
	if (scheduler_runs()) {
		windows_are_answered(channel);
	} else {
		REFUSED(ecalls_coop_window(channel, 0, &window), -ESHUTDOWN, "the scheduler");
		CHECK(ecalls_coop_standing(channel, 0) == ECALLS_COOP_UNBOUND);
	}
	ecalls_channel_close(channel);
	ecalls_close(ecalls);
	return check_result();
}
