//! `abi/channel.h`: a channel's shared memory (ECalls-01 §2.3, ECalls-05 §3.2).
//!
//! A channel is the pair of segments between one application and the kernel side, and the
//! descriptor on which its owner sleeps. `up` carries events to the application, `down`
//! ([`crate::downcall`]) its calls to the kernel.
//!
//! `up` is an array of 256-byte elements: element 0 is [`Up`], element 1 is [`Lost`], elements 2
//! and 3 are the histogram handler's counters, followed from [`UP_EVENTS`] on by `capacity` entries
//! of a ring, or slots of `width` entries. The header explains the two layouts and the sleeping
//! protocol; the crate `ecalls-ring` implements them.

use core::num::NonZeroU32;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `layout`: a ring with front and back.
pub const LAYOUT_RING: u32 = 0;
/// `layout`: slots with a bit pattern.
pub const LAYOUT_SLOTS: u32 = 1;

/// `slot_use`: the next free slot; none free: the event is dropped (ECalls-01 §2.3).
pub const SLOT_FREE: u32 = 0;
/// `slot_use`: slot = `event.priority`; still full: the event is dropped (ECalls-01 §2.3).
pub const SLOT_PRIORITY: u32 = 1;
/// `slot_use`: slot = `event.type`; still full: the new event replaces the old one (ECalls-01
/// §2.3).
pub const SLOT_TYPE: u32 = 2;
/// `slot_use`: the same; still full: the old event tells enough, the new one is only counted.
pub const SLOT_READY: u32 = 3;

/// Bytes of one element of `up`.
pub const UP_ELEMENT_BYTES: usize = 256;
/// Element of `up` with the first event.
pub const UP_EVENTS: usize = 4;
/// Element of `up` with the first histogram counter.
pub const UP_HISTOGRAM: usize = 2;
/// Entries of the smallest ring; a power of two.
pub const CAPACITY_MIN: u32 = 64;
/// Entries of the largest ring; a power of two.
pub const CAPACITY_MAX: u32 = 65536;
/// Slots of a slot layout.
pub const SLOTS_MAX: usize = 1024;
/// Bytes of the wake descriptor's buffer.
pub const WAKE_BYTES: usize = 4096;

/// `struct ecalls_up`: the header of `up`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Up {
    /// Line 0, kernel side: events inserted since the channel exists; never decremented.
    pub flag: u64,
    /// Line 0, kernel side: ring: next position to take.
    pub back: u64,
    /// [`crate::ABI_VERSION`]; written once by the host.
    pub version: u32,
    /// `LAYOUT_*`; written once by the host.
    pub layout: u32,
    /// Entries of a ring, or slots; written once by the host.
    pub capacity: u32,
    /// `SLOT_*`; written once by the host.
    pub slot_use: u32,
    /// Id of the channel; written once by the host.
    pub channel: u32,
    /// Entries of a slot; ring: 1; written once by the host.
    pub width: u32,
    /// Zero.
    pub pad0: [u32; 6],
    /// Line 1, application: ring: next position to read.
    pub front: u64,
    /// Line 1, exchanged by both: 1: wake me.
    pub sleeping: u64,
    /// With `sleeping`: the value of `flag` from which on the reader is woken; 0: at once.
    pub wake_at: u64,
    /// With `sleeping`: until when the reader sleeps at most; an event with an earlier deadline
    /// wakes it.
    pub wake_by_ns: u64,
    /// Zero.
    pub pad1: [u64; 4],
    /// Lines 2 and 3: bits set by the kernel side, cleared by the application, atomically.
    pub pattern: [u64; SLOTS_MAX / 64],
}

const _: () = assert!(
    size_of::<Up>() == UP_ELEMENT_BYTES,
    "the header is one element"
);
const _: () = assert!(
    size_of::<crate::Event>() == UP_ELEMENT_BYTES,
    "so is an event"
);

/// Drop reasons: entries of every `dropped` array.
pub const DROP_REASONS: usize = DropReason::ALL.len();

