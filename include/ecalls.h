/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libecalls: events between the Linux kernel and applications, in both directions, with deadlines.
 * This file is written by crates/ecalls-c/tests/header.rs; change the source there.
 *
 * A service raises events: the kernel's sockets, timers, tasks and scheduler, or another
 * application. A subscription lists the actions for each event, in order; the result of each action
 * decides whether the next one runs. A channel is the shared memory from which a program reads its
 * events without a system call, and into which it writes its calls to the kernel.
 *
 * Results   0 or more: success. Negative: an errno-style code; ecalls_strerror() returns its
 *           meaning and ecalls_last_error() the whole text. Outputs are the last arguments and are
 *           written only on success.
 * Handles   ecalls_t and the other ..._t belong to the caller until closed; a closed one must not
 *           be used. They may be used from any thread, except that no other call may use a handle
 *           while it is being closed. They may be closed in any order. Closing NULL does nothing;
 *           elsewhere NULL is -EINVAL, unless the function gives it a meaning.
 * Options   begin with `size`: set it to the size of the struct, and all unused fields to 0. A
 *           newer library accepts older structs.
 * Times     are relative and in us where the name ends in _us, and ns of CLOCK_MONOTONIC where it
 *           ends in _ns.
 * Texts     end with 0 and are UTF-8. The library copies them, and arrays, during the call.
 */


#ifndef ECALLS_H
#define ECALLS_H

#include <stddef.h>
#include <stdint.h>
#include "ecalls/version.h"
#include "ecalls/event.h"
#include "ecalls/channel.h"
#include "ecalls/service.h"
#include "ecalls/subscription.h"
#include "ecalls/handler.h"
#include "ecalls/downcall.h"
#include "ecalls/coop.h"

/* The machine's core as this program sees it. */
typedef struct ecalls_t ecalls_t;
/* A channel of this program. */
typedef struct ecalls_channel_t ecalls_channel_t;
/* An installed subscription. */
typedef struct ecalls_subscription_t ecalls_subscription_t;
/* A service that this program registered. */
typedef struct ecalls_service_t ecalls_service_t;
/* A timer of this program. */
typedef struct ecalls_timer_t ecalls_timer_t;
/* The sockets of one thread that may be ready. */
typedef struct ecalls_socket_ready_t ecalls_socket_ready_t;
/* An event loop of one thread. */
typedef struct ecalls_loop_t ecalls_loop_t;
/* A handle by which other threads submit events to a loop. */
typedef struct ecalls_loop_remote_t ecalls_loop_remote_t;
/* The polls of one thread. */
typedef struct ecalls_coop_t ecalls_coop_t;
/* A runtime of user-level threads. */
typedef struct ecalls_threads_t ecalls_threads_t;
/* A user-level thread. */
typedef struct ecalls_thread_t ecalls_thread_t;

/* Returned by a handler of the program: the chain continues with the next action. */
#define ECALLS_CONTINUE 0

/* Returned by a handler of the program: the chain ends. Any other value means the same. */
#define ECALLS_STOP 1

/* ecalls_interest.flags: `type` of the events is that of the interest instead of the descriptor. */
#define ECALLS_INTEREST_TYPE 1

/* ecalls_interest.flags: events of arriving data only, not of connections. */
#define ECALLS_INTEREST_DATA_ONLY 2

/* ecalls_interest.flags: connections that a listener accepts are not registered. */
#define ECALLS_INTEREST_NOT_INHERITED 4

/* `type` of an event that runs at its release time. */
#define ECALLS_LOOP_TIMER 0

/* `type` of an event that runs when no timer is due, in the order of user virtual times. */
#define ECALLS_LOOP_BEST_EFFORT 1

/* `interest` and `ready` of a source: reading it does not block. */
#define ECALLS_LOOP_READABLE 1

/* `interest` and `ready` of a source: writing it does not block. */
#define ECALLS_LOOP_WRITABLE 2

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

/* The layout of a channel (ECalls-01 §2.3). All fields 0 but `size`: a ring of 1024 entries. */
struct ecalls_channel_options {
	/* Size of this struct. */
	uint32_t size;
	/* ECALLS_LAYOUT_RING or ECALLS_LAYOUT_SLOTS. */
	uint32_t layout;
	/*
	 * Number of entries of a ring or of slots, a power of two: 64 to 65536 for a ring, 1 to
	 * 1024 for slots. 0: 1024.
	 */
	uint32_t capacity;
	/* How an event's slot is selected: ECALLS_SLOT_FREE, _PRIORITY, _TYPE or _READY. */
	uint32_t slot_use;
	/*
	 * When deferred calls are handled, in addition to the next fast call (ECalls-01 §2.3.1):
	 * any of ECALLS_DEFER_DELAY, ECALLS_DEFER_SWITCH.
	 */
	uint32_t defer;
	/* 1: late events are returned too, instead of being discarded and counted. */
	uint32_t keep_late;
	/* With ECALLS_DEFER_DELAY: the longest time that deferred calls wait, us, at least 1. */
	uint64_t delay_us;
	/*
	 * Slots: the largest data of an event in bytes, at most ECALLS_DATA_MAX. Events with more
	 * are dropped as ECALLS_DROP_SIZE. 0: ECALLS_DATA_INLINE. A ring has no such limit.
	 */
	uint64_t data_max;
	/*
	 * With a ring: the longest time for which ecalls_channel_recv lets events gather while
	 * it sleeps, us. An event with a deadline before that ends its sleep at once. 0: each
	 * event that finds it asleep does.
	 */
	uint64_t gather_us;
	/* With gather_us: the number of events at which it wakes, at least 1. */
	uint64_t gather_events;
};

