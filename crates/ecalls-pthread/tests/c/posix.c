/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program may expect of POSIX threads: each check says what was wrong, and the exit status
 * is their number. It is the same with the C library's threads.
 *
 *     posix CHECK [NUMBER]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += ms * 1000000;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

/* --- locks: many threads, of which each waits for all others --- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static pthread_key_t key;
static sem_t semaphore;
static int count, spun, written, initialized, present, number;
static atomic_int destroyed, serial;
static __thread int mine;

static void initialize(void)
{
	usleep(2000);
	initialized++;
}

static void destroy(void *value)
{
	CHECK(value == &destroyed);
	destroyed++;
}

static void *use_locks(void *argument)
{
	int *own = &mine;

	mine = (int)(long)argument;
	pthread_setspecific(key, &destroyed);
	pthread_once(&once, initialize);
	CHECK(initialized == 1);
	for (int round = 0; round < 100; round++) {
		pthread_mutex_lock(&mutex);
		int seen = count;
		if (round % 10 == 0)
			sched_yield();
		count = seen + 1;
		pthread_mutex_unlock(&mutex);
		pthread_spin_lock(&spin);
		spun++;
		pthread_spin_unlock(&spin);
		errno = mine;
		pthread_rwlock_rdlock(&rwlock);
		sched_yield();
		pthread_rwlock_unlock(&rwlock);
		CHECK(errno == mine && *own == (int)(long)argument);
	}
	pthread_rwlock_wrlock(&rwlock);
	int before = written;
	sched_yield();
	written = before + 1;
	pthread_rwlock_unlock(&rwlock);
	pthread_mutex_lock(&mutex);
	present++;
	pthread_cond_broadcast(&condition);
	while (present < number)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
		serial++;
	sem_post(&semaphore);
	if (mine % 3 == 0)
		pthread_exit(argument);
	return argument;
}

static void locks(void)
{
	pthread_t *threads = calloc(number, sizeof(*threads));

	sem_init(&semaphore, 0, 0);
	pthread_key_create(&key, destroy);
	pthread_barrier_init(&barrier, NULL, number);
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	for (long i = 0; i < number; i++)
		threads[i] = create(use_locks, (void *)i);
	for (int i = 0; i < number; i++)
		CHECK(sem_wait(&semaphore) == 0);
	for (long i = 0; i < number; i++)
		CHECK(join(threads[i]) == (void *)i);
	CHECK(count == number * 100 && spun == count && written == number);
	CHECK(destroyed == number && serial == 1);
	CHECK(pthread_barrier_destroy(&barrier) == 0);
	free(threads);
}

/* --- many: threads that wait are no kernel threads --- */

static void *wait_for_all(void *argument)
{
	pthread_mutex_lock(&mutex);
	present++;
	while (present <= number)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	return argument;
}

static void many(void)
{
	pthread_t *threads = calloc(number, sizeof(*threads));

	for (int i = 0; i < number; i++)
		threads[i] = create(wait_for_all, NULL);
	for (int all = 0; !all; usleep(1000)) {
		pthread_mutex_lock(&mutex);
		all = present == number;
		pthread_mutex_unlock(&mutex);
	}
	printf("%d\n", kernel_threads());
	pthread_mutex_lock(&mutex);
	present++;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < number; i++)
		join(threads[i]);
	free(threads);
}

/* --- kinds: what attributes ask for, and what functions answer --- */

static void *end(void *argument)
{
	return argument;
}

static void *take(void *argument)
{
	CHECK(sem_wait(argument) == 0);
	return NULL;
}

static void unlock(void *argument)
{
	CHECK(pthread_mutex_unlock(argument) == 0);
}

static void *lock_checked(void *argument)
{
	CHECK(pthread_mutex_lock(argument) == 0);
	CHECK(pthread_mutex_lock(argument) == EDEADLK);
	CHECK(pthread_mutex_unlock(argument) == 0);
	return NULL;
}

static void *lock_twice(void *argument)
{
	CHECK(pthread_mutex_lock(argument) == 0);
	CHECK(pthread_mutex_lock(argument) == 0);
	usleep(1000);
	CHECK(pthread_mutex_unlock(argument) == 0);
	CHECK(pthread_mutex_unlock(argument) == 0);
	return NULL;
}

static int lock_in_c11(void *argument)
{
	lock_twice(argument);
	return 7;
}

