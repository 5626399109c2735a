//! What a thread tells the scheduler besides its polls: its slot, that it reads a channel's events,
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

/// A thread's window: a service time in each period, x of y of which may be missed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoopWindow {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_WINDOW_CONSERVING: beyond its service the thread shares what is left, like a fair
    /// one. 0: it waits for its next period.
    pub flags: u32,
    /// The period, 100 us to 10 s.
    pub period_us: u64,
    /// CPU time in each period.
    pub service_us: u64,
    /// Of y periods, how many may be missed.
    pub x: u32,
    /// 1 to 1024.
    pub y: u32,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for CoopWindow {
    const LEAST: usize = size_of::<CoopWindow>();
}

/// How the periods of a window went, up to when the thread ran last.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CoopPeriods {
    /// Served.
    pub met: u64,
    /// Not served.
    pub missed: u64,
    /// Of these, those when x of the current window had been missed already.
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

/// Makes slot `slot`, 0 to 15, of a channel the calling thread's, in `group` (0: none; the threads
/// of a user that name the same number are a group), from its next yield on. Those who poll need
/// not: ecalls_coop_open() and ecalls_loop_open_slot() do it.
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

/// The same for the thread that reads the channel's events, which is their sink then: when one was
/// raised with ECALLS_EVENT_CPU, the thread runs before others that are fair, and not more than
/// its share; the event with the earliest deadline goes first.
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

/// What the scheduler takes the thread of a slot for: ECALLS_COOP_UNBOUND (it has not seen one, or
/// there is no scheduler), _COOPERATIVE, _DEMOTED (fair, until it polls) or _NO_PLACE.
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

/// Asks for a window of the calling thread, whose slot this is, in no group. It takes the place of
/// the one that the thread has, and holds until the thread ends or names its slot again.
/// ECALLS_WINDOW_PROMISED: at least y - x of y periods will be served, if the thread wants to run
/// when they begin; ECALLS_WINDOW_UNPROMISED: nothing proves that. -ENOSPC: refused, with what is
/// left, or because there is no place for the thread; -ESHUTDOWN: there is no scheduler; -EINVAL:
/// the window is out of bounds, or the thread is in a group; -ENOENT: the slot is not the thread's.
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

/// Gives the calling thread's window up.
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

/// How the periods of the window of a slot's thread went.
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