/*
 * A handler of the program, an upcall (ECalls-05 §3.1). The library calls it on a thread of its
 * own, for one event after the other; the event is valid until the handler returns, and all `size`
 * bytes of its data follow each other from `data` on, also those beyond the struct. A handler must
 * not throw an exception.
 */
typedef int (*ecalls_callback_t)(const struct ecalls_event *event, void *context);

/*
 * One action of a subscription (ECalls-05 §3.1). Fields that its kind does not use are ignored.
 *
 * ECALLS_ACTION_HANDLER  a kernel handler; its result decides whether the chain continues
 * ECALLS_ACTION_THREAD   a kernel handler in a kernel thread, with the rest of the chain there
 * ECALLS_ACTION_SIGNAL   a real-time signal; the chain continues
 * ECALLS_ACTION_USER     a handler of the program; its result decides whether the chain continues
 * ECALLS_ACTION_MEMORY   shared memory of a channel; the chain continues
 *
 * The kernel handlers (ecalls/handler.h describes them):
 *
 * "sample"     argument[0]: one event in this number passes
 * "limit"      argument[0]: events per second, argument[1]: largest burst
 * "threshold"  field, compare, and bound or attribute
 * "histogram"  field, argument[0]: number of bits by which its value is shifted right
 * "count"      argument[0]: 1: the chain ends here
 * "copy_user"  argument[0]: address, [1]: offset into the data, [2]: bytes; only in a THREAD
 * "ecode"      text: a handler in E-code (ecode(7)), compiled by the call
 * "remote"     text: name of a channel among hosts that is open on this host; not in a THREAD
 */
struct ecalls_subscribe_action {
	/* ECALLS_ACTION_*. */
	uint32_t kind;
	/*
	 * SIGNAL: ECALLS_ACTION_FIXED_VALUE sends `value` instead of the event's first data
	 * word.
	 */
	uint32_t flags;
	/* HANDLER, THREAD: name of the kernel handler. */
	const char *handler;
	/* HANDLER, THREAD: name of a field of the service's data, for handlers that read one. */
	const char *field;
	/* HANDLER, THREAD: the handler's arguments. */
	uint64_t argument[3];
	/* HANDLER, THREAD: "threshold": ECALLS_COMPARE_*; signed if the field is. */
	uint32_t compare;
	/*
	 * HANDLER, THREAD: "threshold": 0 compares with `bound`; n with attribute n - 1 of the
	 * subscription's channel.
	 */
	uint32_t attribute;
	/* HANDLER, THREAD: "threshold": the value with which the field is compared. */
	uint64_t bound;
	/* SIGNAL: number of the signal, SIGRTMIN to SIGRTMAX. */
	uint32_t signal;
	/* 0. */
	uint32_t pad;
	/* SIGNAL: the signal's value with ECALLS_ACTION_FIXED_VALUE. */
	uint64_t value;
	/* MEMORY: the channel. */
	const ecalls_channel_t *channel;
	/* USER: the handler. */
	ecalls_callback_t callback;
	/* USER: passed to the handler, which runs on a thread of the library. */
	void *context;
	/*
	 * HANDLER, THREAD: "ecode": the text, an expression or a function body; "remote": the
	 * channel's name.
	 */
	const char *text;
	/*
	 * HANDLER, THREAD: "ecode": name of the text in messages, such as its file. NULL:
	 * "ecode".
	 */
	const char *text_name;
};

/* The events to receive, and the actions for each (struct ecalls of ECalls-05 §3). */
struct ecalls_subscribe_options {
	/* Size of this struct. */
	uint32_t size;
	/* Size of one action: sizeof(struct ecalls_subscribe_action). */
	uint32_t action_size;
	/* The actions, in order. */
	const struct ecalls_subscribe_action *actions;
	/* Number of actions: 1 to ECALLS_ACTIONS_MAX. */
	uint32_t action_count;
	/* Bit k selects events of kind k. 0: all. */
	uint32_t kinds;
	/*
	 * The receiver (process_id of struct ecalls): signals go to it, and an event's target is
	 * compared with it. 0: this process.
	 */
	uint32_t receiver;
	/* Only events raised in this process. 0: in any process. */
	uint32_t pid;
	/* Events not delivered within this time are discarded and counted, us. 0: none. */
	uint64_t deadline_us;
	/*
	 * Channel that shows the counts of events that were not delivered, and the histogram.
	 * NULL: that of the first MEMORY action.
	 */
	const ecalls_channel_t *report;
	/*
	 * Names of the attributes of the reporting channel, in the order of their numbers, for
	 * handlers in E-code.
	 */
	const char *const *attributes;
	/* Number of attributes: 0 to ECALLS_ATTRIBUTES. */
	uint32_t attribute_count;
	/*
	 * 1: while an event that is stored in a ring has not been read, it stands for further ones,
	 * which are only counted (ECALLS_DROP_COALESCED). 0: each is stored.
	 */
	uint32_t coalesce;
};

/* An event to raise: the arguments of raise_event (ECalls-05 §3). */
struct ecalls_raise {
	/* Size of this struct. */
	uint32_t size;
	/* The receiver: a process id, ECALLS_TARGET_ALL or ECALLS_TARGET_WAKE_ONE. Not 0. */
	int32_t target;
	/* Kind of the event, 0 to 31. */
	uint32_t kind;
	/* Selects the slot in channels whose slots are used by type. */
	uint32_t type;
	/* Selects the slot in channels whose slots are used by priority; 0 is the most urgent. */
	uint32_t priority;
	/*
	 * ECALLS_EVENT_CPU asks for event-aware CPU scheduling of the receiver (ECalls-05 §4).
	 * ECALLS_RAISE_ABSOLUTE makes the two times below times of CLOCK_MONOTONIC.
	 */
	uint32_t flags;
	/*
	 * The event is discarded and counted if it is not delivered within this time (after its
	 * release time, if that is later), us. 0: no deadline.
	 */
	uint64_t deadline_us;
	/* The event is not delivered before this time has passed, us. 0: at once. */
	uint64_t release_us;
	/* The data. NULL: none. */
	const void *data;
	/*
	 * Size of the data in bytes, at most ECALLS_DATA_LARGE; with a release time
	 * ECALLS_DATA_MAX.
	 */
	uint64_t data_size;
};

