//! The kernel side's measuring programs (bpf/event/measure.bpf.c): each raises, queues, takes or
//! triggers n times in succession and returns the time, without a system call in between.
//!
//! They use the service `core`, so that no other service's events are affected; they are run by
//! `ecalls bench` and by tests that need load. Their events are counted like all others.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::core::Core;
use crate::error::{Error, Result};

/// Rounds of one run: `MEASURE_MAX`.
pub const ROUNDS_MAX: u32 = 1_000_000;

/// `flags` of [`raise`]: always through the queue (`RAISE_QUEUED` of bpf/event/raise.h).
pub const RAISE_QUEUED: u32 = 0x20000;

/// `struct measure`: the request and its results.
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
    /// For [`push`] and [`pop`]: the queue; those of the CPUs are first, then that of the kernel
    /// threads.
    pub queue: u32,
    /// Relative, 0: none; [`push`] distributes the deadlines below this value.
    pub deadline_ns: u64,
    /// Relative, 0: at once.
    pub release_ns: u64,
    /// First data word of the first event; each next event has the next number.
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
    /// `n` rounds with events of one data word for all processes.
    pub fn new(n: u32) -> Measure {
        Measure {
            n,
            target: ecalls_abi::event::TARGET_ALL,
            size: 8,
            ..Measure::default()
        }
    }

    /// The time of one round, ns: all rounds count, including those that failed.
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

/// Takes up to n events out of one queue and discards them.
///
/// # Errors
/// As [`raise`].
pub fn pop(core: &Core, measure: &Measure) -> Result<Measure> {
    run(core, "measure_pop", measure)
}

/// Fires the dispatcher's tracepoint n times, with a number that the dispatcher ignores.
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