/// `ECALLS_DROP_*`: the reason why an event was not delivered. The index of every `dropped`
/// counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum DropReason {
    /// The queue was full and this deadline the latest.
    QueueFull = 0,
    /// The reader did not keep up.
    RingFull = 1,
    /// No free slot, or the priority's slot still full.
    SlotFull = 2,
    /// A newer event took its typed slot before it was read.
    Replaced = 3,
    /// The receiver's `RLIMIT_SIGPENDING` was reached.
    SignalLimit = 4,
    /// The receiver ignores that signal.
    SignalIgnored = 5,
    /// The receiver has exited.
    TargetGone = 6,
    /// The kernel threads' queue was full.
    ThreadFull = 7,
    /// The channel was closed.
    ChannelGone = 8,
    /// The chain named a handler that is not registered.
    NoHandler = 9,
    /// There is no subscription, or none of the target; counted per service.
    NoSubscriber = 10,
    /// The raise was nested too deeply in other raises on one CPU; counted per service.
    Nested = 11,
    /// Its user has reached a quota; see [`crate::user`].
    Quota = 12,
    /// There is no place for data of this size, or it could not be read.
    Size = 13,
    /// An older event was not read yet and stands for it: slots of use [`SlotUse::Ready`], and
    /// subscriptions that coalesce.
    Coalesced = 14,
}

impl DropReason {
    /// Every reason, in order of index.
    pub const ALL: [DropReason; 15] = [
        DropReason::QueueFull,
        DropReason::RingFull,
        DropReason::SlotFull,
        DropReason::Replaced,
        DropReason::SignalLimit,
        DropReason::SignalIgnored,
        DropReason::TargetGone,
        DropReason::ThreadFull,
        DropReason::ChannelGone,
        DropReason::NoHandler,
        DropReason::NoSubscriber,
        DropReason::Nested,
        DropReason::Quota,
        DropReason::Size,
        DropReason::Coalesced,
    ];

    /// Its index in every `dropped` array.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The reason at an index of a `dropped` array.
    pub fn from_index(index: usize) -> Option<DropReason> {
        DropReason::ALL.get(index).copied()
    }

    /// The name in every output: `ring_full`.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::RingFull => "ring_full",
            DropReason::SlotFull => "slot_full",
            DropReason::Replaced => "replaced",
            DropReason::SignalLimit => "signal_limit",
            DropReason::SignalIgnored => "signal_ignored",
            DropReason::TargetGone => "target_gone",
            DropReason::ThreadFull => "thread_full",
            DropReason::ChannelGone => "channel_gone",
            DropReason::NoHandler => "no_handler",
            DropReason::NoSubscriber => "no_subscriber",
            DropReason::Nested => "nested",
            DropReason::Quota => "quota",
            DropReason::Size => "size",
            DropReason::Coalesced => "coalesced",
        }
    }
}

/// `struct ecalls_lost`: the kernel side counts losses next to the data, so that a reader sees them
/// without a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Lost {
    /// Discarded because the deadline had passed.
    pub late: u64,
    /// Dropped, by [`DropReason`].
    pub dropped: [u64; DROP_REASONS],
    /// Ended by a handler.
    pub filtered: u64,
    /// Zero.
    pub pad: [u64; 15],
}

const _: () = assert!(
    size_of::<Lost>() == UP_ELEMENT_BYTES,
    "the counters are one element"
);

impl Lost {
    /// Events dropped for one reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }
}

/// `state`: not in use.
pub const STATE_FREE: u32 = 0;
/// `state`: being filled by the host, ignored by the kernel side.
pub const STATE_SETUP: u32 = 1;
/// `state`: in use.
pub const STATE_ACTIVE: u32 = 2;
/// `state`: the owner has exited or closed; the host reclaims it.
pub const STATE_DEAD: u32 = 3;

