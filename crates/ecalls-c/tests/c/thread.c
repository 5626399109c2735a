/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * User-level threads from C: results, blocking calls, locks beside a kernel thread outside of the
 * runtime, time, descriptors, the order of the ranked policy, what is refused. Needs no core.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define THREADS 100
#define ROUNDS 200
#define PERIOD_US 2000

static uint64_t now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t in_us(uint64_t time_us) { return now_ns() + time_us * 1000; }

/* --- mutual exclusion, with a kernel thread outside --- */

static struct ecalls_mutex mutex;
static long sum;

/* Adds in a way that loses some of it if two threads are here at a time. */
static void *add(void *argument) {
	for (int round = 0; round < ROUNDS; round++) {
		CHECK(ecalls_mutex_lock(&mutex) == 0);
		long before = sum;
		if (round % 16 == 0)
			ecalls_thread_yield();
		sum = before + 1;
		CHECK(ecalls_mutex_unlock(&mutex) == 0);
	}
	return argument;
}

static void exclusion(ecalls_threads_t *runtime) {
	ecalls_thread_t *threads[THREADS];
	pthread_t outside;
	void *result;

	sum = 0;
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(ecalls_thread_create(runtime, add, (void *)i, NULL, &threads[i]) == 0);
	CHECK(pthread_create(&outside, NULL, add, NULL) == 0);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(ecalls_thread_join(threads[i], &result) == 0 && result == (void *)i);
	CHECK(pthread_join(outside, NULL) == 0);
	CHECK(sum == (THREADS + 1) * ROUNDS);
	CHECK(ecalls_mutex_lock_until(&mutex, 0) == 0);
	CHECK(ecalls_mutex_lock_until(&mutex, 0) == -ETIMEDOUT);
	CHECK(ecalls_mutex_lock_until(&mutex, in_us(PERIOD_US)) == -ETIMEDOUT);
	CHECK(ecalls_mutex_unlock(&mutex) == 0);
	REFUSED(ecalls_mutex_unlock(&mutex), -EPERM, "not locked");
}

/* --- a queue of one place between threads and a kernel thread --- */

static struct {
	struct ecalls_mutex mutex;
	struct ecalls_condition changed;
	struct ecalls_semaphore taken;
	int full, value;
} box;

static void *put(void *argument) {
	for (int value = 1; value <= ROUNDS; value++) {
		ecalls_mutex_lock(&box.mutex);
		while (box.full)
			CHECK(ecalls_condition_wait(&box.changed, &box.mutex) == 0);
		box.full = 1;
		box.value = value;
		ecalls_condition_notify_all(&box.changed);
		ecalls_mutex_unlock(&box.mutex);
	}
	return argument;
}

static void *take(void *argument) {
	intptr_t taken = 0;

	for (int count = 0; count < ROUNDS; count++) {
		ecalls_mutex_lock(&box.mutex);
		while (!box.full)
			CHECK(ecalls_condition_wait(&box.changed, &box.mutex) == 0);
		box.full = 0;
		taken += box.value;
		ecalls_condition_notify_all(&box.changed);
		ecalls_mutex_unlock(&box.mutex);
		CHECK(ecalls_semaphore_release(&box.taken) == 0);
	}
	(void)argument;
	return (void *)taken;
}

