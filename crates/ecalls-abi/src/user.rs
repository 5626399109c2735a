//! `abi/user.h`: what the processes of one uid may use of the core, and what they use now.
//!
//! Subscriptions, channels and application services name their user by the index of a row. Row
//! [`UNLIMITED`] is for whom nothing is limited; a limit of 0 is none. The host writes the limits,
//! word by word; everything from `up_tat` on is written by the kernel side alone.

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
    /// Whose row it is; row 0: nobody's.
    pub uid: u32,
    /// Events offered to its subscriptions, per second.
    pub up_per_s: u64,
    /// Events it raises by calls and by timers, per second.
    pub raise_per_s: u64,
    /// Time of its kernel handlers, ns per second; a tenth of it at once.
    pub handler_ns_per_s: u64,
    /// Offers at once; at most 65536; 0 counts as 1.
    pub up_burst: u32,
    /// Raises at once; at most 65536; 0 counts as 1.
    pub raise_burst: u32,
    /// Events and chains of its that may wait in queues.
    pub queued_max: u32,
    /// Timers of its channels.
    pub timers_max: u32,
    /// Times that its timers are set, or expire again, per second.
    pub timer_per_s: u64,
    /// That many at once; at most 65536; 0 counts as 1.
    pub timer_burst: u32,
    /// Zero.
    pub pad0: u32,
    /// Bucket of `up_per_s`.
    pub up_tat: u64,
    /// Offers to its subscriptions, those refused included.
    pub offered: u64,
    /// Of them refused.
    pub up_throttled: u64,
    /// Zero.
    pub pad1: [u64; 5],
    /// Bucket of `raise_per_s`.
    pub raise_tat: u64,
    /// Raises, those refused included.
    pub raised: u64,
    /// Of them refused for their rate.
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
    /// Settings refused, and expiries put off, for their rate.
    pub timer_throttled: u64,
    /// Bucket of `handler_ns_per_s`.
    pub handler_tat: u64,
    /// Time that its kernel handlers took, ns; counted while limited.
    pub handler_ns: u64,
    /// Runs of handlers refused.
    pub handler_throttled: u64,
    /// Zero.
    pub pad3: [u64; 5],
}

const _: () = assert!(size_of::<User>() == 256, "user");
