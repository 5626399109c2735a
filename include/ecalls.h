/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libecalls: events between the Linux kernel and applications, in both directions, with deadlines.
 * This file is written by crates/ecalls-c/tests/header.rs; change the source there.
 *
 * A service raises events: the kernel's sockets, timers, tasks and scheduler, or another
 * application. A subscription says what is done with each, in order; the result of each action
 * decides whether the next one runs. A channel is the shared memory from which a program reads its
 * events without a system call, and into which it writes its calls to the kernel.
 *
 * Results   0 or more: done. Negative: an errno-style code, of which ecalls_strerror() gives the
 *           meaning and ecalls_last_error() the whole text. Outputs come last and are written only
 *           on success.
 * Handles   ecalls_t and the other ..._t belong to the caller until closed; a closed one is used
 *           no more. They may be used from any thread, except that nothing may run with a handle
 *           while it is closed. They may be closed in any order. Closing NULL does nothing; NULL
 *           elsewhere is -EINVAL, unless its function gives it a meaning.
 * Options   begin with `size`: set it to the size of the struct. Set everything else to 0 that has
 *           no meaning for you. A newer library takes older structs.
 * Times     are relative and in us where the name ends in _us, and ns of CLOCK_MONOTONIC where it
 *           ends in _ns.
 * Texts     end with 0 and are UTF-8. They and the arrays are copied: they need not live on.
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
/* An event loop of one thread. */
typedef struct ecalls_loop_t ecalls_loop_t;
/* By which other threads submit to a loop. */
typedef struct ecalls_loop_remote_t ecalls_loop_remote_t;
/* The polls of one thread. */
typedef struct ecalls_coop_t ecalls_coop_t;

/* Returned by a handler of the program: go on with the next action. */
#define ECALLS_CONTINUE 0

/* Returned by a handler of the program: end here. So does any other value. */
#define ECALLS_STOP 1

/* ecalls_interest.flags: `type` of the events is that of the interest, not the descriptor. */
#define ECALLS_INTEREST_TYPE 1

/* ecalls_interest.flags: only arriving data, no connections. */
#define ECALLS_INTEREST_DATA_ONLY 2

/* ecalls_interest.flags: connections that a listener accepts are not registered. */
#define ECALLS_INTEREST_NOT_INHERITED 4

/* `type` of an event: it runs when its release time has come. */
#define ECALLS_LOOP_TIMER 0

/* `type` of an event: it runs when no timer is due, least user virtual time first. */
#define ECALLS_LOOP_BEST_EFFORT 1

/* `interest` and `ready` of a source: it can be read without waiting. */
#define ECALLS_LOOP_READABLE 1

/* `interest` and `ready` of a source: it can be written without waiting. */
#define ECALLS_LOOP_WRITABLE 2

/* How a channel is laid out (ECalls-01 §2.3). All 0 but `size`: a ring of 1024 events. */
struct ecalls_channel_options {
	/* Size of this struct. */
	uint32_t size;
	/* ECALLS_LAYOUT_RING or ECALLS_LAYOUT_SLOTS. */
	uint32_t layout;
	/*
	 * Events, a power of two: of a ring 64 to 65536 and more than there are CPUs, of slots 1 to
	 * 1024. 0: 1024.
	 */
	uint32_t capacity;
	/* Which slot an event takes: ECALLS_SLOT_FREE, _PRIORITY or _TYPE. */
	uint32_t slot_use;
	/*
	 * When deferred calls are handled, beside the next fast call (ECalls-01 §2.3.1): any of
	 * ECALLS_DEFER_DELAY, ECALLS_DEFER_SWITCH.
	 */
	uint32_t defer;
	/* 1: late events are handed out too, instead of being discarded and counted. */
	uint32_t keep_late;
	/* With ECALLS_DEFER_DELAY: how long deferred calls may wait, us, at least 1. */
	uint64_t delay_us;
};

/*
 * A handler of the program, an upcall (ECalls-05 §3.1). Runs on a thread of the library, one event
 * after the other; the event lives until it returns. It shall not throw.
 */
typedef int (*ecalls_callback_t)(const struct ecalls_event *event, void *context);