static void waiting(ecalls_threads_t *runtime) {
	ecalls_thread_t *takers[2];
	void *one, *other;
	pthread_t outside;

	CHECK(ecalls_thread_create(runtime, take, NULL, NULL, &takers[0]) == 0);
	CHECK(ecalls_thread_create(runtime, take, NULL, NULL, &takers[1]) == 0);
	CHECK(ecalls_thread_create(runtime, put, NULL, NULL, NULL) == 0);
	CHECK(pthread_create(&outside, NULL, put, NULL) == 0);
	for (int count = 0; count < 2 * ROUNDS; count++)
		CHECK(ecalls_semaphore_acquire(&box.taken) == 0);
	CHECK(ecalls_thread_join(takers[0], &one) == 0);
	CHECK(ecalls_thread_join(takers[1], &other) == 0);
	CHECK((intptr_t)one + (intptr_t)other == ROUNDS * (ROUNDS + 1));
	CHECK(pthread_join(outside, NULL) == 0);
	CHECK(ecalls_semaphore_acquire_until(&box.taken, 0) == -ETIMEDOUT);
	CHECK(ecalls_semaphore_acquire_until(&box.taken, in_us(PERIOD_US)) == -ETIMEDOUT);
	box.taken.permits = UINT32_MAX;
	CHECK(ecalls_semaphore_release(&box.taken) == -EOVERFLOW);
	ecalls_mutex_lock(&box.mutex);
	CHECK(ecalls_condition_wait_until(&box.changed, &box.mutex, in_us(PERIOD_US)) ==
	      -ETIMEDOUT);
	CHECK(ecalls_mutex_unlock(&box.mutex) == 0);
	CHECK(ecalls_condition_wait(&box.changed, &box.mutex) == -EPERM);
}

/* --- calls that block, on one processor --- */

struct pipe_read {
	int fd;
	char byte;
	ssize_t result;
};

static atomic_int others;

static void read_byte(void *argument) {
	struct pipe_read *call = argument;

	call->result = read(call->fd, &call->byte, 1);
}

/* The library's own system calls, on the way back to a processor, do not change errno. */
static void *block(void *argument) {
	struct pipe_read call = {.fd = *(int *)argument}, bad = {.fd = -1};

	CHECK(ecalls_thread_blocking(read_byte, &call) == 0);
	CHECK(call.result == 1 && call.byte == 'x');
	errno = 0;
	CHECK(ecalls_thread_blocking(read_byte, &bad) == 0 && bad.result == -1 && errno == EBADF);
	CHECK(ecalls_thread_scheduling_point() == 0 && errno == EBADF);
	return NULL;
}

static void *other(void *argument) {
	atomic_fetch_add(&others, 1);
	return argument;
}

static atomic_int timed_out;

static void *ready(void *argument) {
	int fd = *(int *)argument;
	char byte;

	CHECK(ecalls_thread_wait_ready(fd, ECALLS_THREAD_READABLE, in_us(PERIOD_US)) == -ETIMEDOUT);
	atomic_store(&timed_out, 1);
	CHECK(ecalls_thread_wait_ready(fd, ECALLS_THREAD_READABLE, ECALLS_NEVER) == 0);
	CHECK(read(fd, &byte, 1) == 1);
	return NULL;
}

