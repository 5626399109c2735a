//! A client as the broker sees it: who it is, what it has, and what it is still to be told.
//!
//! Everything that a client has lives in here, so dropping it revokes all in the kernel. The order
//! of the fields is the order of the end: what delivers first, then what is delivered to.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use ecalls_abi::message::{Answer, MESSAGE_DESCRIPTORS, Refused};
use ecalls_kernel::channel::HostedChannel;
use ecalls_kernel::has_read_all;
use ecalls_kernel::owner::Owner;
use ecalls_kernel::service::HostedService;
use ecalls_kernel::subscription::HostedSubscription;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};

use crate::policy;
use crate::quota::Charge;

/// How long an answer may wait for its client to read, ns.
pub const ANSWER_NS_MAX: u64 = 5_000_000_000;

/// Something of a client, and what was charged for it.
#[derive(Debug)]
pub struct Held<T> {
    /// The thing.
    pub thing: T,
    /// What was charged.
    pub charge: Charge,
}

/// What a client is answered.
#[derive(Debug)]
pub struct Reply {
    /// The message.
    pub answer: Answer,
    /// What goes beside it.
    pub fds: Vec<OwnedFd>,
}

impl Reply {
    /// Without descriptors.
    pub fn plain(answer: Answer) -> Reply {
        Reply {
            answer,
            fds: Vec::new(),
        }
    }
}

/// An answer that the client's socket had no room for.
#[derive(Debug)]
struct Waiting {
    serial: u32,
    reply: Reply,
    since_ns: u64,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its subscriptions, by id.
    pub subscriptions: HashMap<u32, Held<HostedSubscription>>,
    /// Of those with handlers in E-code, by id: the formats of the data that they meet, by action.
    pub inputs: HashMap<u32, Vec<(usize, String)>>,
    /// Its services, by index.
    pub services: HashMap<u32, Held<HostedService>>,
    /// Its channels, by id.
    pub channels: HashMap<u32, Held<HostedChannel>>,
    /// Who it is.
    pub who: policy::Client,
    /// The same for the kernel side.
    pub owner: Owner,
    /// Becomes readable when it ends.
    pub process: OwnedFd,
    /// Its connection: answers go there, and nothing is read.
    pub socket: OwnedFd,
    /// Which program it runs ([`ecalls_kernel::core::Identity::program`]).
    pub program: u64,
    waiting: VecDeque<Waiting>,
    charge: Charge,
}

/// A connection that has ended while its client had not received everything. Descriptors that were
/// sent and not received count for the daemon's user, whose number of them is limited; so the
/// connection still counts for its own.
#[derive(Debug)]
pub struct Unread {
    socket: OwnedFd,
    _charge: Charge,
}

/// Whether an answer has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It has.
    Yes,
    /// The client has to read first.
    Waits,
    /// It cannot go now, for no fault of the client's: too many descriptors of this user (root's
    /// other programs included) are on their way. To be tried again later.
    Crowded,
}

impl Client {
    /// A client without anything.
    pub fn new(
        who: policy::Client,
        owner: Owner,
        process: OwnedFd,
        socket: OwnedFd,
        program: u64,
        charge: Charge,
    ) -> Client {
        Client {
            subscriptions: HashMap::new(),
            inputs: HashMap::new(),
            services: HashMap::new(),
            channels: HashMap::new(),
            who,
            owner,
            process,
            socket,
            program,
            waiting: VecDeque::new(),
            charge,
        }
    }

    /// Answers, or keeps the answer until the client reads. There is at most one: nothing more is
    /// heard from it until then.
    ///
    /// # Errors
    /// The client is gone.
    pub fn answer(&mut self, serial: u32, reply: Reply, now_ns: u64) -> io::Result<Sent> {
        let sent = match self.waiting.is_empty() {
            true => send(&self.socket, serial, &reply)?,
            false => Sent::Waits,
        };
        if sent != Sent::Yes {
            self.waiting.push_back(Waiting {
                serial,
                reply,
                since_ns: now_ns,
            });
        }
        Ok(sent)
    }

    /// The client's socket may have room again. Whether everything has gone now.
    ///
    /// # Errors
    /// The client is gone.
    pub fn answer_more(&mut self, now_ns: u64) -> io::Result<Sent> {
        while let Some(next) = self.waiting.front_mut() {
            match send(&self.socket, next.serial, &next.reply)? {
                Sent::Yes => self.waiting.pop_front(),
                Sent::Waits => return Ok(Sent::Waits),
                Sent::Crowded => {
                    // Its own time begins when it is only its own.
                    next.since_ns = now_ns;
                    return Ok(Sent::Crowded);
                }
            };
        }
        Ok(Sent::Yes)
    }

    /// Since when an answer waits.
    pub fn waiting_since_ns(&self) -> Option<u64> {
        self.waiting.front().map(|next| next.since_ns)
    }

    /// Ends the connection for everyone who has it; the door notices. What is left of it, if the
    /// client has not received everything.
    pub fn hang_up(self) -> Option<Unread> {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        let unread = Unread {
            socket: self.socket,
            _charge: self.charge,
        };
        (!unread.is_over()).then_some(unread)
    }
}

impl Unread {
    /// Whether the client has received everything by now, or will never.
    pub fn is_over(&self) -> bool {
        has_read_all(self.socket.as_fd()).unwrap_or(true)
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.who.pid, self.who.uid)
    }
}

/// Sends one answer without waiting. One with descriptors goes only to a client that has received
/// all the others, so that at most the descriptors of one answer are on their way to each.
///
/// # Errors
/// The other end is gone.
pub fn send(socket: &OwnedFd, serial: u32, reply: &Reply) -> io::Result<Sent> {
    if !reply.fds.is_empty() && !has_read_all(socket.as_fd()).unwrap_or(true) {
        return Ok(Sent::Waits);
    }
    let packet = reply.answer.packet(serial);
    let parts = [io::IoSlice::new(packet.as_bytes())];
    let fds: Vec<_> = reply.fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &parts, &mut control, flags) {
            Ok(_) => return Ok(Sent::Yes),
            Err(Errno::AGAIN) => return Ok(Sent::Waits),
            Err(Errno::TOOMANYREFS) => return Ok(Sent::Crowded),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A refusal as a reply.
pub fn refusal(refused: Refused) -> Reply {
    Reply::plain(Answer::Refused(refused))
}
