/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a thread may expect of poll(2), the same with the C library's threads. Prints the number of
 * kernel threads while NUMBER threads poll a descriptor each; the exit status is the number of
 * failed checks.
 *
 *     polls NUMBER
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static double now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* Polls for `events`, and returns what is ready; -1: nothing in time. */
static int poll_one(int fd, short events, int limit_ms)
{
	struct pollfd poll_it = {.fd = fd, .events = events, .revents = 77};
	int ready = poll(&poll_it, 1, limit_ms);

	CHECK(ready == (poll_it.revents != 0));
	return ready ? poll_it.revents : -1;
}

/* Echoes what comes until the end, by reads that do not wait. */
static void *echo(void *argument)
{
	int fd = (int)(long)argument;
	char bytes[64];
	ssize_t got;

	for (;;) {
		CHECK(poll_one(fd, POLLIN | POLLPRI, -1) & POLLIN);
		got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (got <= 0)
			break;
		CHECK(poll_one(fd, POLLOUT, 1000) == POLLOUT);
		CHECK(write(fd, bytes, got) == got);
	}
	CHECK(got == 0);
	return NULL;
}

static void echoes(int number)
{
	int(*pairs)[2] = calloc(number, sizeof(*pairs));
	pthread_t *threads = calloc(number, sizeof(*threads));
	char text[8] = "";

	for (long i = 0; i < number; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0);
		threads[i] = create(echo, (void *)(long)pairs[i][1]);
	}
	usleep(50000);
	printf("%d\n", kernel_threads());
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < number; i++) {
			CHECK(write(pairs[i][0], "hello", 5) == 5);
			CHECK(read(pairs[i][0], text, sizeof(text)) == 5);
		}
	for (int i = 0; i < number; i++) {
		close(pairs[i][0]);
		join(threads[i]);
		close(pairs[i][1]);
	}
	free(pairs);
	free(threads);
}

static int pair[2];

static void *write_later(void *argument)
{
	usleep(20000);
	CHECK(write(pair[0], "x", 1) == 1);
	return argument;
}

static void *close_later(void *argument)
{
	usleep(20000);
	close(pair[0]);
	return argument;
}

static void in_time(void)
{
	double start = now_ms();
	struct timespec limit = {.tv_nsec = 20000000}, wrong = {.tv_nsec = -1};
	struct pollfd poll_it = {.fd = pair[1], .events = POLLIN};

	CHECK(poll_one(pair[1], POLLIN, 20) == -1);
	CHECK(poll_one(-1, POLLIN, 20) == -1);
	CHECK(poll(NULL, 0, 20) == 0);
	CHECK(ppoll(&poll_it, 1, &limit, NULL) == 0);
	CHECK(now_ms() - start >= 80);
	CHECK(ppoll(&poll_it, 1, &wrong, NULL) == -1 && errno == EINVAL);
	CHECK(poll_one(pair[1], POLLIN, 0) == -1);
}

/* A byte out of band is urgent, and no input. */
static void urgent(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), here = socket(AF_INET, SOCK_STREAM, 0),
	    there;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (void *)&address, sizeof(address)) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (void *)&address, &length) == 0);
	CHECK(connect(here, (void *)&address, sizeof(address)) == 0);
	there = accept(listener, NULL, NULL);
	CHECK(send(there, "!", 1, MSG_OOB) == 1);
	CHECK(poll_one(here, POLLPRI, 10000) == POLLPRI);
	CHECK(poll_one(here, POLLIN, 20) == -1);
	close(listener);
	close(here);
	close(there);
}

static void *all(void *argument)
{
	pthread_t other;
	char byte;
	int file = open("/proc/self/exe", O_RDONLY);

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	in_time();
	urgent();
	CHECK(poll_one(pair[1], POLLOUT, -1) == POLLOUT);
	CHECK(poll_one(pair[1], POLLIN | POLLOUT, -1) == POLLOUT);
	CHECK(poll_one(file, POLLIN, -1) == POLLIN);
	close(file);
	CHECK(poll_one(file, POLLIN, -1) == POLLNVAL);
	other = create(write_later, NULL);
	CHECK(poll_one(pair[1], POLLIN, -1) == POLLIN);
	join(other);
	/* It stays ready until it is read. */
	CHECK(poll_one(pair[1], POLLIN, -1) == POLLIN);
	CHECK(read(pair[1], &byte, 1) == 1);
	other = create(close_later, NULL);
	CHECK(poll_one(pair[1], POLLIN, 10000) & POLLHUP);
	join(other);
	close(pair[1]);
	return argument;
}

int main(int argc, char **argv)
{
	int number = argc > 1 ? atoi(argv[1]) : 50;

	join(create(all, NULL));
	echoes(number);
	return failures > 99 ? 99 : failures;
}
