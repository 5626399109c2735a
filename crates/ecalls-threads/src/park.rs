//! Waiting by address: what locks with a layout of their own are made of, e.g. those of a C
//! library.
//!
//! A lock that keeps its state in its own words needs a list of waiting threads only while
//! somebody waits. The lists are here, in one table for all, found by the lock's address, as those
//! of futex(2) are in the kernel. User-level threads give up their processor; kernel threads from
//! outside of a runtime sleep.

use crate::sync::{AtomicU32, Ordering};
pub use crate::wait::Waited;
use crate::wait::Waiters;

/// Locks whose addresses fall together share a list.
const LISTS: usize = 1024;

#[repr(align(64))]
#[derive(Debug)]
struct List {
    /// Those that wait, or are about to.
    waiting: AtomicU32,
    waiters: Waiters,
}

static TABLE: [List; LISTS] = [const {
    List {
        waiting: AtomicU32::new(0),
        waiters: Waiters::new(),
    }
}; LISTS];

#[inline]
fn list_of(address: usize) -> &'static List {
    // Locks lie at multiples of 4 or more; the multiplication spreads them (Fibonacci hashing).
    let hash = (address as u64 >> 2).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    &TABLE[usize::try_from(hash).unwrap_or(0) % LISTS]
}

/// Waits until somebody unparks this address, at most until a time on CLOCK_MONOTONIC in ns;
/// false: the time has come. `is_needless` is called when those who unpark already see the caller:
/// it looks at the lock once more, and if it is true nothing is waited for. It must not wait
/// itself.
pub fn park(address: usize, until_ns: Option<u64>, is_needless: impl FnOnce() -> bool) -> bool {
    wait(address, until_ns, false, is_needless) != Waited::TimedOut
}

/// The same; a kernel thread from outside of a runtime also returns once the handler of a signal
/// has run, unless the kernel restarts calls for it (SA_RESTART).
pub fn park_for_signals(
    address: usize,
    until_ns: Option<u64>,
    is_needless: impl FnOnce() -> bool,
) -> Waited {
    wait(address, until_ns, true, is_needless)
}

fn wait(
    address: usize,
    until_ns: Option<u64>,
    for_signals: bool,
    is_needless: impl FnOnce() -> bool,
) -> Waited {
    let list = list_of(address);
    list.waiting.fetch_add(1, Ordering::SeqCst);
    let waited = list
        .waiters
        .wait(address, until_ns, for_signals, is_needless);
    list.waiting.fetch_sub(1, Ordering::SeqCst);
    waited
}

/// Wakes at most so many threads that are parked at this address, those first that have waited
/// longest, and returns how many. Whoever calls has changed the lock before, by a
/// read-modify-write operation or with a fence after it.
#[inline]
pub fn unpark(address: usize, most: usize) -> usize {
    let list = list_of(address);
    if list.waiting.load(Ordering::SeqCst) == 0 {
        return 0;
    }
    list.waiters.wake(address, most)
}

/// Whether a thread might be parked at this address (or at one that shares its list).
#[inline]
#[must_use]
pub fn is_parked(address: usize) -> bool {
    list_of(address).waiting.load(Ordering::SeqCst) != 0
}

/// In the child of a fork: nobody waits.
pub(crate) fn forget_all() {
    for list in &TABLE {
        list.waiters.forget_all();
        list.waiting.store(0, Ordering::SeqCst);
    }
}
