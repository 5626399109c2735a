//! A process for one piece of work: the effects of untrusted input end with it, and it can be ended
//! at any time.
//!
//! It uses fork(2), so the calling process must have only one thread. The caller ensures this: the
//! daemon's compiler may start no thread (its list of system calls).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::error::{Error, Result};

/// Exit status of a process whose work panicked.
const PANICKED: i32 = 101;

/// The signal that ends a process when its time is over ([`end_after`]).
pub const TIME_OVER: Signal = Signal::PROF;

/// Starts a process that executes `work` and exits with its result. The descriptors `without` are
/// closed in it: `work` does not use them.
///
/// # Errors
/// Those of the system.
pub fn start(without: &[BorrowedFd<'_>], work: impl FnOnce() -> u8) -> Result<Pid> {
    // SAFETY: this process has one thread (see the head of the file), so the child finds every lock
    // and the allocator as they are between two calls.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(Error::last_os("starting a process"));
    }
    if let Some(pid) = Pid::from_raw(pid) {
        return Ok(pid);
    }
    for descriptor in without {
        // SAFETY: takes a number. Who owns the descriptor is the parent's memory; this copy of it
        // ends by `_exit`, which drops nothing.
        unsafe { libc::close(descriptor.as_raw_fd()) };
    }
    // The stack above belongs to the parent's execution.
    let code = catch_unwind(AssertUnwindSafe(work)).map_or(PANICKED, i32::from);
    // SAFETY: takes a number. Ends without what the parent will do at its own end.
    unsafe { libc::_exit(code) }
}

/// Ends this process by [`TIME_OVER`] after it has used this CPU time from now on.
///
/// # Errors
/// Those of the system.
pub fn end_after(time: Duration) -> Result<()> {
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_usec: libc::suseconds_t::from(time.subsec_micros()),
        },
    };
    // SAFETY: `timer` is alive until the call returns; the former value is not asked for.
    let error =
        unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
    match error {
        0 => Ok(()),
        _ => Err(Error::last_os("limiting the time of a process")),
    }
}
