/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that is hit amid blocks: its threads block in calls of the C library. The first
 * three checks end by themselves; "blocks" is killed.
 *
 *     fault memory|processes|exec|blocks
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS 24

static atomic_int rounds, stop;
static int ends[2];

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition,                 \
				strerror(errno));                                                  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* In the kernel: the library waits by itself in polls of one descriptor, and in sleeps. */
static int poll_two(int limit_ms)
{
	struct pollfd never[] = {{.fd = ends[0], .events = POLLIN}, {.fd = -1}};

	return poll(never, 2, limit_ms);
}

static void nap(long us)
{
	poll_two(us / 1000);
}

static void *block_again(void *argument)
{
	while (!stop) {
		if ((long)argument % 2)
			nap(2000);
		else
			poll_two(2);
		rounds++;
	}
	return NULL;
}

static void *block_for_ever(void *argument)
{
	return poll_two(-1) < 0 ? argument : NULL;
}

static void begin(pthread_t *threads, void *(*start)(void *))
{
	for (long i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, start, (void *)i) == 0);
}

static void end(pthread_t *threads)
{
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_join(threads[i], NULL) == 0);
}

static void await_rounds(int more)
{
	for (int until = rounds + more; rounds < until;)
		nap(1000);
}

static void limit(int resource, rlim_t soft)
{
	struct rlimit limit;

	REQUIRE(getrlimit(resource, &limit) == 0);
	limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
	REQUIRE(setrlimit(resource, &limit) == 0);
}

/* --- memory: what a refused thread costs --- */

static void *wait_for_end(void *argument)
{
	(void)argument;
	while (!stop) {
		usleep(1000);
		rounds++;
	}
	return NULL;
}

/* Threads until the process may have no more memory, which must be EAGAIN. */
static void memory(void)
{
	static pthread_t many[21000];
	int count = 0, error = 0;
	long pages = 0;
	FILE *size;

	REQUIRE(pthread_create(&many[count++], NULL, wait_for_end, NULL) == 0);
	/* Until it has what the C library gives a thread that runs. */
	await_rounds(2);
	size = fopen("/proc/self/statm", "r");
	REQUIRE(size && fscanf(size, "%ld", &pages) == 1);
	fclose(size);
	limit(RLIMIT_AS, pages * sysconf(_SC_PAGESIZE) + (8 << 20));
	while (count < 20000 && !error) {
		error = pthread_create(&many[count], NULL, wait_for_end, NULL);
		count += !error;
	}
	REQUIRE(error == EAGAIN);
	for (int i = 0; i < 100; i++) {
		error = pthread_create(&many[count], NULL, wait_for_end, NULL);
		REQUIRE(error == EAGAIN || error == 0);
		count += !error;
	}
	limit(RLIMIT_AS, RLIM_INFINITY);
	REQUIRE(pthread_create(&many[count++], NULL, wait_for_end, NULL) == 0);
	stop = 1;
	for (int i = 0; i < count; i++)
		REQUIRE(pthread_join(many[i], NULL) == 0);
	printf("went on with %d threads\n", count);
}

/* --- processes: no more kernel threads --- */

static void processes(void)
{
	pthread_t threads[THREADS];

	/* Limits do not count for root. */
	REQUIRE(geteuid() || setresuid(54321, 54321, 54321) == 0);
	begin(threads, block_again);
	limit(RLIMIT_NPROC, 1);
	await_rounds(10 * THREADS);
	limit(RLIMIT_NPROC, RLIM_INFINITY);
	await_rounds(10 * THREADS);
	stop = 1;
	end(threads);
	printf("went on\n");
}

/* --- exec, and what others do to the process --- */

static void *replace(void *argument)
{
	await_rounds(THREADS);
	execlp("echo", "echo", "replaced", (char *)NULL);
	return argument;
}

static void blocks(void)
{
	pthread_t threads[2][THREADS];

	begin(threads[0], block_for_ever);
	begin(threads[1], block_again);
	for (;;) {
		nap(5000);
		printf("rounds %d\n", rounds);
	}
}

static void exec(void)
{
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, replace, NULL) == 0);
	blocks();
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	setlinebuf(stdout);
	REQUIRE(pipe(ends) == 0);
	if (!strcmp(name, "memory"))
		memory();
	else if (!strcmp(name, "processes"))
		processes();
	else if (!strcmp(name, "exec"))
		exec();
	else if (!strcmp(name, "blocks"))
		blocks();
	else
		return 100;
	return 0;
}
