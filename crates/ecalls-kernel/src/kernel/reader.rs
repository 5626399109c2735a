//! Waits until no BPF program reads an object that was taken out of use.
//!
//! Code that changes the shared tables takes a row out of use, records the time, and calls this
//! module before the row is used again. Programs take microseconds, so usually no wait is needed;
//! and one wait serves for all rows that were out of use when it began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::kernel::sys;

/// No running program takes longer than this, ns. Programs take microseconds, but a processor of a
/// virtual machine can be away amid one, for half a second and more.
const PROGRAM_NS_MAX: u64 = 5_000_000_000;

/// When the last wait for programs began: it serves for all objects that were out of use by then.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// Whether a program may still use an object that was taken out of use at `since_ns`.
pub(crate) fn is_read(since_ns: u64) -> bool {
    sys::now_ns().saturating_sub(since_ns) < PROGRAM_NS_MAX
        && WAITED_NS.load(Ordering::Relaxed) <= since_ns
}

/// Waits until no program uses an object that was taken out of use at `since_ns`.
pub(crate) fn wait_for_readers(since_ns: u64) -> Result<()> {
    let now_ns = sys::now_ns();
    if !is_read(since_ns) {
        return Ok(());
    }
    sys::wait_for_readers()?;
    WAITED_NS.fetch_max(now_ns, Ordering::Relaxed);
    Ok(())
}