/// `ECALLS_STATE_*`: the state word of channels, subscriptions and services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// Not in use.
    Free = STATE_FREE,
    /// Being filled by the host, ignored by the kernel side.
    Setup = STATE_SETUP,
    /// In use.
    Active = STATE_ACTIVE,
    /// The owner has exited or closed; the host reclaims it.
    Dead = STATE_DEAD,
}

impl State {
    /// The state of the value `raw`.
    pub fn from_raw(raw: u32) -> Option<State> {
        [State::Free, State::Setup, State::Active, State::Dead]
            .into_iter()
            .find(|state| state.raw() == raw)
    }

    /// The value in the record.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// The name in every output: `active`.
    pub const fn name(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Setup => "setup",
            State::Active => "active",
            State::Dead => "dead",
        }
    }
}

/// `ECALLS_LAYOUT_*`: the layout of a channel's events in `up` (ECalls-01 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Layout {
    /// A ring with front and back.
    Ring = LAYOUT_RING,
    /// Slots with a counted flag and a bit pattern.
    Slots = LAYOUT_SLOTS,
}

impl Layout {
    /// The layout of the value `raw`.
    pub fn from_raw(raw: u32) -> Option<Layout> {
        [Layout::Ring, Layout::Slots]
            .into_iter()
            .find(|layout| layout.raw() == raw)
    }

    /// The value in the record.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// Largest capacity of a channel of this layout: entries of a ring, or slots.
    pub const fn capacity_max(self) -> u32 {
        match self {
            Layout::Ring => CAPACITY_MAX,
            Layout::Slots => SLOTS_MAX as u32,
        }
    }

    /// Whether a channel of this layout may have that `capacity`: a power of two between
    /// [`CAPACITY_MIN`] and [`Layout::capacity_max`].
    pub fn allows(self, capacity: u32) -> bool {
        let range = CAPACITY_MIN..=self.capacity_max();
        capacity.is_power_of_two() && range.contains(&capacity)
    }
}

/// `ECALLS_SLOT_*`: the slot of an event (ECalls-01 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum SlotUse {
    /// The next free slot; none free: the event is dropped.
    Free = SLOT_FREE,
    /// Slot = `event.priority`; still full: the event is dropped.
    Priority = SLOT_PRIORITY,
    /// Slot = `event.type`; still full: the new event replaces the old one.
    Type = SLOT_TYPE,
    /// Slot = `event.type`; still full: the old event stands for the new one, which is counted
    /// ([`DropReason::Coalesced`]). For events that say that there is something to read: what was
    /// not read yet is not raised again.
    Ready = SLOT_READY,
}

impl SlotUse {
    /// The use of the value `raw`.
    pub fn from_raw(raw: u32) -> Option<SlotUse> {
        let all = [
            SlotUse::Free,
            SlotUse::Priority,
            SlotUse::Type,
            SlotUse::Ready,
        ];
        all.into_iter().find(|slot_use| slot_use.raw() == raw)
    }

    /// The value in the record.
    pub const fn raw(self) -> u32 {
        self as u32
    }
}

/// `struct ecalls_channel`: the kernel side's private data of a channel. Never mapped by an
/// application.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Channel {
    /// `STATE_*`: host, or DEAD by the kernel side at the owner's exit.
    pub state: u32,
    /// Index and generation; see [`Id`].
    pub id: u32,
    /// Process id of the application.
    pub owner: u32,
    /// User of the owner.
    pub uid: u32,
    /// `LAYOUT_*`.
    pub layout: u32,
    /// Entries of a ring, or slots.
    pub capacity: u32,
    /// `SLOT_*`.
    pub slot_use: u32,
    /// `DEFER_*` of [`crate::downcall`].
    pub defer: u32,
    /// Start time of the owner (since boot, ns), against pid reuse.
    pub owner_start: u64,
    /// With `DEFER_DELAY`: the longest time that calls wait.
    pub delay_ns: u64,
    /// Row of [`crate::user`] by which its events are counted.
    pub user: u32,
    /// Entries of a slot; ring: 1.
    pub width: u32,
}

