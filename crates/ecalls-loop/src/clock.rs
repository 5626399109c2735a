//! The clock of a loop: CLOCK_MONOTONIC in ns, or the virtual time of a test.

use std::fmt::Debug;

use rustix::time::{ClockId, clock_gettime};

/// A source of the time.
pub trait Clock: Debug {
    /// The current time, in ns. It never decreases.
    fn now_ns(&self) -> u64;
}

/// CLOCK_MONOTONIC, the clock of release times and of the kernel side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
    }
}