/* A thread creates kernel threads: with a stack that only they have, and of C11. */
static void *create_others(void *argument)
{
	pthread_attr_t large;
	pthread_t thread;
	thrd_t other;
	int result = 0;

	pthread_attr_init(&large);
	pthread_attr_setstacksize(&large, 256 << 20);
	CHECK(pthread_create(&thread, &large, lock_twice, argument) == 0);
	CHECK(thrd_create(&other, lock_in_c11, argument) == thrd_success);
	lock_twice(argument);
	CHECK(join(thread) == NULL);
	CHECK(thrd_join(other, &result) == thrd_success && result == 7);
	return NULL;
}

static void *ask_about_itself(void *argument)
{
	char name[16] = "";
	pthread_attr_t attr;
	void *low;
	size_t bytes;

	CHECK(pthread_setname_np(pthread_self(), "somebody") == 0);
	CHECK(pthread_getname_np(pthread_self(), name, sizeof(name)) == 0);
	CHECK(strcmp(name, "somebody") == 0);
	CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
	CHECK(pthread_attr_getstack(&attr, &low, &bytes) == 0);
	CHECK((char *)&attr > (char *)low && (char *)&attr < (char *)low + bytes);
	CHECK(pthread_join(pthread_self(), NULL) == EDEADLK);
	CHECK(pthread_kill(pthread_self(), 0) == 0);
	return argument;
}

