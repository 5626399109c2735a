//! Timers, whose expiries are events of the service `timer`. Man page: ecalls_timer(3).

use std::ffi::c_int;
use std::time::Duration;

use ecalls::timer::Timer;

use crate::channel::ChannelHandle;
use crate::error::guard;
use crate::pointer::{give, output, reference, take_back};

/// `ecalls_timer_t`.
#[derive(Debug)]
pub struct TimerHandle(Timer);

/// Starts a timer that expires once, after this time. Its events go to this process's subscriptions
/// to the service "timer"; `type` of an event is the timer's number.
/// -ENOSPC: all timers of the core are in use; -EDQUOT: this user has used up its timers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_timer_after(
    channel: *const ChannelHandle,
    after_us: u64,
    timer: *mut *mut TimerHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(timer, "the place for the timer")?;
        let set = Timer::after(&channel.caller, Duration::from_micros(after_us))?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, TimerHandle(set)) };
        Ok(0)
    })
}

/// Starts a timer that expires every `period_us`, at least 50, first after one period.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_timer_every(
    channel: *const ChannelHandle,
    period_us: u64,
    timer: *mut *mut TimerHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(timer, "the place for the timer")?;
        let set = Timer::every(&channel.caller, Duration::from_micros(period_us))?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, TimerHandle(set)) };
        Ok(0)
    })
}

/// Starts a timer that expires at `expiry_ns` of CLOCK_MONOTONIC, and then every `period_us`; 0:
/// only once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_timer_at(
    channel: *const ChannelHandle,
    expiry_ns: u64,
    period_us: u64,
    timer: *mut *mut TimerHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(timer, "the place for the timer")?;
        let set = Timer::at(&channel.caller, expiry_ns, period(period_us))?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, TimerHandle(set)) };
        Ok(0)
    })
}

/// Changes the next expiry to `expiry_ns`, and the period to `period_us` (0: once), by a deferred
/// call, without a system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_timer_move(
    timer: *const TimerHandle,
    expiry_ns: u64,
    period_us: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let timer = unsafe { reference(timer, "the timer") }?;
        timer.0.move_later(expiry_ns, period(period_us))?;
        Ok(0)
    })
}

/// Writes the timer's number: `type` of its events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_timer_number(timer: *const TimerHandle, number: *mut u32) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let timer = unsafe { reference(timer, "the timer") }?;
        let place = output(number, "the place for the number")?;
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(timer.0.number()) };
        Ok(0)
    })
}

/// Cancels a timer and closes its handle. An expiry that was raised before still arrives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_timer_cancel(timer: *mut TimerHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(timer) };
}

fn period(period_us: u64) -> Option<Duration> {
    (period_us != 0).then(|| Duration::from_micros(period_us))
}
