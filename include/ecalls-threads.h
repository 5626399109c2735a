/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The user-level threads of libecalls: runtimes, threads, and locks. Results, handles, options and
 * times are as in ecalls.h. This file is written by crates/ecalls-c/tests/header.rs; change the
 * source there.
 */


#ifndef ECALLS_THREADS_H
#define ECALLS_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* A runtime of user-level threads. */
typedef struct ecalls_threads_t ecalls_threads_t;
/* A user-level thread. */
typedef struct ecalls_thread_t ecalls_thread_t;

/* The result of a thread that was cancelled. */
#define ECALLS_THREAD_CANCELLED ((void *)-1)

/*
 * `kernel` of a runtime: the kernel side tells which threads block if the process may load it, or
 * the daemon runs; else only ecalls_thread_blocking() does.
 */
#define ECALLS_THREADS_KERNEL_IF_POSSIBLE 0

/* `kernel` of a runtime: it does not start without the kernel side. */
#define ECALLS_THREADS_KERNEL_REQUIRED 1

/* `kernel` of a runtime: without the kernel side. */
#define ECALLS_THREADS_KERNEL_NEVER 2

/* `policy` of a runtime: threads in turn, a queue for each processor. */
#define ECALLS_THREADS_ROUND_ROBIN 0

/* `policy` of a runtime: the earliest deadline first, then the highest priority. */
#define ECALLS_THREADS_RANKED 1

/* In `flags` of a runtime: threads have no thread-local storage of their own. */
#define ECALLS_THREADS_NO_STORAGE 1

/* Where a wait ends at a time: it never does. */
#define ECALLS_NEVER UINT64_MAX

/* What ecalls_thread_wait_ready() waits for: a read would not block. */
#define ECALLS_THREAD_READABLE 1

/* What ecalls_thread_wait_ready() waits for: a write would not block. */
#define ECALLS_THREAD_WRITABLE 2

/* The calling thread ends when it was cancelled, at the next cancellation point. */
#define ECALLS_THREAD_CANCEL_ENABLE 0

/* It does not, until it enables that again. */
#define ECALLS_THREAD_CANCEL_DISABLE 1

/* The most keys of a process. */
#define ECALLS_THREAD_KEYS_MAX 1024

/* How a runtime is made. 0 in a field stands for its default. */
struct ecalls_threads_options {
	/* Size of this struct. */
	uint32_t size;
	/* Virtual processors, 1 to 64. Default: the CPUs that the process may use. */
	uint32_t processors;
	/* Bytes of a thread's stack, at least 16384. Default: 131072. */
	uint32_t stack_bytes;
	/* The most threads at a time. Default: 65536. */
	uint32_t threads_max;
	/*
	 * The most threads that block at a time without blocking a processor: each is a kernel
	 * thread. Default: 1024.
	 */
	uint32_t activations_max;
	/* ECALLS_THREADS_KERNEL_IF_POSSIBLE, _REQUIRED or _NEVER. */
	uint32_t kernel;
	/* ECALLS_THREADS_ROUND_ROBIN or ECALLS_THREADS_RANKED. */
	uint32_t policy;
	/* ECALLS_THREADS_NO_STORAGE or 0. */
	uint32_t flags;
};

/* What a runtime is, and what it has done. */
struct ecalls_threads_stats {
	/* Virtual processors. */
	uint32_t processors;
	/* 1: the kernel side tells which threads block; 0: only ecalls_thread_blocking() does. */
	uint32_t is_told;
	/* 1: each thread has thread-local storage of its own, errno included; 0: none has. */
	uint32_t has_own_storage;
	/* Activations, i.e. kernel threads. */
	uint32_t activations;
	/* Threads that have not ended. */
	uint64_t threads;
	/* Times that a thread began or continued to run. */
	uint64_t switches;
	/* Times that a thread gave up its processor in ecalls_thread_blocking(). */
	uint64_t left;
	/* Blocks that the kernel side told, */
	uint64_t told;
	/* and those that it did not tell: in the runtime itself, or while a limit was reached. */
	uint64_t untold;
	/* Times that a thread came back and found its processor free, */
	uint64_t reclaimed;
	/* and that it waited until the policy chose it. */
	uint64_t restarts;
	/* Activations that were wanted and that a limit refused. */
	uint64_t refused;
};

/* What a thread executes. Its result is that of ecalls_thread_join(). */
typedef void *(*ecalls_thread_start_t)(void *argument);

/* How a thread begins. */
struct ecalls_thread_options {
	/* Size of this struct. */
	uint32_t size;
	/* Its priority: more is more important. */
	uint32_t priority;
	/* Its deadline, ns of CLOCK_MONOTONIC. 0: none. */
	uint64_t deadline_ns;
};