/*
 * The registration of a socket (ECalls-05 §5.2). With all fields 0 but `size`: events of data and
 * connections for this process, inherited by accepted connections.
 */
struct ecalls_interest {
	/* Size of this struct. */
	uint32_t size;
	/* ECALLS_INTEREST_*. */
	uint32_t flags;
	/*
	 * The receiver. 0: this process. ECALLS_TARGET_ALL: every subscription.
	 * ECALLS_TARGET_WAKE_ONE: one of them, in turn.
	 */
	int32_t target;
	/*
	 * With ECALLS_INTEREST_TYPE: `type` of its events, which selects the slot by type.
	 * Otherwise it is the number of the descriptor.
	 */
	uint32_t type;
	/* Deadline of its events, us. 0: none. */
	uint64_t deadline_us;
};

/* A real-time signal as it was received. */
struct ecalls_signal {
	/* Number of the signal. */
	int32_t signal;
	/* Origin of the signal (si_code): SI_KERNEL for an event, SI_QUEUE for sigqueue. */
	int32_t code;
	/* The value that the sender attached; 0 if there is none. */
	uint64_t value;
	/* Process that sent it; 0: the kernel, as for all events. */
	uint32_t pid;
	/* User of that process; 0 for the kernel. */
	uint32_t uid;
};

/*
 * A handler of a real-time signal. It interrupts the thread at any point, so it may call only the
 * functions in signal-safety(7), and none of this library.
 */
typedef void (*ecalls_signal_callback_t)(const struct ecalls_signal *received);

/* Runs on the loop's thread. `event` is the number that ecalls_loop_submit() returned. */
typedef void (*ecalls_loop_callback_t)(ecalls_loop_t *events, uint64_t event, void *context);

/* An event to submit (Coop Figure 2). */
struct ecalls_loop_event {
	/* Size of this struct. */
	uint32_t size;
	/* ECALLS_LOOP_TIMER or ECALLS_LOOP_BEST_EFFORT. */
	uint32_t type;
	/* The function to call. */
	ecalls_loop_callback_t callback;
	/* Passed to the callback. */
	void *context;
	/* Timer: release time, ns of CLOCK_MONOTONIC. */
	uint64_t release_ns;
	/* Best effort: the event with the least value runs first. */
	uint64_t user_virtual_time;
};

/* Lateness of a loop's timers: the time of the call minus the release time. */
struct ecalls_loop_tardiness {
	/* Timers that ran. */
	uint64_t timers;
	/* Median, precise to 1 %. */
	uint64_t p50_ns;
	/* 99th percentile, precise to 1 %. */
	uint64_t p99_ns;
	/* Maximum. */
	uint64_t max_ns;
};

/*
 * Runs on the loop's thread while a source is ready: ECALLS_LOOP_READABLE, _WRITABLE. `source` is
 * the number that ecalls_loop_watch() returned.
 */
typedef void (*ecalls_loop_source_callback_t)(ecalls_loop_t *events,
					      uint64_t source,
					      uint32_t ready,
					      void *context);

/* A source to watch: a descriptor or a channel. */
struct ecalls_loop_source {
	/* Size of this struct. */
	uint32_t size;
	/*
	 * Type of its event: ECALLS_LOOP_TIMER, with the time at which the source was found ready
	 * as the release time, or ECALLS_LOOP_BEST_EFFORT.
	 */
	uint32_t type;
	/* The function to call. */
	ecalls_loop_source_callback_t callback;
	/* Passed to the callback. */
	void *context;
	/* Best effort: the event with the least value runs first. */
	uint64_t user_virtual_time;
	/* The channel to watch; it must stay open while it is watched. NULL: `fd`. */
	ecalls_channel_t *channel;
	/* The descriptor to watch; it must stay open while it is watched. */
	int32_t fd;
	/* What to wait for: ECALLS_LOOP_READABLE, _WRITABLE, or both. 0: readable. */
	uint32_t interest;
};

/*
 * The answer to a poll. A field is ECALLS_COOP_NONE where there is no such value; times can lie in
 * the past.
 */
struct ecalls_coop_answer {
	/*
	 * When the thread must poll again. In the past: after it has run the timers that are
	 * due.
	 */
	uint64_t slice_end_ns;
	/* When another thread's timer is due: the thread must poll by then, too. */
	uint64_t next_release_ns;
	/*
	 * The least user virtual time of the other members of the group: a thread whose own is
	 * greater must poll.
	 */
	uint64_t least_importance;
};

/* A thread's window: a service time in each period; x of y periods may be missed. */
struct ecalls_coop_window {
	/* Size of this struct. */
	uint32_t size;
	/*
	 * ECALLS_WINDOW_CONSERVING: beyond its service time the thread shares the remaining CPU
	 * time as a fair thread. 0: it waits for its next period.
	 */
	uint32_t flags;
	/* The period, 100 us to 10 s. */
	uint64_t period_us;
	/* CPU time in each period. */
	uint64_t service_us;
	/* Number of periods in any y that may be missed. */
	uint32_t x;
	/* 1 to 1024. */
	uint32_t y;
};

/* Results of a window's periods until the thread last ran. */
struct ecalls_coop_periods {
	/* Periods that were served. */
	uint64_t met;
	/* Periods that were missed. */
	uint64_t missed;
	/* Missed periods after x of the current window had been missed. */
	uint64_t violated;
};

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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * Returns the meaning of a code, given as a function returned it (negative) or positive. Never
 * NULL. A text of this library is valid forever; the system's text for other codes until the
 * thread's next call.
 */
