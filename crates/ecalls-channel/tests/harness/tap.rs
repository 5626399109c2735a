//! A tap on the loopback interface: the packets that it sends, as they are.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use crate::harness::PATIENCE;

/// A socket that sees every packet of this thread's network namespace.
pub(crate) struct Tap(pub(crate) OwnedFd);

impl Tap {
    pub(crate) fn open() -> Tap {
        let all = i32::from((libc::ETH_P_ALL as u16).to_be());
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, all) };
        assert!(fd >= 0, "root may");
        // SAFETY: a new descriptor that nothing else owns.
        Tap(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The next packet that is sent from the lane's port, from its IPv4 header on.
    pub(crate) fn next(&self) -> Vec<u8> {
        let start = Instant::now();
        loop {
            match self.receive() {
                Some((true, packet)) if is_frame(&packet) => return packet[14..].to_vec(),
                Some(_) => {}
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
            assert!(start.elapsed() < PATIENCE, "no packet comes");
        }
    }

    /// All frames that have been sent and not been read yet.
    pub(crate) fn rest(&self) -> usize {
        let packets = std::iter::from_fn(|| self.receive());
        packets
            .filter(|(sent, packet)| *sent && is_frame(packet))
            .count()
    }

    /// The next packet, and whether it was sent here; `None`: none waits.
    pub(crate) fn receive(&self) -> Option<(bool, Vec<u8>)> {
        let mut bytes = vec![0u8; 65536];
        // SAFETY: a plain struct, for which zeros are valid.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the buffer and the address are alive and as long as said.
        let size = unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                0,
                (&raw mut from).cast(),
                &raw mut length,
            )
        };
        bytes.truncate(usize::try_from(size).ok()?);
        Some((from.sll_pkttype == libc::PACKET_OUTGOING, bytes))
    }
}

/// Whether it is UDP over IPv4 from the lane's port.
fn is_frame(packet: &[u8]) -> bool {
    packet.len() >= 42 && packet[14] == 0x45 && packet[23] == 17 && packet[34..36] == [3, 0x92]
}
