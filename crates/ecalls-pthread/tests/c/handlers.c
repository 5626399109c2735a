/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the handler of a signal may count on: its thread stays in its kernel thread until it
 * returns, whatever it waits for, and other threads run while it does; a call that it interrupts
 * goes on, and a jump out of it ends all that. The C library's threads pass, too, except
 * `undisturbed`, which counts on one processor.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* So long a busy machine may take until a thread runs that is ready. */
#define PATIENCE_MS 20000

static atomic_int handled, stop, ready;
static atomic_long progress;
static int ends[2];

/* Counts, and gives up its processor now and then. */
static void *count(void *argument)
{
	while (!stop) {
		progress++;
		if (progress % 1000 == 0)
			sched_yield();
	}
	return argument;
}

static long ms_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

static void compute(long ms)
{
	struct timespec start;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (ms_since(&start) < ms)
		;
}

static void handle(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, seen;

	CHECK(sigaction(signal, &action, NULL) == 0);
	CHECK(sigaction(signal, NULL, &seen) == 0);
	CHECK(seen.sa_handler == handler && (seen.sa_flags & ~0x4000000) == flags);
}

static void *be_signalled(void *argument)
{
	while (!stop) {
		/* Often in malloc, whose lock another thread must not wait for. */
		free(malloc(100000));
		for (volatile int i = 0; i < 2000; i++)
			;
		if (argument)
			usleep(100);
	}
	return argument;
}

/* --- waits: a handler that waits stays where it is, and others run --- */

static void wait_in_handler(int signal)
{
	pid_t tid = gettid();
	struct pollfd polls[2] = {{.fd = ends[0], .events = POLLIN},
				  {.fd = ends[0], .events = POLLPRI}};
	int error = errno;
	char byte;

	(void)signal;
	usleep(2000);
	CHECK(gettid() == tid);
	poll(polls, 1 + handled % 2, 2);
	CHECK(gettid() == tid);
	select(0, NULL, NULL, NULL, &(struct timeval){0, 1000});
	CHECK(gettid() == tid);
	sched_yield();
	CHECK(gettid() == tid);
	CHECK(read(ends[0], &byte, 1) == 1);
	CHECK(gettid() == tid);
	errno = error;
	handled++;
}

static void waits(void)
{
	pthread_t threads[4], others[4];

	CHECK(pipe(ends) == 0);
	handle(SIGUSR1, wait_in_handler, SA_RESTART);
	for (long i = 0; i < 4; i++) {
		threads[i] = create(be_signalled, (void *)(i % 2));
		others[i] = create(count, NULL);
	}
	for (int i = 0; i < number; i++) {
		int before = handled;
		long counted = progress;

		CHECK(pthread_kill(threads[i % 4], SIGUSR1) == 0);
		/* Sooner or later it is in its read. */
		for (int ms = 0; progress == counted && ms < PATIENCE_MS; ms++)
			usleep(1000);
		CHECK(handled == before && progress > counted);
		CHECK(write(ends[1], "x", 1) == 1);
		while (handled == before)
			usleep(100);
	}
	stop = 1;
	for (int i = 0; i < 4; i++) {
		join(threads[i]);
		join(others[i]);
	}
}

/* --- interrupted: a call that a handler has interrupted blocks no other thread afterwards --- */

static int full[2];

static void wait_a_little(int signal)
{
	(void)signal;
	usleep(1000);
	CHECK(write(ends[1], "x", 1) == 1);
	handled++;
}

static void *write_much(void *argument)
{
	char *text = calloc(1, 200000);

	ready++;
	for (long done = 0; done < 200000;) {
		ssize_t wrote = write(full[1], text, 200000 - done);

		/* Where a part was written, a signal ends the call. */
		CHECK(wrote > 0 || errno == EINTR);
		done += wrote > 0 ? wrote : 0;
	}
	free(text);
	return argument;
}