const char *ecalls_strerror(int code);

/*
 * Returns the text of the calling thread's last failed call: what is wrong, and what is expected.
 * Never NULL; empty before the first failure. Valid until the thread's next failed call. Success,
 * -EAGAIN and -ETIMEDOUT do not change it.
 */
const char *ecalls_last_error(void);

/*
 * Connects to the daemon (ecallsd), for programs of any user. If no daemon runs, a privileged
 * program joins the machine's core, or loads one into the kernel.
 * -EPERM: there is neither a daemon nor a privilege; -EDQUOT: this user has used up its
 * connections; -ENOSYS: the kernel lacks a feature, which the text names; -EPROTO: a core of
 * another version or build runs; -ENOEXEC: the kernel refused a program.
 */
int ecalls_open(ecalls_t **ecalls);

/*
 * The same, but waits for the daemon for at most `timeout_us`. A program calls it after -ESHUTDOWN
 * from ecalls_check() or another function, to continue with the next daemon. -ESHUTDOWN: the time
 * is over.
 */
int ecalls_open_within(uint64_t timeout_us, ecalls_t **ecalls);

/*
 * Loads all parts of the core that this program hosts, which otherwise are loaded at their first
 * use: before it gives up the privileges by which it loads. For a client of the daemon there is
 * nothing to load. -ENOEXEC if the kernel refused a program.
 */
int ecalls_complete(const ecalls_t *ecalls);

/*
 * Whether events can still arrive: 0, or -ESHUTDOWN when the daemon has ended. Then no handle that
 * was made with `ecalls` receives events any more: close them, open again, and subscribe again.
 */
int ecalls_check(const ecalls_t *ecalls);

/*
 * Returns the process id of this process as events show it; inside a container it differs from
 * getpid().
 */
int ecalls_pid(const ecalls_t *ecalls);

/*
 * Connects to the daemon or joins the machine's core if either runs, and never loads a core.
 * -ENOENT: neither runs.
 */
int ecalls_join(ecalls_t **ecalls);

/*
 * Closes the handle. Handles that were opened with it remain valid until they are closed
 * themselves.
 */
void ecalls_close(ecalls_t *ecalls);

/*
 * Writes an event as one line of text for people: service, kind, process, fields by name. As with
 * snprintf, at most `size` bytes are written with the final 0, and the length of the whole text is
 * returned. Programs use the structs in ecalls/service.h. A service that has ended is shown by its
 * number. Of the data, those in the struct are shown.
 */
int ecalls_describe(const ecalls_t *ecalls,
		    const struct ecalls_event *event,
		    char *buffer,
		    size_t size);

/*
 * Writes the format of a service's data, the fields of a C struct: "u64 cookie; u16 port". As with
 * snprintf, at most `size` bytes are written with the final 0, and the length of the whole text is
 * returned. -ENOENT: there is no such service.
 */
int ecalls_format(const ecalls_t *ecalls, const char *service, char *buffer, size_t size);

/*
 * Opens a channel (ECalls-05 §3.2). `options` NULL: a ring of 1024 entries.
 * -EINVAL: an option is invalid; -ENOSPC: all channels of the core are in use.
 */
int ecalls_channel_open(const ecalls_t *ecalls,
			const struct ecalls_channel_options *options,
			ecalls_channel_t **channel);

/*
 * Closes a channel with its descriptor and its memory. Timers of the channel keep its kernel side
 * until they are cancelled. Events that a subscription sends to a closed channel are counted as
 * ECALLS_DROP_CHANNEL_GONE.
 */
void ecalls_channel_close(ecalls_channel_t *channel);

/*
 * The descriptor to wait on with poll or epoll, between ecalls_channel_prepare_wait and
 * ecalls_channel_end_wait. It belongs to the channel: do not close or read it.
 */
int ecalls_channel_fd(const ecalls_channel_t *channel);

/*
 * Returns the next event without waiting and without a system call: of several events the one with
 * the earliest deadline; late ones are discarded and counted. -EAGAIN: no event waits.
 */
int ecalls_channel_try_recv(ecalls_channel_t *channel, struct ecalls_event *event);

/*
 * The same, but sleeps for at most `timeout_us` while there is no event; -1: without limit. A
 * signal handler that runs does not end the wait. Only one thread at a time may wait on a channel.
 * -ETIMEDOUT: no event arrived in this time.
 */
int ecalls_channel_recv(ecalls_channel_t *channel, int64_t timeout_us, struct ecalls_event *event);

/*
 * Copies the data of the event that was read last from this channel, at most `size` bytes of them,
 * and returns how many bytes it has: data beyond ECALLS_DATA_INLINE bytes are not in struct
 * ecalls_event. `data` may be NULL if `size` is 0.
 */
int ecalls_channel_data(const ecalls_channel_t *channel, void *data, size_t size);

/*
 * Requests a wake-up. 1: wait on the descriptor, then call ecalls_channel_end_wait and read. 0: an
 * event is available already, so do not wait.
 */
int ecalls_channel_prepare_wait(ecalls_channel_t *channel);

/* Ends a wait: the descriptor becomes unreadable again, and no wake-up is requested. */
int ecalls_channel_end_wait(ecalls_channel_t *channel);

/*
 * Takes the bits of a slot layout (ECalls-01 §2.3): bit i % 64 of bitmap[i / 64] is set if slot i
 * had an event. The bit in the channel is cleared, and the event is not read; so the readiness of
 * 1024 descriptors costs some ns. `words` is the length of the bitmap, at least capacity / 64,
 * rounded up; words beyond are set to 0. Returns the number of set bits, which is always 0 for a
 * ring.
 */
