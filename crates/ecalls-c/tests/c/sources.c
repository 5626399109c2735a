/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sources of the event loop from C: a pipe, another thread, another loop around it; and the poll
 * alone. Needs no core. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define MS 1000000ull

static uint64_t now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct seen {
	int ends[2];
	char text[8];
	int count;
	int submitted;
	uint64_t source;
	ecalls_loop_remote_t *remote;
};

/* Takes one byte; the rest comes again. */
static void readable(ecalls_loop_t *events, uint64_t source, uint32_t ready, void *context) {
	struct seen *seen = context;

	CHECK(source == seen->source && ready & ECALLS_LOOP_READABLE);
	CHECK(read(seen->ends[0], &seen->text[seen->count++], 1) == 1);
	if (seen->count < 3)
		return;
	CHECK(ecalls_loop_unwatch(events, source) == 1);
	CHECK(ecalls_loop_unwatch(events, source) == 0);
}

static struct ecalls_loop_source source_of(struct seen *seen) {
	struct ecalls_loop_source source = {.size = sizeof source,
					    .type = ECALLS_LOOP_TIMER,
					    .callback = readable,
					    .context = seen,
					    .fd = seen->ends[0]};
	return source;
}

static void pipe_is_a_source(void) {
	struct seen seen = {.count = 0};
	ecalls_loop_t *events;

	CHECK(pipe(seen.ends) == 0 && ecalls_loop_open(&events) == 0);
	struct ecalls_loop_source source = source_of(&seen);
	CHECK(ecalls_loop_watch(events, &source, &seen.source) == 0);
	CHECK(ecalls_loop_watch(events, &source, NULL) == -EEXIST);
	CHECK(write(seen.ends[1], "abc", 3) == 3);
	CHECK(ecalls_loop_run(events) == 0);
	CHECK(strcmp(seen.text, "abc") == 0);
	source.interest = 4;
	REFUSED(ecalls_loop_watch(events, &source, NULL), -EINVAL, "interest is 4");
	source.interest = 0;
	source.fd = -1;
	CHECK(ecalls_loop_watch(events, &source, NULL) == -EBADF);
	source.type = 2;
	REFUSED(ecalls_loop_watch(events, &source, NULL), -EINVAL, "type is 2");
	source.type = ECALLS_LOOP_BEST_EFFORT;
	source.callback = NULL;
	REFUSED(ecalls_loop_watch(events, &source, NULL), -EINVAL, "callback is NULL");
	ecalls_loop_close(events);
	close(seen.ends[0]);
	close(seen.ends[1]);
}

static void submitted(ecalls_loop_t *events, uint64_t event, void *context) {
	struct seen *seen = context;

	(void)event;
	CHECK(ecalls_loop_timing(events) == 0);
	seen->submitted++;
}

static void *elsewhere(void *context) {
	struct seen *seen = context;
	struct ecalls_loop_event event = {.size = sizeof event,
					  .type = ECALLS_LOOP_BEST_EFFORT,
					  .callback = submitted,
					  .context = seen};

	for (int i = 0; i < 3; i++)
		CHECK(ecalls_loop_remote_submit(seen->remote, &event) == 0);
	ecalls_loop_remote_close(seen->remote);
	return NULL;
}

static void other_threads_submit(void) {
	struct seen seen = {.count = 0};
	struct ecalls_loop_event event = {.size = sizeof event, .callback = submitted};
	ecalls_loop_remote_t *left;
	ecalls_loop_t *events;
	pthread_t thread;

	CHECK(ecalls_loop_open(&events) == 0);
	CHECK(ecalls_loop_remote(events, &seen.remote) == 0);
	CHECK(pthread_create(&thread, NULL, elsewhere, &seen) == 0);
	/* It ends when nobody is left who could submit. */
	CHECK(ecalls_loop_run(events) == 0);
	CHECK(pthread_join(thread, NULL) == 0 && seen.submitted == 3);
	CHECK(ecalls_loop_remote(events, &left) == 0);
	CHECK(ecalls_loop_remote_stop(left) == 0);
	CHECK(ecalls_loop_run(events) == 0);
	ecalls_loop_close(events);
	CHECK(ecalls_loop_remote_submit(left, &event) == -ESHUTDOWN);
	ecalls_loop_remote_close(left);
}

static void another_loop_drives_it(void) {
	struct seen seen = {.count = 0};
	struct ecalls_loop_event event = {.size = sizeof event,
					  .type = ECALLS_LOOP_TIMER,
					  .callback = submitted,
					  .context = &seen};
	uint64_t next_ns = 0, release_ns = now_ns() + 20 * MS;
	ecalls_loop_t *events;
	int turns = 0, more;

	CHECK(ecalls_loop_open(&events) == 0);
	event.release_ns = release_ns;
	CHECK(ecalls_loop_submit(events, &event, NULL) == 0);
	struct pollfd fd = {.fd = ecalls_loop_fd(events), .events = POLLIN};
	while ((more = ecalls_loop_turn(events, &next_ns)) == 1) {
		CHECK(next_ns == release_ns || next_ns == 0);
		CHECK(poll(&fd, 1, next_ns ? 10000 : 0) >= 0);
		turns++;
	}
	CHECK(more == 0 && next_ns == UINT64_MAX && seen.submitted == 1 && turns < 100);
	CHECK(now_ns() >= release_ns);
	ecalls_loop_close(events);
}

static void *polls(void *poll) {
	REFUSED(ecalls_coop_poll(poll, 1, 1, NULL), -EINVAL, "another thread");
	return NULL;
}

static void poll_alone_sleeps_exactly(void) {
	uint64_t begin_ns = now_ns();
	struct ecalls_coop_answer answer;
	ecalls_coop_t *poll;
	pthread_t thread;

	CHECK(ecalls_coop_open(NULL, 0, 0, &poll) == 0);
	CHECK(ecalls_coop_poll(poll, begin_ns + 5 * MS, ECALLS_COOP_NONE, &answer) == 0);
	CHECK(now_ns() >= begin_ns + 5 * MS);
	CHECK(answer.slice_end_ns == ECALLS_COOP_NONE);
	CHECK(answer.next_release_ns == ECALLS_COOP_NONE);
	CHECK(ecalls_coop_poll(poll, ECALLS_COOP_NONE, 1, NULL) == 0);
	CHECK(ecalls_coop_poll(poll, ECALLS_COOP_NONE, ECALLS_COOP_NONE, NULL) == -EDEADLK);
	CHECK(ecalls_coop_before_sleep(poll, ECALLS_COOP_NONE, ECALLS_COOP_NONE) == 0);
	CHECK(ecalls_coop_after_sleep(poll, &answer) == 0);
	CHECK(pthread_create(&thread, NULL, polls, poll) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	ecalls_coop_close(poll);
	ecalls_coop_close(NULL);
}

int main(void) {
	pipe_is_a_source();
	other_threads_submit();
	another_loop_drives_it();
	poll_alone_sleeps_exactly();
	return check_result();
}
