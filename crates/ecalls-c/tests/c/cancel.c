/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that end before their start routine returns: by ecalls_thread_exit() and by
 * cancellation, wherever they wait; handlers, keys and what is done once meanwhile; and that
 * nothing is lost when a wake-up, a cancellation and an end come together. Needs no core.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define PERIOD_US 2000
#define ROUNDS 400
#define THREADS 50
#define VALUE ((void *)7)

static ecalls_threads_t *runtime;

static uint64_t now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static ecalls_thread_t *start(ecalls_thread_start_t body, void *argument) {
	ecalls_thread_t *thread;

	CHECK(ecalls_thread_create(runtime, body, argument, NULL, &thread) == 0);
	return thread;
}

static void *result_of(ecalls_thread_t *thread) {
	void *result = NULL;

	CHECK(ecalls_thread_join(thread, &result) == 0);
	return result;
}

/* --- handlers, and an end amid calls --- */

static char said[16];

static void say(void *what) {
	size_t length = strlen(said);

	CHECK(length + 1 < sizeof said);
	said[length] = (char)(intptr_t)what;
	said[length + 1] = 0;
}

static void deep(int calls) {
	struct ecalls_thread_cleanup cleanup;

	CHECK(ecalls_thread_cleanup_push(&cleanup, say, (void *)(intptr_t)('a' + calls)) == 0);
	if (calls > 0)
		deep(calls - 1);
	else
		ecalls_thread_exit(VALUE);
	ecalls_thread_cleanup_pop(0);
}

static void *leave_from_the_depth(void *argument) {
	struct ecalls_thread_cleanup cleanup;

	CHECK(ecalls_thread_cleanup_push(&cleanup, say, (void *)'x') == 0);
	CHECK(ecalls_thread_cleanup_pop(1) == 0);
	CHECK(ecalls_thread_cleanup_push(&cleanup, say, (void *)'y') == 0);
	CHECK(ecalls_thread_cleanup_pop(0) == 0);
	CHECK(ecalls_thread_cleanup_pop(0) == -EINVAL);
	deep(3);
	return argument;
}

static void ends(void) {
	said[0] = 0;
	CHECK(result_of(start(leave_from_the_depth, NULL)) == VALUE);
	CHECK(strcmp(said, "xabcd") == 0);
	CHECK(ecalls_thread_exit(NULL) == -ESRCH);
	CHECK(ecalls_thread_test_cancel() == 0);
}

/* --- each wait ends --- */

static struct ecalls_mutex mutex;
static struct ecalls_condition condition;
static struct ecalls_semaphore semaphore;
static int pipe_end;
static atomic_int waiting, handled;

static void unlock(void *argument) {
	CHECK(ecalls_mutex_unlock(argument) == 0);
	handled++;
}

static void *wait_for_time(void *argument) {
	waiting++;
	ecalls_thread_sleep(1000000000);
	return argument;
}

static void *wait_for_byte(void *argument) {
	waiting++;
	ecalls_thread_wait_ready(pipe_end, ECALLS_THREAD_READABLE, ECALLS_NEVER);
	return argument;
}

static void *wait_for_byte_until(void *argument) {
	waiting++;
	ecalls_thread_wait_ready(pipe_end, ECALLS_THREAD_READABLE, now_ns() + 1000000000000);
	return argument;
}

static void *wait_for_permit(void *argument) {
	waiting++;
	ecalls_semaphore_acquire(&semaphore);
	return argument;
}

static void *wait_for_permit_until(void *argument) {
	waiting++;
	ecalls_semaphore_acquire_until(&semaphore, now_ns() + 1000000000000);
	return argument;
}

static void *wait_for_thread(void *argument) {
	waiting++;
	ecalls_thread_join(argument, NULL);
	return argument;
}

static void *wait_at_a_point(void *argument) {
	waiting++;
	for (;;) {
		ecalls_thread_yield();
		ecalls_thread_test_cancel();
	}
	return argument;
}

/* The handler gets the mutex. */
static void *wait_for_condition(void *argument) {
	struct ecalls_thread_cleanup cleanup;

	ecalls_mutex_lock(&mutex);
	ecalls_thread_cleanup_push(&cleanup, unlock, &mutex);
	waiting++;
	for (;;)
		ecalls_condition_wait(&condition, &mutex);
	ecalls_thread_cleanup_pop(1);
	return argument;
}

/* Cancelled while it waits, and (too early) before it runs at all. */
static void is_cancelled(ecalls_thread_start_t body, void *argument) {
	for (int early = 0; early < 2; early++) {
		waiting = 0;
		ecalls_thread_t *thread = start(body, argument);
		while (!early && !waiting)
			ecalls_thread_sleep(PERIOD_US / 10);
		if (!early)
			ecalls_thread_sleep(PERIOD_US);
		CHECK(ecalls_thread_cancel(thread) == 0);
		CHECK(ecalls_thread_cancel(thread) == 0);
		CHECK(result_of(thread) == ECALLS_THREAD_CANCELLED);
	}
}