static void *read_much(void *argument)
{
	char text[4096];
	long done = 0;

	for (ssize_t got; done < 4 * 200000; done += got) {
		got = read(full[0], text, sizeof(text));
		CHECK(got > 0);
	}
	return argument;
}

static void interrupted(void)
{
	CHECK(pipe(ends) == 0);
	handle(SIGUSR1, wait_a_little, SA_RESTART);
	for (int i = 0; i < number; i++) {
		pthread_t writers[4], reader;
		char text[64];

		CHECK(pipe(full) == 0);
		ready = handled = 0;
		for (int j = 0; j < 4; j++)
			writers[j] = create(write_much, NULL);
		while (ready < 4)
			usleep(100);
		usleep(2000);
		for (int twice = 1; twice <= 2; twice++) {
			for (int j = 0; j < 4; j++)
				CHECK(pthread_kill(writers[j], SIGUSR1) == 0);
			while (handled < 4 * twice)
				usleep(100);
		}
		reader = create(read_much, NULL);
		for (int j = 0; j < 4; j++)
			join(writers[j]);
		join(reader);
		CHECK(read(ends[0], text, sizeof(text)) == 8);
		close(full[0]);
		close(full[1]);
	}
}

/* --- undisturbed: a handler that computes has no time slices, whatever it blocks --- */

static void *spin(void *argument)
{
	while (!stop)
		;
	return argument;
}

static void compute_in_handler(int signal)
{
	long before = progress;

	(void)signal;
	compute(30);
	CHECK(progress == before);
	handled++;
}

static void undisturbed(void)
{
	static const int flags[] = {0, SA_NODEFER, SA_RESTART | SA_NODEFER};
	pthread_t thread = create(spin, NULL), others[2];

	for (int i = 0; i < 2; i++)
		others[i] = create(count, NULL);
	for (int i = 0; i < number; i++) {
		int before = handled;

		handle(SIGUSR1, compute_in_handler, flags[i % 3]);
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		while (handled == before)
			usleep(100);
	}
	stop = 1;
	join(thread);
	join(others[0]);
	join(others[1]);
}

/* --- jumps: a handler may be left by a jump, and has ended then --- */

static __thread sigjmp_buf target;

static void jump(int signal)
{
	jmp_buf own;

	(void)signal;
	if (setjmp(own) == 0)
		longjmp(own, 1);
	/* Still in the handler: it is not put aside. */
	pid_t tid = gettid();
	usleep(100);
	CHECK(gettid() == tid);
	handled++;
	siglongjmp(target, 1);
}

/* A thread that must have time slices for the others to run. */
static void *be_thrown(void *argument)
{
	volatile int round = 0;
	sigset_t mask;
	char byte;

	if (sigsetjmp(target, 1))
		round++;
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
	if (round < 8) {
		ready++;
		if (round % 2)
			for (;;)
				;
		CHECK(read(ends[0], &byte, 1) < 0);
		CHECK(!"it was thrown out of the call");
	}
	for (long before = progress; progress == before;)
		;
	return argument;
}

