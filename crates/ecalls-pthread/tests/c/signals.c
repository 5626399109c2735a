/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program may expect of signals and its threads: a mask is a thread's own, and what is sent
 * to a thread is handled there, wherever it waits. Each check says what was wrong, and the exit
 * status is their number. It is the same with the C library's threads.
 *
 *     signals CHECK [NUMBER]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static sigset_t only(int signal) {
	sigset_t set;

	sigemptyset(&set);
	if (signal)
		sigaddset(&set, signal);
	return set;
}

static int is_blocked(int signal) {
	sigset_t mask;

	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
	return sigismember(&mask, signal);
}

/* --- masks: each thread has its own, wherever it has waited, and so has what it starts --- */

static const int some[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGALRM, SIGWINCH};
#define SOME ((int)(sizeof(some) / sizeof(*some)))

static int differs(int own) {
	int wrong = 0;

	for (int i = 0; i < SOME; i++)
		wrong += is_blocked(some[i]) != (i == own);
	return wrong;
}

static void *keep_mask(void *argument) {
	int own = (int)(long)argument % (SOME + 1), status = -1;
	sigset_t set = only(own < SOME ? some[own] : 0);
	struct timespec span = {.tv_nsec = 100000};
	pid_t child;

	CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
	for (int round = 0; round < 20; round++) {
		switch (round % 4) {
		case 0:
			sched_yield();
			break;
		case 1:
			nanosleep(&span, NULL);
			break;
		case 2:
			/* It blocks its kernel thread. */
			pselect(0, NULL, NULL, NULL, &span, NULL);
			break;
		default:
			CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
		}
		CHECK(differs(own) == 0);
	}
	if (own == (int)(long)argument) {
		child = fork();
		if (child == 0)
			_exit(differs(own));
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	return NULL;
}

static void *create_masked(void *argument) {
	sigset_t set = only(some[0]);

	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(is_blocked(some[0]));
	return argument ? join(create(create_masked, NULL)) : NULL;
}

static void masks(void) {
	pthread_t *threads = calloc(number, sizeof(*threads));

	for (long i = 0; i < number; i++)
		threads[i] = create(keep_mask, (void *)i);
	for (int i = 0; i < number; i++)
		join(threads[i]);
	join(create(create_masked, &number));
	CHECK(differs(SOME) == 0);
	free(threads);
}

/* --- blocked: threads begin with the mask of who creates them, and have time slices --- */

static atomic_int flag;

static void *spin_for_flag(void *argument) {
	CHECK(is_blocked(SIGUSR1) && is_blocked(SIGTERM));
	while (!flag)
		;
	return argument;
}

static void *set_flag(void *argument) {
	usleep(1000);
	flag = 1;
	return argument;
}

static void blocked(void) {
	sigset_t all, before;
	pthread_t threads[5];

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	for (int i = 0; i < 5; i++)
		threads[i] = create(i == 4 ? set_flag : spin_for_flag, NULL);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	for (int i = 0; i < 5; i++)
		join(threads[i]);
}

/* --- sent: a thread handles what is sent to it, and its wait ends as POSIX says --- */

static _Atomic(pthread_t) handler_ran_in;
static atomic_int handled, waits, ended;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ends[2];

static void note(int signal) {
	(void)signal;
	handler_ran_in = pthread_self();
	handled++;
}

static int is_interrupted(int result) {
	return result == -1 && errno == EINTR;
}

static int poll_ends(int count) {
	struct pollfd polls[2] = {{.fd = ends[0], .events = POLLIN},
				  {.fd = ends[1], .events = POLLPRI}};

	return poll(polls, count, -1);
}

static int accept_in_vain(void) {
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), result;

	CHECK(listen(listener, 1) == 0 ||
	      bind(listener, &(struct sockaddr){AF_UNIX, ""}, sizeof(sa_family_t)) == 0);
	CHECK(listen(listener, 1) == 0);
	result = accept(listener, NULL, NULL);
	int error = errno;
	close(listener);
	errno = error;
	return result;
}

static int suspend(void) {
	sigset_t set = only(SIGUSR1), none = only(0);
	int result;

	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	result = sigsuspend(&none);
	int error = errno;
	CHECK(is_blocked(SIGUSR1));
	errno = error;
	return result;
}

