//! Waits until no BPF program reads any more what was taken out of use.
//!
//! Whoever changes the shared tables takes a row out of use, notes the time, and asks here before
//! the row is used again. Programs take microseconds, so mostly nobody waits; and one wait serves
//! for all rows that were out of use when it began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::kernel::sys;

/// How long no running program may take, ns; they take microseconds.
const PROGRAM_NS_MAX: u64 = 100_000_000;

/// When the last wait for programs began: it also serves for all that was out of use by then.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// Whether some program may still use what was taken out of use at `since_ns`.
pub(crate) fn is_read(since_ns: u64) -> bool {
    sys::now_ns().saturating_sub(since_ns) < PROGRAM_NS_MAX
        && WAITED_NS.load(Ordering::Relaxed) <= since_ns
}

/// Waits until no program uses what was taken out of use at `since_ns`.
pub(crate) fn wait_for_readers(since_ns: u64) -> Result<()> {
    let now_ns = sys::now_ns();
    if !is_read(since_ns) {
        return Ok(());
    }
    sys::wait_for_readers()?;
    WAITED_NS.fetch_max(now_ns, Ordering::Relaxed);
    Ok(())
}
