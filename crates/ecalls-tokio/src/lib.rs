//! An ECalls event loop ([`ecalls_loop`]) within a tokio runtime: one more task of its thread.
//!
//! ```
//! use ecalls_loop::{Loop, timer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ecalls_loop::Result<()> {
//! let events = Loop::new()?;
//! events.submit(timer(events.now_ns() + 1_000_000), |turn| turn.stop())?;
//! ecalls_tokio::drive(&events).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A loop belongs to its thread, so the runtime's flavour is `current_thread`, or the task belongs
//! to a `LocalSet`. While the loop has something to run, it yields to the other tasks at each turn:
//! its timers wait for them, so they should be as short as its events.

#![warn(missing_docs)]
#![allow(
    unsafe_code,
    reason = "the runtime wants a promise for each descriptor that it watches"
)]

use std::os::fd::{AsFd, BorrowedFd};

use ecalls_loop::{Error, Loop, Next, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Runs the loop until one of its events stops it, or until it can never have an event again. If
/// this future is dropped before, the loop is unchanged, and another call continues it.
///
/// # Errors
/// As of [`Loop::turn`]; [`Error::Os`] if the runtime cannot wait for descriptors.
pub async fn drive(events: &Loop) -> Result<()> {
    let failed = |source| Error::Os {
        action: "waiting for the loop in the runtime",
        source,
    };
    // SAFETY: the loop is borrowed for as long as this lives, and with it its one descriptor.
    let fd = unsafe { AsyncFd::register_with_interest(events.as_fd(), Interest::READABLE) };
    let fd = fd.map_err(|error| failed(error.into()))?;
    loop {
        match events.turn()? {
            Next::Over => return Ok(()),
            Next::Now => tokio::task::yield_now().await,
            Next::At(_) | Next::Ready => wait(&fd).await.map_err(failed)?,
        }
    }
}

/// Waits until the loop's descriptor is readable. The runtime is notified only of changes, and the
/// descriptor may have been readable all the time: so it is checked before each sleep.
async fn wait(fd: &AsyncFd<BorrowedFd<'_>>) -> std::io::Result<()> {
    loop {
        let mut guard = fd.readable().await?;
        if is_readable(*fd.get_ref())? {
            guard.retain_ready();
            return Ok(());
        }
        guard.clear_ready();
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> std::io::Result<bool> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&now),
    ) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true), // it checks again anyway
        Err(errno) => Err(errno.into()),
    }
}
