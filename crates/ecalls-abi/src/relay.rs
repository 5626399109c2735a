//! `abi/relay.h`: the messages between a program that has opened a channel among hosts and the
//! relay of its host.
//!
//! [`RelayMessage::parse`] checks the form of a packet: version, size. The values are checked by
//! the code that uses them.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::text;
use crate::version::{FORMAT_MAX, NAME_MAX};

/// Path of the relay's socket.
pub const RELAY_SOCKET_PATH: &str = "/run/ecalls-relay/socket";
/// Version of the messages.
pub const RELAY_VERSION: u32 = 1;
/// Bytes of the largest message.
pub const RELAY_MAX: usize = 4096;

/// Which format has the channel of this name?
pub const RELAY_ASK: u32 = 1;
/// This host has opened the channel.
pub const RELAY_ENTER: u32 = 2;
/// Send a frame to a host.
pub const RELAY_SEND: u32 = 3;
/// Which channels are there? [`RELAY_FOUND`] for each, then [`RELAY_NONE`].
pub const RELAY_LIST: u32 = 4;
/// What have other hosts said in vain? [`RELAY_COUNTED`].
pub const RELAY_COUNT: u32 = 5;
/// A host has it open.
pub const RELAY_FOUND: u32 = 16;
/// No host has.
pub const RELAY_NONE: u32 = 17;
/// Others are told that this host has it open.
pub const RELAY_ENTERED: u32 = 18;
/// The request is refused; `reason` says why.
pub const RELAY_REFUSED: u32 = 19;
/// Another host has it open.
pub const RELAY_JOINED: u32 = 20;
/// It has no more.
pub const RELAY_LEFT: u32 = 21;
/// Hosts that have not been told are not there.
pub const RELAY_SETTLED: u32 = 22;
/// A frame has arrived.
pub const RELAY_FRAME: u32 = 23;
/// [`RelayCounts`].
pub const RELAY_COUNTED: u32 = 24;

/// `[[access]]` does not allow the frame.
pub const RELAY_NO_FRAME: u32 = 0;
/// Nor the answer to what a channel is.
pub const RELAY_NO_ANSWER: u32 = 1;
/// Nor the question.
pub const RELAY_NO_QUESTION: u32 = 2;
/// Nor that the host has a channel open, or wants its events.
pub const RELAY_NO_PRESENCE: u32 = 3;
/// A host says that it is this one.
pub const RELAY_OWN: u32 = 4;
/// A key, an answer or a frame that cannot be.
pub const RELAY_IMPOSSIBLE: u32 = 5;
/// There was no place for it, or nobody to take it.
pub const RELAY_LOST: u32 = 6;
/// A host says that it is another one, which is there.
pub const RELAY_SECOND: u32 = 7;
/// Number of reasons why what another host said had no effect.
pub const RELAY_REASONS: usize = 8;
/// Their names, in order.
pub const RELAY_REASON_NAMES: [&str; RELAY_REASONS] = [
    "no_frame",
    "no_answer",
    "no_question",
    "no_presence",
    "own",
    "impossible",
    "lost",
    "second",
];

/// A name or a text is impossible, or it is not the time for it.
pub const RELAY_INVALID: u32 = 1;
/// A program of this host is in this channel.
pub const RELAY_TAKEN: u32 = 2;
/// Hosts have the channel with different formats.
pub const RELAY_DIFFERS: u32 = 3;
/// The relay could not tell the other hosts.
pub const RELAY_NETWORK: u32 = 4;
/// Hosts have the channel whose relays have another version.
pub const RELAY_OTHER: u32 = 5;

/// Policy of a channel: frames go over the lane.
pub const RELAY_FAST: u32 = 1;
/// Policy of a channel: they go by the relays.
pub const RELAY_RELIABLE: u32 = 2;

/// `struct ecalls_relay_message`: the header of every message.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct RelayMessage {
    /// [`RELAY_VERSION`].
    pub version: u32,
    /// [`RELAY_ASK`], ...
    pub kind: u32,
    /// Bytes of the whole message.
    pub size: u32,
    /// With [`RELAY_REFUSED`]: [`RELAY_INVALID`], ...
    pub reason: u32,
    /// ENTER: this host; SEND, JOINED, LEFT: the other one.
    pub host: u64,
    /// Id of its format.
    pub format: u64,
    /// Its IPv4 address for the lane; zeros: none.
    pub address: [u8; 4],
    /// Zero.
    pub pad: [u32; 3],
}

