//! `abi/downcall.h`: the calls of an application to the kernel side (ECalls-01 §2.3.1).
//!
//! - fast: a cheap system call that runs a non-blocking handler at once (`prctl` with our option);
//! - deferred: a store into `down`; handled at the next fast call, after a delay, or before the
//!   caller's next scheduling; in batches, or only the latest;
//! - generic: by service name; may block. A program that hosts the core runs a BPF program for it;
//!   others use a fast call ([`OP_CALL`]), and get that BPF program only if the kernel has no fast
//!   call.
//!
//! `down` is an array of 64-byte elements: elements 0 to 3 are [`Down`], followed by one frame per
//! calling thread (for the result of a fast call), the latest-value cells, and the ring of deferred
//! calls.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::text;
use crate::version::{DATA_INLINE, NAME_MAX};

/// `prctl` option of a fast call.
pub const PRCTL: i32 = 0x4543_0001;

/// Level and option name of a fast call by setsockopt.
pub const SETSOCKOPT: i32 = 0x4543;

/// The second argument of a fast call: `prctl(PRCTL, call(channel, frame, op), a, b, c)`.
///
/// `frame` is below [`FRAMES`]; a larger one would change the channel.
pub const fn call(channel: u32, frame: u16, op: u16) -> u64 {
    ((channel as u64) << 32) | ((frame as u64) << 16) | op as u64
}

/// Only handles the deferred calls. Result: their number.
pub const OP_NOP: u32 = 0;
/// Result: the caller's process id (ECalls-01 §3.1's test call).
pub const OP_GETPID: u32 = 1;
/// a: attribute number, b: value. Sets an attribute of the channel.
pub const OP_SET: u32 = 2;
/// a: attribute number. Result: its value.
pub const OP_GET: u32 = 3;
/// a: `service | kind << 16`, b: target, c: data word. Raises an event of an application service.
/// Result: subscriptions offered, or -errno.
pub const OP_RAISE: u32 = 4;
/// a: subscription, b: ring position, c: next action. Continues the chain after a user handler.
pub const OP_RESUME: u32 = 5;
/// a: timer number, b: expiry ns (0: cancel), c: period ns; both at most 2^62.
pub const OP_TIMER: u32 = 6;
/// Arms the deferred calls' timer ([`DEFER_DELAY`]).
pub const OP_DELAY: u32 = 7;
/// a: address of a [`Generic`] with op RAISE. The generic call by the fast one. Result: as of
/// RAISE; `-EFAULT`: the memory is not present now.
pub const OP_CALL: u32 = 8;
/// a: slot, b: group, c: [`crate::coop::COOP_SINK`] or 0. Binds the calling thread to a slot of
/// this channel ([`crate::coop::Coop`]), by which it polls; group 0: none. Never deferred. Result:
/// 0.
pub const OP_COOP: u32 = 9;
/// a: period ns (0: ends the window), b: service time ns, c: [`crate::coop::window_shape`].
/// Requests that window for the calling thread at its next yield. Never deferred. Result: 0.
pub const OP_WINDOW: u32 = 10;
/// a: a child process. The slot, the group and the window of the calling thread become those of the
/// child's first thread at its next yield. Never deferred. Result: 0.
pub const OP_HAND: u32 = 11;
/// Operations.
pub const OPS: u32 = 12;

/// `ECALLS_OP_*`: the operation of a downcall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Op {
    /// Only handles the deferred calls.
    Nop = OP_NOP,
    /// The caller's process id.
    Getpid = OP_GETPID,
    /// Sets an attribute of the channel.
    Set = OP_SET,
    /// Reads an attribute of the channel.
    Get = OP_GET,
    /// Raises an event of an application service.
    Raise = OP_RAISE,
    /// Continues a chain after a user handler.
    Resume = OP_RESUME,
    /// Sets or cancels a timer.
    Timer = OP_TIMER,
    /// Arms the deferred calls' timer.
    Delay = OP_DELAY,
    /// The generic call, by the fast one.
    Call = OP_CALL,
    /// Binds the calling thread to its slot for cooperative polling.
    Coop = OP_COOP,
    /// Requests a window for the calling thread.
    Window = OP_WINDOW,
    /// Hands the calling thread's slot and window to a child process.
    Hand = OP_HAND,
}

impl Op {
    /// Every operation, in order of number.
    pub const ALL: [Op; OPS as usize] = [
        Op::Nop,
        Op::Getpid,
        Op::Set,
        Op::Get,
        Op::Raise,
        Op::Resume,
        Op::Timer,
        Op::Delay,
        Op::Call,
        Op::Coop,
        Op::Window,
        Op::Hand,
    ];

    /// The operation of the value `raw`.
    pub fn from_raw(raw: u32) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.raw() == raw)
    }

    /// The value in the record.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// The name in every output: `raise`.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Nop => "nop",
            Op::Getpid => "getpid",
            Op::Set => "set",
            Op::Get => "get",
            Op::Raise => "raise",
            Op::Resume => "resume",
            Op::Timer => "timer",
            Op::Delay => "delay",
            Op::Call => "call",
            Op::Coop => "coop",
            Op::Window => "window",
            Op::Hand => "hand",
        }
    }
}

/// RAISE by name: `deadline_us` and `release_us` are times of CLOCK_MONOTONIC, not from now on.
pub const RAISE_ABSOLUTE: u32 = 0x2;
/// Attributes of a channel, read by kernel handlers.
pub const ATTRIBUTES: usize = 32;

/// Deferred calls are handled at most `channel.delay_ns` after [`OP_DELAY`].
pub const DEFER_DELAY: u32 = 0x1;
/// Deferred calls are handled before the caller's next scheduling.
pub const DEFER_SWITCH: u32 = 0x2;

