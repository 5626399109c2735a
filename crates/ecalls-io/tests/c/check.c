/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Checks of poll and select, each of which says what it saw. The output must be the same under
 * libecalls_io.so. Each check polls an array that is large enough for a set, often enough.
 *
 *	check NAME
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 48
#define SECOND_MS 1000

static int ends[COUNT][2];
static struct pollfd fds[2 * COUNT];
static int count;

static void must(int is_right, const char *what) {
	if (is_right)
		return;
	printf("failed: %s, %s\n", what, strerror(errno));
	exit(1);
}

static void add(int fd, short events) {
	fds[count++] = (struct pollfd){.fd = fd, .events = events};
}

/* What poll says: its result, and each entry that it says something of. */
static int tell(const char *what, int limit_ms) {
	errno = 0;
	int result = poll(fds, count, limit_ms);

	printf("%s: %d", what, result);
	if (result < 0)
		printf(" %s", strerrorname_np(errno));
	for (int i = 0; i < count; i++)
		if (fds[i].revents)
			printf(" %d=%x", i, fds[i].revents);
	printf("\n");
	return result;
}

/* Calls by which a set is earned. */
static void warm(void) {
	for (int i = 0; i < 12; i++)
		poll(fds, count, 0);
}

/* An idle array of sockets. */
static void begin(void) {
	for (int i = 0; i < COUNT; i++) {
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) == 0, "a pair");
		add(ends[i][0], POLLIN);
	}
	warm();
}

static void send_to(int i) {
	must(write(ends[i][1], "x", 1) == 1, "write");
}

static void read_from(int i) {
	char byte;

	must(read(ends[i][0], &byte, 1) == 1, "read");
}

static void say_on(int signal) {
	(void)signal;
	must(write(1, "handler\n", 8) == 8, "write");
}

static void on(int number, void (*handler)(int), int flags) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	must(sigaction(number, &action, NULL) == 0, "sigaction");
}

/* A child, to be waited for, that sends SIGALRM when this process sleeps, and so long later: in a
 * poll, for it waits for nothing else. */
static pid_t interrupt_after(int sleeps_us) {
	pid_t parent = getpid(), child = fork();

	if (child != 0)
		return child;
	char path[64], stat[512];
	snprintf(path, sizeof(path), "/proc/%d/stat", parent);
	for (char state = 0; state != 'S'; usleep(1000)) {
		FILE *file = fopen(path, "r");
		size_t bytes = fread(stat, 1, sizeof(stat) - 1, file);

		stat[bytes] = 0;
		state = strrchr(stat, ')')[2];
		fclose(file);
	}
	usleep(sleeps_us);
	kill(parent, SIGALRM);
	_exit(0);
}

