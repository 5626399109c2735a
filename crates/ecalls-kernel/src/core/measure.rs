//! The kernel side's measuring programs (bpf/event/measure.bpf.c): each raises, queues, takes or
//! triggers n times in a row and says how long that took, without a system call in between.
//!
//! They work on the service `core`, so that nobody else's events are touched: `ecalls bench` runs
//! them, and tests that need load. What they do is counted like every event.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::core::Core;
use crate::error::{Error, Result};

/// Rounds of one run: `MEASURE_MAX`.
pub const ROUNDS_MAX: u32 = 1_000_000;

/// `flags` of [`raise`]: always through the queue (`RAISE_QUEUED` of bpf/event/raise.h).
pub const RAISE_QUEUED: u32 = 0x20000;

/// `struct measure`: what to do, and what came of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct Measure {
    /// Rounds, at most [`ROUNDS_MAX`].
    pub n: u32,
    /// Of the events: process id, or `TARGET_*`.
    pub target: i32,
    /// `EVENT_CPU`, [`RAISE_QUEUED`].
    pub flags: u32,
    /// Of the events: their kind.
    pub kind: u32,
    /// Of the events: their typed slot.
    pub r#type: u32,
    /// Of the events: their priority slot.
    pub priority: u32,
    /// Of the events: bytes of data.
    pub size: u32,
    /// [`push`] and [`pop`]: which queue; CPUs' first, then the kernel threads'.
    pub queue: u32,
    /// Relative, 0: none; [`push`] spreads the deadlines below it.
    pub deadline_ns: u64,
    /// Relative, 0: at once.
    pub release_ns: u64,
    /// First data word of the first event; counted up from there.
    pub data: u64,
    /// Result: time of all rounds.
    pub total_ns: u64,
    /// Result: rounds that succeeded.
    pub done: u64,
    /// Result: of the last round.
    pub result: i64,
}

const _: () = assert!(size_of::<Measure>() == 80, "as in measure.bpf.c");

impl Measure {
    /// `n` rounds with events for all, of one data word.
    pub fn new(n: u32) -> Measure {
        Measure {
            n,
            target: ecalls_abi::event::TARGET_ALL,
            size: 8,
            ..Measure::default()
        }
    }

    /// What one round took, ns: all rounds count, also those that did not succeed.
    pub fn round_ns(&self) -> f64 {
        self.total_ns as f64 / f64::from(self.n.max(1))
    }
}

/// Raises n events of the service `core`.
///
/// # Errors
/// [`Error::Os`] for more than [`ROUNDS_MAX`] rounds.
pub fn raise(core: &Core, measure: &Measure) -> Result<Measure> {
    run(core, "measure_raise", measure)
}

/// Queues n events on one queue without delivering them.
///
/// # Errors
/// As [`raise`].
pub fn push(core: &Core, measure: &Measure) -> Result<Measure> {
    run(core, "measure_push", measure)
}

/// Takes up to n events out of one queue and forgets them.
///
/// # Errors
/// As [`raise`].
pub fn pop(core: &Core, measure: &Measure) -> Result<Measure> {
    run(core, "measure_pop", measure)
}

/// Fires the dispatcher's tracepoint n times, with a number that is not the dispatcher's.
///
/// # Errors
/// As [`raise`].
pub fn trigger(core: &Core, measure: &Measure) -> Result<Measure> {
    run(core, "measure_trigger", measure)
}

fn run(core: &Core, program: &'static str, measure: &Measure) -> Result<Measure> {
    let mut context = *measure;
    match core.run(program, context.as_mut_bytes())? {
        0 => Ok(context),
        error => Err(Error::from_errno("measuring", i64::from(error))),
    }
}