static void jumps(void)
{
	pthread_t others[4];

	CHECK(pipe(ends) == 0);
	handle(SIGUSR1, jump, 0);
	for (int i = 0; i < 4; i++)
		others[i] = create(count, NULL);
	for (int i = 0; i < number; i++) {
		ready = handled = 0;
		pthread_t thread = create(be_thrown, NULL);

		for (int round = 0; round < 8; round++) {
			while (ready == round)
				usleep(100);
			usleep(round * 300);
			CHECK(pthread_kill(thread, SIGUSR1) == 0);
			while (handled == round)
				usleep(100);
		}
		join(thread);
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		join(others[i]);
}

/* --- switches: a signal of the process finds a thread, and not a switch between two --- */

static __thread volatile int mine;

/* Has main block the signals that the threads have; returns its mask before. */
static sigset_t block_in_main(void)
{
	sigset_t set, before;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
	return before;
}

/* What is thread-local is the thread's, whose own code does not run meanwhile. */
static void use_storage(int signal)
{
	mine = signal;
	compute(1);
	CHECK(mine == signal);
	mine = 0;
	handled++;
}

static void leave(int signal)
{
	if (signal == SIGUSR2)
		siglongjmp(target, 1);
	pthread_exit(NULL);
}

static void *yield_until_it_leaves(void *argument)
{
	if (sigsetjmp(target, 1))
		return argument;
	ready++;
	for (;;)
		sched_yield();
}

/* Now and then it waits, so that its processor takes threads of the other one's. */
static void *yield(void *argument)
{
	for (long i = 1; !stop; i++) {
		sched_yield();
		CHECK(mine == 0);
		if (i % 64 == 0)
			usleep(100);
	}
	return argument;
}

static void *compute_for_ever(void *argument)
{
	ready++;
	while (!stop)
		CHECK(mine == 0);
	return argument;
}

static sem_t never;

static void *wait_for_ever(void *argument)
{
	ready++;
	while (!stop)
		sem_wait(&never);
	return argument;
}

static void left_amid_switches(void)
{
	handle(SIGUSR1, leave, 0);
	handle(SIGUSR2, leave, 0);
	for (int i = 0; i < number; i++) {
		ready = 0;
		pthread_t thread = create(yield_until_it_leaves, NULL);
		sigset_t before = block_in_main();

		while (!ready)
			usleep(100);
		CHECK(kill(getpid(), i % 2 ? SIGUSR2 : SIGUSR1) == 0);
		join(thread);
		CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	}
}

static void signal_threads(void *(*body)(void *))
{
	pthread_t threads[4];

	handle(SIGUSR1, use_storage, 0);
	for (int i = 0; i < 4; i++)
		threads[i] = create(body, NULL);
	block_in_main();
	for (int i = 0; i < 20 * number; i++) {
		int before = handled;

		CHECK(kill(getpid(), SIGUSR1) == 0);
		while (handled == before)
			usleep(100);
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		sem_post(&never);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
}

static void amid_switches(void)
{
	signal_threads(yield);
}

static void amid_work(void)
{
	signal_threads(compute_for_ever);
}

static void amid_waits(void)
{
	CHECK(sem_init(&never, 0, 0) == 0);
	signal_threads(wait_for_ever);
}

/* --- cancelled: so many threads, one after the other, in waits that are the kernel's --- */

static pthread_mutex_t shared_lock;
static pthread_cond_t shared_condition;

/* It goes on in another kernel thread than that in which it was cancelled. */
static void clean_up(void *argument)
{
	(void)argument;
	CHECK(pthread_mutex_unlock(&shared_lock) == 0);
	usleep(500);
}

static void *wait_for_a_process(void *argument)
{
	pthread_mutex_lock(&shared_lock);
	ready++;
	pthread_cleanup_push(clean_up, NULL);
	for (;;)
		pthread_cond_wait(&shared_condition, &shared_lock);
	pthread_cleanup_pop(0);
	return argument;
}

static void cancelled(void)
{
	pthread_mutexattr_t lock;
	pthread_condattr_t condition;

	CHECK(pthread_mutexattr_init(&lock) == 0 && pthread_condattr_init(&condition) == 0);
	CHECK(pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_mutex_init(&shared_lock, &lock) == 0);
	CHECK(pthread_cond_init(&shared_condition, &condition) == 0);
	for (int i = 0; i < number; i++) {
		pthread_t thread;

		ready = 0;
		thread = create(wait_for_a_process, NULL);
		while (!ready)
			usleep(100);
		usleep(i % 4 * 300);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(join(thread) == PTHREAD_CANCELED);
	}
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"waits", waits}, {"interrupted", interrupted}, {"undisturbed", undisturbed},
		{"jumps", jumps}, {"left_amid_switches", left_amid_switches},
		{"amid_switches", amid_switches}, {"amid_work", amid_work},
		{"amid_waits", amid_waits}, {"cancelled", cancelled},
		{NULL, NULL},
	};

	return run_check(checks, argc, argv, 20);
}
