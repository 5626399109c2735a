//! `abi/fate.h`: the fates of events that were not delivered (`ecalls explain`).
//!
//! There is a ring of records per CPU, in which the newest replaces the oldest one. A record is
//! valid if its `sequence` is not 0 and the same before and after it was copied.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Records per CPU; a power of two.
pub const FATES: usize = 1024;
/// Time between two records of limits, or of filters, ns.
pub const FATE_SELDOM_NS: u32 = 1_000_000;

/// `what`: its deadline had passed.
pub const FATE_LATE: u32 = 1;
/// `what`: dropped; see `reason`.
pub const FATE_DROPPED: u32 = 2;
/// `what`: a kernel handler ended the chain.
pub const FATE_FILTERED: u32 = 3;
/// `what`: the same by `drop()` of E-code, with its `reason`.
pub const FATE_FILTERED_FOR: u32 = 4;

/// `stage`: before it became an event: it has no id.
pub const STAGE_RAISE: u32 = 1;
/// `stage`: when a timer expired: it has no id.
pub const STAGE_TIMER: u32 = 5;
/// `stage`: in a queue, or on the way into one.
pub const STAGE_QUEUE: u32 = 2;
/// `stage`: when it was offered to a subscription.
pub const STAGE_OFFER: u32 = 3;
/// `stage`: in a subscription's chain, at `action`.
pub const STAGE_CHAIN: u32 = 4;

/// `struct ecalls_fate`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Fate {
    /// Position + 1 once complete; 0: being written, or never used.
    pub sequence: u64,
    /// Id of the event; 0: it had none.
    pub event: u64,
    /// Time of the fate.
    pub when_ns: u64,
    /// Time of the raise.
    pub raise_ns: u64,
    /// Absolute; 0: at once.
    pub release_ns: u64,
    /// Absolute, for this subscription; 0: none.
    pub deadline_ns: u64,
    /// Id of the subscription; 0: all that would have received the event.
    pub subscription: u32,
    /// User of the event.
    pub uid: u32,
    /// Process of the event.
    pub pid: u32,
    /// Index of the service.
    pub service: u16,
    /// The kind of event, per service.
    pub kind: u8,
    /// [`FATE_LATE`], ..
    pub what: u8,
    /// DROPPED: [`crate::DropReason`]; FILTERED_FOR: the argument of `drop()`.
    pub reason: u8,
    /// [`STAGE_RAISE`], ..
    pub stage: u8,
    /// Index of the action, with [`STAGE_CHAIN`].
    pub action: u8,
    /// Zero.
    pub pad: [u8; 5],
}

const _: () = assert!(size_of::<Fate>() == 72, "fate");
