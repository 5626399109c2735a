//! The connection to this host's relay (abi/relay.h), which knows the hosts of a cluster.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ecalls_abi::relay::{
    RELAY_ASK, RELAY_COUNT, RELAY_COUNTED, RELAY_DIFFERS, RELAY_ENTER, RELAY_ENTERED, RELAY_FOUND,
    RELAY_FRAME, RELAY_INVALID, RELAY_JOINED, RELAY_LEFT, RELAY_LIST, RELAY_MAX, RELAY_NONE,
    RELAY_OTHER, RELAY_REFUSED, RELAY_SEND, RELAY_SETTLED, RELAY_TAKEN, RELAY_VERSION,
    RelayChannel, RelayCounts, RelayMessage,
};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use ecalls_kernel::lane::Transport;
use ecalls_kernel::{Error, Result, relay_socket_path};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

/// How long the relay may take for an answer; it asks other hosts for 2 s.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How long it may take for its counts, which it asks nobody for.
const COUNT_TIME: Duration = Duration::from_secs(1);

/// A connection, for one channel.
#[derive(Debug)]
pub(crate) struct Relay(OwnedFd);

/// What the relay says.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// Whether a host has the channel that was asked for; what it is.
    Channel(bool, Box<RelayChannel>),
    Entered,
    Refused(u32),
    /// A host has the channel open, too; or has no more.
    Host(Host, bool),
    Settled,
    Counts(RelayCounts),
    /// A frame has arrived.
    Frame(Vec<u8>),
}

/// Another host that has the channel open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) id: u64,
    /// Zeros: it is not on the lane.
    pub(crate) address: [u8; 4],
    pub(crate) format: u64,
}

impl Relay {
    /// # Errors
    /// [`Error::Unknown`] if no relay runs, [`Error::Denied`].
    pub(crate) fn connect() -> Result<Relay> {
        let path = relay_socket_path()?;
        let failed = |errno: Errno| match errno {
            Errno::NOENT | Errno::CONNREFUSED => Error::Unknown {
                what: "relay",
                name: path.display().to_string(),
                hint:
                    "start it (systemctl start ecalls-relay), or name an interface and the other \
                       hosts' addresses instead of a cluster"
                        .to_owned(),
            },
            Errno::ACCESS | Errno::PERM => Error::Denied {
                action: "connecting to the relay",
                privilege: "root",
            },
            _ => Error::Os {
                action: "connecting to the relay",
                source: errno.into(),
            },
        };
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(failed)?;
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        Ok(Relay(socket))
    }

    /// Asks which format the channel has, if a host has it open.
    pub(crate) fn ask(&self, channel: &RelayChannel) -> Result<(bool, RelayChannel)> {
        self.send(RelayMessage::new(RELAY_ASK, 0), channel)?;
        match self.answer()? {
            Told::Channel(found, channel) => Ok((found, *channel)),
            Told::Refused(reason) => Err(refused(reason)),
            _ => Err(closed()),
        }
    }

    /// All channels of the cluster of `channel`.
    pub(crate) fn list(&self, channel: &RelayChannel) -> Result<Vec<RelayChannel>> {
        self.send(RelayMessage::new(RELAY_LIST, 0), channel)?;
        let mut all = Vec::new();
        loop {
            match self.answer()? {
                Told::Channel(true, channel) => all.push(*channel),
                Told::Channel(false, _) => return Ok(all),
                Told::Refused(reason) => return Err(refused(reason)),
                _ => return Err(closed()),
            }
        }
    }

    /// What other hosts have said in vain.
    pub(crate) fn counts(&self) -> Result<RelayCounts> {
        self.packet(RelayMessage::new(RELAY_COUNT, 0), &[])
            .map_err(|_| closed())?;
        match self.answer_within(COUNT_TIME)? {
            Told::Counts(counts) => Ok(counts),
            Told::Refused(reason) => Err(refused(reason)),
            _ => Err(closed()),
        }
    }

    /// Says that this host has opened the channel.
    pub(crate) fn enter(&self, channel: &RelayChannel, own: &Host) -> Result<()> {
        let message = RelayMessage {
            host: own.id,
            format: own.format,
            address: own.address,
            ..RelayMessage::new(RELAY_ENTER, 0)
        };
        self.send(message, channel)?;
        match self.answer()? {
            Told::Entered => Ok(()),
            Told::Refused(reason) => Err(refused(reason)),
            _ => Err(closed()),
        }
    }

    fn answer(&self) -> Result<Told> {
        self.answer_within(ANSWER_TIME)
    }

    fn answer_within(&self, time: Duration) -> Result<Told> {
        let ready = wait(&[self.0.as_fd()], Some(time))?;
        match ready.first() {
            Some(true) => self.receive(),
            _ => Err(Error::Os {
                action: "waiting for the relay",
                source: std::io::ErrorKind::TimedOut.into(),
            }),
        }
    }

    fn send(&self, message: RelayMessage, channel: &RelayChannel) -> Result<()> {
        self.packet(message, channel.as_bytes())
            .map_err(|_| closed())
    }