/* A call that may block. */
typedef void (*ecalls_thread_call_t)(void *argument);

/* A handler for the case that the thread ends: memory of the caller until it is removed. */
struct ecalls_thread_cleanup {
	/* What is called, */
	ecalls_thread_call_t call;
	/* and its argument. */
	void *argument;
	/* The handler that was added before. */
	struct ecalls_thread_cleanup *before;
};

/* Which value, by ecalls_thread_key_create(). */
typedef uint32_t ecalls_thread_key_t;

/* Mutual exclusion; all bytes 0: nobody has it. */
struct ecalls_mutex {
	/* 1: somebody has it. */
	uint32_t locked;
};

/* A condition; all bytes 0: nobody has notified. */
struct ecalls_condition {
	/* Grows with each notification. */
	uint32_t notified;
};

/* A number of permits; all bytes 0: none. */
struct ecalls_semaphore {
	/* Permits that are left. The program may set it before the first use. */
	uint32_t permits;
};

/* Something that is done once; all bytes 0: it was not done. */
struct ecalls_once {
	/* 1: a thread does it; 2: it is done. */
	uint32_t state;
};

/* What is done once. */
typedef void (*ecalls_once_call_t)(void);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * Starts a runtime of user-level threads. `options` NULL: the defaults. -ENOSPC: the system gives
 * no further kernel threads.
 */
int ecalls_threads_start(const struct ecalls_threads_options *options, ecalls_threads_t **runtime);

/*
 * Waits until all threads of a runtime have ended, and closes it. Handles of its threads stay
 * valid. NULL: nothing is done. -EDEADLK: the caller is a user-level thread.
 */
int ecalls_threads_end(ecalls_threads_t *runtime);

/* Writes what a runtime is, and what it has done so far. */
int ecalls_threads_stats(const ecalls_threads_t *runtime, struct ecalls_threads_stats *stats);

/*
 * Creates a thread, which executes `start(argument)`; any thread may call this. `options` NULL:
 * priority 0, no deadline. `thread` NULL: detached. Otherwise the handle must be ended by
 * ecalls_thread_join() or ecalls_thread_detach(). -ENOSPC: the runtime has as many threads as it
 * may.
 */
int ecalls_thread_create(const ecalls_threads_t *runtime,
			 ecalls_thread_start_t start,
			 void *argument,
			 const struct ecalls_thread_options *options,
			 ecalls_thread_t **thread);

/*
 * Waits until a thread has ended, and ends its handle. Its result is written to `result`, which
 * may be NULL. Any thread may call this. A cancellation point: if the caller ends so, the handle
 * stays. -EDEADLK: it is the calling thread.
 */
int ecalls_thread_join(ecalls_thread_t *thread, void **result);

/* Ends the handle of a thread, which runs on. */
void ecalls_thread_detach(ecalls_thread_t *thread);

/*
 * Returns whether the caller is a user-level thread: 1, and its number, unique in its runtime, is
 * written to `number`, which may be NULL; or 0.
 */
int ecalls_thread_self(uint64_t *number);

/*
 * Gives a thread a name, for `ecalls threads`, which shows its first 15 bytes. `thread` NULL: the
 * calling one.
 */
int ecalls_thread_set_name(const ecalls_thread_t *thread, const char *name);

/*
 * Sets a thread's priority, from the next time on that it becomes ready: more is more important,
 * with ECALLS_THREADS_RANKED. `thread` NULL: the calling one; -ESRCH: it is none of a runtime.
 */
int ecalls_thread_set_priority(const ecalls_thread_t *thread, uint32_t priority);

/* Sets a thread's deadline in the same way, ns of CLOCK_MONOTONIC; 0: none. */
int ecalls_thread_set_deadline(const ecalls_thread_t *thread, uint64_t deadline_ns);

/* Gives other ready threads the processor. Returns 0. */
int ecalls_thread_yield(void);

/* Sleeps; the processor executes other threads. A cancellation point. Returns 0. */
int ecalls_thread_sleep(uint64_t time_us);

/* Sleeps until `until_ns`. A cancellation point. Returns 0. */
int ecalls_thread_sleep_until(uint64_t until_ns);

/*
 * Executes `call(argument)`, which may block in the kernel: the processor executes other threads
 * meanwhile. A cancellation point before the call, and not within it: a request to end neither
 * interrupts the call nor loses what it has done. Returns 0; `errno` is as the call left it.
 */
int ecalls_thread_blocking(ecalls_thread_call_t call, void *argument);

/*
 * A scheduling point, and nothing else, for use after a call that may have blocked and was not in
 * ecalls_thread_blocking(). Returns 0; `errno` stays.
 */
