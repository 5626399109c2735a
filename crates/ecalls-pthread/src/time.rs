//! Times of the C library as the runtime has them: ns on CLOCK_MONOTONIC.

use std::ffi::c_int;

use libc::{EINVAL, clockid_t, timespec};

const SECOND_NS: i64 = 1_000_000_000;

/// Now, on a clock.
pub(crate) fn now_ns(clock: clockid_t) -> u64 {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes the time.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    in_ns(&now).unwrap_or(0)
}

/// A time, or a span of time, in ns; times before the clock's beginning are that.
///
/// # Errors
/// EINVAL if the nanoseconds are not those of one second.
pub(crate) fn in_ns(time: &timespec) -> Result<u64, c_int> {
    if !(0..SECOND_NS).contains(&time.tv_nsec) {
        return Err(EINVAL);
    }
    let ns = time
        .tv_sec
        .saturating_mul(SECOND_NS)
        .saturating_add(time.tv_nsec);
    Ok(u64::try_from(ns).unwrap_or(0))
}

/// A span of so many ns.
pub(crate) fn span(ns: u64) -> timespec {
    let ns = i64::try_from(ns).unwrap_or(i64::MAX);
    timespec {
        tv_sec: ns / SECOND_NS,
        tv_nsec: ns % SECOND_NS,
    }
}

/// A time on a clock, on CLOCK_MONOTONIC.
///
/// # Errors
/// EINVAL for a time that is none, or another clock.
pub(crate) fn until_ns(clock: clockid_t, time: &timespec) -> Result<u64, c_int> {
    let time_ns = in_ns(time)?;
    match clock {
        libc::CLOCK_MONOTONIC => Ok(time_ns),
        libc::CLOCK_REALTIME => {
            let left_ns = time_ns.saturating_sub(now_ns(clock));
            Ok(now_ns(libc::CLOCK_MONOTONIC).saturating_add(left_ns))
        }
        _ => Err(EINVAL),
    }
}

/// So long from now on.
pub(crate) fn after_ns(span: &timespec) -> Result<u64, c_int> {
    Ok(now_ns(libc::CLOCK_MONOTONIC).saturating_add(in_ns(span)?))
}
