//! Information for the scheduler other than polls: a thread's slot, its role as a channel's sink,
//! its window (ECalls-05 §4.1). Man page: ecalls_coop_window(3).

use std::ffi::c_int;
use std::time::Duration;

use ecalls::coop::Standing;
use ecalls::window::{Admission, Window};
use ecalls_abi::coop::{
    COOP_COOPERATIVE, COOP_DEMOTED, COOP_NO_PLACE, COOP_UNBOUND, WINDOW_PROMISED, WINDOW_UNPROMISED,
};

use crate::channel::ChannelHandle;
use crate::coop::slot_number;
use crate::error::{Failure, Outcome, guard};
use crate::pointer::{Options, options, output, reference};

/// A thread's window: a service time in each period; x of y periods may be missed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoopWindow {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_WINDOW_CONSERVING: beyond its service time the thread shares the remaining CPU
    /// time as a fair thread. 0: it waits for its next period.
    pub flags: u32,
    /// The period, 100 us to 10 s.
    pub period_us: u64,
    /// CPU time in each period.
    pub service_us: u64,
    /// Number of periods in any y that may be missed.
    pub x: u32,
    /// 1 to 1024.
    pub y: u32,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for CoopWindow {
    const LEAST: usize = size_of::<CoopWindow>();
}

/// Results of a window's periods until the thread last ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CoopPeriods {
    /// Periods that were served.
    pub met: u64,
    /// Periods that were missed.
    pub missed: u64,
    /// Missed periods after x of the current window had been missed.
    pub violated: u64,
}

impl CoopWindow {
    fn window(&self) -> Outcome<Window> {
        let bounded = |number: u32, name: &str| {
            u16::try_from(number)
                .map_err(|_| Failure::invalid(format!("the window's {name} is {number}: too many")))
        };
        if self.flags > ecalls_abi::coop::WINDOW_CONSERVING {
            return Err(Failure::invalid(format!(
                "the window's flags are {}: ECALLS_WINDOW_CONSERVING or 0",
                self.flags
            )));
        }
        Ok(Window {
            period: Duration::from_micros(self.period_us),
            service: Duration::from_micros(self.service_us),
            x: bounded(self.x, "x")?,
            y: bounded(self.y, "y")?,
            conserving: self.flags != 0,
        })
    }
}

/// Binds the calling thread to slot `slot`, 0 to 15, of a channel, in group `group` (0: none;
/// threads of one user that name the same number are a group), from its next yield on. Threads that
/// poll need not call it: ecalls_coop_open() and ecalls_loop_open_slot() do so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_slot(
    channel: *const ChannelHandle,
    slot: u32,
    group: u32,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        channel.caller.coop_slot(slot_number(slot), group)?;
        Ok(0)
    })
}

/// The same for the thread that reads the channel's events, which becomes their sink: when an event
/// was raised with ECALLS_EVENT_CPU, the thread runs before other fair threads, but for no more
/// than its share; the sink of the event with the earliest deadline runs first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_sink_slot(
    channel: *const ChannelHandle,
    slot: u32,
    group: u32,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        channel.caller.sink_slot(slot_number(slot), group)?;
        Ok(0)
    })
}

/// Returns the scheduler's view of the thread of a slot: ECALLS_COOP_UNBOUND (it has seen no thread
/// there, or does not run), _COOPERATIVE, _DEMOTED (fair until its next poll) or _NO_PLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_standing(channel: *const ChannelHandle, slot: u32) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let standing = match channel.caller.slot(slot_number(slot))?.standing() {
            Standing::Cooperative => COOP_COOPERATIVE,
            Standing::Fair => COOP_DEMOTED,
            Standing::NoPlace => COOP_NO_PLACE,
            _ => COOP_UNBOUND,
        };
        Ok(standing.cast_signed())
    })
}

/// Requests a window for the calling thread, which must own this slot and be in no group. It
/// replaces the thread's present window, and lasts until the thread ends or names its slot again.
/// ECALLS_WINDOW_PROMISED: at least y - x of y periods will be served, if the thread is ready when
/// they begin; ECALLS_WINDOW_UNPROMISED: there is no such guarantee. -ENOSPC: refused; the text
/// says how much CPU is left, or that there is no place for the thread; -ESHUTDOWN: there is no
/// scheduler; -EINVAL: the window is out of bounds, or the thread is in a group; -ENOENT: the slot
/// does not belong to the thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_window(
    channel: *const ChannelHandle,
    slot: u32,
    window: *const CoopWindow,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        // SAFETY: options (the root's Safety).
        let window = unsafe { options(window, "the window") }?.window()?;
        let slot = channel.caller.slot(slot_number(slot))?;
        match channel.caller.window(&slot, &window)? {
            Admission::Promised => Ok(WINDOW_PROMISED.into()),
            Admission::Unpromised => Ok(WINDOW_UNPROMISED.into()),
            refused => Err(Failure::new(
                libc::ENOSPC,
                format!("the window is {refused}"),
            )),
        }
    })
}

/// Ends the calling thread's window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_end_window(channel: *const ChannelHandle, slot: u32) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let slot = channel.caller.slot(slot_number(slot))?;
        channel.caller.end_window(&slot)?;
        Ok(0)
    })
}

/// Writes the results of the periods of the window of a slot's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_periods(
    channel: *const ChannelHandle,
    slot: u32,
    periods: *mut CoopPeriods,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(periods, "the place for the periods")?;
        let counted = channel.caller.slot(slot_number(slot))?.periods();
        let counted = CoopPeriods {
            met: counted.met,
            missed: counted.missed,
            violated: counted.violated,
        };
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(counted) };
        Ok(0)
    })
}
