//! `abi/ecode.h`: what a handler written in E-code shares with the dispatcher.
//!
//! One element of a per-CPU map: the dispatcher fills the first part before it calls the handler,
//! and does afterwards what the handler wrote down. The same layout is that of the compiler's crate
//! (`ecode::frame`); the crate that loads programs checks that the two agree.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `handler` of an action whose program is its own, in one of its two places in the map `ecodes`.
pub const HANDLER_ECODE: u32 = 128;
/// Where `argument[0]` has the bytes of the output. Below it: the iterations that it may make.
pub const ECODE_OUTPUT_SHIFT: u32 = 32;
/// All bytes that can be said there.
pub const ECODE_OUTPUT_MASK: u32 = 0xffff;
/// Where it has the number of the place, 0 or 1.
pub const ECODE_PLACE_SHIFT: u32 = 63;
/// Where `argument[1]`, the latest fault, has the place. Below it: which fault.
pub const ECODE_FAULT_SHIFT: u32 = 32;

/// Effects of one run.
pub const ECODE_EFFECTS: usize = 16;
/// Bytes of the output; of the locals twice as many.
pub const ECODE_BYTES: usize = 4096;

/// `kind`: a real-time signal to the receiver.
pub const EFFECT_SIGNAL: u32 = 1;
/// `kind`: an event of a service of the owner's.
pub const EFFECT_RAISE: u32 = 2;
/// `kind`: the chain goes on later.
pub const EFFECT_DEFER: u32 = 3;
/// `kind`: adds to a counter of the channel.
pub const EFFECT_COUNT: u32 = 4;
/// `kind`: counts a value in its bucket.
pub const EFFECT_HISTOGRAM: u32 = 5;
/// The longest time that a chain can be put off, us.
pub const DEFER_MAX_US: u64 = 3_600_000_000;

/// `fault`: an index was outside its array.
pub const FAULT_INDEX: u32 = 1;
/// `fault`: more iterations than allowed.
pub const FAULT_FUEL: u32 = 2;
/// `fault`: the event has less data than the handler reads.
pub const FAULT_INPUT: u32 = 3;
/// `fault`: more than [`ECODE_EFFECTS`].
pub const FAULT_EFFECTS: u32 = 4;

/// `struct ecalls_effect`: something that a handler asks for.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Effect {
    /// [`EFFECT_SIGNAL`], ..
    pub kind: u32,
    /// Which signal, service or counter.
    pub number: u32,
    /// With what.
    pub value: [u64; 3],
}

/// `struct ecalls_frame`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Frame {
    /// In: time now.
    pub now_ns: u64,
    /// In, out: state of `random()`, never 0.
    pub random: u64,
    /// Out: 0 ends the chain.
    pub result: i64,
    /// In: iterations allowed; out: those that are left.
    pub fuel: u32,
    /// Out: [`FAULT_INDEX`], ..; 0: none.
    pub fault: u32,
    /// Out: effects in use.
    pub effects: u32,
    /// Out: 1 + the reason of `drop()`, 0: none.
    pub drop: u32,
    /// Of the output; the handler does not read it.
    pub output_bytes: u32,
    /// In: index of the subscription's channel.
    pub channel: u32,
    /// In: bit per sink.
    pub sinks_present: u64,
    /// Out.
    pub accepted: u64,
    /// Out.
    pub rejected: u64,
    /// Always 0, which the kernel's verifier does not know.
    pub zero: u64,
    /// Out, with a fault other than [`FAULT_INPUT`]: 1 + the byte of the text; 0: not known.
    pub fault_place: u32,
    /// Zero.
    pub pad0: u32,
    /// Zero.
    pub pad1: u64,
    /// What it asks for.
    pub effect: [Effect; ECODE_EFFECTS],
    /// What replaces the event's data.
    pub output: [u64; ECODE_BYTES / 8],
    /// The handler's own.
    pub locals: [u64; 2 * ECODE_BYTES / 8],
}

const _: () = assert!(size_of::<Frame>() == 96 + 16 * 32 + 3 * 4096, "frame");

/// `argument[0]` of such an action.
pub const fn call(fuel: u32, output_bytes: u32, place: u32) -> u64 {
    fuel as u64
        | ((output_bytes & ECODE_OUTPUT_MASK) as u64) << ECODE_OUTPUT_SHIFT
        | ((place & 1) as u64) << ECODE_PLACE_SHIFT
}