/// Bytes of one element of `down`.
pub const DOWN_ELEMENT_BYTES: usize = 64;
/// Element of `down` with the first frame.
pub const DOWN_FRAMES: usize = 4;
/// Frames: threads of one channel that can make fast calls at the same time.
pub const FRAMES: usize = 64;
/// Element of `down` with the first latest-value cell.
pub const DOWN_LATEST: usize = 68;
/// Latest-value cells.
pub const LATEST: usize = 16;
/// Element of `down` with the first entry of the ring.
pub const DOWN_RING: usize = 84;
/// Entries of the ring; a power of two.
pub const DOWN_CAPACITY: usize = 1024;
/// Element of `down` with the first line of the first slot for cooperative polling.
pub const DOWN_COOP: usize = DOWN_RING + DOWN_CAPACITY;
/// Slots for cooperative polling, of two elements each.
pub const COOP_SLOTS: usize = 16;
/// Elements of `down`.
pub const DOWN_ELEMENTS: usize = DOWN_COOP + 2 * COOP_SLOTS;
/// The most deferred calls that are handled at a time.
pub const DRAIN_MAX: usize = 64;

/// `struct ecalls_down`: the header of `down`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Down {
    /// Line 0, application: next position of the ring to write.
    pub back: u64,
    /// Line 0, application: bit i: latest-value cell i was written and not taken since.
    pub latest: u64,
    /// Zero.
    pub pad0: [u64; 6],
    /// Line 1, kernel side: next position of the ring to handle.
    pub front: u64,
    /// Line 1, kernel side: deferred calls handled.
    pub handled: u64,
    /// Line 1, kernel side: deferred calls whose handler refused them.
    pub refused: u64,
    /// Line 1, kernel side: number of drains; `handled / drains` is the batch size.
    pub drains: u64,
    /// Zero.
    pub pad1: [u64; 4],
    /// Zero.
    pub pad2: [u64; 16],
}

const _: () = assert!(
    size_of::<Down>() == DOWN_FRAMES * DOWN_ELEMENT_BYTES,
    "four elements"
);

/// `struct ecalls_downcall`: a frame, a latest-value cell, or an entry of the ring.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Downcall {
    /// `OP_*`.
    pub op: u32,
    /// Zero.
    pub pad: u32,
    /// The arguments of the operation.
    pub argument: [u64; 3],
    /// Frames: written by the kernel side.
    pub result: i64,
    /// Frames: incremented with each result.
    pub sequence: u64,
    /// Zero.
    pub pad1: [u64; 2],
}

const _: () = assert!(size_of::<Downcall>() == DOWN_ELEMENT_BYTES, "downcall");

/// `struct ecalls_generic`: argument and result of the generic call (a BPF syscall program's
/// context). With [`OP_CALL`] the result is in the caller's frame.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Generic {
    /// Name of the service; may be empty for other operations than RAISE.
    pub service: [u8; NAME_MAX],
    /// `OP_*`.
    pub op: u32,
    /// Id, or 0.
    pub channel: u32,
    /// RAISE: as of an event.
    pub target: i32,
    /// RAISE: as of an event.
    pub kind: u32,
    /// RAISE: as of an event.
    pub r#type: u32,
    /// RAISE: `EVENT_CPU` of [`crate::event`].
    pub flags: u32,
    /// RAISE: as of an event.
    pub priority: u32,
    /// RAISE: bytes of data, at most [`DATA_LARGE`](crate::version::DATA_LARGE).
    pub size: u32,
    /// RAISE: relative, 0: none.
    pub deadline_us: u64,
    /// RAISE: relative, 0: at once.
    pub release_us: u64,
    /// Other operations: as of a [`Downcall`].
    pub argument: [u64; 3],
    /// The operation's result, or -errno.
    pub result: i64,
    /// RAISE: address of the data beyond [`DATA_INLINE`] bytes, in the caller's memory.
    pub rest: u64,
    /// RAISE: the event's data.
    pub data: [u64; DATA_INLINE / 8],
}

const _: () = assert!(size_of::<Generic>() == 288, "generic call");

impl Generic {
    /// A call of the service named `service`.
    ///
    /// # Errors
    /// [`text::TextError`] if the name is longer than `NAME_MAX - 1` bytes or contains a 0 byte.
    pub fn new(service: &str, op: Op) -> Result<Generic, text::TextError> {
        let mut generic = Generic::new_zeroed();
        text::write(&mut generic.service, service)?;
        generic.op = op.raw();
        Ok(generic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_word_holds_channel_frame_and_op() {
        assert_eq!(call(0x1234_5678, 63, 7), 0x1234_5678_003f_0007);
        assert_eq!(call(u32::MAX, 0, 0), 0xffff_ffff_0000_0000);
    }

    #[test]
    fn every_op_has_its_number() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op.raw() as usize, number);
            assert_eq!(Op::from_raw(op.raw()), Some(op));
        }
        assert_eq!(Op::from_raw(OPS), None);
    }

    #[test]
    fn elements_of_down_follow_each_other() {
        assert_eq!(DOWN_FRAMES + FRAMES, DOWN_LATEST);
        assert_eq!(DOWN_LATEST + LATEST, DOWN_RING);
        assert!(DOWN_CAPACITY.is_power_of_two());
    }

    #[test]
    fn generic_call_refuses_a_name_that_does_not_fit() {
        assert!(Generic::new("a-name-of-more-than-thirty-one-bytes", Op::Raise).is_err());
        let generic = Generic::new("timer", Op::Timer).unwrap();
        assert_eq!(
            (text::read(&generic.service), generic.op),
            ("timer", OP_TIMER)
        );
    }
}