static void blocks(void) {
	struct ecalls_threads_options options = {
	    .size = sizeof options, .processors = 1, .kernel = ECALLS_THREADS_KERNEL_NEVER};
	struct ecalls_threads_stats stats;
	ecalls_threads_t *runtime;
	ecalls_thread_t *blocked[2], *thread;
	int blocking[2], waited[2];

	CHECK(pipe(blocking) == 0 && pipe(waited) == 0);
	CHECK(ecalls_threads_start(&options, &runtime) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(ecalls_thread_create(runtime, block, &blocking[0], NULL, &blocked[i]) == 0);
	CHECK(ecalls_thread_create(runtime, ready, &waited[0], NULL, &thread) == 0);
	/* The only processor executes these although two threads block. */
	for (int i = 0; i < THREADS; i++)
		CHECK(ecalls_thread_create(runtime, other, NULL, NULL, NULL) == 0);
	while (atomic_load(&others) < THREADS || !atomic_load(&timed_out))
		usleep(1000);
	usleep(2 * PERIOD_US);
	CHECK(write(waited[1], "y", 1) == 1);
	CHECK(ecalls_thread_join(thread, NULL) == 0);
	CHECK(write(blocking[1], "xx", 2) == 2);
	CHECK(ecalls_thread_join(blocked[0], NULL) == 0);
	CHECK(ecalls_thread_join(blocked[1], NULL) == 0);
	CHECK(ecalls_threads_stats(runtime, &stats) == 0);
	CHECK(stats.processors == 1 && stats.is_told == 0);
	CHECK(stats.left >= 2 && stats.switches >= THREADS + 3 && stats.activations >= 3);
	CHECK(ecalls_threads_end(runtime) == 0);
}

/* --- the ranked policy, on one processor --- */

static char order[8];
static int ended;

static void *note(void *argument) {
	order[ended++] = *(char *)argument;
	return NULL;
}

static void *first(void *runtime) {
	static const struct {
		char *name;
		struct ecalls_thread_options options;
	} rank[] = {
	    {"l", {.size = sizeof(struct ecalls_thread_options), .priority = 1}},
	    {"h", {.size = sizeof(struct ecalls_thread_options), .priority = 9}},
	    {"D", {.size = sizeof(struct ecalls_thread_options), .deadline_ns = 2}},
	    {"d", {.size = sizeof(struct ecalls_thread_options), .deadline_ns = 1}},
	};
	uint64_t number = 0;

	for (int i = 0; i < 4; i++)
		CHECK(!ecalls_thread_create(runtime, note, rank[i].name, &rank[i].options, NULL));
	CHECK(ecalls_thread_self(&number) == 1 && number == 1);
	CHECK(ecalls_thread_set_name(NULL, "reader") == 0);
	CHECK(ecalls_threads_end(runtime) == -EDEADLK);
	CHECK(ecalls_thread_set_priority(NULL, 5) == 0);
	ecalls_thread_yield();
	CHECK(strcmp(order, "dDh") == 0);
	CHECK(ecalls_thread_set_deadline(NULL, 1) == 0);
	ecalls_thread_yield();
	CHECK(strcmp(order, "dDh") == 0);
	return NULL;
}

static void ranks(void) {
	struct ecalls_threads_options options = {
	    .size = sizeof options,
	    .processors = 1,
	    .kernel = ECALLS_THREADS_KERNEL_NEVER,
	    .policy = ECALLS_THREADS_RANKED};
	ecalls_threads_t *runtime;

	CHECK(ecalls_threads_start(&options, &runtime) == 0);
	CHECK(ecalls_thread_create(runtime, first, runtime, NULL, NULL) == 0);
	CHECK(ecalls_threads_end(runtime) == 0);
	CHECK(strcmp(order, "dDhl") == 0);
}

/* --- time, handles, and what is refused --- */

static atomic_int has_handle;

static void *join_itself(void *argument) {
	ecalls_thread_t **thread = argument;

	while (!atomic_load(&has_handle))
		ecalls_thread_sleep(PERIOD_US);
	REFUSED(ecalls_thread_join(*thread, NULL), -EDEADLK, "itself");
	return NULL;
}

static void *sleeps(void *argument) {
	uint64_t before = now_ns();

	CHECK(ecalls_thread_sleep(PERIOD_US) == 0);
	CHECK(now_ns() >= before + PERIOD_US * 1000);
	uint64_t until = in_us(PERIOD_US);
	CHECK(ecalls_thread_sleep_until(until) == 0);
	CHECK(now_ns() >= until);
	return argument;
}

static void handles(ecalls_threads_t *runtime) {
	ecalls_thread_t *thread;
	void *result = NULL;

	CHECK(ecalls_thread_create(runtime, join_itself, &thread, NULL, &thread) == 0);
	atomic_store(&has_handle, 1);
	CHECK(ecalls_thread_join(thread, NULL) == 0);
	CHECK(ecalls_thread_create(runtime, sleeps, &result, NULL, &thread) == 0);
	CHECK(ecalls_thread_set_priority(thread, 1) == 0);
	ecalls_thread_detach(thread);
	CHECK(ecalls_thread_create(runtime, sleeps, &result, NULL, &thread) == 0);
	CHECK(ecalls_threads_end(runtime) == 0);
	/* The handle outlives the runtime. */
	CHECK(ecalls_thread_join(thread, &result) == 0 && result == &result);
}

static void refusals(ecalls_threads_t *runtime) {
	struct ecalls_threads_options options = {.size = sizeof options};
	struct ecalls_thread_options small = {.size = 4};
	ecalls_threads_t *another;

	CHECK(ecalls_thread_self(NULL) == 0);
	CHECK(ecalls_threads_start(NULL, NULL) == -EINVAL);
	CHECK(ecalls_threads_end(NULL) == 0);
	CHECK(ecalls_threads_stats(runtime, NULL) == -EINVAL);
	CHECK(ecalls_threads_stats(NULL, NULL) == -EINVAL);
	options.processors = 65;
	REFUSED(ecalls_threads_start(&options, &another), -EINVAL, "1 to 64");
	options = (struct ecalls_threads_options){.size = sizeof options, .kernel = 3};
	REFUSED(ecalls_threads_start(&options, &another), -EINVAL, "kernel");
	options = (struct ecalls_threads_options){.size = sizeof options, .policy = 2};
	REFUSED(ecalls_threads_start(&options, &another), -EINVAL, "policy");
	options = (struct ecalls_threads_options){.size = sizeof options, .flags = 2};
	REFUSED(ecalls_threads_start(&options, &another), -EINVAL, "flags");
	CHECK(ecalls_thread_create(NULL, other, NULL, NULL, NULL) == -EINVAL);
	CHECK(ecalls_thread_create(runtime, NULL, NULL, NULL, NULL) == -EINVAL);
	CHECK(ecalls_thread_create(runtime, other, NULL, &small, NULL) == -EINVAL);
	CHECK(ecalls_thread_join(NULL, NULL) == -EINVAL);
	ecalls_thread_detach(NULL);
	CHECK(ecalls_thread_set_priority(NULL, 1) == -ESRCH);
	CHECK(ecalls_thread_set_deadline(NULL, 1) == -ESRCH);
	CHECK(ecalls_thread_set_name(NULL, "outside") == -ESRCH);
	CHECK(ecalls_thread_set_name(NULL, NULL) == -EINVAL);
	CHECK(ecalls_thread_blocking(NULL, NULL) == -EINVAL);
	CHECK(ecalls_thread_wait_ready(0, 3, 0) == -EINVAL);
	CHECK(ecalls_thread_wait_ready(-1, ECALLS_THREAD_READABLE, 0) == -EBADF);
	CHECK(ecalls_mutex_lock(NULL) == -EINVAL && ecalls_mutex_unlock(NULL) == -EINVAL);
	CHECK(ecalls_condition_wait(NULL, &mutex) == -EINVAL);
	CHECK(ecalls_condition_wait(&box.changed, NULL) == -EINVAL);
	CHECK(ecalls_condition_notify_one(NULL) == -EINVAL);
	CHECK(ecalls_semaphore_acquire(NULL) == -EINVAL);
	CHECK(ecalls_semaphore_release(NULL) == -EINVAL);
}

static void *acquires(void *argument) {
	CHECK(ecalls_semaphore_acquire(argument) == 0);
	return NULL;
}

static void limits(void) {
	struct ecalls_semaphore end = {0};
	struct ecalls_threads_options options = {
	    .size = sizeof options, .processors = 1,
	    .kernel = ECALLS_THREADS_KERNEL_NEVER, .threads_max = 1, .stack_bytes = 65536};
	ecalls_threads_t *runtime;

	CHECK(ecalls_threads_start(&options, &runtime) == 0);
	CHECK(ecalls_thread_create(runtime, acquires, &end, NULL, NULL) == 0);
	REFUSED(ecalls_thread_create(runtime, acquires, &end, NULL, NULL), -ENOSPC, "limit");
	CHECK(ecalls_semaphore_release(&end) == 0);
	CHECK(ecalls_threads_end(runtime) == 0);
}

int main(void) {
	struct ecalls_threads_options options = {
	    .size = sizeof options, .processors = 2, .kernel = ECALLS_THREADS_KERNEL_NEVER};
	ecalls_threads_t *runtime;

	CHECK(ecalls_threads_start(&options, &runtime) == 0);
	exclusion(runtime);
	waiting(runtime);
	refusals(runtime);
	handles(runtime);
	blocks();
	ranks();
	limits();
	return check_result();
}