int ecalls_thread_scheduling_point(void);

/*
 * Waits until a descriptor is ready (ECALLS_THREAD_READABLE or _WRITABLE), until `until_ns` or
 * ECALLS_NEVER: without a kernel thread, which a thread that blocks in read() has. A cancellation
 * point. 0: it is ready. -ETIMEDOUT: the time has come.
 */
int ecalls_thread_wait_ready(int fd, uint32_t interest, uint64_t until_ns);

/*
 * Adds a handler: `call(argument)` is called if the calling thread ends by ecalls_thread_exit() or
 * because it was cancelled, before the handlers that were added earlier. In the same function
 * ecalls_thread_cleanup_pop() must follow.
 */
int ecalls_thread_cleanup_push(struct ecalls_thread_cleanup *cleanup,
			       ecalls_thread_call_t call,
			       void *argument);

/*
 * Removes the handler that was added last, and calls it if `execute` is not 0. -EINVAL: there is
 * none.
 */
int ecalls_thread_cleanup_pop(int execute);

/*
 * Ends the calling thread, whose result is `result`; handlers are called first. It returns only if
 * that is not possible. -ESRCH: the thread is not of ecalls_thread_create(), or ends already.
 * -EPERM: it is in a call of ecalls_thread_blocking().
 */
int ecalls_thread_exit(void *result);

/*
 * Asks a thread to end: it does so at its next cancellation point, with the result
 * ECALLS_THREAD_CANCELLED, and a wait in which it is ends. Any thread may call this.
 */
int ecalls_thread_cancel(const ecalls_thread_t *thread);

/*
 * Sets whether the calling thread ends when it was cancelled: ECALLS_THREAD_CANCEL_ENABLE, as it
 * begins, or _DISABLE. What held before is written to `before`, which may be NULL.
 */
int ecalls_thread_set_cancel_state(int state, int *before);

/* A cancellation point, and nothing else. Returns 0. */
int ecalls_thread_test_cancel(void);

/*
 * Makes a key, whose value is NULL in each thread. When a thread ends that has another value, that
 * becomes NULL, and `destructor`, which may be NULL, is called with it. -ENOSPC: there are
 * ECALLS_THREAD_KEYS_MAX keys.
 */
int ecalls_thread_key_create(ecalls_thread_key_t *key, ecalls_thread_call_t destructor);

/* Ends a key; no destructor is called. */
int ecalls_thread_key_delete(ecalls_thread_key_t key);

/* Sets the calling thread's value. */
int ecalls_thread_set_specific(ecalls_thread_key_t key, void *value);

/* Returns the calling thread's value; NULL: it has none, or the key does not exist. */
void *ecalls_thread_get_specific(ecalls_thread_key_t key);

/* Waits for the mutex. */
int ecalls_mutex_lock(struct ecalls_mutex *mutex);

/* The same until `until_ns`; 0: without waiting. -ETIMEDOUT: another thread has it. */
int ecalls_mutex_lock_until(struct ecalls_mutex *mutex, uint64_t until_ns);

/* Gives the mutex up. -EPERM: nobody has it. */
int ecalls_mutex_unlock(struct ecalls_mutex *mutex);

/*
 * Gives the mutex up, waits to be notified, and takes the mutex again. It may return without a
 * notification: ask again. A cancellation point: handlers are called with the mutex.
 */
int ecalls_condition_wait(struct ecalls_condition *condition, struct ecalls_mutex *mutex);

/* The same until `until_ns`. -ETIMEDOUT: the time has come; the caller has the mutex. */
int ecalls_condition_wait_until(struct ecalls_condition *condition,
				struct ecalls_mutex *mutex,
				uint64_t until_ns);

/* Wakes the thread that has waited longest. */
int ecalls_condition_notify_one(struct ecalls_condition *condition);

/* Wakes all that wait. */
int ecalls_condition_notify_all(struct ecalls_condition *condition);

/* Waits for a permit, and takes it. A cancellation point. */
int ecalls_semaphore_acquire(struct ecalls_semaphore *semaphore);

/* The same until `until_ns`; 0: without waiting. -ETIMEDOUT: there is none. */
int ecalls_semaphore_acquire_until(struct ecalls_semaphore *semaphore, uint64_t until_ns);

/* Gives a permit. -EOVERFLOW: there are 4294967295. */
int ecalls_semaphore_release(struct ecalls_semaphore *semaphore);

/*
 * Calls `call` if nobody has with this object, and otherwise waits until that call has returned.
 * If the thread ends in the call, the next caller's is made.
 */
int ecalls_thread_once(struct ecalls_once *once, ecalls_once_call_t call);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ECALLS_THREADS_H */