enum {
	PAUSE,
	SLEEP,
	NANOSLEEP,
	READ,
	RECEIVE,
	SEMAPHORE,
	POLL,
	POLL_TWO,
	POLL_NONE,
	ACCEPT,
	SUSPEND,
	CONDITION,
	MUTEX,
	COMPUTE,
	SHIELDED,
	WAITS
};

static void *wait_somewhere(void *argument) {
	struct timespec span = {.tv_sec = 1000}, left = {0};
	sigset_t set = only(SIGUSR1);
	sem_t none;
	char byte;

	sem_init(&none, 0, 0);
	waits = 1;
	switch ((int)(long)argument) {
	case PAUSE:
		CHECK(is_interrupted(pause()));
		break;
	case SLEEP:
		CHECK(sleep(1000) > 900);
		break;
	case NANOSLEEP:
		CHECK(is_interrupted(nanosleep(&span, &left)) && left.tv_sec > 900);
		break;
	case READ:
		CHECK(is_interrupted(read(ends[0], &byte, 1)));
		break;
	case RECEIVE:
		CHECK(is_interrupted(recv(ends[0], &byte, 1, 0)));
		break;
	case SEMAPHORE:
		CHECK(is_interrupted(sem_wait(&none)));
		break;
	case POLL:
		CHECK(is_interrupted(poll_ends(1)));
		break;
	case POLL_TWO:
		CHECK(is_interrupted(poll_ends(2)));
		break;
	case POLL_NONE:
		CHECK(is_interrupted(poll(NULL, 0, 1000000)));
		break;
	case ACCEPT:
		CHECK(is_interrupted(accept_in_vain()));
		break;
	case SUSPEND:
		CHECK(is_interrupted(suspend()));
		break;
	case CONDITION:
		pthread_mutex_lock(&mutex);
		while (!handled)
			pthread_cond_wait(&condition, &mutex);
		pthread_mutex_unlock(&mutex);
		break;
	case MUTEX:
		/* Who has it waits until the handler has run. */
		CHECK(pthread_mutex_lock(&mutex) == 0);
		CHECK(pthread_mutex_unlock(&mutex) == 0);
		break;
	case SHIELDED:
		CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
		for (sigset_t had = only(0); !sigismember(&had, SIGUSR1); sigpending(&had))
			usleep(100);
		int before = handled;
		CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
		CHECK(handled > before);
		break;
	default:
		while (!handled)
			;
	}
	CHECK(handled > 0);
	ended = 1;
	return NULL;
}

static void sent(void) {
	struct sigaction action = {.sa_handler = note};

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < number; i++) {
		int where = i % WAITS;
		pthread_t thread;

		handled = waits = ended = 0;
		if (where == MUTEX)
			pthread_mutex_lock(&mutex);
		thread = create(wait_somewhere, (void *)(long)where);
		while (!waits)
			sched_yield();
		usleep(i / WAITS % 4 * 300);
		/* A signal that comes before the wait begins does not end it. */
		while (!ended) {
			CHECK(pthread_kill(thread, SIGUSR1) == 0);
			usleep(500);
			CHECK(!handled || pthread_equal(handler_ran_in, thread));
			if (where == MUTEX && handled) {
				pthread_mutex_unlock(&mutex);
				break;
			}
			/* A handler ends no wait for a condition. */
			pthread_cond_broadcast(&condition);
		}
		join(thread);
	}
}

/* --- restarted: handlers with SA_RESTART end a sleep, and no read --- */

static void *read_a_byte(void *argument) {
	char byte = 0;

	waits = 1;
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
	CHECK(sem_wait(argument) == 0);
	return NULL;
}

static void restarted(void) {
	struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
	sem_t semaphore;

	CHECK(pipe(ends) == 0);
	sem_init(&semaphore, 0, 0);
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < number; i++) {
		waits = handled = 0;
		pthread_t thread = create(read_a_byte, &semaphore);

		for (int more = 0; more < 3; more++) {
			int before = handled;

			CHECK(pthread_kill(thread, SIGUSR1) == 0);
			while (handled == before)
				usleep(100);
			if (more == 1)
				CHECK(write(ends[1], "x", 1) == 1);
		}
		CHECK(pthread_equal(handler_ran_in, thread));
		sem_post(&semaphore);
		join(thread);
	}
}

/* --- waited: sigwait has what is sent to its thread, and to the process --- */

