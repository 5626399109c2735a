/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The event loop from C: the order of events, resubmitting, cancelling; needs no core. */
#include <errno.h>
#include <pthread.h>

#include "check.h"

#define PIECES 3

struct seen {
	char order[16];
	int count;
	int pieces;
	uint64_t other;
};

static void note(struct seen *seen, char what) {
	if (seen->count < (int)sizeof(seen->order) - 1)
		seen->order[seen->count++] = what;
}

static void late_timer(ecalls_loop_t *events, uint64_t event, void *context) {
	note(context, 't');
	CHECK(ecalls_loop_cancel(events, event) == 0);
	CHECK(ecalls_loop_run(events) == -EBUSY);
}

static void piece(ecalls_loop_t *events, uint64_t event, void *context) {
	struct seen *seen = context;

	note(seen, 'p');
	if (++seen->pieces < PIECES) {
		CHECK(ecalls_loop_resubmit(events, event, ECALLS_LOOP_BEST_EFFORT, 1) == 1);
		return;
	}
	CHECK(ecalls_loop_cancel(events, seen->other) == 1);
	CHECK(ecalls_loop_cancel(events, seen->other) == 0);
}

static void last(ecalls_loop_t *events, uint64_t event, void *context) {
	(void)event;
	note(context, 'l');
	CHECK(ecalls_loop_stop(events) == 0);
}

static void *elsewhere(void *events) {
	CHECK(ecalls_loop_stop(events) == -EINVAL);
	return NULL;
}

static struct ecalls_loop_event event_of(uint32_t type, ecalls_loop_callback_t callback,
					 struct seen *seen) {
	struct ecalls_loop_event event = {.size = sizeof event,
					  .type = type,
					  .callback = callback,
					  .context = seen};
	return event;
}

int main(void) {
	struct seen seen = {.count = 0};
	struct ecalls_loop_tardiness tardiness;
	ecalls_loop_t *events, *second;
	pthread_t thread;

	CHECK(ecalls_loop_open(NULL) == -EINVAL);
	CHECK(ecalls_loop_open(&events) == 0);
	CHECK(ecalls_loop_open(&second) == -EBUSY);
	struct ecalls_loop_event event = event_of(ECALLS_LOOP_BEST_EFFORT, last, &seen);
	event.user_virtual_time = 9;
	CHECK(ecalls_loop_submit(events, &event, NULL) == 0);
	event = event_of(ECALLS_LOOP_BEST_EFFORT, piece, &seen);
	CHECK(ecalls_loop_submit(events, &event, NULL) == 0);
	event = event_of(ECALLS_LOOP_TIMER, late_timer, &seen);
	CHECK(ecalls_loop_submit(events, &event, NULL) == 0);
	event.release_ns = UINT64_MAX;
	CHECK(ecalls_loop_submit(events, &event, &seen.other) == 0);
	event.type = 2;
	CHECK(ecalls_loop_submit(events, &event, NULL) == -EINVAL);
	event = event_of(ECALLS_LOOP_TIMER, NULL, &seen);
	CHECK(ecalls_loop_submit(events, &event, NULL) == -EINVAL);
	CHECK(pthread_create(&thread, NULL, elsewhere, events) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ecalls_loop_run(events) == 0);
	CHECK(strcmp(seen.order, "tpppl") == 0);
	CHECK(ecalls_loop_tardiness(events, &tardiness) == 0);
	CHECK(tardiness.timers == 1 && tardiness.max_ns > 0);
	ecalls_loop_close(events);
	CHECK(ecalls_loop_open(&second) == 0);
	ecalls_loop_close(second);
	return check_result();
}
