//! A frame as the packet in which it would arrive on the loopback interface: for frames that come
//! by the relay, which the receiving program (bpf/net/ingress.h) checks like any other.

use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::{WIRE_PORT, Wire};

use crate::error::{Error, Result};

/// The program's result for a frame that it took (TCX_DROP): the packet ends there.
pub(crate) const TAKEN: i32 = 2;

const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;

/// From 127.0.0.1 to 127.0.0.1. Checksums are left out: the program reads none.
pub(crate) fn of(frame: &[u8]) -> Result<Vec<u8>> {
    if frame.len() > size_of::<Wire>() + DATA_MAX {
        return Err(Error::Invalid {
            what: "a frame",
            given: format!("{} bytes", frame.len()),
            expected: "a header and at most DATA_MAX bytes",
        });
    }
    // It fits: a frame has at most some thousand bytes.
    let bytes = |more: usize| ((more + frame.len()) as u16).to_be_bytes();
    let port = WIRE_PORT.to_be_bytes();
    let mut packet = vec![0u8; ETHERNET + IP + UDP];
    packet[12..14].copy_from_slice(&[0x08, 0x00]);
    packet[14] = 0x45;
    packet[16..18].copy_from_slice(&bytes(IP + UDP));
    packet[22..24].copy_from_slice(&[64, 17]);
    packet[26..30].copy_from_slice(&[127, 0, 0, 1]);
    packet[30..34].copy_from_slice(&[127, 0, 0, 1]);
    packet[34..36].copy_from_slice(&port);
    packet[36..38].copy_from_slice(&port);
    packet[38..40].copy_from_slice(&bytes(UDP));
    packet.extend_from_slice(frame);
    Ok(packet)
}