int ecalls_channel_take_ready(ecalls_channel_t *channel, size_t words, uint64_t *bitmap);

/*
 * Writes the counts of events that the kernel side did not deliver to this channel, by reason. No
 * system call.
 */
int ecalls_channel_lost(const ecalls_channel_t *channel, struct ecalls_lost *lost);

/*
 * Writes the number of events that were delivered in time, but were late when the channel's reader
 * read them.
 */
int ecalls_channel_late(const ecalls_channel_t *channel, uint64_t *late);

/* Copies the 64 counters of the kernel handler `histogram`. No system call. */
int ecalls_channel_histogram(const ecalls_channel_t *channel, uint64_t *counters);

/*
 * Subscribes to the service of that name; events arrive from then on (ECalls-05 §3).
 * -ENOENT: there is no such service, kernel handler or field; the text lists the existing ones.
 * -EINVAL: an option is invalid, or the E-code has errors, which the text lists with their places;
 * -ENOSPC: the service has the largest number of subscriptions; -ESHUTDOWN: the receiver does not
 * exist.
 */
int ecalls_subscribe(const ecalls_t *ecalls,
		     const char *service,
		     const struct ecalls_subscribe_options *options,
		     ecalls_subscription_t **subscription);

/*
 * Ends a subscription. Waits for a handler of the program that is running, unless that handler
 * calls it.
 */
void ecalls_unsubscribe(ecalls_subscription_t *subscription);

/* Writes the id of the subscription: `subscription` of its events. */
int ecalls_subscription_id(const ecalls_subscription_t *subscription, uint32_t *id);

/* Writes the subscription's counters: offered, delivered, filtered, late, dropped by reason. */
int ecalls_subscription_counts(const ecalls_subscription_t *subscription,
			       struct ecalls_subscription_count *counts);

/*
 * Replaces handler number `number` in E-code, counted from 0, while events arrive: each event
 * meets either the old handler or the new one. Static variables of the same name and type keep
 * their values. `name`: the text's name in messages; NULL: "ecode".
 * -EINVAL: the text has errors, or another output than the following handlers were compiled for;
 * -ESHUTDOWN: there is no such handler. In these cases the old handler stays.
 */
int ecalls_subscription_replace(const ecalls_subscription_t *subscription,
				uint32_t number,
				const char *name,
				const char *text);

/*
 * Writes the format of the data at the end of the chain: that of the service, or the output of the
 * last handler in E-code that has one. The arguments are those of ecalls_format().
 */
int ecalls_subscription_format(const ecalls_subscription_t *subscription,
			       char *buffer,
			       size_t size);

/*
 * Writes the compiler's warnings about the texts in E-code (an unused variable, a condition that
 * never holds): messages with their places, each with a line feed at its end. The arguments are
 * those of ecalls_format(); 0: there are none.
 */
int ecalls_subscription_warnings(const ecalls_subscription_t *subscription,
				 char *buffer,
				 size_t size);

/*
 * Registers a service of this program by a unique name (ECalls-05 §3). `format` describes its data
 * as the fields of a C struct: "u64 load; u32 threads"; `kinds` names its kinds: "high low". Both
 * may be NULL: no data, kinds without names.
 * -EINVAL: the name is taken or not well-formed; -ENOSPC: all services of the core are in use.
 */
int ecalls_service_register(const ecalls_t *ecalls,
			    const char *name,
			    const char *format,
			    const char *kinds,
			    ecalls_service_t **service);

/*
 * Unregisters a service. Subscriptions to it stay, and receive its events if it is registered
 * again.
 */
void ecalls_service_unregister(ecalls_service_t *service);

/* Writes the index of the service: `service` of its events, and the argument of ECALLS_OP_RAISE. */
int ecalls_service_index(const ecalls_service_t *service, uint32_t *index);

/*
 * Raises an event of a service of this program (ECalls-05 §3). `raise` NULL: kind 0 for all
 * subscriptions, without data. `offered` may be NULL; it is the number of subscriptions to which
 * the event was offered at once; 0 if the event waits for its release time, or if no subscription
 * matched, which is counted.
 * -EINVAL: too much data; -ENOSPC: the queue is full and this deadline is the latest; -EDQUOT:
 * this user raises more events, or has more events waiting, than the daemon permits.
 */
int ecalls_service_raise(const ecalls_service_t *service,
			 const struct ecalls_raise *raise,
			 int64_t *offered);

/*
 * The same by the name of a service: the generic call (ECalls-01 §2.3.1), which may block.
 * -ENOENT: there is no such service; -EPERM: the service is built in, or belongs to another
 * process and the caller is not root.
 */
int ecalls_raise(const ecalls_t *ecalls,
		 const char *service,
		 const struct ecalls_raise *raise,
		 int64_t *offered);

/*
 * A fast call (ECalls-01 §2.3.1), complete when the function returns; deferred calls of the
 * channel are handled before it. `op` and its arguments a, b, c (0 if unused) are those of
 * ecalls/downcall.h: ECALLS_OP_NOP, _GETPID, _SET, _GET, _RAISE or _TIMER. `result` may be NULL.
 * -ENOSPC: 64 threads call at the same time; -ESHUTDOWN: the core is gone; other codes are those
 * with which the kernel side refused the call, results from -4095 to -1.
 */
int ecalls_call_fast(const ecalls_channel_t *channel,
		     uint32_t op,
		     uint64_t a,
		     uint64_t b,
		     uint64_t c,
		     int64_t *result);

/*
 * Defers a call: a store into shared memory without a system call (ECalls-01 §2.3.1). The kernel
 * side handles it with the channel's next fast call, or as the channel's options say. When the
 * ring of 1024 calls is full, its calls are first handled by fast calls.
 */