const _: () = assert!(size_of::<Channel>() == 56, "channel");

/// Bits of an id that are its index.
pub const ID_BITS: u32 = 12;

/// The id of a channel or subscription: an index below `1 << ID_BITS` and a generation above it.
///
/// 0 is never an id. Because of the generation, an old id does not match when its index is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(NonZeroU32);

impl Id {
    /// Largest index.
    pub const INDEX_MAX: u32 = (1 << ID_BITS) - 1;
    /// Largest generation.
    pub const GENERATION_MAX: u32 = u32::MAX >> ID_BITS;

    /// The id of `index` in its `generation`; `None` if one is too large or both are 0.
    pub fn new(index: u32, generation: u32) -> Option<Id> {
        if index > Id::INDEX_MAX || generation > Id::GENERATION_MAX {
            return None;
        }
        Id::from_raw(index | generation << ID_BITS)
    }

    /// The id of the value `raw`; `None` for 0.
    pub fn from_raw(raw: u32) -> Option<Id> {
        NonZeroU32::new(raw).map(Id)
    }

    /// The value in the record.
    pub const fn raw(self) -> u32 {
        self.0.get()
    }

    /// Its index in the core's tables.
    pub const fn index(self) -> u32 {
        self.raw() & Id::INDEX_MAX
    }

    /// The number of earlier uses of that index.
    pub const fn generation(self) -> u32 {
        self.raw() >> ID_BITS
    }

    /// The next id of the same index. Generations wrap around and skip 0, so this is never 0.
    #[must_use]
    pub fn next(self) -> Id {
        let generation = if self.generation() == Id::GENERATION_MAX {
            1
        } else {
            self.generation() + 1
        };
        Id::new(self.index(), generation).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drop_reason_has_its_index_and_a_name_of_its_own() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(DropReason::from_index(index), Some(reason));
            let same_name = DropReason::ALL
                .iter()
                .filter(|other| other.name() == reason.name());
            assert_eq!(same_name.count(), 1);
        }
        assert_eq!(DropReason::from_index(DROP_REASONS), None);
        assert_eq!(DropReason::RingFull.name(), "ring_full");
    }

    #[test]
    fn lost_counters_are_read_by_reason() {
        let mut lost = Lost::default();
        lost.dropped[3] = 9;
        assert_eq!(lost.dropped(DropReason::Replaced), 9);
    }

    #[test]
    fn id_is_index_and_generation() {
        let id = Id::new(5, 3).unwrap();
        assert_eq!((id.raw(), id.index(), id.generation()), (5 | 3 << 12, 5, 3));
        assert_eq!(id.next(), Id::new(5, 4).unwrap());
        assert_eq!(Id::from_raw(0), None);
        assert_eq!(Id::new(0, 0), None);
        assert_eq!(Id::new(Id::INDEX_MAX + 1, 1), None);
        assert_eq!(Id::new(0, Id::GENERATION_MAX + 1), None);
    }

    #[test]
    fn generation_wraps_around_and_skips_zero() {
        let last = Id::new(0, Id::GENERATION_MAX).unwrap();
        assert_eq!(last.next(), Id::new(0, 1).unwrap());
    }

    #[test]
    fn numbers_without_a_meaning_are_not_taken_for_one() {
        assert_eq!(State::from_raw(2), Some(State::Active));
        assert_eq!(State::from_raw(4), None);
        assert_eq!(Layout::from_raw(2), None);
        assert_eq!(SlotUse::from_raw(4), None);
        assert_eq!(
            SlotUse::from_raw(SlotUse::Ready.raw()),
            Some(SlotUse::Ready)
        );
    }

    #[test]
    fn capacity_is_a_power_of_two_within_its_layout() {
        assert!(Layout::Ring.allows(65536));
        assert!(!Layout::Slots.allows(2048));
        assert!(Layout::Slots.allows(1024));
        assert!(!Layout::Ring.allows(32));
        assert!(!Layout::Ring.allows(100));
    }
}
