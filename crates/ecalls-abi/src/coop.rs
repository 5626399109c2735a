//! `abi/coop.h`: the memory by which a thread and the scheduler exchange data (Coop §3.1).
//!
//! A slot consists of two lines in memory that the thread owns. The thread writes the first line,
//! yields or sleeps, and reads the second line when it runs again. The header defines the order of
//! these steps, and what each side may rely on.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// As a time: none. As an importance: no best-effort work.
pub const COOP_NONE: u64 = !0;

/// The greatest number of a group.
pub const COOP_GROUPS: u32 = 0xffff;

/// Flag: the thread yields or sleeps in a poll. No other sleep counts as one.
pub const COOP_POLLING: u32 = 0x1;

/// Argument c of `OP_COOP`: the thread reads the channel's events, it is their sink.
pub const COOP_SINK: u32 = 0x1;
/// Once handed to a child: each timed sleep of the child's threads, and of its descendants', ends
/// with a release that is due.
pub const COOP_TIMED: u32 = 0x2;

/// No thread is bound to this slot.
pub const COOP_UNBOUND: u32 = 0;
/// The thread is cooperative.
pub const COOP_COOPERATIVE: u32 = 1;
/// The thread is scheduled by fair share until its next poll.
pub const COOP_DEMOTED: u32 = 2;

/// The thread is a plain one: the table of its CPU, or its user's part of it, is full.
pub const COOP_NO_PLACE: u32 = 3;

/// The shortest period of a window.
pub const WINDOW_PERIOD_MIN_NS: u64 = 100_000;
/// The longest period of a window.
pub const WINDOW_PERIOD_MAX_NS: u64 = 10_000_000_000;
/// The most periods in which a window's misses are counted.
pub const WINDOW_Y_MAX: u32 = 1024;
/// A whole CPU, as [`Coop::window_left`] counts.
pub const WINDOW_WHOLE: u64 = 1 << 20;

/// Flag: beyond its service the thread also gets its fair share.
pub const WINDOW_CONSERVING: u32 = 0x1;

/// The thread has no window.
pub const WINDOW_NONE: u16 = 0;
/// The thread has no window: the CPU, or its user's part of it, is used up.
pub const WINDOW_REFUSED: u16 = 1;
/// The thread's window is admitted without guarantee.
pub const WINDOW_UNPROMISED: u16 = 2;
/// At least y - x of y periods of the thread will be served.
pub const WINDOW_PROMISED: u16 = 3;
/// The thread has no window, because it has no place: [`COOP_NO_PLACE`].
pub const WINDOW_NO_PLACE: u16 = 4;

/// `ECALLS_WINDOW(x, y, flags)`: argument c of `OP_WINDOW`.
pub const fn window_shape(x: u16, y: u16, flags: u32) -> u64 {
    (flags as u64) << 32 | (y as u64) << 16 | x as u64
}

/// Bytes of one slot.
pub const COOP_BYTES: usize = 128;

/// `struct ecalls_coop`: one thread's slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Coop {
    /// Line 0, thread: release time of its earliest timer; past: due; [`COOP_NONE`]: no timer.
    pub release_ns: u64,
    /// Line 0, thread: least user virtual time of its best-effort events; [`COOP_NONE`]: no work.
    pub importance: u64,
    /// Line 0, thread: polls so far.
    pub polls: u64,
    /// Line 0, thread: [`COOP_POLLING`].
    pub flags: u32,
    /// Zero.
    pub pad0: u32,
    /// Line 0, scheduler: [`WINDOW_NONE`], `WINDOW_REFUSED`, `WINDOW_UNPROMISED`,
    /// `WINDOW_PROMISED` or `WINDOW_NO_PLACE`.
    pub window: u16,
    /// Line 0, scheduler: number of answered requests for a window, its low part.
    pub window_wishes: u16,
    /// Line 0, scheduler: the part of the CPU that was left for windows of this user at the answer.
    pub window_left: u32,
    /// Line 0, scheduler: periods of the window that were served. For a thread in a group, which
    /// has no window: CPU time of the group's members, ns.
    pub met: u64,
    /// Line 0, scheduler: periods that were not served.
    pub missed: u64,
    /// Line 0, scheduler: periods that were not served although `x` had been missed already.
    pub violated: u64,
    /// Line 1, scheduler: earliest release of all other cooperative threads, or [`COOP_NONE`].
    pub next_release_ns: u64,
    /// Line 1, scheduler: least importance of the other members of its group, or [`COOP_NONE`].
    pub least_importance: u64,
    /// Line 1, scheduler: when the thread is to poll again; past: after the due timers.
    pub slice_end_ns: u64,
    /// Line 1, scheduler: when the thread was given the CPU.
    pub dispatch_ns: u64,
    /// Line 1, scheduler: demotions because it ran past its slice and the slack.
    pub overran: u64,
    /// Line 1, scheduler: demotions because it slept outside a poll.
    pub slept: u64,
    /// Line 1, scheduler: demotions because its virtual time was too far beyond the least.
    pub ahead: u64,
    /// Line 1, scheduler: `COOP_UNBOUND`, `COOP_COOPERATIVE`, `COOP_DEMOTED` or
    /// `COOP_NO_PLACE`.
    pub state: u32,
    /// Line 1, scheduler: low half of the last `polls` that it read.
    pub answered: u32,
}

const _: () = assert!(size_of::<Coop>() == COOP_BYTES, "two lines");

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    #[test]
    fn each_side_writes_a_line_of_its_own() {
        assert_eq!(offset_of!(Coop, next_release_ns), 64);
        assert_eq!(COOP_BYTES, 2 * 64);
    }
}
