//! Mechanisms of a stock kernel for the same work, where no safe library provides them: the other
//! side of the comparisons of `ecalls bench`. They need `unsafe`, which `ecalls-bench` forbids.

use std::ptr::without_provenance_mut;

use crate::error::{Error, Result};

/// Sends this process real-time signal `signal` with a value, by sigqueue(3).
///
/// # Errors
/// [`Error::Os`] for a number that is not a signal, or if too many signals are queued.
pub fn queue_signal(signal: i32, value: usize) -> Result<()> {
    let process = i32::try_from(std::process::id()).expect("a process id");
    let value = libc::sigval {
        sival_ptr: without_provenance_mut(value),
    };
    // SAFETY: takes numbers only; the value is never used as an address.
    if unsafe { libc::sigqueue(process, signal, value) } < 0 {
        return Err(Error::last_os("queueing a signal"));
    }
    Ok(())
}