int ecalls_call_defer(const ecalls_channel_t *channel,
		      uint32_t op,
		      uint64_t a,
		      uint64_t b,
		      uint64_t c);

/*
 * Defers a call in a cell, 0 to 15, that holds only the latest call: it replaces a call in the
 * same cell that was not handled yet.
 */
int ecalls_call_defer_latest(const ecalls_channel_t *channel,
			     uint32_t cell,
			     uint32_t op,
			     uint64_t a,
			     uint64_t b,
			     uint64_t c);

/* Handles all deferred calls now, by fast calls. */
int ecalls_call_flush(const ecalls_channel_t *channel);

/* Writes the number of deferred calls that were not handled yet. No system call. */
int ecalls_call_pending(const ecalls_channel_t *channel, uint64_t *pending);

/*
 * Starts a timer that expires once, after this time. Its events go to this process's subscriptions
 * to the service "timer"; `type` of an event is the timer's number.
 * -ENOSPC: all timers of the core are in use; -EDQUOT: this user has used up its timers.
 */
int ecalls_timer_after(const ecalls_channel_t *channel, uint64_t after_us, ecalls_timer_t **timer);

/* Starts a timer that expires every `period_us`, at least 50, first after one period. */
int ecalls_timer_every(const ecalls_channel_t *channel, uint64_t period_us, ecalls_timer_t **timer);

/*
 * Starts a timer that expires at `expiry_ns` of CLOCK_MONOTONIC, and then every `period_us`; 0:
 * only once.
 */
int ecalls_timer_at(const ecalls_channel_t *channel,
		    uint64_t expiry_ns,
		    uint64_t period_us,
		    ecalls_timer_t **timer);

/*
 * Changes the next expiry to `expiry_ns`, and the period to `period_us` (0: once), by a deferred
 * call, without a system call.
 */
int ecalls_timer_move(const ecalls_timer_t *timer, uint64_t expiry_ns, uint64_t period_us);

/* Writes the timer's number: `type` of its events. */
int ecalls_timer_number(const ecalls_timer_t *timer, uint32_t *number);

/* Cancels a timer and closes its handle. An expiry that was raised before still arrives. */
void ecalls_timer_cancel(ecalls_timer_t *timer);

/*
 * Registers a socket of this process with the service "socket". The registration lasts as long as
 * the socket, or until ecalls_forget_socket. `interest` NULL: as if all fields were 0.
 * -EBADF: `fd` is not open; -EINVAL: it is not a socket.
 */
int ecalls_watch_socket(const ecalls_t *ecalls, int fd, const struct ecalls_interest *interest);

/* Ends a registration. */
int ecalls_forget_socket(const ecalls_t *ecalls, int fd);

/*
 * Registers all sockets that process `pid` has open now. Their number is written to `registered`,
 * which may be NULL. The code is the system's if there is no such process or the caller may not
 * inspect it.
 */
int ecalls_watch_sockets_of(const ecalls_t *ecalls,
			    uint32_t pid,
			    const struct ecalls_interest *interest,
			    uint64_t *registered);

/*
 * Opens a map of one thread's sockets (ECalls-01 §3.2). It needs no ecalls_t, but root's rights:
 * -EPERM.
 */
int ecalls_socket_ready_open(ecalls_socket_ready_t **ready);

/* Closes a map: its sockets are told no more. */
void ecalls_socket_ready_close(ecalls_socket_ready_t *ready);

/*
 * Adds a socket of IPv4 or IPv6: it is hinted once, and then whenever more has come, until it is
 * closed. One system call. -EBADF: `fd` is not open; -EINVAL: it is no such socket.
 */
int ecalls_socket_interest_add(ecalls_socket_ready_t *ready, int fd);

/* Ends that. A socket that is closed need not be removed, unless another process holds it. */
int ecalls_socket_interest_remove(ecalls_socket_ready_t *ready, int fd);

/*
 * No hints of a socket that was added, or hints of it again: then it is hinted once. No system
 * call.
 */
int ecalls_socket_interest_set(ecalls_socket_ready_t *ready, int fd, int wanted);

/*
 * Takes hints: writes at most `most` descriptors that may be ready, and returns how many. If it
 * returns `most`, there may be more. No system call.
 */
int ecalls_socket_ready_take(ecalls_socket_ready_t *ready, size_t most, int *fds);

/*
 * Sleeps until there is a hint, at most for `timeout_us`; -1: without limit. -ETIMEDOUT: there is
 * none. One system call, and none if there is one already.
 */
int ecalls_socket_ready_wait(ecalls_socket_ready_t *ready, int64_t timeout_us);

/*
 * The descriptor to wait on with poll or epoll, between ecalls_socket_ready_prepare_wait and
 * ecalls_socket_ready_end_wait. It belongs to the map: do not close or read it.
 */
int ecalls_socket_ready_fd(const ecalls_socket_ready_t *ready);

/*
 * Requests a wake-up. 1: wait on the descriptor, then call ecalls_socket_ready_end_wait and take.
 * 0: there is a hint already, so do not wait.
 */
int ecalls_socket_ready_prepare_wait(ecalls_socket_ready_t *ready);

/* Ends a wait: the descriptor becomes unreadable again, and no wake-up is requested. */
int ecalls_socket_ready_end_wait(ecalls_socket_ready_t *ready);

/*
 * Calls `handler` whenever the real-time signal `signal`, SIGRTMIN to SIGRTMAX, arrives at the
 * process (ECalls-05 §3.1.1). While it runs, all other signals are blocked except those that
 * report a fault. With ecalls_signal_keep_order, pending signals are then handled in the papers'
 * order: real-time signals before regular ones, the lowest number first. -EINVAL: another signal.
 */
