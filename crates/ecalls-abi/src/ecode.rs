//! `abi/ecode.h`: the memory that a handler written in E-code shares with the dispatcher.
//!
//! It is one element of a per-CPU map: the dispatcher fills the first part before it calls the
//! handler, and executes the requested effects afterwards. The compiler's crate defines the same
//! layout (`ecode::frame`); the crate that loads programs checks that the two agree.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `handler` of an action with its own program, in one of its two entries of the map `ecodes`.
pub const HANDLER_ECODE: u32 = 128;
/// Shift of the output's size in `argument[0]`. Below it: the iterations that the handler may make.
pub const ECODE_OUTPUT_SHIFT: u32 = 32;
/// Mask of the output's size.
pub const ECODE_OUTPUT_MASK: u32 = 0xffff;
/// Shift of [`ECODE_EARLY`] with the words of the data that the program reads.
pub const ECODE_EARLY_SHIFT: u32 = 48;
/// Mask of the same.
pub const ECODE_EARLY_MASK: u32 = 0x3f;
/// The program may run before the event is complete; bits 0 to 4: the words of the data that it
/// reads.
pub const ECODE_EARLY: u32 = 0x20;
/// Shift of the number of the entry, 0 or 1.
pub const ECODE_PLACE_SHIFT: u32 = 63;
/// Shift of the position in `argument[1]`, the latest fault. Below it: the kind of fault.
pub const ECODE_FAULT_SHIFT: u32 = 32;

/// The most effects of one run.
pub const ECODE_EFFECTS: usize = 16;
/// Bytes of the output; the locals have twice as many.
pub const ECODE_BYTES: usize = 4096;

/// `kind`: a real-time signal to the receiver.
pub const EFFECT_SIGNAL: u32 = 1;
/// `kind`: an event of a service of the owner.
pub const EFFECT_RAISE: u32 = 2;
/// `kind`: the chain continues later.
pub const EFFECT_DEFER: u32 = 3;
/// `kind`: adds to a counter of the channel.
pub const EFFECT_COUNT: u32 = 4;
/// `kind`: counts a value in its bucket.
pub const EFFECT_HISTOGRAM: u32 = 5;
/// The longest time for which a chain can be deferred, us.
pub const DEFER_MAX_US: u64 = 3_600_000_000;

/// `fault`: an index was outside its array.
pub const FAULT_INDEX: u32 = 1;
/// `fault`: more iterations than allowed.
pub const FAULT_FUEL: u32 = 2;
/// `fault`: the event has less data than the handler reads.
pub const FAULT_INPUT: u32 = 3;
/// `fault`: more than [`ECODE_EFFECTS`].
pub const FAULT_EFFECTS: u32 = 4;

/// `struct ecalls_effect`: an effect that a handler requests.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Effect {
    /// [`EFFECT_SIGNAL`], ..
    pub kind: u32,
    /// The number of the signal, service or counter.
    pub number: u32,
    /// Its arguments.
    pub value: [u64; 3],
}

/// `struct ecalls_frame`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Frame {
    /// In: the current time.
    pub now_ns: u64,
    /// In, out: state of `random()`, never 0.
    pub random: u64,
    /// Out: 0 ends the chain.
    pub result: i64,
    /// In: iterations allowed; out: remaining ones.
    pub fuel: u32,
    /// Out: [`FAULT_INDEX`], ..; 0: none.
    pub fault: u32,
    /// Out: number of effects.
    pub effects: u32,
    /// Out: 1 + the reason of `drop()`, 0: none.
    pub drop: u32,
    /// Bytes of the output; the handler does not read this.
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
    /// Out, with a fault other than [`FAULT_INPUT`]: 1 + the offset in the text; 0: unknown.
    pub fault_place: u32,
    /// Zero.
    pub pad0: u32,
    /// Zero.
    pub pad1: u64,
    /// The requested effects.
    pub effect: [Effect; ECODE_EFFECTS],
    /// The new data of the event.
    pub output: [u64; ECODE_BYTES / 8],
    /// Memory of the handler.
    pub locals: [u64; 2 * ECODE_BYTES / 8],
}

const _: () = assert!(size_of::<Frame>() == 96 + 16 * 32 + 3 * 4096, "frame");

/// `argument[0]` of an action with this handler. `early`: [`ECODE_EARLY`], or 0.
pub const fn call(fuel: u32, output_bytes: u32, early: u32, place: u32) -> u64 {
    fuel as u64
        | ((early & ECODE_EARLY_MASK) as u64) << ECODE_EARLY_SHIFT
        | ((output_bytes & ECODE_OUTPUT_MASK) as u64) << ECODE_OUTPUT_SHIFT
        | ((place & 1) as u64) << ECODE_PLACE_SHIFT
}
