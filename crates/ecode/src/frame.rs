//! The memory that a program shares with its surroundings in a run: the same bytes in the kernel,
//! where they are one element of a per-CPU map, and in user space. `abi/ecode.h` describes the same
//! in C.
//!
//! A program is a function of this memory, of the event, and of its state; it calls nothing. It
//! writes its requests (signals, counts, raises) down as effects, and the dispatcher carries them
//! out afterwards with the rights of the subscription. So a program needs no helper of the kernel
//! but the loop, and gives the same results everywhere.

/// Offsets in the frame.
pub mod at {
    use crate::limits::{EFFECTS, REGION_BYTES, SINKS};

    /// u64 in: time now, ns.
    pub const NOW: u32 = 0;
    /// u64 in, out: state of `random()`, never 0.
    pub const RANDOM: u32 = 8;
    /// s64 out: what the body returned; 1 if it ended without one. The caller sets it to 1.
    pub const RESULT: u32 = 16;
    /// u32 in: iterations allowed; out: those that are left.
    pub const FUEL: u32 = 24;
    /// u32 out: a [`crate::tree::Fault`], 0: none. The caller sets it to 0.
    pub const FAULT: u32 = 28;
    /// u32 out: effects in use. The caller sets it to 0.
    pub const EFFECT_COUNT: u32 = 32;
    /// u32 out: 1 + the reason of `drop()`, 0: none. The caller sets it to 0.
    pub const DROP: u32 = 36;
    /// u32 in: element of the map of attributes.
    pub const CHANNEL: u32 = 44;
    /// u64 in: bit per sink that exists.
    pub const SINKS_PRESENT: u32 = 48;
    /// u64 out: bit per sink that was accepted. The caller sets it to 0, as the next one.
    pub const ACCEPTED: u32 = 56;
    /// u64 out: bit per sink that was rejected.
    pub const REJECTED: u32 = 64;
    /// u64: always 0, though the kernel's verifier cannot know that ([`crate::bpf`]).
    pub const ZERO: u32 = 72;
    /// u32 out, with a fault: 1 + the byte of the text where it happened, 0: not known.
    pub const FAULT_PLACE: u32 = 80;
    /// [`EFFECT_BYTES`] each.
    pub const EFFECT: u32 = 96;
    /// `output`: the program begins by setting its output to 0.
    pub const OUTPUT: u32 = EFFECT + EFFECTS * EFFECT_BYTES;
    /// Locals that are arrays or structs, and scratch.
    pub const LOCALS: u32 = OUTPUT + REGION_BYTES;
    pub const BYTES: u32 = LOCALS + 2 * REGION_BYTES;

    /// u32 kind, u32 number, three u64 values.
    pub const EFFECT_BYTES: u32 = 32;

    /// Offsets of fields in the event (abi/event.h). u64
    pub const EVENT_ID: u32 = 8;
    /// u64: when it was raised, ns.
    pub const EVENT_TIME: u32 = 16;
    /// u64: its deadline, ns; 0: none.
    pub const EVENT_DEADLINE: u32 = 24;
    /// u32
    pub const EVENT_SERVICE: u32 = 40;
    /// u32
    pub const EVENT_KIND: u32 = 44;
    /// u32
    pub const EVENT_TYPE: u32 = 48;
    /// u32
    pub const EVENT_PRIORITY: u32 = 60;
    /// u32
    pub const EVENT_PID: u32 = 64;
    /// u32
    pub const EVENT_TID: u32 = 68;
    /// u32
    pub const EVENT_UID: u32 = 72;
    /// u32
    pub const EVENT_CPU: u32 = 76;
    /// u32: bytes of data.
    pub const EVENT_SIZE: u32 = 80;
    /// The data.
    pub const EVENT_DATA: u32 = 88;
    /// A sink's id in its entry of the table of sinks.
    pub const SINK_ID: u32 = 0;
    /// The time at which it reported its attributes.
    pub const SINK_TOLD: u32 = 8;
    pub const SINK_ATTRIBUTE: u32 = 16;
    /// A sink in the table of sinks: u64 id, u64 time at which it told its attributes, s64
    /// attributes, 32 of them.
    pub const SINK_BYTES: u32 = 16 + 8 * crate::limits::ATTRIBUTES;
    /// All sinks.
    pub const SINK_TABLE_BYTES: u32 = SINKS * SINK_BYTES;
}

/// Kinds of effects.
pub mod effect {
    /// number: signal; the first value
    pub const SIGNAL: u32 = 1;
    /// number: service; value[0..3]
    pub const RAISE: u32 = 2;
    /// the first value: us
    pub const DEFER: u32 = 3;
    /// number: counter; the first value: by
    pub const COUNT: u32 = 4;
    /// the first value
    pub const HISTOGRAM: u32 = 5;
}

/// `hash(x)`: mixes all bits (the finalizer of splitmix64).
pub const fn hash(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `random()`: the next state, which is also the value (xorshift64).
pub const fn random(state: u64) -> u64 {
    let state = state ^ (state << 13);
    let state = state ^ (state >> 7);
    state ^ (state << 17)
}
