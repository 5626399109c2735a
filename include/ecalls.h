/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libecalls: events between the Linux kernel and applications, in both directions, with deadlines.
 * This file is written by crates/ecalls-c/tests/header.rs; change the source there.
 *
 * A service raises events: the kernel's sockets, timers, tasks and scheduler, or another
 * application. A subscription lists the actions for each event, in order; the result of each action
 * decides whether the next one runs. A channel is the shared memory from which a program reads its
 * events without a system call, and into which it writes its calls to the kernel. Among hosts:
 * ecalls-net-channel.h; event loops: ecalls-loop.h; user-level threads: ecalls-threads.h.
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
#include "ecalls/answer.h"

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
/* Replies that the kernel gives to datagrams. */
typedef struct ecalls_answers_t ecalls_answers_t;

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

/* What is answered, and how much. */
struct ecalls_answers_plan {
	/* Size of this struct. */
	uint32_t size;
	/* Number of cells, 1 to ECALLS_ANSWER_CELLS. */
	uint32_t cells;
	/* Name of the interface on which requests arrive. */
	const char *interface;
	/* The service's address. NULL: any of this host of IPv4; "::": any of either. */
	const char *address;
	/* The service's UDP port. */
	uint32_t port;
	/* The first bytes of a reply that are its request's: even, at most ECALLS_ANSWER_ECHO. */
	uint32_t echo;
	/* The most replies in a second. */
	uint64_t per_second;
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
 * Begins to answer datagrams for a UDP port, which may have a socket or not: at first none, as all
 * cells are empty. `code` is a text in E-code, which says for each datagram a cell, UP or DROP. It
 * needs no ecalls_t, but root's rights: -EPERM. -EINVAL: an error in the text, or a number that is
 * out of bounds; -ENOSYS: the interface has no Ethernet headers, or the kernel lacks something.
 */
int ecalls_answers_start(const struct ecalls_answers_plan *plan,
			 const char *code,
			 ecalls_answers_t **answers);

/*
 * Answers by the cells that a holder (ecalls-answer(1)) lends to this user at that port, in this
 * network namespace: no privilege is needed, and where, how much and by which code is answered is
 * said by the holder. -ENOENT: there is no holder; -EPERM: it lends to another user; -ENOSPC:
 * another program has its cells, and keeps them for longer than five seconds.
 */
int ecalls_answers_borrow(uint16_t port, ecalls_answers_t **answers);

/* Returns 1 if the holder has ended whose cells these are: then nothing is answered any more. */
int ecalls_answers_have_ended(const ecalls_answers_t *answers);

/* Ends them: from now on all datagrams go to the socket. */
void ecalls_answers_end(ecalls_answers_t *answers);

/*
 * From now on the kernel gives this reply to this request, and none that it was given before. The
 * code says which cell gets it, whatever that had. 1: so it does. 0: the request goes up, since
 * the code says so, or it is longer than ECALLS_ANSWER_PREFIX, or the reply is empty or longer
 * than ECALLS_ANSWER_REPLY or ECALLS_ANSWER_TIMES the request. No system call.
 */
int ecalls_answers_put(ecalls_answers_t *answers,
		       const uint8_t *request,
		       size_t request_bytes,
		       const uint8_t *reply,
		       size_t reply_bytes);

/* From now on this request goes up. 0: it did so before. No system call. */
int ecalls_answers_remove(ecalls_answers_t *answers, const uint8_t *request, size_t request_bytes);

/*
 * From now on the kernel gives this reply to each request for which the code says this cell,
 * whatever its bytes. An empty reply empties the cell. 0: there is no such cell, or the reply is
 * longer than ECALLS_ANSWER_REPLY. No system call.
 */
int ecalls_answers_fill(ecalls_answers_t *answers,
			uint32_t cell,
			const uint8_t *reply,
			size_t reply_bytes);

/* Returns the cell that the code says for this request. -ENOENT: it goes up, or is dropped. */
int ecalls_answers_cell(ecalls_answers_t *answers, const uint8_t *request, size_t request_bytes);

/* Writes what became of all packets that came on the interface since the start. */
int ecalls_answers_counts(const ecalls_answers_t *answers, struct ecalls_answer_count *counts);

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ECALLS_H */

#include "ecalls-net-channel.h"
#include "ecalls-loop.h"
#include "ecalls-threads.h"