    fn packet(&self, mut message: RelayMessage, rest: &[u8]) -> std::io::Result<()> {
        message.size = (size_of::<RelayMessage>() + rest.len()) as u32;
        let packet = [message.as_bytes(), rest].concat();
        send(&self.0, &packet, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// What the relay says next; waits for it.
    ///
    /// # Errors
    /// [`Error::Closed`] if it has ended.
    pub(crate) fn receive(&self) -> Result<Told> {
        let mut packet = [0u8; RELAY_MAX];
        let length = loop {
            match recv(&self.0, &mut packet[..], RecvFlags::empty()) {
                Ok((length, _)) => break length,
                Err(Errno::INTR) => {}
                Err(_) => return Err(closed()),
            }
        };
        let packet = &packet[..length];
        let (message, rest) = RelayMessage::parse(packet).ok_or_else(|| {
            let theirs = RelayMessage::other_version(packet);
            theirs.map_or_else(closed, |theirs| Error::Invalid {
                what: "the version of the relay of this host",
                given: format!("{theirs}, and this program's is {RELAY_VERSION}"),
                expected: "the same: install ecalls and ecalls-relay of one release, then \
                           systemctl restart ecalls-relay",
            })
        })?;
        let host = Host {
            id: message.host,
            address: message.address,
            format: message.format,
        };
        match message.kind {
            RELAY_FOUND | RELAY_NONE => {
                let channel = RelayChannel::read_from_bytes(rest).map_err(|_| closed())?;
                Ok(Told::Channel(
                    message.kind == RELAY_FOUND,
                    Box::new(channel),
                ))
            }
            RELAY_ENTERED => Ok(Told::Entered),
            RELAY_REFUSED => Ok(Told::Refused(message.reason)),
            RELAY_JOINED => Ok(Told::Host(host, true)),
            RELAY_LEFT => Ok(Told::Host(host, false)),
            RELAY_SETTLED => Ok(Told::Settled),
            RELAY_COUNTED => {
                let counts = RelayCounts::read_from_bytes(rest).map_err(|_| closed())?;
                Ok(Told::Counts(counts))
            }
            RELAY_FRAME => Ok(Told::Frame(rest.to_vec())),
            _ => Err(closed()),
        }
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Which of them can be read; none after `time`.
pub(crate) fn wait(fds: &[BorrowedFd<'_>], time: Option<Duration>) -> Result<Vec<bool>> {
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    let polled = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    let mut polled: Vec<_> = polled.collect();
    match poll(&mut polled, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => {
            return Err(Error::Os {
                action: "waiting for the relay",
                source: errno.into(),
            });
        }
    }
    let ready = polled.iter().map(|fd| !fd.revents().is_empty());
    Ok(ready.collect())
}

fn closed() -> Error {
    Error::Closed("the relay")
}

fn refused(reason: u32) -> Error {
    let (given, expected) = match reason {
        RELAY_INVALID => (
            "refused by the relay",
            "names have letters, digits and . - _, and at most 31 of them",
        ),
        RELAY_TAKEN => (
            "open on this host already",
            "one program of a host has a channel of a cluster open",
        ),
        RELAY_DIFFERS => (
            "open with different formats on other hosts",
            "close it on the hosts with the wrong one",
        ),
        RELAY_OTHER => (
            "open on hosts whose relays have another version",
            "relays of one release on all hosts of the cluster",
        ),
        _ => (
            "unknown to the other hosts",
            "a relay that can tell them (journalctl -u ecalls-relay says what is wrong)",
        ),
    };
    Error::Invalid {
        what: "the channel of the cluster",
        given: given.to_owned(),
        expected,
    }
}

/// How long a frame may wait for the relay, and how long after that no further one does.
const SEND_TIME: Duration = Duration::from_secs(1);

/// The way of frames by the relay. It connects when there is a frame, and again when the relay was
/// restarted.
#[derive(Debug, Default)]
pub(crate) struct ByRelay(Mutex<Connection>);

#[derive(Debug, Default)]
struct Connection {
    relay: Option<Relay>,
    /// The relay did not take a frame: until when none is tried.
    rests_until: Option<Instant>,
}

impl Transport for ByRelay {
    fn send(&self, host: u64, frame: &[u8]) -> std::io::Result<()> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if connection.rests_until.is_some_and(|until| now < until) {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        let relay = match connection.relay.take() {
            Some(relay) => relay,
            None => {
                let relay = Relay::connect().map_err(std::io::Error::other)?;
                set_socket_timeout(&relay.0, Timeout::Send, Some(SEND_TIME))?;
                relay
            }
        };
        let message = RelayMessage {
            host,
            ..RelayMessage::new(RELAY_SEND, 0)
        };
        let sent = relay.packet(message, frame);
        match &sent {
            Ok(()) => connection.relay = Some(relay),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                connection.relay = Some(relay);
                connection.rests_until = Some(Instant::now() + SEND_TIME);
            }
            // It has ended: the next frame finds another one, if it runs again.
            Err(_) => {}
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{SocketFlags, socketpair};

    use super::*;

    #[test]
    fn a_relay_of_another_version_is_told_to_be_one() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.expect("two sockets");
        let mut refused = RelayMessage::new(RELAY_REFUSED, 0);
        refused.version = RELAY_VERSION + 1;
        for (packet, says) in [
            (refused.as_bytes(), "ecalls-relay of one release"),
            (&refused.as_bytes()[1..], "is gone"),
        ] {
            send(&theirs, packet, SendFlags::NOSIGNAL).expect("it is read");
            let relay = Relay(ours.try_clone().expect("another descriptor"));
            let error = relay.counts().expect_err("no answer").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