static long long now_ms(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* --- arrays --- */

static void check_level(void) {
	send_to(3);
	for (int i = 0; i < 4; i++)
		tell("ready", 0);
	read_from(3);
	tell("read", 0);
	send_to(4);
	send_to(47);
	tell("two", -1);
}

static void check_duplicates(void) {
	add(ends[3][0], POLLOUT);
	add(ends[3][0], POLLIN | POLLOUT);
	add(ends[4][0], 0);
	add(-1, POLLIN);
	add(-ends[3][0], POLLIN);
	warm();
	tell("writable", 0);
	send_to(3);
	tell("both", 0);
	count -= 4;
	tell("fewer", 0);
	count--;
	tell("once", 0);
	read_from(3);
	tell("none", 0);
}

static void check_files(void) {
	char path[] = "/tmp/ecalls-io-XXXXXX";
	int file = mkstemp(path);

	unlink(path);
	add(file, 0);
	warm();
	tell("not asked", 0);
	fds[COUNT].events = POLLIN | POLLPRI | POLLRDHUP;
	tell("regular", -1);
	add(open("/dev/null", O_RDWR), POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
	add(open("/", O_RDONLY), POLLIN | POLLOUT);
	tell("null and folder", -1);
	close(file);
	must(dup2(ends[5][0], file) == file, "dup2");
	tell("socket in its place", 0);
	send_to(5);
	tell("socket has data", 0);
}

static void check_bits(void) {
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	short all = POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND |
		    POLLRDHUP | POLLNVAL | 0x4000 | 0x1000 | 0x0800;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(bind(listener, (struct sockaddr *)&address, length) == 0, "bind");
	add(listener, all);
	add(client, all);
	warm();
	tell("unconnected", 0);
	must(listen(listener, 5) == 0, "listen");
	tell("listening", 0);
	getsockname(listener, (struct sockaddr *)&address, &length);
	must(connect(client, (struct sockaddr *)&address, length) == 0, "connect");
	tell("connected", 0);
	int server = accept(listener, NULL, NULL);
	add(server, POLLPRI | POLLRDHUP);
	tell("accepted", 0);
	must(send(client, "!", 1, MSG_OOB) == 1, "out of band");
	tell("urgent", -1);
	shutdown(client, SHUT_WR);
	fds[count - 1].events = POLLRDHUP;
	tell("half closed", -1);
	fds[count - 1].events = POLLIN | POLLOUT;
	tell("half closed, readable", -1);
	shutdown(server, SHUT_WR);
	tell("closed", -1);
	int pipe_ends[2];
	must(pipe(pipe_ends) == 0, "pipe");
	add(pipe_ends[0], 0);
	add(pipe_ends[1], 0);
	tell("pipe", 0);
	close(pipe_ends[0]);
	tell("no reader", 0);
}

/* --- closing --- */

static void check_invalid(void) {
	close(ends[7][0]);
	tell("closed", -1);
	tell("closed still", 0);
	add(1 << 19, POLLIN);
	tell("never open", 0);
	must(dup(ends[8][0]) == ends[7][0], "the lowest number");
	tell("another one", 0);
	send_to(8);
	tell("has data", 0);
}

static int way;

/* Closes a number in one of several ways, after which it is free, and another file has it. */
static void exchange(int fd, int with) {
	FILE *file;
	int other = 0;

	switch (way) {
	case 0:
		close(fd);
		break;
	case 1:
		file = fdopen(fd, "r+");
		fclose(file);
		break;
	case 2:
		must(dup2(with, fd) == fd, "dup2");
		return;
	case 3:
		must(dup3(with, fd, O_CLOEXEC) == fd, "dup3");
		return;
	case 4:
		must(syscall(SYS_close, fd) == 0, "close by number");
		break;
	case 5:
		must(close_range(fd, fd, 0) == 0, "close_range");
		break;
	case 6:
		must(syscall(SYS_dup2, with, fd) == fd, "dup2 by number");
		return;
	case 7: /* as programs do that no library sees */
		__asm__ volatile("syscall"
				 : "=a"(other)
				 : "0"(SYS_close), "D"(fd)
				 : "rcx", "r11", "memory");
		break;
	}
	must(dup(with) == fd, "the lowest number");
}

static void check_reuse(void) {
	for (way = 0; way < 7; way++) {
		exchange(ends[way][0], ends[40][0]);
		printf("way %d\n", way);
		tell("exchanged", 0);
		send_to(40);
		tell("has data", -1);
		read_from(40);
		tell("read", 0);
	}
}

/* What is not seen is late, but not lost. */
static void check_unseen(void) {
	way = 7;
	fds[40].fd = -1;
	warm();
	exchange(ends[3][0], ends[40][0]);
	send_to(40);
	tell("has data", -1);
	read_from(40);
	tell("read", 0);
	send_to(40);
	tell("is seen", 0);
}

static void *close_and_open(void *unused) {
	(void)unused;
	way = 0;
	exchange(ends[3][0], ends[40][0]);
	return NULL;
}

static void check_threads(void) {
	pthread_t thread;

	for (int i = 0; i < 20; i++) {
		pthread_create(&thread, NULL, close_and_open, NULL);
		pthread_join(thread, NULL);
		tell("exchanged", 0);
		send_to(40);
		tell("has data", 0);
		read_from(40);
	}
}

static void check_lives_on(void) {
	int other = dup(ends[3][0]);

	/* number 3 was closed, its file lives on and has data */
	close(ends[3][0]);
	fds[3].fd = -1;
	warm();
	send_to(3);
	tell("a duplicate has data", 0);
	tell("still", 100);
	fds[3].fd = other;
	tell("asked", 0);
	/* the same in a child, which keeps number 4 open */
	int pipe_ends[2];
	char byte;
	must(pipe(pipe_ends) == 0, "pipe");
	pid_t child = fork();
	if (child == 0) {
		close(pipe_ends[1]);
		(void)!read(pipe_ends[0], &byte, 1);
		_exit(0);
	}
	fds[3].fd = -1;
	warm();
	way = 0;
	exchange(ends[4][0], ends[40][0]);
	send_to(4);
	tell("a child's has data", 0);
	tell("still", 100);
	/* closed by another thread */
	pthread_t thread;
	pthread_create(&thread, NULL, close_and_open, NULL);
	pthread_join(thread, NULL);
	fds[3].fd = ends[3][0];
	tell("exchanged by a thread", 0);
	send_to(40);
	tell("has data", 0);
	close(pipe_ends[1]);
	waitpid(child, NULL, 0);
}

static void check_passing(void) {
	char space[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {.iov_base = "x", .iov_len = 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = space,
				 .msg_controllen = sizeof(space)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &ends[3][0], sizeof(int));
	must(sendmsg(ends[10][0], &message, 0) == 1, "sendmsg");
	close(ends[3][0]);
	send_to(3);
	tell("on its way", 0);
	char byte;
	part.iov_base = &byte;
	message.msg_controllen = sizeof(space);
	must(recvmsg(ends[10][1], &message, 0) == 1, "recvmsg");
	tell("has arrived", 0);
	read_from(3);
	tell("read", 0);
}

static void check_close_all(void) {
	for (int round = 0; round < 3; round++) {
		if (round == 0)
			closefrom(ends[COUNT - 1][1] + 1);
		else if (round == 1)
			must(close_range(ends[COUNT - 1][1] + 1, ~0U, 0) == 0, "close_range");
		else
			for (int fd = ends[COUNT - 1][1] + 1; fd < 20000; fd++)
				close(fd);
		tell("closed", 0);
		send_to(3);
		tell("has data", -1);
		read_from(3);
	}
	close_range(3, ~0U, 0);
	tell("all closed", 0);
}

static void check_limit(void) {
	struct rlimit limit = {160, 160};

	must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	while (dup(0) >= 0)
		;
	printf("%s\n", strerrorname_np(errno));
	warm();
	send_to(3);
	tell("no number left", -1);
	struct pollfd many[200] = {0};
	for (int i = 0; i < 200; i++)
		many[i].fd = -1;
	for (int i = 0; i < 20; i++) {
		int result = poll(many, 200, 0);
		if (i == 0)
			printf("%d %s\n", result, strerrorname_np(errno));
	}
}

/* --- processes --- */

static void check_fork(void) {
	for (int i = 0; i < 2; i++) {
		fflush(stdout);
		pid_t child = i == 0 ? fork() : syscall(SYS_fork);
		if (child == 0) {
			tell("child", 0);
			warm();
			close(ends[3][0]);
			int other = dup(ends[9][0]);
			must(other == ends[3][0], "the lowest number");
			send_to(9);
			tell("child has data", -1);
			read_from(9);
			fds[4].events = POLLOUT;
			tell("child writes", 0);
			fflush(stdout);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		tell("parent", 0);
		send_to(3);
		tell("parent has data", -1);
		read_from(3);
	}
}

static void check_vfork(void) {
	volatile int fd = ends[3][0];
	pid_t child = vfork();

	if (child == 0) {
		close(fd);
		dup2(ends[40][0], ends[4][0]);
		closefrom(3);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	send_to(3);
	send_to(4);
	tell("parent has data", -1);
}

static void check_exec(void) {
	fflush(stdout);
	pid_t child = fork();

	if (child == 0) {
		for (int i = 0; i < COUNT; i++) {
			fcntl(ends[i][0], F_SETFD, FD_CLOEXEC);
			fcntl(ends[i][1], F_SETFD, FD_CLOEXEC);
		}
		warm();
		execlp("sh", "sh", "-c", "ls /proc/self/fd | wc -l", (char *)NULL);
	}
	waitpid(child, NULL, 0);
}

/* --- signals and cancellation --- */

static void check_interrupts(void) {
	on(SIGALRM, say_on, SA_RESTART);
	fflush(stdout);
	pid_t child = interrupt_after(1000);
	tell("interrupted", -1);
	waitpid(child, NULL, 0);
	fflush(stdout);
	child = interrupt_after(200000);
	tell("interrupted late", -1);
	waitpid(child, NULL, 0);
	/* a stop is no interruption */
	pid_t parent = getpid();
	child = fork();
	if (child == 0) {
		for (int i = 0; i < 3; i++) {
			usleep(10000);
			kill(parent, SIGSTOP);
			usleep(10000);
			kill(parent, SIGCONT);
		}
		usleep(100000);
		send_to(3);
		_exit(0);
	}
	tell("stopped", 20 * SECOND_MS);
	waitpid(child, NULL, 0);
}

static void check_mask(void) {
	sigset_t blocked, none;
	struct timespec zero = {0}, long_time = {.tv_sec = 10};

	on(SIGUSR1, say_on, 0);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	raise(SIGUSR1);
	errno = 0;
	printf("%d %s\n", ppoll(fds, count, &zero, &none), strerrorname_np(errno));
	raise(SIGUSR1);
	printf("%d %s\n", ppoll(fds, count, &long_time, &none), strerrorname_np(errno));
	raise(SIGUSR1);
	printf("%d %s\n", ppoll(fds, count, NULL, &none), strerrorname_np(errno));
	raise(SIGUSR1);
	send_to(3);
	errno = 0;
	printf("%d %s\n", ppoll(fds, count, NULL, &none), strerrorname_np(errno));
	printf("%d\n", ppoll(fds, count, NULL, &blocked));
	sigset_t now;
	sigprocmask(SIG_BLOCK, NULL, &now);
	printf("blocked %d, others %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2));
	zero.tv_nsec = -1;
	printf("%d %s\n", ppoll(fds, count, &zero, NULL), strerrorname_np(errno));
}

static struct pollfd others[COUNT];

static void poll_others(int signal) {
	(void)signal;
	for (int i = 0; i < 8; i++)
		poll(others, COUNT, 0);
	char line[] = "others: 0\n";
	line[8] += poll(others, COUNT, 0);
	must(write(1, line, 10) == 10, "write");
}

static void check_handler(void) {
	for (int i = 0; i < COUNT; i++)
		others[i] = (struct pollfd){.fd = ends[i][1], .events = POLLIN};
	must(write(ends[5][0], "x", 1) == 1, "write");
	on(SIGALRM, poll_others, 0);
	for (int i = 0; i < 3; i++) {
		fflush(stdout);
		pid_t child = interrupt_after(1000);
		tell("interrupted", 30 * SECOND_MS);
		waitpid(child, NULL, 0);
		tell("idle", 0);
		send_to(3);
		tell("has data", -1);
		read_from(3);
	}
}

static sigjmp_buf back;

static void jump(int signal) {
	(void)signal;
	siglongjmp(back, 1);
}

static void check_jump(void) {
	on(SIGALRM, jump, 0);
	struct itimerval soon = {.it_value.tv_usec = 20000};
	for (volatile int i = 0; i < 3; i++) {
		if (sigsetjmp(back, 1) == 0) {
			setitimer(ITIMER_REAL, &soon, NULL);
			poll(fds, count, -1);
		}
		send_to(3);
		tell("has data", -1);
		read_from(3);
	}
}

static void left(void *unused) {
	(void)unused;
	must(write(1, "cleanup\n", 8) == 8, "write");
}

static void *poll_for_ever(void *unused) {
	pthread_cleanup_push(left, unused);
	warm();
	poll(fds, count, -1);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *poll_when_cancelled(void *unused) {
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	warm();
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	return poll_for_ever(unused);
}

static void check_cancel(void) {
	void *result;
	pthread_t thread;

	pthread_create(&thread, NULL, poll_for_ever, NULL);
	usleep(20000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	printf("%d\n", result == PTHREAD_CANCELED);
	send_to(3);
	pthread_create(&thread, NULL, poll_when_cancelled, NULL);
	pthread_join(thread, &result);
	printf("%d\n", result == PTHREAD_CANCELED);
	tell("goes on", -1);
}

/* --- times, and select --- */

static void check_times(void) {
	int limits_ms[] = {1, 7, 30, 49, 50, 51, 70, 130};

	for (int i = 0; i < 8; i++) {
		long long begun_ms = now_ms();
		int result = poll(fds, count, limits_ms[i]);
		printf("%d %d\n", result, now_ms() - begun_ms >= limits_ms[i] - 1);
	}
	struct timeval limit = {.tv_sec = 5};
	fd_set set;
	FD_ZERO(&set);
	for (int i = 0; i < COUNT; i++)
		FD_SET(ends[i][0], &set);
	send_to(3);
	for (int i = 0; i < 12; i++) {
		fd_set now = set;
		int result = select(FD_SETSIZE, &now, NULL, NULL, &limit);
		if (i == 0 || i == 11)
			printf("%d, left %d\n", result,
			       limit.tv_sec < 5 && limit.tv_sec + limit.tv_usec > 0);
	}
	errno = 0;
	limit.tv_sec = -1;
	printf("%d ", select(FD_SETSIZE, &set, NULL, NULL, &limit));
	printf("%s\n", strerrorname_np(errno));
}

static void tell_sets(const char *what, fd_set *asked, struct timespec *limit, int is_pselect) {
	fd_set sets[3];
	struct timeval time = {.tv_sec = limit->tv_sec, .tv_usec = limit->tv_nsec / 1000};
	int result = 0;

	errno = 0;
	for (int i = 0; i < 10 && result == 0; i++) {
		memcpy(sets, asked, sizeof(sets));
		if (is_pselect)
			result = pselect(FD_SETSIZE, &sets[0], &sets[1], &sets[2], limit, NULL);
		else
			result = select(FD_SETSIZE, &sets[0], &sets[1], &sets[2], &time);
	}
	printf("%s: %d %s", what, result, result < 0 ? strerrorname_np(errno) : "");
	for (int set = 0; set < 3; set++)
		for (int fd = 0; fd < FD_SETSIZE; fd++)
			if (FD_ISSET(fd, &sets[set]) && result >= 0)
				printf(" %d.%d", set, fd);
	printf("\n");
}

static void check_select(void) {
	for (int is_pselect = 0; is_pselect < 2; is_pselect++) {
		struct timespec zero = {0}, some = {.tv_nsec = 60000000};
		fd_set asked[3];
		int pipe_ends[2];

		must(pipe(pipe_ends) == 0, "pipe");
		memset(asked, 0, sizeof(asked));
		for (int i = 0; i < COUNT; i++) {
			FD_SET(ends[i][0], &asked[0]);
			FD_SET(ends[i][0], &asked[2]);
		}
		tell_sets("idle", asked, &zero, is_pselect);
		tell_sets("idle for a time", asked, &some, is_pselect);
		send_to(3);
		FD_SET(ends[3][0], &asked[1]);
		tell_sets("both", asked, &some, is_pselect);
		FD_CLR(ends[3][0], &asked[0]);
		tell_sets("writes", asked, &some, is_pselect);
		FD_CLR(ends[3][0], &asked[1]);
		tell_sets("none", asked, &some, is_pselect);
		read_from(3);
		/* a reader that hangs up is neither readable nor exceptional to select */
		FD_SET(pipe_ends[0], &asked[2]);
		close(pipe_ends[1]);
		tell_sets("hung up", asked, &some, is_pselect);
		FD_SET(pipe_ends[0], &asked[0]);
		tell_sets("end of file", asked, &some, is_pselect);
		FD_CLR(pipe_ends[0], &asked[0]);
		close(pipe_ends[0]);
		tell_sets("closed", asked, &some, is_pselect);
	}
}

/* --- what the library must do, and the kernel does not --- */

static void check_set(void) {
	int sets = 0, lowest = 1 << 20;
	DIR *folder = opendir("/proc/self/fd");

	for (struct dirent *entry; (entry = readdir(folder));) {
		char path[64] = {0};
		(void)!readlinkat(dirfd(folder), entry->d_name, path, sizeof(path) - 1);
		if (strstr(path, "eventpoll")) {
			sets++;
			lowest = atoi(entry->d_name) < lowest ? atoi(entry->d_name) : lowest;
		}
	}
	printf("%d sets%s\n", sets, sets && lowest < 512 ? ", low" : "");
}

static const struct {
	const char *name;
	void (*check)(void);
} checks[] = {
	{"level", check_level},
	{"duplicates", check_duplicates},
	{"files", check_files},
	{"bits", check_bits},
	{"invalid", check_invalid},
	{"reuse", check_reuse},
	{"unseen", check_unseen},
	{"threads", check_threads},
	{"lives_on", check_lives_on},
	{"passing", check_passing},
	{"close_all", check_close_all},
	{"limit", check_limit},
	{"fork", check_fork},
	{"vfork", check_vfork},
	{"exec", check_exec},
	{"interrupts", check_interrupts},
	{"mask", check_mask},
	{"handler", check_handler},
	{"jump", check_jump},
	{"cancel", check_cancel},
	{"times", check_times},
	{"select", check_select},
	{"set", check_set},
};

int main(int argc, char **argv) {
	must(argc == 2, "a name");
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		if (strcmp(argv[1], checks[i].name) == 0) {
			begin();
			checks[i].check();
			return 0;
		}
	printf("no check %s\n", argv[1]);
	return 1;
}
