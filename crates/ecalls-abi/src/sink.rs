//! `abi/sink.h`: the other hosts to which this host's frames of a channel go.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::downcall::ATTRIBUTES;

/// Sinks of one channel.
pub const SINKS_MAX: usize = 64;
/// Family of a sink that is reached by the relay.
pub const SINK_HOST: u32 = 0xffff;
/// Bytes of a channel's buffer.
pub const LANE_BUFFER: usize = 262_144;

/// 1: the channel has a filter.
pub const OUT_SET_SHIFT: u32 = 61;
/// 1: sinks that it does not accept get nothing.
pub const OUT_ACCEPTS_SHIFT: u32 = 62;
/// Which of the channel's two places its program is in.
pub const OUT_PLACE_SHIFT: u32 = 63;

/// The buffer was full.
pub const REMOTE_FULL: usize = 0;
/// The packet is too long for the interface.
pub const REMOTE_SIZE: usize = 1;
/// The interface refused the packet for another reason.
pub const REMOTE_FAILED: usize = 2;
/// The channel had been closed; counted in row 0.
pub const REMOTE_CLOSED: usize = 3;
/// Its data are longer than the channel's format describes.
pub const REMOTE_FORMAT: usize = 4;
/// Its user has as much in the buffer as is left free for all.
pub const REMOTE_SHARE: usize = 5;
/// How many reasons there are.
pub const REMOTE_REASONS: usize = 6;

/// The reasons' names, in order.
pub const REMOTE_REASON_NAMES: [&str; REMOTE_REASONS] =
    ["full", "size", "failed", "closed", "format", "share"];

const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// `struct ecalls_sink`: another host to which frames go.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Sink {
    /// The number of the last frame to it; senders increment it.
    pub sent: u64,
    /// Of these: the interface refused the packet.
    pub failed: u64,
    /// Its address, in network byte order; IPv4: the first four bytes.
    pub address: [u8; 16],
    /// This host's IPv4 address towards it.
    pub source: [u8; 4],
    /// Index of the interface that it is behind.
    pub interface: u32,
    /// `AF_INET`, `AF_INET6` or [`SINK_HOST`]; 0: the row is free.
    pub family: u32,
    /// 1: `remote` sends to it; 0: publishers that name it do.
    pub member: u32,
    /// Zero.
    pub pad: [u64; 2],
}

const _: () = assert!(size_of::<Sink>() == 64, "sink");

impl Sink {
    /// A sink with this address, to which nothing has been sent.
    pub fn new(address: IpAddr) -> Sink {
        let mut sink = Sink::default();
        match address {
            IpAddr::V4(ip) => {
                sink.family = AF_INET;
                sink.address[..4].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                sink.family = AF_INET6;
                sink.address = ip.octets();
            }
        }
        sink
    }

    /// A sink that is this host, reached by the relay.
    pub fn of_host(host: u64) -> Sink {
        let mut sink = Sink {
            family: SINK_HOST,
            ..Sink::default()
        };
        sink.address[..8].copy_from_slice(&host.to_ne_bytes());
        sink
    }

    /// The host, if it is reached by the relay.
    pub fn host(&self) -> Option<u64> {
        let [a, b, c, d, e, f, g, h, ..] = self.address;
        let host = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        (self.family == SINK_HOST).then_some(host)
    }

    /// Its address; `None`: it has none, or the row is free.
    pub fn ip(&self) -> Option<IpAddr> {
        let [a, b, c, d, ..] = self.address;
        match self.family {
            AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
            AF_INET6 => Some(Ipv6Addr::from(self.address).into()),
            _ => None,
        }
    }
}

/// `struct ecalls_sink_told`: a sink as a channel's filter sees it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SinkTold {
    /// Its number.
    pub id: u64,
    /// When it last told attributes, ns; 0: never.
    pub told_ns: u64,
    /// The attributes that it told.
    pub value: [u64; ATTRIBUTES],
}

const _: () = assert!(size_of::<SinkTold>() == 272, "sink told");

/// `struct ecalls_lane_out`: a channel's events by `remote`. When its buffer is empty, events =
/// none + filtered + the sum of refused + fanned, and frames = sent + late + gone.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LaneOut {
    /// Events whose chain came to `remote`.
    pub events: u64,
    /// Of these: the channel had no sink.
    pub none: u64,
    /// Of these: the filter chose no sink.
    pub filtered: u64,
    /// Of these: went to no sink, by reason ([`REMOTE_FULL`], ..).
    pub refused: [u64; REMOTE_REASONS],
    /// Of these: reached the interface.
    pub fanned: u64,
    /// Sinks of the events that reached it.
    pub frames: u64,
    /// Frames that were numbered and sent.
    pub sent: u64,
    /// Frames whose deadline had passed in the buffer.
    pub late: u64,
    /// Frames to a sink that had been removed meanwhile.
    pub gone: u64,
    /// Runs of the filter that ended in a fault: the event went to all sinks.
    pub failed: u64,
    /// The last one, as in an action in E-code.
    pub fault: u64,
}

const _: () = assert!(size_of::<LaneOut>() == 128, "lane out");

/// `struct ecalls_lane_share`: what a user has in a channel's buffer, which is `put` - `taken`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LaneShare {
    /// Bytes; incremented by the kernel side.
    pub put: u64,
    /// Of these: incremented by the thread that empties the buffer.
    pub taken: u64,
}

const _: () = assert!(size_of::<LaneShare>() == 16, "lane share");

/// Bytes that a record of so many takes in the buffer.
pub const fn lane_record(bytes: u64) -> u64 {
    bytes.next_multiple_of(8) + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sink_has_the_address_that_it_was_given() {
        for text in ["10.0.0.1", "0.0.0.0", "::1", "fe80::1:2"] {
            let ip: IpAddr = text.parse().expect("an address");
            assert_eq!(Sink::new(ip).ip(), Some(ip));
        }
        assert_eq!(Sink::default().ip(), None);
        let host = Sink::of_host(7);
        assert_eq!((host.host(), host.ip()), (Some(7), None));
    }
}
