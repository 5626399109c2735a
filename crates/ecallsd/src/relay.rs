//! The messages between door and broker: packets over a socket pair (SOCK_SEQPACKET) that no client
//! can reach.
//!
//! | from | packet | descriptors |
//! |---|---|---|
//! | door | [`Kind::Open`]: a client's first message | the connection |
//! | door | [`Kind::Request`]: a further message | those of the message |
//! | door | [`Kind::Gone`]: a connection has ended; `detail`: [`Why`] | |
//! | door | [`Kind::Slow`]: `detail` requests of the client's user had to wait | |
//! | broker | [`Kind::Done`]: the last of the first three was handled; `detail` below | |
//! | broker | [`Kind::Rate`]: the rate of a user; [`UserRate`] follows | |
//! | broker | [`Kind::Subordinates`]: the ids that are charged to others; `detail` below | |
//!
//! The detail of DONE is [`DEALT_WITH`], or the broker's limit of descriptors if it had none left
//! for OPEN. SUBORDINATES are followed by [`crate::subordinate::IdRange`]s; with detail 0 they
//! replace the former ones, otherwise they are added.
//!
//! The door waits for DONE before it reads on from that connection, and before it closes anything
//! that was received over it. So the broker has at most one packet of each connection at a time,
//! and never closes the last reference to a client's descriptor: that may block for as long as the
//! client likes (a socket that lingers, a file of a file system that does not answer).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ecalls_abi::message::{MESSAGE_DESCRIPTORS, MESSAGE_MAX};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An enumeration that is transmitted as a number, with the conversion from the number.
macro_rules! numbered {
    ($(#[$doc:meta])* $enum:ident { $($(#[$name_doc:meta])* $name:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$name_doc])* $name = $number,)*
        }

        impl $enum {
            fn of_number(number: u32) -> Option<$enum> {
                match number {
                    $($number => Some($enum::$name),)*
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// The kind of a packet; see the table above.
    Kind {
        Open = 1,
        Request = 2,
        Gone = 3,
        Slow = 4,
        Done = 5,
        Rate = 6,
        Subordinates = 7,
    }
}

numbered! {
    /// Why a connection has ended.
    Why {
        /// The client or the broker closed it.
        Closed = 0,
        /// A packet was not a valid message.
        Malformed = 1,
        /// A message was sent by another process than the one that connected.
        Sender = 2,
        /// A message came with other descriptors than its kind needs.
        Descriptors = 3,
        /// The first message was not HELLO, or did not arrive in time.
        Silent = 4,
    }
}

impl Why {
    /// The reason for a number; an unknown number counts as malformed.
    pub fn from_number(number: u32) -> Why {
        Why::of_number(number).unwrap_or(Why::Malformed)
    }

    /// Its text in the log.
    pub fn text(self) -> &'static str {
        match self {
            Why::Closed => "closed its connection",
            Why::Malformed => "sent something that is no message",
            Why::Sender => "sent by another process than the one that connected",
            Why::Descriptors => "sent descriptors that its message has no use for",
            Why::Silent => "did not say HELLO",
        }
    }
}

/// Detail of [`Kind::Done`]: the packet was handled without a problem.
pub const DEALT_WITH: u32 = 0;

/// The header of each packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Head {
    kind: u32,
    detail: u32,
    connection: u64,
}

const HEAD: usize = size_of::<Head>();

/// The rate of a user's requests, and its number of connections. The uid [`UserRate::EVERYBODY`]
/// stands for all users without their own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserRate {
    pub uid: u32,
    pub connections: u32,
    /// Requests per second; 0: no limit.
    pub per_s: u64,
    /// The burst of requests.
    pub burst: u64,
}

impl UserRate {
    /// No user has this number.
    pub const EVERYBODY: u32 = u32::MAX;
}

/// A received packet.
#[derive(Debug)]
pub struct Packet {
    pub kind: Kind,
    /// Its meaning depends on the kind.
    pub detail: u32,
    /// The connection's number in the door.
    pub connection: u64,
    /// The data after the header.
    pub body: Vec<u8>,
    /// The descriptors. They are fewer than were sent if this process has reached its limit of
    /// descriptors; the receiver of the packet notices that.
    pub fds: Vec<OwnedFd>,
}

/// A process that ends without having read all leaves its end reset, not closed.
fn failed(error: Errno) -> io::Error {
    match error {
        Errno::CONNRESET => io::ErrorKind::BrokenPipe.into(),
        other => other.into(),
    }
}

/// One end of the socket pair.
#[derive(Debug)]
pub struct Relay(OwnedFd);

impl Relay {
    /// Creates both ends.
    pub fn pair() -> io::Result<(Relay, Relay)> {
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Relay(one), Relay(other)))
    }

    /// The end with which a process was started.
    pub fn of_descriptor(fd: OwnedFd) -> Relay {
        Relay(fd)
    }

    /// The descriptor with which a process is started.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Sends a packet; blocks while the other end does not read.
    ///
    /// # Errors
    /// BrokenPipe: the other end is gone.
    pub fn send(
        &self,
        kind: Kind,
        connection: u64,
        detail: u32,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let head = Head {
            kind: kind as u32,
            detail,
            connection,
        };
        let parts = [io::IoSlice::new(head.as_bytes()), io::IoSlice::new(body)];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        loop {
            match rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// The next packet. `None`: there is none (with `wait` false), or the other end is gone.
    ///
    /// # Errors
    /// BrokenPipe: the other end is gone; InvalidData: the packet is malformed.
    pub fn receive(&self, wait: bool) -> io::Result<Option<Packet>> {
        let mut bytes = [0; HEAD + MESSAGE_MAX];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        flags.set(RecvFlags::DONTWAIT, !wait);
        let received = loop {
            let mut parts = [io::IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        }
        let whole = !received.flags.intersects(ReturnFlags::TRUNC);
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (head, body) =
            Head::read_from_prefix(&bytes[..received.bytes]).map_err(|_| invalid())?;
        let (Some(kind), true) = (Kind::of_number(head.kind), whole) else {
            return Err(invalid());
        };
        Ok(Some(Packet {
            kind,
            detail: head.detail,
            connection: head.connection,
            body: body.to_vec(),
            fds,
        }))
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives_with_its_descriptors() {
        let (door, broker) = Relay::pair().unwrap();
        assert!(broker.receive(false).unwrap().is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        door.send(Kind::Open, 7, 0, b"hello", &[file.as_fd()])
            .unwrap();
        let packet = broker.receive(true).unwrap().unwrap();
        assert_eq!((packet.kind, packet.connection), (Kind::Open, 7));
        assert_eq!((&packet.body[..], packet.fds.len()), (&b"hello"[..], 1));
        broker.send(Kind::Done, 7, 0, &[], &[]).unwrap();
        assert_eq!(door.receive(true).unwrap().unwrap().kind, Kind::Done);
        broker.send(Kind::Done, 8, 0, &[], &[]).unwrap();
        // With something that it has not read, and then without: it is gone.
        drop(door);
        for _ in 0..2 {
            let end = broker.receive(true).unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    /// In a child process, because all threads share the limit.
    #[test]
    fn a_packet_for_whose_descriptor_there_is_no_room_arrives_without() {
        const CHILD: &str = "ECALLSD_TEST_NO_DESCRIPTORS";
        let name = "a_packet_for_whose_descriptor_there_is_no_room_arrives_without";
        if std::env::var_os(CHILD).is_none() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let again = again.arg(name).env(CHILD, "1").output().unwrap();
            let said = String::from_utf8_lossy(&again.stdout);
            assert!(
                again.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        }
        let (door, broker) = Relay::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        door.send(Kind::Open, 7, 0, b"hello", &[file.as_fd()])
            .unwrap();
        let mut taken = Vec::new();
        while let Ok(copy) = file.try_clone() {
            taken.push(copy);
        }
        let packet = broker.receive(true).unwrap().unwrap();
        assert_eq!((packet.kind, packet.fds.len()), (Kind::Open, 0));
        taken.clear();
        door.send(Kind::Open, 8, 0, b"hello", &[file.as_fd()])
            .unwrap();
        assert_eq!(broker.receive(true).unwrap().unwrap().fds.len(), 1);
    }

    #[test]
    fn numbers_without_a_meaning_are_no_packets_and_no_good_reasons() {
        assert_eq!(Kind::of_number(Kind::Rate as u32), Some(Kind::Rate));
        assert_eq!(Kind::of_number(0), None);
        assert_eq!(Why::from_number(Why::Silent as u32), Why::Silent);
        assert_eq!(Why::from_number(99), Why::Malformed);
    }

    #[test]
    fn what_is_no_packet_is_an_error() {
        let (door, broker) = Relay::pair().unwrap();
        for bytes in [&[9u8; 16][..], &[1; 5]] {
            rustix::net::send(&door, bytes, SendFlags::empty()).unwrap();
            let error = broker.receive(true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