/*
 * One action of a subscription (ECalls-05 §3.1); fields that its kind does not name are ignored.
 *
 * ECALLS_ACTION_HANDLER  a kernel handler: it decides whether the chain goes on
 * ECALLS_ACTION_THREAD   a kernel handler in a kernel thread, and the rest of the chain there
 * ECALLS_ACTION_SIGNAL   a real-time signal; the chain goes on
 * ECALLS_ACTION_USER     a handler of the program: it decides whether the chain goes on
 * ECALLS_ACTION_MEMORY   shared memory of a channel; the chain goes on
 *
 * Kernel handlers (ecalls/handler.h says what they do):
 *
 * "sample"     argument[0]: one in so many events goes on
 * "limit"      argument[0]: events per second, argument[1]: so many at once
 * "threshold"  field, compare, and bound or attribute
 * "histogram"  field, argument[0]: bits by which its value is shifted right
 * "count"      argument[0]: 1: the chain ends here
 * "copy_user"  argument[0]: address, [1]: offset into the data, [2]: bytes; only in a thread
 * "ecode"      text: a handler in E-code (ecode(7)), compiled now
 */
struct ecalls_subscribe_action {
	/* ECALLS_ACTION_*. */
	uint32_t kind;
	/*
	 * SIGNAL: ECALLS_ACTION_FIXED_VALUE, to send `value` instead of the event's first data
	 * word.
	 */
	uint32_t flags;
	/* HANDLER, THREAD: name of the kernel handler. */
	const char *handler;
	/* HANDLER, THREAD: name of a field of the service's data, for handlers that look at one. */
	const char *field;
	/* HANDLER, THREAD: the handler's arguments. */
	uint64_t argument[3];
	/* HANDLER, THREAD: "threshold": ECALLS_COMPARE_*; signed if the field is. */
	uint32_t compare;
	/*
	 * HANDLER, THREAD: "threshold": 0: compare with `bound`; n: with attribute n - 1 of the
	 * subscription's channel.
	 */
	uint32_t attribute;
	/* HANDLER, THREAD: "threshold": what the field is compared with. */
	uint64_t bound;
	/* SIGNAL: its number, SIGRTMIN to SIGRTMAX. */
	uint32_t signal;
	/* 0. */
	uint32_t pad;
	/* SIGNAL: with ECALLS_ACTION_FIXED_VALUE, its value. */
	uint64_t value;
	/* MEMORY: the channel. */
	const ecalls_channel_t *channel;
	/* USER: the handler. */
	ecalls_callback_t callback;
	/* USER: handed to the handler. It is used on a thread of the library. */
	void *context;
	/* HANDLER, THREAD: "ecode": its text, an expression or a body. */
	const char *text;
	/*
	 * HANDLER, THREAD: "ecode": what messages about the text call it, say its file. NULL:
	 * "ecode".
	 */
	const char *text_name;
};

/* What is subscribed to, and what is done with each event (struct ecalls of ECalls-05 §3). */
struct ecalls_subscribe_options {
	/* Size of this struct. */
	uint32_t size;
	/* Size of one action: sizeof(struct ecalls_subscribe_action). */
	uint32_t action_size;
	/* The actions, in order. */
	const struct ecalls_subscribe_action *actions;
	/* How many: 1 to ECALLS_ACTIONS_MAX. */
	uint32_t action_count;
	/* Bit k: events of kind k. 0: all. */
	uint32_t kinds;
	/*
	 * Who receives (process_id of struct ecalls): signals go there, and events with a target
	 * are matched with it. 0: this process.
	 */
	uint32_t receiver;
	/* Only events raised in this process. 0: in any. */
	uint32_t pid;
	/* Events not delivered within this time are discarded and counted, us. 0: none. */
	uint64_t deadline_us;
	/*
	 * Channel that shows what was not delivered, and the histogram. NULL: that of the first
	 * MEMORY action.
	 */
	const ecalls_channel_t *report;
	/*
	 * Names of the attributes of the reporting channel, in the order of their numbers, for
	 * handlers in E-code.
	 */
	const char *const *attributes;
	/* How many: 0 to ECALLS_ATTRIBUTES. */
	uint32_t attribute_count;
	/* 0. */
	uint32_t pad;
};

/* What is raised: the arguments of raise_event (ECalls-05 §3). */
struct ecalls_raise {
	/* Size of this struct. */
	uint32_t size;
	/* For whom: a process id, ECALLS_TARGET_ALL or ECALLS_TARGET_WAKE_ONE. Not 0. */
	int32_t target;
	/* What happened, 0 to 31. */
	uint32_t kind;
	/* Which typed slot it belongs to. */
	uint32_t type;
	/* Which priority slot it belongs to; 0 is the most urgent. */
	uint32_t priority;
	/*
	 * ECALLS_EVENT_CPU asks for event-aware CPU scheduling of the receiver (ECalls-05 §4).
	 * ECALLS_RAISE_ABSOLUTE makes the two times below times of CLOCK_MONOTONIC.
	 */
	uint32_t flags;
	/*
	 * Discarded, and counted, when not delivered within this time (of its release, if that is
	 * later), us. 0: none.
	 */
	uint64_t deadline_us;
	/* Not delivered before this time has passed, us. 0: at once. */
	uint64_t release_us;
	/* The data. NULL if there is none. */
	const void *data;
	/* Bytes of it, at most ECALLS_DATA_MAX. */
	uint64_t data_size;
};