const _: () = assert!(size_of::<RelayMessage>() == 48, "relay message");

impl RelayMessage {
    /// A message of this kind, with `rest` bytes behind it.
    pub fn new(kind: u32, rest: usize) -> RelayMessage {
        RelayMessage {
            version: RELAY_VERSION,
            kind,
            size: u32::try_from(size_of::<RelayMessage>() + rest).unwrap_or(u32::MAX),
            ..RelayMessage::default()
        }
    }

    /// The header and the rest of a packet; `None` if it is of another version, or has another size
    /// than it says.
    pub fn parse(packet: &[u8]) -> Option<(RelayMessage, &[u8])> {
        let (message, rest) = RelayMessage::read_from_prefix(packet).ok()?;
        let fits = usize::try_from(message.size) == Ok(packet.len());
        (message.version == RELAY_VERSION && fits).then_some((message, rest))
    }

    /// The version of a packet that is a message of another version; else `None`.
    pub fn other_version(packet: &[u8]) -> Option<u32> {
        let (head, _) = <[u32; 4]>::read_from_prefix(packet).ok()?;
        let [version, _, size, _] = head;
        let fits = usize::try_from(size) == Ok(packet.len());
        (version != RELAY_VERSION && fits).then_some(version)
    }
}

/// `struct ecalls_relay_channel`: a channel of a cluster.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RelayChannel {
    /// Name of the cluster.
    pub cluster: [u8; NAME_MAX],
    /// Name of the channel.
    pub name: [u8; NAME_MAX],
    /// FOUND, NONE: the lane's interface, by the relay's configuration.
    pub interface: [u8; NAME_MAX],
    /// Format of its data.
    pub format: [u8; FORMAT_MAX],
    /// Names of its kinds.
    pub kinds: [u8; FORMAT_MAX],
    /// The host that created it; ENTER: 0 is this one.
    pub creator: u64,
    /// [`RELAY_FAST`] or [`RELAY_RELIABLE`].
    pub policy: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<RelayChannel>() == 1136, "relay channel");

/// `struct ecalls_relay_counts`: what other hosts have said in vain since the relay started.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct RelayCounts {
    /// By [`RELAY_NO_FRAME`], ...
    pub count: [u64; RELAY_REASONS],
}

const _: () = assert!(size_of::<RelayCounts>() == 64, "relay counts");

impl RelayChannel {
    /// The channel of this name in this cluster; `None`: one of the names is impossible.
    pub fn named(cluster: &str, name: &str) -> Option<RelayChannel> {
        let mut channel = RelayChannel::new_zeroed();
        text::write(&mut channel.cluster, cluster).ok()?;
        text::write(&mut channel.name, name).ok()?;
        (is_name(cluster) && is_name(name)).then_some(channel)
    }
}

/// Whether a cluster, or a channel of one, can have this name.
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    !name.is_empty() && name.len() < NAME_MAX && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_another_size_or_version_is_none() {
        let message = RelayMessage::new(RELAY_ASK, 3);
        let mut packet = [0u8; 51];
        packet[..48].copy_from_slice(message.as_bytes());
        assert_eq!(RelayMessage::parse(&packet), Some((message, &[0u8; 3][..])));
        assert_eq!(RelayMessage::parse(&packet[..50]), None);
        assert_eq!(RelayMessage::parse(&packet[..20]), None);
        packet[0] = 2;
        assert_eq!(RelayMessage::parse(&packet), None);
    }

    #[test]
    fn names_have_no_character_that_means_something_elsewhere() {
        for name in [
            "",
            "a/b",
            "a*",
            "a b",
            "a$",
            "é",
            "a?b",
            "a#",
            &"n".repeat(32),
        ] {
            assert!(!is_name(name), "{name:?}");
            assert!(RelayChannel::named("lab", name).is_none());
        }
        assert!(is_name("load.1-a_B"));
    }
}