static void *wait_in_vain(void *argument)
{
	pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
	struct timespec until = in_ms(CLOCK_REALTIME, 20);
	sem_t none;

	CHECK(pthread_mutex_timedlock(argument, &until) == ETIMEDOUT);
	until = in_ms(CLOCK_MONOTONIC, 20);
	CHECK(pthread_mutex_clocklock(argument, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
	pthread_mutex_lock(&other);
	until = in_ms(CLOCK_REALTIME, 20);
	CHECK(pthread_cond_timedwait(&condition, &other, &until) == ETIMEDOUT);
	until = in_ms(CLOCK_MONOTONIC, 20);
	CHECK(pthread_cond_clockwait(&condition, &other, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
	pthread_mutex_unlock(&other);
	sem_init(&none, 0, 0);
	until = in_ms(CLOCK_REALTIME, 20);
	CHECK(sem_timedwait(&none, &until) == -1 && errno == ETIMEDOUT);
	until.tv_nsec = 1000000000;
	CHECK(sem_timedwait(&none, &until) == -1 && errno == EINVAL);
	return NULL;
}

static void kinds(void)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t checked, recursive, shared;
	pthread_attr_t detached, large;
	pthread_t thread, others[4];
	struct timespec until;
	void *stack;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&checked, &attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared, &attr);
	for (int i = 0; i < 4; i++)
		others[i] = create(lock_checked, &checked);
	for (int i = 0; i < 4; i++)
		join(others[i]);
	for (int i = 0; i < 4; i++)
		others[i] = create(lock_twice, &recursive);
	for (int i = 0; i < 4; i++)
		join(others[i]);
	join(create(create_others, &recursive));
	pthread_mutex_lock(&mutex);
	pthread_mutex_lock(&shared);
	join(create(wait_in_vain, &mutex));
	join(create(wait_in_vain, &shared));
	pthread_mutex_unlock(&shared);
	pthread_mutex_unlock(&mutex);
	join(create(ask_about_itself, NULL));

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	CHECK(pthread_create(&thread, &detached, end, NULL) == 0);
	thread = create(end, NULL);
	CHECK(pthread_detach(thread) == 0);

	/* A stack of the program's own, and a larger one than others have. */
	pthread_attr_init(&large);
	stack = aligned_alloc(4096, 1 << 20);
	pthread_attr_setstack(&large, stack, 1 << 20);
	CHECK(pthread_create(&thread, &large, end, &count) == 0);
	CHECK(join(thread) == &count);
	pthread_attr_init(&large);
	pthread_attr_setstacksize(&large, 256 << 20);
	CHECK(pthread_create(&thread, &large, end, &count) == 0);
	CHECK(join(thread) == &count);
	free(stack);

	/* On user-level threads it is refused, not waited for. */
	CHECK(setuid(getuid()) == 0 || errno == ENOTSUP);

	sem_init(&semaphore, 0, 0);
	thread = create(take, &semaphore);
	CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
	until = in_ms(CLOCK_REALTIME, 20);
	CHECK(pthread_timedjoin_np(thread, NULL, &until) == ETIMEDOUT);
	sem_post(&semaphore);
	join(thread);
}

/* --- cancel: wherever a thread waits --- */

static atomic_int cleaned, begun;
static int ends[2];

static void clean(void *argument)
{
	(*(atomic_int *)argument)++;
}

static void *wait_somewhere(void *argument)
{
	char byte;
	sem_t none;

	sem_init(&none, 0, 0);
	pthread_cleanup_push(clean, &cleaned);
	begun++;
	switch ((int)(long)argument) {
	case 0:
		pause();
		break;
	case 1:
		sleep(1000);
		break;
	case 2:
		pthread_mutex_lock(&mutex);
		pthread_cleanup_push(unlock, &mutex);
		pthread_cond_wait(&condition, &mutex);
		pthread_cleanup_pop(1);
		break;
	case 3:
		sem_wait(&none);
		break;
	case 4:
		CHECK(read(ends[0], &byte, 1) == 1);
		break;
	case 5:
		join(create(wait_somewhere, (void *)1));
		break;
	default:
		for (;;)
			pthread_testcancel();
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(void)
{
	CHECK(pipe(ends) == 0);
	for (int i = 0; i < number; i++) {
		int before = cleaned;
		pthread_t thread = create(wait_somewhere, (void *)(long)(i % 7));

		usleep(i / 7 % 5 * 500);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(join(thread) == PTHREAD_CANCELED);
		CHECK(cleaned == before + 1 || !begun);
		begun = 0;
	}
}

/* --- slices: a thread that computes does not stop others --- */

static atomic_int flag;

static void *spin_for_flag(void *argument)
{
	while (!flag)
		;
	return argument;
}

static void *set_flag(void *argument)
{
	usleep(1000);
	flag = 1;
	return argument;
}

static void slices(void)
{
	void *(*volatile function)(size_t) = malloc;
	pthread_t threads[5];

	/* In a program at a fixed address this one is a stub's. */
	CHECK(function != NULL);
	for (int i = 0; i < 5; i++)
		threads[i] = create(i == 4 ? set_flag : spin_for_flag, NULL);
	for (int i = 0; i < 5; i++)
		join(threads[i]);
}

/* --- signals: a handler may post a semaphore --- */

static void post(int signal)
{
	(void)signal;
	sem_post(&semaphore);
}

static void *take_posts(void *argument)
{
	for (int i = 0; i < number; i++)
		CHECK(sem_wait(&semaphore) == 0 || errno == EINTR);
	return argument;
}

static void note(int signal)
{
	(void)signal;
}

static void *interrupt(void *argument)
{
	while (!flag) {
		usleep(5000);
		kill(getpid(), SIGUSR2);
	}
	return argument;
}

/* The kernel gives a process's signal to its first thread, which is in there. */
static void interrupted(void)
{
	struct sigaction action = {.sa_handler = note};
	pthread_t thread;
	struct timespec until = in_ms(CLOCK_MONOTONIC, 60000);
	sem_t none;

	sem_init(&none, 0, 0);
	sigaction(SIGUSR2, &action, NULL);
	thread = create(interrupt, NULL);
	CHECK(sem_wait(&none) == -1 && errno == EINTR);
	CHECK(sem_clockwait(&none, CLOCK_MONOTONIC, &until) == -1 && errno == EINTR);
	flag = 1;
	join(thread);
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = post, .sa_flags = SA_RESTART};
	pthread_t thread;

	interrupted();
	sem_init(&semaphore, 0, 0);
	sigaction(SIGUSR1, &action, NULL);
	thread = create(take_posts, NULL);
	for (int i = 0; i < number; i++) {
		kill(getpid(), SIGUSR1);
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
		if (i % 2)
			pthread_kill(thread, SIGUSR1);
	}
	while (pthread_tryjoin_np(thread, NULL) == EBUSY)
		kill(getpid(), SIGUSR1);
}

/* --- fork: in the child only its thread exists, and may create others --- */

static void *fork_here(void *argument)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		pthread_mutex_lock(&mutex);
		count++;
		pthread_mutex_unlock(&mutex);
		CHECK(join(create(end, &count)) == &count);
		_exit(failures || count != 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	if (argument == NULL)
		return NULL;
	/* The last thread of a process ends it. */
	child = fork();
	if (child != 0)
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	return argument;
}

static void forks(void)
{
	pthread_t waiting = create(take, &semaphore);

	fork_here(NULL);
	join(create(fork_here, &count));
	sem_post(&semaphore);
	join(waiting);
}

/* --- connections: each thread blocks in reads of its own --- */

static void *echo(void *argument)
{
	int fd = (int)(long)argument;
	char bytes[64];
	ssize_t got;

	while ((got = read(fd, bytes, sizeof(bytes))) > 0)
		CHECK(write(fd, bytes, got) == got);
	CHECK(got == 0);
	return NULL;
}

static void *read_in_vain(void *argument)
{
	char byte;

	CHECK(read((int)(long)argument, &byte, 1) == -1 && errno == EAGAIN);
	CHECK(recv((int)(long)argument, &byte, 1, 0) == -1 && errno == EAGAIN);
	CHECK(recv((int)(long)argument, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	return NULL;
}

static void connections(void)
{
	int(*pairs)[2] = calloc(number, sizeof(*pairs));
	pthread_t *threads = calloc(number, sizeof(*threads));
	char text[8] = "";

	for (long i = 0; i < number; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0);
		threads[i] = create(echo, (void *)(long)pairs[i][1]);
	}
	/* One has a time limit. */
	struct timeval limit = {.tv_usec = 20000};
	CHECK(setsockopt(pairs[0][0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	join(create(read_in_vain, (void *)(long)pairs[0][0]));
	limit.tv_usec = 0;
	CHECK(setsockopt(pairs[0][0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	usleep(50000);
	printf("%d\n", kernel_threads());
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < number; i++) {
			CHECK(write(pairs[i][0], "hello", 5) == 5);
			CHECK(read(pairs[i][0], text, sizeof(text)) == 5);
			CHECK(memcmp(text, "hello", 5) == 0);
		}
	for (int i = 0; i < number; i++) {
		close(pairs[i][0]);
		join(threads[i]);
		close(pairs[i][1]);
	}
	free(pairs);
	free(threads);
}

/* --- descriptors: a program closes what it does not know --- */

static void descriptors(void)
{
	pthread_t thread;

	CHECK(pipe(ends) == 0);
	thread = create(wait_somewhere, (void *)4L);
	usleep(20000);
	closefrom(ends[1] + 1);
	for (int fd = ends[1] + 1; fd < 100; fd++)
		close(fd);
	CHECK(write(ends[1], "", 1) == 1);
	CHECK(join(thread) == NULL);
	/* Nothing is written into what the program opens instead. */
	int file = fileno(tmpfile());
	thread = create(wait_somewhere, (void *)4L);
	usleep(20000);
	CHECK(write(ends[1], "", 1) == 1);
	join(thread);
	CHECK(lseek(file, 0, SEEK_END) == 0);
}

/* --- last: the process ends with its last thread --- */

static void *say_later(void *argument)
{
	usleep(20000);
	puts("said");
	return argument;
}

static void last(void)
{
	create(say_later, NULL);
	pthread_exit(NULL);
}

/* --- gone: of a thread that was joined, or has ended detached, nobody knows --- */

static void ask_in_vain(pthread_t thread)
{
	struct sched_param param;
	int policy;

	CHECK(pthread_kill(thread, 0) == ESRCH);
	CHECK(pthread_cancel(thread) == ESRCH);
	CHECK(pthread_detach(thread) == ESRCH);
	CHECK(pthread_join(thread, NULL) == ESRCH);
	CHECK(pthread_setname_np(thread, "nobody") == ESRCH);
	CHECK(pthread_getschedparam(thread, &policy, &param) == ESRCH);
}

static void gone(void)
{
	pthread_t *threads = calloc(number, sizeof(*threads));

	for (int i = 0; i < number; i++) {
		threads[i] = create(end, NULL);
		if (i % 2)
			CHECK(pthread_detach(threads[i]) == 0);
	}
	for (int i = 0; i < number; i += 2)
		join(threads[i]);
	for (int i = 1; i < number; i += 2)
		while (pthread_kill(threads[i], 0) != ESRCH)
			sched_yield();
	usleep(20000);
	for (int i = 0; i < number; i++)
		ask_in_vain(threads[i]);
	free(threads);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"locks", locks},
		{"many", many},
		{"kinds", kinds},
		{"cancel", cancel},
		{"slices", slices},
		{"signals", signals},
		{"forks", forks},
		{"gone", gone},
		{"last", last},
		{"connections", connections},
		{"descriptors", descriptors},
		{NULL, NULL},
	};

	setlinebuf(stdout);
	return run_check(checks, argc, argv, 50);
}
