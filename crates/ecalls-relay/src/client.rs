//! A program that is connected: its socket, and what is to be sent to it.
//!
//! Packets are read and written without waiting. Messages that the program does not read are kept
//! up to a limit; one that lets more wait is disconnected, since it would miss some.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ecalls_abi::relay::{RELAY_MAX, RelayMessage};
use ecalls_abi::zerocopy::IntoBytes;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Messages that wait: more than there are hosts in a large cluster.
const WAITING_MAX: usize = 8192;

/// With more, frames wait in the network.
const CLOGGED: usize = 256;

/// For so long; then they are dropped.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    waiting: VecDeque<Vec<u8>>,
    clogged: Option<Instant>,
}

/// What a program has sent.
#[derive(Debug)]
pub enum Received {
    /// A packet, of at most [`RELAY_MAX`] bytes.
    Packet(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// It has ended, or sends what is no message.
    Ended,
}

impl Client {
    /// For a connected socket that does not wait.
    pub fn new(socket: OwnedFd) -> Client {
        Client {
            socket,
            waiting: VecDeque::new(),
            clogged: None,
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether messages wait for the program to read.
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Until when frames are to wait for the program to read.
    pub fn clogged_until(&self) -> Option<Instant> {
        self.clogged.map(|since| since + PATIENCE)
    }

    /// The next packet. Descriptors in it are closed by the kernel, since none are received.
    pub fn receive(&self) -> Received {
        let mut packet = vec![0u8; RELAY_MAX];
        loop {
            // With TRUNC the length is the packet's own.
            return match recv(&self.socket, &mut packet[..], RecvFlags::TRUNC) {
                Ok((_, 0)) => Received::Ended,
                Ok((read, length)) if read == length => {
                    packet.truncate(read);
                    Received::Packet(packet)
                }
                Ok(_) => Received::Ended,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::Ended,
            };
        }
    }

    /// Sends a message, or lets it wait. False: the program must be disconnected.
    #[must_use]
    pub fn send(&mut self, mut message: RelayMessage, rest: &[u8]) -> bool {
        message.size = (size_of::<RelayMessage>() + rest.len()) as u32;
        let mut packet = message.as_bytes().to_vec();
        packet.extend_from_slice(rest);
        self.waiting.push_back(packet);
        self.waiting.len() <= WAITING_MAX && self.flush()
    }

    /// Sends what waits, as far as the program reads. False: it has ended.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        while let Some(packet) = self.waiting.front() {
            match send(&self.socket, packet, SendFlags::NOSIGNAL) {
                Ok(_) => drop(self.waiting.pop_front()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        if self.waiting.len() < CLOGGED {
            self.clogged = None;
        } else if self.clogged.is_none() {
            self.clogged = Some(Instant::now());
        }
        true
    }
}