static void waits(void) {
	int ends[2];

	CHECK(pipe(ends) == 0);
	pipe_end = ends[0];
	is_cancelled(wait_for_time, NULL);
	is_cancelled(wait_for_byte, NULL);
	is_cancelled(wait_for_byte_until, NULL);
	is_cancelled(wait_for_permit, NULL);
	is_cancelled(wait_for_permit_until, NULL);
	is_cancelled(wait_at_a_point, NULL);
	handled = 0;
	is_cancelled(wait_for_condition, NULL);
	CHECK(handled == 2);
	CHECK(ecalls_mutex_lock_until(&mutex, 0) == 0);
	CHECK(ecalls_mutex_unlock(&mutex) == 0);
	/* a thread that nobody has joined can be */
	ecalls_thread_t *joined = start(wait_for_permit, VALUE);
	is_cancelled(wait_for_thread, joined);
	CHECK(ecalls_semaphore_release(&semaphore) == 0);
	CHECK(result_of(joined) == VALUE);
	close(ends[0]);
	close(ends[1]);
}

/* --- what does not end --- */

static void *defer(void *argument) {
	uint64_t begun_ns = now_ns();
	int before = -1;

	CHECK(ecalls_thread_set_cancel_state(ECALLS_THREAD_CANCEL_DISABLE, &before) == 0);
	CHECK(before == ECALLS_THREAD_CANCEL_ENABLE);
	waiting++;
	while (waiting < 2)
		CHECK(ecalls_thread_sleep(PERIOD_US) == 0);
	CHECK(ecalls_thread_sleep(PERIOD_US) == 0 && now_ns() - begun_ns > PERIOD_US * 1000);
	uint64_t until_ns = now_ns() + PERIOD_US * 1000;
	CHECK(ecalls_semaphore_acquire_until(&semaphore, until_ns) == -ETIMEDOUT);
	CHECK(ecalls_thread_test_cancel() == 0);
	CHECK(ecalls_thread_set_cancel_state(ECALLS_THREAD_CANCEL_ENABLE, &before) == 0);
	CHECK(before == ECALLS_THREAD_CANCEL_DISABLE);
	CHECK(ecalls_thread_set_cancel_state(2, NULL) == -EINVAL);
	handled++;
	ecalls_thread_test_cancel();
	handled++;
	return argument;
}

static void in_a_call(void *argument) {
	CHECK(ecalls_thread_exit(NULL) == -EPERM);
	waiting++;
	while (waiting < 2)
		usleep(PERIOD_US / 4);
	CHECK(ecalls_thread_test_cancel() == 0);
	*(int *)argument = 1;
}

static void *call(void *argument) {
	int done = 0;

	CHECK(ecalls_thread_blocking(in_a_call, &done) == 0 && done == 1);
	handled++;
	ecalls_thread_blocking(in_a_call, &done);
	handled++;
	return argument;
}

static void *finish(void *argument) {
	handled++;
	return argument;
}

static void deferred(void) {
	ecalls_thread_start_t bodies[] = {defer, call};

	for (int body = 0; body < 2; body++) {
		handled = 0;
		waiting = 0;
		ecalls_thread_t *thread = start(bodies[body], NULL);
		while (!waiting)
			ecalls_thread_sleep(PERIOD_US / 10);
		CHECK(ecalls_thread_cancel(thread) == 0);
		waiting++;
		CHECK(result_of(thread) == ECALLS_THREAD_CANCELLED && handled == 1);
	}
	/* one that has ended stays as it is */
	handled = 0;
	ecalls_thread_t *thread = start(finish, VALUE);
	while (!handled)
		ecalls_thread_sleep(PERIOD_US / 10);
	ecalls_thread_sleep(PERIOD_US);
	CHECK(ecalls_thread_cancel(thread) == 0);
	CHECK(result_of(thread) == VALUE);
	REFUSED(ecalls_thread_cancel(NULL), -EINVAL, "thread");
}

/* --- keys --- */

static ecalls_thread_key_t key, other;
static atomic_int destroyed;

static void destroy(void *value) {
	CHECK(ecalls_thread_get_specific(key) == NULL);
	destroyed += (int)(intptr_t)value;
	/* once more */
	if ((intptr_t)value == 1)
		CHECK(ecalls_thread_set_specific(key, (void *)100) == 0);
}

static void *own(void *argument) {
	CHECK(ecalls_thread_get_specific(key) == NULL);
	CHECK(ecalls_thread_set_specific(key, argument) == 0);
	CHECK(ecalls_thread_set_specific(other, &destroyed) == 0);
	for (int turn = 0; turn < 10; turn++) {
		ecalls_thread_yield();
		CHECK(ecalls_thread_get_specific(key) == argument);
	}
	return argument;
}

static void *own_and_leave(void *argument) {
	own(argument);
	ecalls_thread_exit(argument);
	return NULL;
}