static sem_t had;

static void *wait_for_signals(void *argument) {
	sigset_t set = only(SIGUSR1);
	struct timespec span = {.tv_nsec = 20000000};
	siginfo_t info;
	int signal = 0;

	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &span) == -1 && errno == EAGAIN);
	CHECK(raise(SIGUSR1) == 0);
	usleep(1000);
	CHECK(sigwaitinfo(&set, &info) == SIGUSR1);
	CHECK(info.si_signo == SIGUSR1 && info.si_pid == getpid());
	sem_post(&had);
	for (int i = 0; i < number; i++) {
		if (i % 3 == 0)
			usleep(100);
		CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR1);
		sem_post(&had);
	}
	return argument;
}

static void *be_busy(void *argument) {
	while (!flag)
		usleep(200);
	return argument;
}

static void waited(void) {
	sigset_t set = only(SIGUSR1);
	pthread_t thread, others[4];

	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	sem_init(&had, 0, 0);
	for (int i = 0; i < 4; i++)
		others[i] = create(be_busy, NULL);
	thread = create(wait_for_signals, NULL);
	sem_wait(&had);
	for (int i = 0; i < number; i++) {
		if (i % 2)
			CHECK(pthread_kill(thread, SIGUSR1) == 0);
		else
			CHECK(kill(getpid(), SIGUSR1) == 0);
		sem_wait(&had);
	}
	flag = 1;
	for (int i = 0; i < 4; i++)
		join(others[i]);
	join(thread);
}

/* --- storm: signals of the process, whose handlers outlast a time slice, come while threads are
   created, and find them in the library and in malloc --- */

static void outlast_a_slice(int signal) {
	struct timespec start, now;

	(void)signal;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (volatile int i = 0; i < 1000000; i++)
			;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 25);
	handled++;
}

static void *allocate(void *argument) {
	free(malloc(1000));
	return argument;
}

static void *create_many(void *argument) {
	sigset_t set = only(SIGUSR1);

	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	while (!flag) {
		pthread_t threads[10];

		for (int i = 0; i < 10; i++)
			threads[i] = create(allocate, argument);
		sched_yield();
		for (int i = 0; i < 10; i++)
			CHECK(join(threads[i]) == argument);
	}
	return argument;
}

static void storm(void) {
	struct sigaction action = {.sa_handler = outlast_a_slice};
	sigset_t set = only(SIGUSR1);
	pthread_t threads[6];

	sigaction(SIGUSR1, &action, NULL);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	for (int i = 0; i < 6; i++)
		threads[i] = create(create_many, NULL);
	for (int i = 0; i < number; i++) {
		int before = handled;

		CHECK(kill(getpid(), SIGUSR1) == 0);
		while (handled == before)
			usleep(100);
	}
	flag = 1;
	for (int i = 0; i < 6; i++)
		join(threads[i]);
}

/* --- cancelled: asynchronously, also where there is no cancellation point --- */

static atomic_int cleaned;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shared_condition;

static void clean(void *argument) {
	(*(atomic_int *)argument)++;
}

static void *be_cancelled(void *argument) {
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	pthread_cleanup_push(clean, &cleaned);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	waits = 1;
	switch ((int)(long)argument) {
	case 0:
		sleep(1000);
		break;
	case 1:
		pthread_mutex_lock(&held);
		break;
	case 2:
		pthread_mutex_lock(&own);
		pthread_cond_wait(&shared_condition, &own);
		break;
	default:
		for (;;)
			;
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancelled(void) {
	pthread_condattr_t attr;

	/* One that processes share is waited for in the kernel. */
	pthread_condattr_init(&attr);
	pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared_condition, &attr);
	pthread_mutex_lock(&held);
	for (int i = 0; i < number; i++) {
		int before = cleaned;
		pthread_t thread;

		waits = 0;
		thread = create(be_cancelled, (void *)(long)(i % 4));
		while (!waits)
			sched_yield();
		usleep(i / 4 % 4 * 300);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(join(thread) == PTHREAD_CANCELED && cleaned == before + 1);
	}
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"masks", masks},
		{"blocked", blocked},
		{"sent", sent},
		{"restarted", restarted},
		{"waited", waited},
		{"storm", storm},
		{"cancelled", cancelled},
		{NULL, NULL},
	};

	return run_check(checks, argc, argv, 60);
}
