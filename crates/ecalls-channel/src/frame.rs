//! A frame: an event between hosts, as bytes (`abi/wire.h`).
//!
//! The receiver is a program in the kernel (bpf/net/ingress.h); [`read`] is for tools and tests
//! that look at frames.

use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::{WIRE_ATTRIBUTES, WIRE_KINDS, WIRE_MAGIC, WIRE_VERSION, Wire};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use ecalls_kernel::{Error, Result};

/// An event to be sent: what its program decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// The data, in the channel's format; at most [`DATA_MAX`] bytes.
    pub data: Vec<u8>,
    /// Kind, below 32.
    pub kind: u32,
    /// Type: the slot of channels whose slots are used by type.
    pub slot_type: u32,
    /// Priority; 0 is the most urgent.
    pub priority: u32,
    /// Time within which it must be delivered, ns; 0: no deadline. It continues at the receiver.
    pub left_ns: u64,
    /// Attributes of this host that travel with it: number and value, at most 8.
    pub attributes: Vec<(u8, u64)>,
}

/// Where a frame comes from: what the channel determines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Id of the channel's name.
    pub channel: u64,
    /// Id of its format.
    pub format: u64,
    /// The sending host.
    pub host: u64,
    /// When that host opened the channel.
    pub epoch: u64,
    /// Number of the frame.
    pub sequence: u64,
}

/// The bytes of a frame.
///
/// # Errors
/// [`Error::Invalid`] for too much data, for an impossible kind, and for too many or impossible
/// attributes.
pub fn write(origin: &Origin, submission: &Submission) -> Result<Vec<u8>> {
    let Submission {
        data,
        attributes,
        kind,
        ..
    } = submission;
    let size = u16::try_from(data.len())
        .ok()
        .filter(|size| usize::from(*size) <= DATA_MAX);
    let size = size.ok_or_else(|| invalid("the data", data.len(), "fewer bytes (DATA_MAX)"))?;
    if *kind >= WIRE_KINDS {
        return Err(invalid("the kind", *kind as usize, "a number below 32"));
    }
    if attributes.len() > WIRE_ATTRIBUTES {
        return Err(invalid(
            "the attributes",
            attributes.len(),
            "at most 8 of them",
        ));
    }
    let mut wire = Wire {
        magic: WIRE_MAGIC,
        version: WIRE_VERSION,
        size,
        channel: origin.channel,
        host: origin.host,
        epoch: origin.epoch,
        sequence: origin.sequence,
        format: origin.format,
        left_ns: submission.left_ns,
        kind: *kind,
        r#type: submission.slot_type,
        priority: submission.priority,
        attributes: attributes.len() as u32,
        ..Wire::default()
    };
    for (at, (number, value)) in attributes.iter().enumerate() {
        if usize::from(*number) >= ecalls_abi::downcall::ATTRIBUTES {
            return Err(invalid(
                "an attribute",
                usize::from(*number),
                "a number below 32",
            ));
        }
        wire.number[at] = *number;
        wire.value[at] = *value;
    }
    let mut bytes = wire.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    Ok(bytes)
}

/// A frame's origin and submission; `None` if the bytes are none of this version.
pub fn read(bytes: &[u8]) -> Option<(Origin, Submission)> {
    let (wire, data) = Wire::read_from_prefix(bytes).ok()?;
    let is_frame = wire.magic == WIRE_MAGIC && wire.version == WIRE_VERSION;
    let count = usize::try_from(wire.attributes).ok()?;
    if !is_frame || usize::from(wire.size) != data.len() || count > WIRE_ATTRIBUTES {
        return None;
    }
    let attributes = wire.number.into_iter().zip(wire.value);
    let origin = Origin {
        channel: wire.channel,
        format: wire.format,
        host: wire.host,
        epoch: wire.epoch,
        sequence: wire.sequence,
    };
    let submission = Submission {
        data: data.to_vec(),
        kind: wire.kind,
        slot_type: wire.r#type,
        priority: wire.priority,
        left_ns: wire.left_ns,
        attributes: attributes.take(count).collect(),
    };
    Some((origin, submission))
}

fn invalid(what: &'static str, given: usize, expected: &'static str) -> Error {
    Error::Invalid {
        what,
        given: given.to_string(),
        expected,
    }
}