int ecalls_signal_install(int signal, ecalls_signal_callback_t handler);

/*
 * Removes the handler of a real-time signal. From then on the signal is ignored, because its
 * default action would end the process, and a sender may still use it. -EINVAL: another signal.
 */
int ecalls_signal_uninstall(int signal);

/*
 * Removes the real-time signals from the masks of all regular signal handlers that the process has
 * now, so that real-time signals precede and interrupt them. Call it after those handlers were
 * installed. Returns the number of handlers that were changed.
 */
int ecalls_signal_keep_order(void);

/* Opens the calling thread's loop. -EBUSY: the thread has one already. */
int ecalls_loop_open(ecalls_loop_t **events);

/*
 * Opens the calling thread's loop, which polls cooperatively (ECalls' scheduler, Coop §3.1) by
 * slot `slot`, 0 to 15, of a channel, in group `group` (0: none; threads of one user that name the
 * same number share their CPU time by the user virtual times of their events). While no scheduler
 * runs, it behaves as a loop of ecalls_loop_open().
 */
int ecalls_loop_open_slot(const ecalls_channel_t *channel,
			  uint32_t slot,
			  uint32_t group,
			  ecalls_loop_t **events);

/*
 * Returns what determines the times at which the loop's timers run, as of its last poll. 1: a
 * scheduler that knows the thread; 0: only the kernel's timers.
 */
int ecalls_loop_timing(const ecalls_loop_t *events);

/* Closes a loop, on its thread and not within an event. Submitted events do not run any more. */
void ecalls_loop_close(ecalls_loop_t *events);

/*
 * Submits an event: its callback runs once. The number of the event is written to `number`, which
 * may be NULL.
 */
int ecalls_loop_submit(ecalls_loop_t *events,
		       const struct ecalls_loop_event *event,
		       uint64_t *number);

/*
 * Changes type and time of a submitted event, or lets the running event run again. 1: done; 0: the
 * event has run or was cancelled. `time` is a release time or a user virtual time, depending on
 * `type`.
 */
int ecalls_loop_resubmit(const ecalls_loop_t *events,
			 uint64_t number,
			 uint32_t type,
			 uint64_t time);

/* Cancels an event. 1: done; 0: it has run, is running, or was cancelled before. */
int ecalls_loop_cancel(const ecalls_loop_t *events, uint64_t number);

/*
 * Runs events until one of them stops the loop, or until none is left. -EBUSY: called within an
 * event.
 */
int ecalls_loop_run(const ecalls_loop_t *events);

/* Ends ecalls_loop_run() when the running event returns. */
int ecalls_loop_stop(const ecalls_loop_t *events);

/* Writes the lateness of all timers so far. */
int ecalls_loop_tardiness(const ecalls_loop_t *events, struct ecalls_loop_tardiness *tardiness);

/*
 * Makes an event of the given type whenever a descriptor is ready, or while events wait in a
 * channel. The callback runs in the order of events, and again while the source is ready. The
 * number of the source is written to `number`, which may be NULL. -EPERM: the kind of descriptor
 * cannot be waited for, such as a file's; -EBADF: the descriptor is not open; -EEXIST: it is
 * watched already.
 */
int ecalls_loop_watch(ecalls_loop_t *events,
		      const struct ecalls_loop_source *source,
		      uint64_t *number);

/* Ends watching a source. 1: done; 0: it had been ended before. */
int ecalls_loop_unwatch(const ecalls_loop_t *events, uint64_t source);

/*
 * Returns the descriptor that another event loop watches for reading, to call ecalls_loop_turn()
 * when it is readable. It belongs to the loop.
 */
int ecalls_loop_fd(const ecalls_loop_t *events);

/*
 * Runs the events that are due, and returns instead of sleeping. 1: call it again, at once if
 * `next_ns` is 0, otherwise when the loop's descriptor is readable, which it is at `next_ns` at
 * the latest (UINT64_MAX: no timer waits); 0: the loop was stopped, or no event can occur any
 * more. `next_ns` may be NULL.
 */
int ecalls_loop_turn(const ecalls_loop_t *events, uint64_t *next_ns);

/*
 * Opens a handle by which other threads submit events. While one is open, ecalls_loop_run() waits
 * for them.
 */
int ecalls_loop_remote(ecalls_loop_t *events, ecalls_loop_remote_t **remote);

/*
 * Submits an event from any thread: its callback runs once, on the loop's thread. -ESHUTDOWN: the
 * loop is closed.
 */
int ecalls_loop_remote_submit(const ecalls_loop_remote_t *remote,
			      const struct ecalls_loop_event *event);

/* Stops the loop from any thread, before any event that is not running yet. */
int ecalls_loop_remote_stop(const ecalls_loop_remote_t *remote);

/* Closes the handle, on any thread. Events that were submitted by it still run. */
void ecalls_loop_remote_close(ecalls_loop_remote_t *remote);

/*
 * Lets the calling thread poll by slot `slot`, 0 to 15, of a channel, in group `group` (0: none;
 * threads of one user that name the same number share their CPU time by importance). `channel`
 * NULL: the thread polls without a scheduler, and its sleeps are as precise as the kernel's
 * timers.
 */
int ecalls_coop_open(const ecalls_channel_t *channel,
		     uint32_t slot,
		     uint32_t group,
		     ecalls_coop_t **poll);

/* Ends a thread's polls. The thread keeps the slot until it ends or names another one. */
void ecalls_coop_close(ecalls_coop_t *poll);

/*
 * One poll: the release time of the caller's first timer, and the least user virtual time of its
 * best-effort work; ECALLS_COOP_NONE where there is none. With work, or with a timer that is due,
 * the thread yields; otherwise it sleeps until `release_ns` or a signal. `answer` may be NULL.
 * 1: a scheduler has answered; 0: none is active. -EDEADLK: both are ECALLS_COOP_NONE.
 */
