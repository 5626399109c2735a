//! The threads of a runtime that sleep until a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::spin::Spin;
use crate::sync::{AtomicU64, Ordering};
use crate::thread::Thread;

/// No thread sleeps.
pub(crate) const NEVER: u64 = u64::MAX;

/// By time (CLOCK_MONOTONIC, ns) and the thread's id: the thread, and the epoch of its wait.
type Sleepers = BTreeMap<(u64, u64), (Arc<Thread>, u64)>;

#[derive(Debug)]
pub(crate) struct Timers {
    sleepers: Spin<Sleepers>,
    /// The first time, or `NEVER`; written under the lock.
    earliest_ns: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            sleepers: Spin::new(BTreeMap::new()),
            earliest_ns: AtomicU64::new(NEVER),
        }
    }

    pub(crate) fn earliest_ns(&self) -> u64 {
        self.earliest_ns.load(Ordering::Relaxed)
    }

    /// Called by the thread, which is about to wait.
    pub(crate) fn add(&self, until_ns: u64, thread: &Arc<Thread>) {
        let mut sleepers = self.sleepers.lock();
        let entry = (Arc::clone(thread), thread.wait.epoch());
        sleepers.insert((until_ns, thread.id), entry);
        self.note_first(&sleepers);
    }

    /// Whether the time had not come.
    pub(crate) fn remove(&self, until_ns: u64, thread: &Thread) -> bool {
        let mut sleepers = self.sleepers.lock();
        let removed = sleepers.remove(&(until_ns, thread.id));
        self.note_first(&sleepers);
        removed.is_some()
    }

    /// Takes one whose time has come.
    pub(crate) fn take_due(&self, now_ns: u64) -> Option<(Arc<Thread>, u64)> {
        let mut sleepers = self.sleepers.lock();
        let first = sleepers.first_entry()?;
        if first.key().0 > now_ns {
            return None;
        }
        let taken = first.remove();
        self.note_first(&sleepers);
        Some(taken)
    }

    fn note_first(&self, sleepers: &Sleepers) {
        let first = sleepers.first_key_value().map_or(NEVER, |(key, _)| key.0);
        self.earliest_ns.store(first, Ordering::SeqCst);
    }
}
