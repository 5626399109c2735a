//! `abi/wire.h`: a frame, which is an event on its way to another host; how people write a host.
//!
//! All numbers are little endian, so on the processors that ECalls supports the struct is the
//! header as it is sent.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first word of each frame.
pub const WIRE_MAGIC: u32 = 0x4c4c_4345;
/// The version of this layout.
pub const WIRE_VERSION: u16 = 1;
/// UDP port of senders and receivers; only privileged programs can send from it.
pub const WIRE_PORT: u16 = 914;
/// Attributes in one frame.
pub const WIRE_ATTRIBUTES: usize = 8;
/// Kinds of events are below.
pub const WIRE_KINDS: u32 = 32;

/// `struct ecalls_wire`: the header; the data follows.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Wire {
    /// [`WIRE_MAGIC`].
    pub magic: u32,
    /// [`WIRE_VERSION`].
    pub version: u16,
    /// Bytes of data.
    pub size: u16,
    /// The [`text_id`] of the channel's name.
    pub channel: u64,
    /// The sending host; not 0.
    pub host: u64,
    /// When the host opened the channel: ns of its real-time clock.
    pub epoch: u64,
    /// Number of the frame within the epoch, from 1 on.
    pub sequence: u64,
    /// The [`text_id`] of the channel's format.
    pub format: u64,
    /// Zero in this version.
    pub request: u64,
    /// Zero in this version.
    pub sinks: u64,
    /// Time until the deadline; 0: no deadline.
    pub left_ns: u64,
    /// Kind of the event.
    pub kind: u32,
    /// Type of the event.
    pub r#type: u32,
    /// Priority of the event.
    pub priority: u32,
    /// Attributes of the sending host that follow.
    pub attributes: u32,
    /// Their numbers.
    pub number: [u8; WIRE_ATTRIBUTES],
    /// Their values.
    pub value: [u64; WIRE_ATTRIBUTES],
}

const _: () = assert!(size_of::<Wire>() == 160, "the header of a frame");
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the header is written as it is"
);

/// A host as people write it: `4f01:02-00-00-00-00-01`, where the first number is 0 but for
/// instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(pub u64);

impl Host {
    /// The host that is written so.
    pub fn parse(text: &str) -> Option<Host> {
        let bytes: &[u8; 22] = text.as_bytes().try_into().ok()?;
        let mut host = 0;
        for (at, byte) in bytes.iter().enumerate() {
            match (at, byte) {
                (4, b':') | (7 | 10 | 13 | 16 | 19, b'-') => {}
                (4 | 7 | 10 | 13 | 16 | 19, _) => return None,
                _ => host = host << 4 | u64::from(char::from(*byte).to_digit(16)?),
            }
        }
        Some(Host(host))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, rest @ ..] = self.0.to_be_bytes();
        write!(f, "{a:02x}{b:02x}:")?;
        rest.iter().enumerate().try_for_each(|(at, byte)| {
            let dash = if at == 0 { "" } else { "-" };
            write!(f, "{dash}{byte:02x}")
        })
    }
}

/// The id of a text (FNV-1a, 64 bits), by which frames name channels and formats.
pub const fn text_id(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut id = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        id = (id ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::text_id;

    #[test]
    fn ids_are_those_of_the_published_algorithm() {
        assert_eq!(text_id(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(text_id("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(text_id("foobar"), 0x8594_4171_f739_67e8);
    }
}
