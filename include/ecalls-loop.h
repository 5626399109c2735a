/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Event loops and cooperative polls of libecalls, and windows of CPU time. Results, handles,
 * options and times are as in ecalls.h. This file is written by crates/ecalls-c/tests/header.rs;
 * change the source there.
 */


#ifndef ECALLS_LOOP_H
#define ECALLS_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include "ecalls.h"

/* An event loop of one thread. */
typedef struct ecalls_loop_t ecalls_loop_t;
/* A handle by which other threads submit events to a loop. */
typedef struct ecalls_loop_remote_t ecalls_loop_remote_t;
/* The polls of one thread. */
typedef struct ecalls_coop_t ecalls_coop_t;

/* `type` of an event that runs at its release time. */
#define ECALLS_LOOP_TIMER 0

/* `type` of an event that runs when no timer is due, in the order of user virtual times. */
#define ECALLS_LOOP_BEST_EFFORT 1

/* `interest` and `ready` of a source: reading it does not block. */
#define ECALLS_LOOP_READABLE 1

/* `interest` and `ready` of a source: writing it does not block. */
#define ECALLS_LOOP_WRITABLE 2

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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ECALLS_LOOP_H */
