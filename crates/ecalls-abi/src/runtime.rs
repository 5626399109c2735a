//! `abi/runtime.h`: what a runtime of user-level threads shows of itself.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::activation::{ACTIVATIONS_MAX, PROCESSORS_MAX};

/// The name of the file in memory.
pub const NAME: &str = "ecalls-threads";

/// The activation does not run yet, or has ended.
pub const RUNTIME_NONE: u32 = 0;
/// It has a processor, or its thread has blocked: the kernel knows which.
pub const RUNTIME_RUNS: u32 = 1;
/// It waits for a processor.
pub const RUNTIME_SPARE: u32 = 2;

/// The most threads that have a name at a time.
pub const RUNTIME_NAMES_MAX: u32 = 4096;

/// The turns of each processor that the file has: the latest.
pub const RUNTIME_TURNS: u32 = 4096;

/// Flag: the kernel side tells of blocks.
pub const RUNTIME_TOLD: u32 = 0x1;
/// Flag: each thread has thread-local storage of its own.
pub const RUNTIME_STORAGE: u32 = 0x2;

/// `struct ecalls_runtime_processor`: a virtual processor's counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RuntimeProcessor {
    /// Times that a thread began or continued to run.
    pub switches: u64,
    /// Times that a thread gave it up before a call that might block.
    pub left: u64,
    /// Blocks upon which the kernel side took it,
    pub told: u64,
    /// and those upon which it did not.
    pub untold: u64,
    /// Times that a thread came back and found it free,
    pub reclaimed: u64,
    /// and that one which had waited was chosen.
    pub restarts: u64,
    /// Until then (CLOCK_MONOTONIC) turns are noted; 0: they are not. Whoever wants to read them
    /// writes it.
    pub trace_until_ns: u64,
    /// Turns that were noted.
    pub turns: u64,
    /// Times that a thread came back, found it taken, and waited to be chosen.
    pub unblocked: u64,
    /// Zero.
    pub pad: [u64; 7],
}

/// `struct ecalls_runtime_activation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RuntimeActivation {
    /// The kernel thread, as the process sees it; 0: none.
    pub tid: u32,
    /// One of the constants above.
    pub state: u32,
    /// The processor that it has, waits for, or had when it blocked.
    pub processor: u32,
    /// The number, modulo 2^32, of the thread that it executes, or has executed last.
    pub thread: u32,
}

/// `struct ecalls_runtime_name`: a thread's name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RuntimeName {
    /// The thread's number; 0: the place is free.
    pub thread: u64,
    /// Filled with zeros.
    pub name: [u8; 16],
}

/// `struct ecalls_runtime_turn`: an activation executes a thread from then on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RuntimeTurn {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The activation, as the process sees it.
    pub tid: u32,
    /// The thread's number modulo 2^32; 0: none.
    pub thread: u32,
}

/// `struct ecalls_runtime_turns`: the file's rest, with the turns of each processor.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RuntimeTurns {
    /// Turn n of a processor is in place n modulo their number.
    pub turn: [[RuntimeTurn; RUNTIME_TURNS as usize]; PROCESSORS_MAX as usize],
}

/// `struct ecalls_runtime`: the file's beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Runtime {
    /// [`ABI_VERSION`](crate::ABI_VERSION).
    pub version: u32,
    /// Virtual processors.
    pub processors: u32,
    /// Activations, at most.
    pub activations_max: u32,
    /// `RUNTIME_TOLD`, `RUNTIME_STORAGE`.
    pub flags: u32,
    /// Threads that were created,
    pub begun: u64,
    /// and those of them that have ended.
    pub ended: u64,
    /// Activations that were wanted, and that a limit refused.
    pub refused: u64,
    /// Zero.
    pub pad: [u64; 11],
    /// By index.
    pub processor: [RuntimeProcessor; PROCESSORS_MAX as usize],
    /// By number.
    pub activation: [RuntimeActivation; ACTIVATIONS_MAX as usize],
    /// In no order.
    pub name: [RuntimeName; RUNTIME_NAMES_MAX as usize],
}
