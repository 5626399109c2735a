/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Hints of sockets as events of libevent's loop, by an adapter of one function, which is all that
 * another loop needs as well: an echo server and its client, many times. Needs root, no core. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define ROUNDS 1000
#define AT_ONCE 8

/* The adapter: an event for the map's descriptor, and what hints are for. */
struct hints {
	ecalls_socket_ready_t *ready;
	struct event *event;
	void (*hinted)(struct hints *hints, int fd);
	int listener, client, rounds, wakes;
};

static void woken(evutil_socket_t fd, short what, void *context) {
	struct hints *hints = context;
	int fds[AT_ONCE], count;

	(void)fd, (void)what;
	hints->wakes++;
	CHECK(ecalls_socket_ready_end_wait(hints->ready) == 0);
	count = ecalls_socket_ready_take(hints->ready, AT_ONCE, fds);
	for (int i = 0; i < count; i++)
		hints->hinted(hints, fds[i]);
	/* With hints already there, it is the loop's turn, and then ours again. */
	if (ecalls_socket_ready_prepare_wait(hints->ready) == 0)
		event_active(hints->event, EV_READ, 0);
}

/* Until it would block, as a hint comes once. */
static void echo(struct hints *hints, int fd) {
	char byte;

	if (fd == hints->listener) {
		int server = accept4(fd, 0, 0, SOCK_NONBLOCK);

		if (server >= 0)
			CHECK(ecalls_socket_interest_add(hints->ready, server) == 0);
		return;
	}
	while (read(fd, &byte, 1) == 1) {
		if (fd != hints->client)
			CHECK(write(fd, &byte, 1) == 1);
		else if (++hints->rounds < ROUNDS)
			CHECK(write(fd, &byte, 1) == 1);
		else
			event_base_loopbreak(event_get_base(hints->event));
	}
}

static void over(evutil_socket_t fd, short what, void *context) {
	(void)fd, (void)what;
	event_base_loopbreak(context);
}

int main(void) {
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct timeval patience = {.tv_sec = 60};
	struct hints hints = {.hinted = echo};
	struct event_base *base = event_base_new();
	socklen_t size = sizeof(address);
	struct event *end;

	CHECK(ecalls_socket_ready_open(&hints.ready) == 0);
	hints.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(hints.listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(listen(hints.listener, 5) == 0);
	CHECK(getsockname(hints.listener, (struct sockaddr *)&address, &size) == 0);
	hints.client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(hints.client, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(write(hints.client, "x", 1) == 1);
	CHECK(fcntl(hints.client, F_SETFL, O_NONBLOCK) == 0);
	CHECK(ecalls_socket_interest_add(hints.ready, hints.listener) == 0);
	CHECK(ecalls_socket_interest_add(hints.ready, hints.client) == 0);

	hints.event = event_new(base, ecalls_socket_ready_fd(hints.ready), EV_READ | EV_PERSIST,
				woken, &hints);
	CHECK(event_add(hints.event, NULL) == 0);
	/* The first hints are there. */
	event_active(hints.event, EV_READ, 0);
	end = evtimer_new(base, over, base);
	CHECK(event_add(end, &patience) == 0);
	CHECK(event_base_dispatch(base) == 0);
	CHECK(hints.rounds == ROUNDS);
	/* It is woken for what comes, and does not spin. */
	CHECK(hints.wakes > 0 && hints.wakes <= 4 * ROUNDS);
	event_free(end);
	event_free(hints.event);
	event_base_free(base);
	ecalls_socket_ready_close(hints.ready);
	return check_result();
}