/*
 * What is registered of a socket (ECalls-05 §5.2). All 0 but `size`: data and connections, told to
 * this process, inherited by accepted connections.
 */
struct ecalls_interest {
	/* Size of this struct. */
	uint32_t size;
	/* ECALLS_INTEREST_*. */
	uint32_t flags;
	/*
	 * Who is told: 0: this process. ECALLS_TARGET_ALL: every subscription.
	 * ECALLS_TARGET_WAKE_ONE: one of them, in turn.
	 */
	int32_t target;
	/*
	 * With ECALLS_INTEREST_TYPE: `type` of its events: which typed slot they take. Otherwise
	 * that is the number of the descriptor.
	 */
	uint32_t type;
	/* Deadline of its events, us. 0: none. */
	uint64_t deadline_us;
};

/* A real-time signal as it was received. */
struct ecalls_signal {
	/* Its number. */
	int32_t signal;
	/* How it was sent (si_code): SI_KERNEL by an event, SI_QUEUE by sigqueue. */
	int32_t code;
	/* What the sender attached; 0 if nothing. */
	uint64_t value;
	/* Process that sent it; 0: the kernel, as for all events. */
	uint32_t pid;
	/* User of that process; 0 for the kernel. */
	uint32_t uid;
};

/*
 * A handler of a real-time signal. It runs in the middle of whatever the thread was doing: it may
 * call only what signal-safety(7) lists, and no function of this library.
 */
typedef void (*ecalls_signal_callback_t)(const struct ecalls_signal *received);

/* Runs on the loop's thread. `event` is the number that ecalls_loop_submit() gave. */
typedef void (*ecalls_loop_callback_t)(ecalls_loop_t *events, uint64_t event, void *context);

/* An event to submit (Coop Figure 2). */
struct ecalls_loop_event {
	/* Size of this struct. */
	uint32_t size;
	/* ECALLS_LOOP_TIMER or ECALLS_LOOP_BEST_EFFORT. */
	uint32_t type;
	/* What it does. */
	ecalls_loop_callback_t callback;
	/* For the callback. */
	void *context;
	/* Timer: when, ns of CLOCK_MONOTONIC. */
	uint64_t release_ns;
	/* Best effort: the less, the earlier. */
	uint64_t user_virtual_time;
};

/* How late a loop's timers were: call time minus release time. */
struct ecalls_loop_tardiness {
	/* Timers that ran. */
	uint64_t timers;
	/* Half of them were at most that late, to 1 %. */
	uint64_t p50_ns;
	/* 99 of 100 were at most that late, to 1 %. */
	uint64_t p99_ns;
	/* None was later. */
	uint64_t max_ns;
};

/*
 * Runs on the loop's thread while a source is ready: ECALLS_LOOP_READABLE, _WRITABLE. `source` is
 * the number that ecalls_loop_watch() gave.
 */
typedef void (*ecalls_loop_source_callback_t)(ecalls_loop_t *events,
					      uint64_t source,
					      uint32_t ready,
					      void *context);

/* Something to watch: a descriptor, or a channel. */
struct ecalls_loop_source {
	/* Size of this struct. */
	uint32_t size;
	/*
	 * The event that it becomes: ECALLS_LOOP_TIMER, released when it was found ready, or
	 * ECALLS_LOOP_BEST_EFFORT.
	 */
	uint32_t type;
	/* What it does. */
	ecalls_loop_source_callback_t callback;
	/* For the callback. */
	void *context;
	/* Best effort: the less, the earlier. */
	uint64_t user_virtual_time;
	/* The channel whose events are waited for; open while it is watched. NULL: `fd`. */
	ecalls_channel_t *channel;
	/* The descriptor; it stays open while it is watched. */
	int32_t fd;
	/* What to wait for: ECALLS_LOOP_READABLE, _WRITABLE, or both. 0: readable. */
	uint32_t interest;
};

/*
 * What a thread learns by a poll. Each is ECALLS_COOP_NONE where there is nothing to say; times
 * may have passed.
 */
struct ecalls_coop_answer {
	/* When it is to poll again. Past: when it has run the timers that are due. */
	uint64_t slice_end_ns;
	/* When another thread's timer is due: it is to poll by then, too. */
	uint64_t next_release_ns;
	/* The least user virtual time of the others of its group: with more than that, it polls. */
	uint64_t least_importance;
};

