//! `abi/user.h`: the limits and the current use of the processes of one uid.
//!
//! Subscriptions, channels and application services name their user by the index of a row. Row
//! [`UNLIMITED`] is for users without limits; a limit of 0 means none. The host writes the limits,
//! word by word; only the kernel side writes the fields from `up_tat` on.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The row of root and of programs that host the core themselves.
pub const UNLIMITED: u32 = 0;

/// `struct ecalls_user`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct User {
    /// `STATE_*` of [`crate::channel`]: ACTIVE or FREE; host only.
    pub state: u32,
    /// The user of this row; unused in row 0.
    pub uid: u32,
    /// Events offered to its subscriptions, per second.
    pub up_per_s: u64,
    /// Events it raises by calls and by timers, per second.
    pub raise_per_s: u64,
    /// Time of its kernel handlers, ns per second; a tenth of it at once.
    pub handler_ns_per_s: u64,
    /// Largest burst of offers, at most 65536; 0 counts as 1.
    pub up_burst: u32,
    /// Largest burst of raises, at most 65536; 0 counts as 1.
    pub raise_burst: u32,
    /// Its events and chains that may wait in queues.
    pub queued_max: u32,
    /// Timers of its channels.
    pub timers_max: u32,
    /// Settings and repeated expiries of its timers, per second.
    pub timer_per_s: u64,
    /// Largest burst of these, at most 65536; 0 counts as 1.
    pub timer_burst: u32,
    /// Zero.
    pub pad0: u32,
    /// Bucket of `up_per_s`.
    pub up_tat: u64,
    /// Offers to its subscriptions, including refused ones.
    pub offered: u64,
    /// Refused offers.
    pub up_throttled: u64,
    /// Zero.
    pub pad1: [u64; 5],
    /// Bucket of `raise_per_s`.
    pub raise_tat: u64,
    /// Raises, including refused ones.
    pub raised: u64,
    /// Raises that were refused because of their rate.
    pub raise_throttled: u64,
    /// Events and chains refused because `queued_max` waited.
    pub queue_throttled: u64,
    /// Timers refused because it had `timers_max`.
    pub timers_throttled: u64,
    /// Events and chains that wait now.
    pub queued: u32,
    /// Timers that its channels have set, or had when they ended.
    pub timers: u32,
    /// Bucket of `timer_per_s`.
    pub timer_tat: u64,
    /// Settings that were refused, and expiries that were delayed, because of their rate.
    pub timer_throttled: u64,
    /// Bucket of `handler_ns_per_s`.
    pub handler_tat: u64,
    /// Time that its kernel handlers took, ns; counted while limited.
    pub handler_ns: u64,
    /// Runs of handlers that were refused.
    pub handler_throttled: u64,
    /// Zero.
    pub pad3: [u64; 5],
}

const _: () = assert!(size_of::<User>() == 256, "user");
