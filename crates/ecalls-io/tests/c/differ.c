/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Random sequences of opening, closing, duplicating, writing, reading and polling. After each step
 * what poll or select says is compared with what the system call says of the same descriptors. The
 * same seed gives the same sequence.
 *
 *	differ SEED STEPS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRIES_MAX 120
#define NUMBERS 200 /* descriptors are below this */

static unsigned long long state;
static struct pollfd fds[ENTRIES_MAX];
static int count;
static long steps, step;

static unsigned int below(unsigned int limit) {
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned int)(state >> 33) % limit;
}

static int some_fd(void) {
	return 3 + (int)below(NUMBERS - 3);
}

static short some_events(void) {
	static const short all[] = {POLLIN,	      POLLIN,	  POLLIN,  POLLOUT,
				    POLLIN | POLLOUT, 0,	  POLLPRI, POLLIN | POLLRDHUP,
				    POLLRDNORM,	      POLLWRNORM, 0x7fff};

	return below(8) ? POLLIN : all[below(sizeof(all) / sizeof(all[0]))];
}

/* Leaves out of the array most of what is always ready, for which a set is not used. */
static void thin_out(void) {
	struct pollfd now[ENTRIES_MAX];

	memcpy(now, fds, sizeof(fds));
	syscall(SYS_poll, now, ENTRIES_MAX, 0);
	for (int i = 0; i < ENTRIES_MAX; i++)
		if (now[i].revents && below(10))
			fds[i].fd = -1;
}

/* Keeps descriptors below NUMBERS. */
static void keep(int fd) {
	if (fd >= NUMBERS)
		syscall(SYS_close, fd);
}

static void open_some(void) {
	int two[2] = {-1, -1}, kind;

	switch (below(6)) {
	case 0:
	case 1:
		kind = below(2) ? SOCK_STREAM : SOCK_DGRAM;
		(void)!socketpair(AF_UNIX, kind | SOCK_NONBLOCK, 0, two);
		break;
	case 2:
		(void)!pipe2(two, O_NONBLOCK);
		break;
	case 3:
		two[0] = eventfd(below(2), EFD_NONBLOCK);
		break;
	case 4:
		two[0] = below(3) ? -1 : open("/dev/null", O_RDWR);
		break;
	case 5:
		two[0] = below(3) ? -1 : open("/", O_RDONLY);
		break;
	}
	keep(two[0]);
	keep(two[1]);
}

static void close_some(int fd) {
	FILE *file;

	switch (below(5)) {
	case 0:
	case 1:
		close(fd);
		break;
	case 2:
		syscall(SYS_close, fd);
		break;
	case 3:
		close_range(fd, fd + below(3), 0);
		break;
	case 4:
		file = fdopen(fd, "r");
		if (file)
			fclose(file);
		break;
	}
}

static void use_some(int fd) {
	char bytes[4096] = {0};

	switch (below(6)) {
	case 0:
		(void)!write(fd, bytes, 8);
		break;
	case 1:
		while (write(fd, bytes, sizeof(bytes)) > 0 && below(20))
			;
		break;
	case 2:
	case 3:
		(void)!read(fd, bytes, sizeof(bytes));
		break;
	case 4:
		shutdown(fd, below(3));
		break;
	case 5:
		while (read(fd, bytes, sizeof(bytes)) > 0 && below(20))
			;
		break;
	}
}

/* A child in which the descriptors live on for a while. */
static pid_t child;

static void fork_some(void) {
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	child = fork();
	if (child == 0) {
		alarm(20);
		for (;;)
			pause();
	}
}

static void change(void) {
	int place = (int)below(ENTRIES_MAX), fd = some_fd();

	switch (below(16)) {
	case 0:
	case 1:
		open_some();
		break;
	case 2:
		close_some(fd);
		break;
	case 3:
		dup2(fd, some_fd());
		break;
	case 4:
		keep(dup(fd));
		break;
	case 5:
	case 6:
	case 7:
	case 8:
		use_some(fd);
		break;
	case 9:
	case 10:
	case 11:
		fds[place].fd = below(8) ? fd : -1;
		break;
	case 12:
	case 13:
		fds[place].events = some_events();
		break;
	case 14:
		count = ENTRIES_MAX - (int)below(60);
		break;
	case 15:
		if (below(40) == 0)
			fork_some();
		break;
	}
}

static void fail(const char *what, long long ours, long long theirs) {
	printf("step %ld: %s: %llx, the kernel says %llx\n", step, what, ours, theirs);
	exit(1);
}

static void compare_poll(void) {
	struct pollfd theirs[ENTRIES_MAX];
	struct timespec time = {.tv_nsec = 1000000};

	memcpy(theirs, fds, sizeof(fds));
	int kernels = (int)syscall(SYS_poll, theirs, count, 0);
	int ours = below(4) ? poll(fds, count, 0) : ppoll(fds, count, &time, NULL);
	if (ours != kernels)
		fail("poll", ours, kernels);
	for (int i = 0; i < count; i++)
		if (fds[i].revents != theirs[i].revents) {
			printf("entry %d, descriptor %d, asked %x\n", i, fds[i].fd, fds[i].events);
			fail("revents", fds[i].revents, theirs[i].revents);
		}
}

static void compare_select(void) {
	fd_set ours[3], theirs[3];
	struct timespec zero = {0};
	struct timeval time = {0};

	memset(ours, 0, sizeof(ours));
	for (int i = 0; i < count; i++)
		if (fds[i].fd >= 0 && (fcntl(fds[i].fd, F_GETFD) >= 0 || below(500) == 0)) {
			if (fds[i].events & POLLIN)
				FD_SET(fds[i].fd, &ours[0]);
			if (fds[i].events & POLLOUT)
				FD_SET(fds[i].fd, &ours[1]);
			if (fds[i].events & POLLPRI)
				FD_SET(fds[i].fd, &ours[2]);
		}
	memcpy(theirs, ours, sizeof(ours));
	int kernels = (int)syscall(SYS_pselect6, NUMBERS, &theirs[0], &theirs[1], &theirs[2], &zero,
				   NULL);
	int result = select(NUMBERS, &ours[0], &ours[1], &ours[2], &time);
	if (result != kernels)
		fail("select", result, kernels);
	if (memcmp(ours, theirs, sizeof(ours)))
		fail("sets", 0, 0);
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	state = strtoull(argv[1], NULL, 0);
	steps = atol(argv[2]);
	signal(SIGPIPE, SIG_IGN);
	for (int fd = 3; fd < NUMBERS; fd++)
		syscall(SYS_close, fd);
	count = ENTRIES_MAX;
	for (int i = 0; i < 60; i++)
		open_some();
	for (int i = 0; i < ENTRIES_MAX; i++)
		fds[i] = (struct pollfd){.fd = some_fd(), .events = some_events()};
	for (step = 0; step < steps; step++) {
		for (unsigned int changes = below(3); changes > 0; changes--)
			change();
		if (below(10))
			compare_poll();
		else
			compare_select();
		if (below(30) == 0)
			thin_out();
	}
	if (child > 0)
		kill(child, SIGKILL);
	printf("%ld steps\n", steps);
	return 0;
}