static void keys(void) {
	ecalls_thread_t *threads[THREADS];
	ecalls_thread_key_t rest[ECALLS_THREAD_KEYS_MAX];
	pthread_t outside;
	uint32_t made = 0;

	CHECK(ecalls_thread_key_create(&key, destroy) == 0);
	CHECK(ecalls_thread_key_create(&other, NULL) == 0 && other != key);
	for (intptr_t i = 0; i < THREADS; i++)
		threads[i] = start(i % 2 ? own : own_and_leave, (void *)2);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(result_of(threads[i]) == (void *)2);
	CHECK(destroyed == 2 * THREADS);
	CHECK(result_of(start(own, (void *)1)) == (void *)1 && destroyed == 2 * THREADS + 101);
	/* kernel threads have values, too */
	CHECK(pthread_create(&outside, NULL, own, (void *)3) == 0);
	CHECK(pthread_join(outside, NULL) == 0 && destroyed == 2 * THREADS + 104);
	while (ecalls_thread_key_create(&rest[made], NULL) == 0)
		made++;
	CHECK(made == ECALLS_THREAD_KEYS_MAX - 2);
	while (made > 0)
		CHECK(ecalls_thread_key_delete(rest[--made]) == 0);
	CHECK(ecalls_thread_set_specific(key, VALUE) == 0);
	CHECK(ecalls_thread_key_delete(key) == 0);
	CHECK(ecalls_thread_get_specific(key) == NULL);
	REFUSED(ecalls_thread_key_delete(key), -EINVAL, "no key");
	REFUSED(ecalls_thread_set_specific(ECALLS_THREAD_KEYS_MAX, VALUE), -EINVAL, "no key");
	/* the same number again is another key */
	CHECK(ecalls_thread_key_create(&key, destroy) == 0);
	CHECK(ecalls_thread_get_specific(key) == NULL);
}

/* --- once --- */

static struct ecalls_once once;
static atomic_int began, done;

static void first(void) {
	began++;
	waiting++;
	if (began == 1)
		ecalls_thread_sleep(1000000000);
	ecalls_thread_sleep(PERIOD_US);
	done++;
}

static void *do_once(void *argument) {
	CHECK(ecalls_thread_once(&once, first) == 0 && done == 1);
	return argument;
}

static void onces(void) {
	ecalls_thread_t *threads[THREADS];
	pthread_t outside;

	waiting = 0;
	ecalls_thread_t *victim = start(do_once, NULL);
	while (!waiting)
		ecalls_thread_sleep(PERIOD_US / 10);
	for (int i = 0; i < THREADS; i++)
		threads[i] = start(do_once, VALUE);
	CHECK(pthread_create(&outside, NULL, do_once, NULL) == 0);
	CHECK(ecalls_thread_cancel(victim) == 0);
	CHECK(result_of(victim) == ECALLS_THREAD_CANCELLED);
	for (int i = 0; i < THREADS; i++)
		CHECK(result_of(threads[i]) == VALUE);
	CHECK(pthread_join(outside, NULL) == 0);
	CHECK(began == 2 && done == 1);
	REFUSED(ecalls_thread_once(&once, NULL), -EINVAL, "call");
}

/* --- a wake-up, a cancellation and an end at about the same time --- */

static void *take_and_give(void *argument) {
	CHECK(ecalls_semaphore_acquire(&semaphore) == 0);
	ecalls_thread_set_cancel_state(ECALLS_THREAD_CANCEL_DISABLE, NULL);
	CHECK(ecalls_semaphore_release(&semaphore) == 0);
	return argument;
}

/* Permits are as many as before, and each thread has one of two ends. */
static void races(void) {
	ecalls_thread_t *threads[4];
	uint64_t seed = now_ns(), cancelled = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 4; i++)
			threads[i] = start(take_and_give, VALUE);
		for (int step = 0; step < 5; step++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			if (step == (int)(seed >> 60) % 5)
				CHECK(ecalls_semaphore_release(&semaphore) == 0);
			if (step < 3)
				CHECK(ecalls_thread_cancel(threads[step]) == 0);
			for (uint64_t turn = seed >> 52 & 255; turn > 0; turn--)
				atomic_signal_fence(memory_order_seq_cst);
		}
		ecalls_semaphore_release(&semaphore);
		for (int i = 0; i < 4; i++) {
			void *result = result_of(threads[i]);
			CHECK(result == VALUE || (i < 3 && result == ECALLS_THREAD_CANCELLED));
			cancelled += result != VALUE;
		}
		for (int permits = semaphore.permits; permits > 0; permits--)
			CHECK(ecalls_semaphore_acquire(&semaphore) == 0);
	}
	printf("%llu cancelled\n", (unsigned long long)cancelled);
}

int main(void) {
	struct ecalls_threads_options options = {
	    .size = sizeof options, .processors = 2, .kernel = ECALLS_THREADS_KERNEL_NEVER};

	CHECK(ecalls_threads_start(&options, &runtime) == 0);
	ends();
	waits();
	deferred();
	keys();
	onces();
	races();
	CHECK(ecalls_threads_end(runtime) == 0);
	return check_result();
}
