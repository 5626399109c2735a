//! The event loop of a time-sensitive thread (Coop §2). Man page: ecalls_loop(3).
//!
//! A loop's functions must be called on the thread that opened it; each function checks this,
//! because the types of C do not.

use std::ffi::{c_int, c_void};
use std::thread::{self, ThreadId};

use ecalls_loop::{Error, Loop, Timing, Turn, When};

use crate::channel::ChannelHandle;
use crate::coop::slot_number;
use crate::error::{Failure, Outcome, guard};
use crate::pointer::{Options, give, options, output, reference, take_back, write_optional};

/// `type` of an event that runs at its release time.
pub const ECALLS_LOOP_TIMER: u32 = 0;
/// `type` of an event that runs when no timer is due, in the order of user virtual times.
pub const ECALLS_LOOP_BEST_EFFORT: u32 = 1;

/// Runs on the loop's thread. `event` is the number that ecalls_loop_submit() returned.
pub type LoopCallback =
    Option<unsafe extern "C" fn(events: *mut LoopHandle, event: u64, context: *mut c_void)>;

/// An event to submit (Coop Figure 2).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoopEvent {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_LOOP_TIMER or ECALLS_LOOP_BEST_EFFORT.
    pub r#type: u32,
    /// The function to call.
    pub callback: LoopCallback,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// Timer: release time, ns of CLOCK_MONOTONIC.
    pub release_ns: u64,
    /// Best effort: the event with the least value runs first.
    pub user_virtual_time: u64,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for LoopEvent {
    const LEAST: usize = size_of::<LoopEvent>();
}

/// Lateness of a loop's timers: the time of the call minus the release time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopTardiness {
    /// Timers that ran.
    pub timers: u64,
    /// Median, precise to 1 %.
    pub p50_ns: u64,
    /// 99th percentile, precise to 1 %.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// `ecalls_loop_t`.
#[derive(Debug)]
pub struct LoopHandle {
    events: Loop,
    thread: ThreadId,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let error = match error {
            Error::Slot(why) => return Failure::from(why).at("the thread's slot"),
            other => other,
        };
        let number = match &error {
            Error::LimitReached { .. } => libc::ENOSPC,
            Error::SecondLoop | Error::Running => libc::EBUSY,
            Error::Closed => libc::ESHUTDOWN,
            Error::NoSlot => libc::EINVAL,
            Error::Os { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EIO,
        };
        Failure::new(number, error.to_string())
    }
}

/// The loop, for a call on the loop's own thread.
///
/// # Safety
/// As [`reference`].
pub(crate) unsafe fn own<'a>(handle: *const LoopHandle) -> Outcome<&'a Loop> {
    // SAFETY: the caller's promise.
    let handle = unsafe { reference(handle, "the loop") }?;
    if handle.thread != thread::current().id() {
        return Err(Failure::invalid("the loop belongs to another thread"));
    }
    Ok(&handle.events)
}

pub(crate) fn when(r#type: u32, release_ns: u64, user_virtual_time: u64) -> Outcome<When> {
    match r#type {
        ECALLS_LOOP_TIMER => Ok(When::Timer { release_ns }),
        ECALLS_LOOP_BEST_EFFORT => Ok(When::BestEffort { user_virtual_time }),
        other => Err(Failure::invalid(format!(
            "the event's type is {other}: it is ECALLS_LOOP_TIMER or ECALLS_LOOP_BEST_EFFORT"
        ))),
    }
}

/// Opens the calling thread's loop. -EBUSY: the thread has one already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_open(events: *mut *mut LoopHandle) -> c_int {
    guard(|| {
        let place = output(events, "the place for the loop")?;
        let handle = LoopHandle {
            events: Loop::new()?,
            thread: thread::current().id(),
        };
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, handle) };
        Ok(0)
    })
}

/// Opens the calling thread's loop, which polls cooperatively (ECalls' scheduler, Coop §3.1) by
/// slot `slot`, 0 to 15, of a channel, in group `group` (0: none; threads of one user that name the
/// same number share their CPU time by the user virtual times of their events). While no scheduler
/// runs, it behaves as a loop of ecalls_loop_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_open_slot(
    channel: *const ChannelHandle,
    slot: u32,
    group: u32,
    events: *mut *mut LoopHandle,
) -> c_int {
    guard(|| {
        let place = output(events, "the place for the loop")?;
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let handle = LoopHandle {
            events: Loop::by_slot(&channel.caller, slot_number(slot), group)?,
            thread: thread::current().id(),
        };
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, handle) };
        Ok(0)
    })
}

/// Returns what determines the times at which the loop's timers run, as of its last poll. 1: a
/// scheduler that knows the thread; 0: only the kernel's timers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_timing(events: *const LoopHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let timing = unsafe { own(events) }?.timing();
        Ok((timing == Timing::Cooperative).into())
    })
}

/// Closes a loop, on its thread and not within an event. Submitted events do not run any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_close(events: *mut LoopHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(events) };
}

/// Submits an event: its callback runs once. The number of the event is written to `number`, which
/// may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_submit(
    events: *mut LoopHandle,
    event: *const LoopEvent,
    number: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(events) }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { options(event, "the event") }?;
        let when = when(given.r#type, given.release_ns, given.user_virtual_time)?;
        let Some(callback) = given.callback else {
            return Err(Failure::invalid("the event's callback is NULL"));
        };
        let run = move |turn: &Turn<'_>| {
            // SAFETY: the caller gave the function with its context; the handle lives while its
            // loop runs.
            unsafe { callback(events, turn.event().raw(), given.context) };
        };
        let submitted = own.submit(when, run)?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(number, submitted.raw()) };
        Ok(0)
    })
}

/// Changes type and time of a submitted event, or lets the running event run again. 1: done; 0: the
/// event has run or was cancelled. `time` is a release time or a user virtual time, depending on
/// `type`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_resubmit(
    events: *const LoopHandle,
    number: u64,
    r#type: u32,
    time: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(events) }?;
        let when = when(r#type, time, time)?;
        Ok(own.resubmit(own.event(number), when).into())
    })
}

/// Cancels an event. 1: done; 0: it has run, is running, or was cancelled before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_cancel(events: *const LoopHandle, number: u64) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(events) }?;
        Ok(own.cancel(own.event(number)).into())
    })
}

/// Runs events until one of them stops the loop, or until none is left. -EBUSY: called within an
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_run(events: *const LoopHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        unsafe { own(events) }?.run()?;
        Ok(0)
    })
}

/// Ends ecalls_loop_run() when the running event returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_stop(events: *const LoopHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        unsafe { own(events) }?.stop();
        Ok(0)
    })
}

/// Writes the lateness of all timers so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_tardiness(
    events: *const LoopHandle,
    tardiness: *mut LoopTardiness,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let figures = unsafe { own(events) }?.tardiness();
        let place = output(tardiness, "the place for the figures")?;
        let figures = LoopTardiness {
            timers: figures.timers,
            p50_ns: figures.p50_ns,
            p99_ns: figures.p99_ns,
            max_ns: figures.max_ns,
        };
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(figures) };
        Ok(0)
    })
}