int ecalls_coop_poll(ecalls_coop_t *poll,
		     uint64_t release_ns,
		     uint64_t importance,
		     struct ecalls_coop_answer *answer);

/*
 * Begins a poll before a sleep that the caller performs itself, in epoll for instance, until
 * `release_ns` at the latest.
 */
int ecalls_coop_before_sleep(ecalls_coop_t *poll, uint64_t release_ns, uint64_t importance);

/*
 * Ends the poll that ecalls_coop_before_sleep() began. Answer and result are those of
 * ecalls_coop_poll().
 */
int ecalls_coop_after_sleep(ecalls_coop_t *poll, struct ecalls_coop_answer *answer);

/*
 * Binds the calling thread to slot `slot`, 0 to 15, of a channel, in group `group` (0: none;
 * threads of one user that name the same number are a group), from its next yield on. Threads that
 * poll need not call it: ecalls_coop_open() and ecalls_loop_open_slot() do so.
 */
int ecalls_coop_slot(const ecalls_channel_t *channel, uint32_t slot, uint32_t group);

/*
 * The same for the thread that reads the channel's events, which becomes their sink: when an event
 * was raised with ECALLS_EVENT_CPU, the thread runs before other fair threads, but for no more
 * than its share; the sink of the event with the earliest deadline runs first.
 */
int ecalls_sink_slot(const ecalls_channel_t *channel, uint32_t slot, uint32_t group);

/*
 * Returns the scheduler's view of the thread of a slot: ECALLS_COOP_UNBOUND (it has seen no thread
 * there, or does not run), _COOPERATIVE, _DEMOTED (fair until its next poll) or _NO_PLACE.
 */
int ecalls_coop_standing(const ecalls_channel_t *channel, uint32_t slot);

/*
 * Requests a window for the calling thread, which must own this slot and be in no group. It
 * replaces the thread's present window, and lasts until the thread ends or names its slot again.
 * ECALLS_WINDOW_PROMISED: at least y - x of y periods will be served, if the thread is ready when
 * they begin; ECALLS_WINDOW_UNPROMISED: there is no such guarantee. -ENOSPC: refused; the text
 * says how much CPU is left, or that there is no place for the thread; -ESHUTDOWN: there is no
 * scheduler; -EINVAL: the window is out of bounds, or the thread is in a group; -ENOENT: the slot
 * does not belong to the thread.
 */
int ecalls_coop_window(const ecalls_channel_t *channel,
		       uint32_t slot,
		       const struct ecalls_coop_window *window);

/* Ends the calling thread's window. */
int ecalls_coop_end_window(const ecalls_channel_t *channel, uint32_t slot);

/* Writes the results of the periods of the window of a slot's thread. */
int ecalls_coop_periods(const ecalls_channel_t *channel,
			uint32_t slot,
			struct ecalls_coop_periods *periods);

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
 * may be NULL. Any thread may call this. -EDEADLK: it is the calling thread.
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
 * Sets a thread's priority, from the next time on that it becomes ready: more is more important,
 * with ECALLS_THREADS_RANKED. `thread` NULL: the calling one; -ESRCH: it is none of a runtime.
 */
int ecalls_thread_set_priority(const ecalls_thread_t *thread, uint32_t priority);

/* Sets a thread's deadline in the same way, ns of CLOCK_MONOTONIC; 0: none. */
int ecalls_thread_set_deadline(const ecalls_thread_t *thread, uint64_t deadline_ns);

/* Gives other ready threads the processor. Returns 0. */
int ecalls_thread_yield(void);

/* Sleeps; the processor executes other threads. Returns 0. */
int ecalls_thread_sleep(uint64_t time_us);

/* Sleeps until `until_ns`. Returns 0. */
int ecalls_thread_sleep_until(uint64_t until_ns);

/*
 * Executes `call(argument)`, which may block in the kernel: the processor executes other threads
 * meanwhile. Returns 0; `errno` is as the call left it.
 */
int ecalls_thread_blocking(ecalls_thread_call_t call, void *argument);

/*
 * A scheduling point, and nothing else, for use after a call that may have blocked and was not in
 * ecalls_thread_blocking(). Returns 0; `errno` stays.
 */
int ecalls_thread_scheduling_point(void);

/*
 * Waits until a descriptor is ready (ECALLS_THREAD_READABLE or _WRITABLE), until `until_ns` or
 * ECALLS_NEVER: without a kernel thread, which a thread that blocks in read() has. 0: it is ready.
 * -ETIMEDOUT: the time has come.
 */
int ecalls_thread_wait_ready(int fd, uint32_t interest, uint64_t until_ns);

/* Waits for the mutex. */
int ecalls_mutex_lock(struct ecalls_mutex *mutex);

/* The same until `until_ns`; 0: without waiting. -ETIMEDOUT: another thread has it. */
int ecalls_mutex_lock_until(struct ecalls_mutex *mutex, uint64_t until_ns);

/* Gives the mutex up. -EPERM: nobody has it. */
int ecalls_mutex_unlock(struct ecalls_mutex *mutex);

/*
 * Gives the mutex up, waits to be notified, and takes the mutex again. It may return without a
 * notification: ask again.
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

/* Waits for a permit, and takes it. */
int ecalls_semaphore_acquire(struct ecalls_semaphore *semaphore);

/* The same until `until_ns`; 0: without waiting. -ETIMEDOUT: there is none. */
int ecalls_semaphore_acquire_until(struct ecalls_semaphore *semaphore, uint64_t until_ns);

/* Gives a permit. -EOVERFLOW: there are 4294967295. */
int ecalls_semaphore_release(struct ecalls_semaphore *semaphore);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ECALLS_H */
