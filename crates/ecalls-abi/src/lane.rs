//! `abi/lane.h`: how frames of other hosts become events of this host.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::downcall::ATTRIBUTES;

/// Channels of one core; row 0 stands for no channel.
pub const LANE_CHANNELS: usize = 64;
/// Sources of one core.
pub const LANE_SOURCES: usize = 1024;

/// Frames go by the interface, to its neighbours.
pub const WAY_LANE: u32 = 0;
/// They go by the host's relay.
pub const WAY_RELAY: u32 = 1;

/// Truncated, or another size than the frame says.
pub const FRAME_SIZE: usize = 0;
/// Of another version.
pub const FRAME_VERSION: usize = 1;
/// A field has an impossible value.
pub const FRAME_MALFORMED: usize = 2;
/// Another format than the channel's here, or longer data than it describes.
pub const FRAME_FORMAT: usize = 3;
/// The frame says that this host sent it.
pub const FRAME_OWN: usize = 4;
/// The program that opened the channel here has ended.
pub const FRAME_CLOSED: usize = 5;
/// It arrived before.
pub const FRAME_DUPLICATE: usize = 6;
/// Of an earlier epoch, or too old to tell.
pub const FRAME_STALE: usize = 7;
/// No row is left for a further source.
pub const FRAME_SOURCES: usize = 8;
/// How many reasons there are.
pub const FRAME_REASONS: usize = 9;

/// The reasons' names, in order.
pub const FRAME_REASON_NAMES: [&str; FRAME_REASONS] = [
    "size",
    "version",
    "malformed",
    "format",
    "own",
    "closed",
    "duplicate",
    "stale",
    "sources",
];

/// `struct ecalls_lane_channel`: a channel that is open on this host.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LaneChannel {
    /// Id of its name; 0: the row is free.
    pub id: u64,
    /// Id of its format.
    pub format: u64,
    /// This host.
    pub host: u64,
    /// Of this host's frames.
    pub epoch: u64,
    /// Bit per sink that is a member ([`crate::sink`]).
    pub sinks: u64,
    /// The filter that chooses among them: `OUT_*` of [`crate::sink`].
    pub out: u64,
    /// Start time of the owner (since boot, ns).
    pub owner_start: u64,
    /// Process that opened it.
    pub owner: u32,
    /// Its user: that of the events.
    pub uid: u32,
    /// Index of the service.
    pub service: u32,
    /// [`WAY_LANE`] or [`WAY_RELAY`].
    pub way: u32,
    /// Bytes of data that its format describes.
    pub data_max: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<LaneChannel>() == 80, "lane channel");

/// `struct ecalls_lane_count`: frames = raised + the sum of refused.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LaneCount {
    /// Frames that arrived.
    pub frames: u64,
    /// Of these: became events.
    pub raised: u64,
    /// Of these: refused, by reason ([`FRAME_SIZE`], ..).
    pub refused: [u64; FRAME_REASONS],
}

const _: () = assert!(size_of::<LaneCount>() == 88, "lane count");

/// `struct ecalls_lane_key`: a source, as the kernel side finds it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LaneKey {
    /// The channel's id.
    pub channel: u64,
    /// The sending host.
    pub host: u64,
}

const _: () = assert!(size_of::<LaneKey>() == 16, "lane key");

/// `struct ecalls_window`: the frames of one source.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Window {
    /// The current epoch; 0: no frame has arrived.
    pub epoch: u64,
    /// The smallest sequence number of the epoch that has arrived.
    pub first: u64,
    /// The largest one.
    pub highest: u64,
    /// Bit i: `highest` - i has arrived.
    pub seen: u64,
    /// Frames from first to highest of former epochs, arrived or not.
    pub former: u64,
    /// Arrived for the first time, of all epochs.
    pub fresh: u64,
    /// Had arrived before.
    pub duplicate: u64,
    /// Too old to tell, or of an earlier epoch.
    pub stale: u64,
    /// When the last fresh one arrived, ns.
    pub last_ns: u64,
}

const _: () = assert!(size_of::<Window>() == 72, "window");

impl Window {
    /// Frames that should have arrived and have not: what the source has sent from the first frame
    /// that arrived to the last one is `fresh` and these.
    pub fn missing(&self) -> u64 {
        if self.epoch == 0 {
            return 0;
        }
        let span = self.highest.wrapping_sub(self.first).wrapping_add(1);
        self.former.wrapping_add(span).wrapping_sub(self.fresh)
    }
}

/// `struct ecalls_lane_source`: another host on a channel.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LaneSource {
    /// The kernel side's.
    pub lock: u64,
    /// Its frames.
    pub window: Window,
    /// When it last told attributes, ns; 0: never.
    pub told_ns: u64,
    /// The attributes that it told.
    pub value: [u64; ATTRIBUTES],
}

const _: () = assert!(size_of::<LaneSource>() == 344, "lane source");
