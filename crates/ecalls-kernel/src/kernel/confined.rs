//! A process for one piece of work: what it does with untrusted input ends with it, and it can be
//! ended at any moment.
//!
//! Works by fork(2), so only for a process that has one thread. Whoever uses it sees to that: the
//! daemon's compiler may start none (its list of system calls).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::error::{Error, Result};

/// What a process ends with whose work panicked.
const PANICKED: i32 = 101;

/// The signal that ends a process whose time is over ([`end_after`]).
pub const TIME_OVER: Signal = Signal::PROF;

/// Starts a process that does `work` and ends with its result. It does not have the descriptors
/// `without`: `work` does not use them.
///
/// # Errors
/// That of the system.
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
    // What is above on the stack is the parent's to go on with.
    let code = catch_unwind(AssertUnwindSafe(work)).map_or(PANICKED, i32::from);
    // SAFETY: takes a number. Ends without what the parent will do at its own end.
    unsafe { libc::_exit(code) }
}

/// Ends this process by [`TIME_OVER`] once it has used so much time of a CPU from now on.
///
/// # Errors
/// That of the system.
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