/* A thread's window: a service time in each period, x of y of which may be missed. */
struct ecalls_coop_window {
	/* Size of this struct. */
	uint32_t size;
	/*
	 * ECALLS_WINDOW_CONSERVING: beyond its service the thread shares what is left, like a fair
	 * one. 0: it waits for its next period.
	 */
	uint32_t flags;
	/* The period, 100 us to 10 s. */
	uint64_t period_us;
	/* CPU time in each period. */
	uint64_t service_us;
	/* Of y periods, how many may be missed. */
	uint32_t x;
	/* 1 to 1024. */
	uint32_t y;
};

/* How the periods of a window went, up to when the thread ran last. */
struct ecalls_coop_periods {
	/* Served. */
	uint64_t met;
	/* Not served. */
	uint64_t missed;
	/* Of these, those when x of the current window had been missed already. */
	uint64_t violated;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * The meaning of a code that a function returned, negative as it is or positive. Never NULL. A
 * text of this library lives forever; the system's text for any other code until the thread's next
 * call.
 */
const char *ecalls_strerror(int code);

/*
 * The text of the calling thread's last failed call: what was wrong, and what would be right.
 * Never NULL; empty before the first failure. Lives until the thread's next failed call. Success,
 * -EAGAIN and -ETIMEDOUT leave it as it is.
 */
const char *ecalls_last_error(void);

/*
 * Connects to the daemon (ecallsd), for programs of any user. Where none runs, a privileged
 * program joins the machine's core, or loads it into the kernel if there is none.
 * -EPERM without daemon and privileges; -EDQUOT when this user has all its connections; -ENOSYS if
 * this kernel lacks something, with its name; -EPROTO if a core of another version or build runs;
 * -ENOEXEC if the kernel refused a program.
 */
int ecalls_open(ecalls_t **ecalls);

/*
 * The same, but waits for the daemon for at most `timeout_us`: after -ESHUTDOWN from
 * ecalls_check() or another function, to go on with the next daemon. -ESHUTDOWN when the time has
 * run out.
 */
int ecalls_open_within(uint64_t timeout_us, ecalls_t **ecalls);

/*
 * Whether events still come: 0, or -ESHUTDOWN when the daemon has ended. Then everything that was
 * made with `ecalls` shows no more events: close it, and open and subscribe again.
 */
int ecalls_check(const ecalls_t *ecalls);

/* This process, as events number it; inside a container that is not its own number there. */
int ecalls_pid(const ecalls_t *ecalls);

/*
 * Connects to the daemon or joins the machine's core, if either runs; loads nothing. -ENOENT if
 * none runs.
 */
int ecalls_join(ecalls_t **ecalls);

/* Ends the use of the core. What was opened with it goes on until it is closed itself. */
void ecalls_close(ecalls_t *ecalls);

/*
 * Writes an event as one line of text: service, kind, process, fields by name. As snprintf: at
 * most `size` bytes with the final 0, and returns the length of the whole text. For people;
 * programs use the structs in ecalls/service.h. A service that is gone is named by its number.
 */
int ecalls_describe(const ecalls_t *ecalls,
		    const struct ecalls_event *event,
		    char *buffer,
		    size_t size);

/*
 * Writes the format of a service's data, the fields of a C struct: "u64 cookie; u16 port". As
 * snprintf: at most `size` bytes with the final 0, and returns the length of the whole text.
 * -ENOENT without such a service.
 */
int ecalls_format(const ecalls_t *ecalls, const char *service, char *buffer, size_t size);

/*
 * Opens a channel (ECalls-05 §3.2). `options` NULL: a ring of 1024 events.
 * -EINVAL for options without meaning; -ENOSPC when all channels of the core are in use.
 */
int ecalls_channel_open(const ecalls_t *ecalls,
			const struct ecalls_channel_options *options,
			ecalls_channel_t **channel);

/*
 * Closes a channel: its descriptor and its memory are gone. Timers made with it keep its kernel
 * side until they are cancelled. Events that a subscription still sends there are counted as
 * ECALLS_DROP_CHANNEL_GONE.
 */
void ecalls_channel_close(ecalls_channel_t *channel);

/*
 * The descriptor to wait on with poll or epoll, between ecalls_channel_prepare_wait and
 * ecalls_channel_end_wait. It belongs to the channel: do not close or read it.
 */
int ecalls_channel_fd(const ecalls_channel_t *channel);

/*
 * The next event, without waiting and without a system call. When several wait, the one with the
 * earliest deadline; late ones are discarded and counted. -EAGAIN: no event waits.
 */
int ecalls_channel_try_recv(ecalls_channel_t *channel, struct ecalls_event *event);

/*
 * The same, and sleeps at most `timeout_us` while there is no event; -1: without end. A signal
 * handler that runs does not end the wait. One thread at a time shall wait on a channel.
 * -ETIMEDOUT: the time ran out.
 */
int ecalls_channel_recv(ecalls_channel_t *channel, int64_t timeout_us, struct ecalls_event *event);

/*
 * Asks for a wake-up. 1: wait on the descriptor now, then call ecalls_channel_end_wait and read.
 * 0: an event is there already, do not wait.
 */
int ecalls_channel_prepare_wait(ecalls_channel_t *channel);

/* Ends a wait: the descriptor is unreadable again, and no wake-up is asked for. */
int ecalls_channel_end_wait(ecalls_channel_t *channel);

/*
 * Takes the bits of a slot layout (ECalls-01 §2.3): bit i % 64 of bitmap[i / 64] is set if slot i
 * had an event, and is cleared in the channel, without reading the event. Thereby the readiness of
 * 1024 descriptors costs some ns. `words` is the length of the bitmap, at least capacity / 64,
 * rounded up; words beyond are set to 0. Returns how many bits are set; always 0 for a ring.
 */
int ecalls_channel_take_ready(ecalls_channel_t *channel, size_t words, uint64_t *bitmap);

/* What the kernel side did not deliver to this channel, and why. No system call. */
int ecalls_channel_lost(const ecalls_channel_t *channel, struct ecalls_lost *lost);

/* How many events arrived in time, but were late when this channel's reader came to them. */
int ecalls_channel_late(const ecalls_channel_t *channel, uint64_t *late);

/* Copies the 64 counters of the kernel handler `histogram`. No system call. */
int ecalls_channel_histogram(const ecalls_channel_t *channel, uint64_t *counters);

/*
 * Subscribes to the service of that name; events arrive from then on (ECalls-05 §3).
 * -ENOENT without such a service, kernel handler or field, with the names there are; -EINVAL for
 * options without meaning, and for E-code that is wrong, with all places; -ENOSPC when the service
 * has all the subscriptions it can have; -ESHUTDOWN if the receiver does not exist.
 */
int ecalls_subscribe(const ecalls_t *ecalls,
		     const char *service,
		     const struct ecalls_subscribe_options *options,
		     ecalls_subscription_t **subscription);

/* Ends a subscription. Waits for a handler of the program that is running, unless called by it. */
void ecalls_unsubscribe(ecalls_subscription_t *subscription);

/* Its id: `subscription` of its events. */
int ecalls_subscription_id(const ecalls_subscription_t *subscription, uint32_t *id);

/* What the kernel side counted of it: offered, delivered, filtered, late, dropped and why. */
int ecalls_subscription_counts(const ecalls_subscription_t *subscription,
			       struct ecalls_subscription_count *counts);

/*
 * Replaces handler number `number` in E-code, counted from 0, while events arrive: each meets
 * either the former one or this one. Its static variables of the same name and type go on.
 * `name`: what messages about the text call it; NULL: "ecode".
 * -EINVAL for a text that is wrong, or has another output than the handlers behind it are made
 * for; -ESHUTDOWN without such a handler. Then the former one goes on.
 */
int ecalls_subscription_replace(const ecalls_subscription_t *subscription,
				uint32_t number,
				const char *name,
				const char *text);

/*
 * Writes the format of the data that arrive at the end of its chain: the service's, or the output
 * of its last handler in E-code that has one. As ecalls_format().
 */
int ecalls_subscription_format(const ecalls_subscription_t *subscription,
			       char *buffer,
			       size_t size);

/*
 * Writes what the compiler found odd in its texts in E-code, though they run (an unused variable,
 * a condition that never holds): messages with their places, each with a line feed at its end. As
 * ecalls_format(); 0: nothing.
 */
int ecalls_subscription_warnings(const ecalls_subscription_t *subscription,
				 char *buffer,
				 size_t size);

/*
 * Registers a service of this program by a unique name (ECalls-05 §3). `format` describes its data
 * as the fields of a C struct: "u64 load; u32 threads"; `kinds` names its kinds: "high low". Both
 * may be NULL: no data, kinds without names.
 * -EINVAL when the name is taken or not well-formed; -ENOSPC when all services are in use.
 */
int ecalls_service_register(const ecalls_t *ecalls,
			    const char *name,
			    const char *format,
			    const char *kinds,
			    ecalls_service_t **service);

/* Unregisters a service. Its subscriptions stay, and see it again if it comes back. */
void ecalls_service_unregister(ecalls_service_t *service);

/* Its index: `service` of its events, and the argument of ECALLS_OP_RAISE. */
int ecalls_service_index(const ecalls_service_t *service, uint32_t *index);

/*
 * Raises an event of a service of this program (ECalls-05 §3). `raise` NULL: kind 0 for everybody,
 * without data. `offered` (NULL if you do not care): how many subscriptions it was offered to at
 * once; 0 when it waits for its release, or nobody subscribed, which is counted.
 * -EINVAL for too much data; -ENOSPC when the queue is full and this deadline the latest; -EDQUOT
 * when this user raises more, or has more events waiting, than the daemon lets it.
 */
int ecalls_service_raise(const ecalls_service_t *service,
			 const struct ecalls_raise *raise,
			 int64_t *offered);

/*
 * The same by the name of a service: the generic call (ECalls-01 §2.3.1), which may block.
 * -ENOENT without such a service; -EPERM if it is built in, or another process' and you are not
 * root.
 */
int ecalls_raise(const ecalls_t *ecalls,
		 const char *service,
		 const struct ecalls_raise *raise,
		 int64_t *offered);

/*
 * A fast call (ECalls-01 §2.3.1): done when it returns; deferred calls of the channel are handled
 * first. `op` and its arguments a, b, c (0 if unused) are those of ecalls/downcall.h:
 * ECALLS_OP_NOP, _GETPID, _SET, _GET, _RAISE or _TIMER. `result` may be NULL.
 * -ENOSPC when 64 threads call at the same time; -ESHUTDOWN when the core is gone; otherwise the
 * code with which the kernel side refused the call, which is a result from -4095 to -1.
 */
int ecalls_call_fast(const ecalls_channel_t *channel,
		     uint32_t op,
		     uint64_t a,
		     uint64_t b,
		     uint64_t c,
		     int64_t *result);

/*
 * Defers a call: a store into shared memory, no system call (ECalls-01 §2.3.1). It is handled with
 * the channel's next fast call, or as the channel was opened. When the ring of 1024 calls is full,
 * what is in it is handled first by fast calls.
 */
int ecalls_call_defer(const ecalls_channel_t *channel,
		      uint32_t op,
		      uint64_t a,
		      uint64_t b,
		      uint64_t c);

/*
 * Defers a call of which only the latest counts: it replaces one in the same cell, 0 to 15, that
 * was not handled yet.
 */
int ecalls_call_defer_latest(const ecalls_channel_t *channel,
			     uint32_t cell,
			     uint32_t op,
			     uint64_t a,
			     uint64_t b,
			     uint64_t c);

/* Handles what was deferred now, by fast calls. */
int ecalls_call_flush(const ecalls_channel_t *channel);

/* How many deferred calls were not handled yet. No system call. */
int ecalls_call_pending(const ecalls_channel_t *channel, uint64_t *pending);

/*
 * A timer that expires once, after this time. Its events go to this process' subscriptions to the
 * service "timer"; `type` of an event is the timer's number.
 * -ENOSPC when all timers of the core are in use, -EDQUOT when this user has all of its own.
 */
int ecalls_timer_after(const ecalls_channel_t *channel, uint64_t after_us, ecalls_timer_t **timer);

/* A timer that expires every `period_us`, at least 50, the first time after one period. */
int ecalls_timer_every(const ecalls_channel_t *channel, uint64_t period_us, ecalls_timer_t **timer);

/*
 * A timer that expires at `expiry_ns` of CLOCK_MONOTONIC, and then every `period_us`; 0: only
 * once.
 */
int ecalls_timer_at(const ecalls_channel_t *channel,
		    uint64_t expiry_ns,
		    uint64_t period_us,
		    ecalls_timer_t **timer);

/*
 * Moves the next expiry to `expiry_ns`, and the period to `period_us` (0: once), by a deferred
 * call: no system call.
 */
int ecalls_timer_move(const ecalls_timer_t *timer, uint64_t expiry_ns, uint64_t period_us);

/* Its number: `type` of its events. */
int ecalls_timer_number(const ecalls_timer_t *timer, uint32_t *number);

/* Cancels a timer and ends its handle. An expiry that was raised already still arrives. */
void ecalls_timer_cancel(ecalls_timer_t *timer);

/*
 * Registers a socket of this process with the service "socket". That lives as long as the socket,
 * or until ecalls_forget_socket. `interest` NULL: as if all were 0.
 * -EBADF if `fd` is not open; -EINVAL if it is no socket.
 */
int ecalls_watch_socket(const ecalls_t *ecalls, int fd, const struct ecalls_interest *interest);

/* Ends a registration. */
int ecalls_forget_socket(const ecalls_t *ecalls, int fd);

/*
 * Registers all sockets that process `pid` has open now. `registered` (NULL if you do not care):
 * how many. Fails with the system's code when there is no such process or it may not be looked
 * into.
 */
int ecalls_watch_sockets_of(const ecalls_t *ecalls,
			    uint32_t pid,
			    const struct ecalls_interest *interest,
			    uint64_t *registered);

/*
 * Calls `handler` whenever real-time signal `signal`, SIGRTMIN to SIGRTMAX, arrives at the process
 * (ECalls-05 §3.1.1). While it runs all other signals wait, other than those that report a fault.
 * With ecalls_signal_keep_order, pending signals are then handled in the papers' order: real-time
 * signals before regular ones, the lowest number first. -EINVAL for another signal.
 */
int ecalls_signal_install(int signal, ecalls_signal_callback_t handler);

/*
 * Takes the handler of a real-time signal away. From then on the signal is ignored: its default
 * would end the process, and a sender may not know yet. -EINVAL for another signal.
 */
int ecalls_signal_uninstall(int signal);

/*
 * Takes the real-time signals out of the masks of all regular handlers that the process has now,
 * so that real-time signals precede and interrupt them. Call it after those were installed.
 * Returns how many handlers were changed.
 */
int ecalls_signal_keep_order(void);

/* The calling thread's loop. -EBUSY: it has one already. */
int ecalls_loop_open(ecalls_loop_t **events);

/*
 * The calling thread's loop, which polls cooperatively (ECalls' scheduler, Coop §3.1) by slot
 * `slot`, 0 to 15, of a channel, in `group` (0: none; the threads of a user that name the same
 * number share what they get by the user virtual time of their events). While no scheduler runs,
 * as ecalls_loop_open().
 */
int ecalls_loop_open_slot(const ecalls_channel_t *channel,
			  uint32_t slot,
			  uint32_t group,
			  ecalls_loop_t **events);

/*
 * Who says when the loop's timers run, as far as its last poll could tell. 1: a scheduler that
 * knows the thread; 0: the kernel's timers alone.
 */
int ecalls_loop_timing(const ecalls_loop_t *events);

/* Ends a loop, on its thread and not from within an event. What was submitted does not run. */
void ecalls_loop_close(ecalls_loop_t *events);

/* Submits an event: its callback runs once. `number`, which may be NULL, names it. */
int ecalls_loop_submit(ecalls_loop_t *events,
		       const struct ecalls_loop_event *event,
		       uint64_t *number);

/*
 * Gives a submitted event another type and time, or the running one a further run. 1: done; 0: it
 * has run, or was cancelled. `time` is a release time or a user virtual time, as `type` says.
 */
int ecalls_loop_resubmit(const ecalls_loop_t *events,
			 uint64_t number,
			 uint32_t type,
			 uint64_t time);

/* Withdraws an event. 1: done; 0: it has run, runs, or was cancelled. */
int ecalls_loop_cancel(const ecalls_loop_t *events, uint64_t number);

/* Runs events until one stops the loop, or until none is left. -EBUSY from within an event. */
int ecalls_loop_run(const ecalls_loop_t *events);

/* Ends ecalls_loop_run() when the running event returns. */
int ecalls_loop_stop(const ecalls_loop_t *events);

/* How late timers were so far. */
int ecalls_loop_tardiness(const ecalls_loop_t *events, struct ecalls_loop_tardiness *tardiness);

/*
 * Makes an event of the chosen type whenever a descriptor is ready, or while events wait in a
 * channel. The callback runs in its turn, and comes again while the source is ready. `number`,
 * which may be NULL, names it. -EPERM for a descriptor that nobody can wait for, like a file's;
 * -EBADF for one that is not open; -EEXIST for one that is watched already.
 */
int ecalls_loop_watch(ecalls_loop_t *events,
		      const struct ecalls_loop_source *source,
		      uint64_t *number);

/* Ends watching a source. 1: done; 0: that was done before. */
int ecalls_loop_unwatch(const ecalls_loop_t *events, uint64_t source);

/*
 * The descriptor that another event loop watches for reading, to call ecalls_loop_turn() then. It
 * belongs to the loop.
 */
int ecalls_loop_fd(const ecalls_loop_t *events);

/*
 * Runs what is to be run, and returns instead of sleeping. 1: call it again, at once if `next_ns`
 * is 0, else when the loop's descriptor can be read, which it can at `next_ns` if not before
 * (UINT64_MAX: no timer waits); 0: it was stopped, or nothing can ever happen again. `next_ns` may
 * be NULL.
 */
int ecalls_loop_turn(const ecalls_loop_t *events, uint64_t *next_ns);

/* What other threads submit by. While one is open, ecalls_loop_run() waits for it. */
int ecalls_loop_remote(ecalls_loop_t *events, ecalls_loop_remote_t **remote);

/*
 * Submits an event from any thread: its callback runs once, on the loop's. -ESHUTDOWN: the loop is
 * closed.
 */
int ecalls_loop_remote_submit(const ecalls_loop_remote_t *remote,
			      const struct ecalls_loop_event *event);

/* Stops the loop from any thread, before any event that does not run yet. */
int ecalls_loop_remote_stop(const ecalls_loop_remote_t *remote);

/* Ends it, on any thread. What was submitted still runs. */
void ecalls_loop_remote_close(ecalls_loop_remote_t *remote);

/*
 * Lets the calling thread poll by slot `slot`, 0 to 15, of a channel, in `group` (0: none; the
 * threads of a user that name the same number share what they get by importance). `channel` NULL:
 * no scheduler knows the thread, and its polls sleep as exactly as the kernel's timers do.
 */
int ecalls_coop_open(const ecalls_channel_t *channel,
		     uint32_t slot,
		     uint32_t group,
		     ecalls_coop_t **poll);

/* Ends a thread's polls. The slot stays the thread's until it ends or takes another. */
void ecalls_coop_close(ecalls_coop_t *poll);

/*
 * One poll: when the caller's first timer is due, and the least user virtual time of its
 * best-effort work; ECALLS_COOP_NONE where there is none. With work, or with a timer that is due,
 * it lets others run; else it sleeps until `release_ns` or a signal. `answer` may be NULL.
 * 1: a scheduler answered; 0: none does. -EDEADLK if both are ECALLS_COOP_NONE.
 */
int ecalls_coop_poll(ecalls_coop_t *poll,
		     uint64_t release_ns,
		     uint64_t importance,
		     struct ecalls_coop_answer *answer);

/*
 * Begins a poll before a sleep of the caller's own, in epoll for instance, at most until
 * `release_ns`.
 */
int ecalls_coop_before_sleep(ecalls_coop_t *poll, uint64_t release_ns, uint64_t importance);

/*
 * Ends the poll that ecalls_coop_before_sleep() began. Answer and result: as of
 * ecalls_coop_poll().
 */
int ecalls_coop_after_sleep(ecalls_coop_t *poll, struct ecalls_coop_answer *answer);

/*
 * Makes slot `slot`, 0 to 15, of a channel the calling thread's, in `group` (0: none; the threads
 * of a user that name the same number are a group), from its next yield on. Those who poll need
 * not: ecalls_coop_open() and ecalls_loop_open_slot() do it.
 */
int ecalls_coop_slot(const ecalls_channel_t *channel, uint32_t slot, uint32_t group);

/*
 * The same for the thread that reads the channel's events, which is their sink then: when one was
 * raised with ECALLS_EVENT_CPU, the thread runs before others that are fair, and not more than
 * its share; the event with the earliest deadline goes first.
 */
int ecalls_sink_slot(const ecalls_channel_t *channel, uint32_t slot, uint32_t group);

/*
 * What the scheduler takes the thread of a slot for: ECALLS_COOP_UNBOUND (it has not seen one, or
 * there is no scheduler), _COOPERATIVE, _DEMOTED (fair, until it polls) or _NO_PLACE.
 */
int ecalls_coop_standing(const ecalls_channel_t *channel, uint32_t slot);

/*
 * Asks for a window of the calling thread, whose slot this is, in no group. It takes the place of
 * the one that the thread has, and holds until the thread ends or names its slot again.
 * ECALLS_WINDOW_PROMISED: at least y - x of y periods will be served, if the thread wants to run
 * when they begin; ECALLS_WINDOW_UNPROMISED: nothing proves that. -ENOSPC: refused, with what is
 * left, or because there is no place for the thread; -ESHUTDOWN: there is no scheduler; -EINVAL:
 * the window is out of bounds, or the thread is in a group; -ENOENT: the slot is not the thread's.
 */
int ecalls_coop_window(const ecalls_channel_t *channel,
		       uint32_t slot,
		       const struct ecalls_coop_window *window);

/* Gives the calling thread's window up. */
int ecalls_coop_end_window(const ecalls_channel_t *channel, uint32_t slot);

/* How the periods of the window of a slot's thread went. */
int ecalls_coop_periods(const ecalls_channel_t *channel,
			uint32_t slot,
			struct ecalls_coop_periods *periods);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ECALLS_H */
