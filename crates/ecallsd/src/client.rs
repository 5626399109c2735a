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
use ecalls_kernel::activation::HostedActivations;
use ecalls_kernel::channel::HostedChannel;
use ecalls_kernel::has_read_all;
use ecalls_kernel::owner::Owner;
use ecalls_kernel::service::HostedService;
use ecalls_kernel::subscription::HostedSubscription;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};

use crate::policy;
use crate::quota::Charge;
use crate::request::channel;
use crate::retired::Retired;

/// The longest time that an answer waits for its client to read, ns.
pub const ANSWER_NS_MAX: u64 = 5_000_000_000;

/// An object of a client, with its charge.
#[derive(Debug)]
pub struct Held<T> {
    pub thing: T,
    pub charge: Charge,
}

/// An object of a client that has ended: revoked, and still to be freed, which takes the kernel as
/// long as many requests.
#[derive(Debug)]
pub enum Closing {
    Channel(Held<HostedChannel>),
    Activations(Held<HostedActivations>),
}

impl Closing {
    /// Frees it.
    pub fn close(self, retired: &mut Retired) {
        match self {
            Closing::Channel(held) => channel::retire(retired, held),
            Closing::Activations(held) => {
                let map = held.thing.map_id();
                retired.close(held, map.map(|map| vec![map]));
            }
        }
    }
}

/// A reply to a client.
#[derive(Debug)]
pub struct Reply {
    pub answer: Answer,
    /// Descriptors that accompany the message.
    pub fds: Vec<OwnedFd>,
}

impl Reply {
    /// A reply without descriptors.
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
    pub subscriptions: HashMap<u32, Held<HostedSubscription>>,
    /// The formats of the data that handlers in E-code read: by subscription, then by action.
    pub inputs: HashMap<u32, Vec<(usize, String)>>,
    pub services: HashMap<u32, Held<HostedService>>,
    pub channels: HashMap<u32, Held<HostedChannel>>,
    pub activations: Vec<Held<HostedActivations>>,
    /// Its identity for the policy,
    pub who: policy::Client,
    /// and for the kernel side.
    pub owner: Owner,
    /// Becomes readable when the process ends.
    pub process: OwnedFd,
    /// Its connection, to which answers are written. The door reads it.
    pub socket: OwnedFd,
    /// The program that it runs ([`ecalls_kernel::core::Identity::program`]).
    pub program: u64,
    waiting: VecDeque<Waiting>,
    charge: Charge,
}

/// A connection that has ended before its client received everything. Descriptors that were sent
/// but not received count for the daemon's user, whose number of them is limited; so the connection
/// is still charged to its user.
#[derive(Debug)]
pub struct Unread {
    socket: OwnedFd,
    _charge: Charge,
}

/// Whether an answer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Yes,
    /// The client has to read first.
    Waits,
    /// It cannot be sent now, through no fault of the client: too many descriptors of this user
    /// (root's other programs included) are in transit. The broker tries again later.
    Crowded,
}

impl Client {
    /// A client that holds nothing yet.
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
            activations: Vec::new(),
            who,
            owner,
            process,
            socket,
            program,
            waiting: VecDeque::new(),
            charge,
        }
    }

    /// Sends an answer, or keeps it until the client reads. At most one is kept, because no further
    /// request is read until it is sent.
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

    /// Sends the kept answer when the client's socket may have room again. Returns whether all of
    /// it was sent.
    ///
    /// # Errors
    /// The client is gone.
    pub fn answer_more(&mut self, now_ns: u64) -> io::Result<Sent> {
        while let Some(next) = self.waiting.front_mut() {
            match send(&self.socket, next.serial, &next.reply)? {
                Sent::Yes => self.waiting.pop_front(),
                Sent::Waits => return Ok(Sent::Waits),
                Sent::Crowded => {
                    // Its waiting time begins when only the client delays it.
                    next.since_ns = now_ns;
                    return Ok(Sent::Crowded);
                }
            };
        }
        Ok(Sent::Yes)
    }

    /// The time since which an answer waits.
    pub fn waiting_since_ns(&self) -> Option<u64> {
        self.waiting.front().map(|next| next.since_ns)
    }

    /// Shuts the connection down for all holders; the door notices. Returns the rest of it if the
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
    /// Whether the client has received everything, or never will.
    pub fn is_over(&self) -> bool {
        has_read_all(self.socket.as_fd()).unwrap_or(true)
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.who.pid, self.who.uid)
    }
}

/// Sends one answer without blocking. An answer with descriptors is sent only to a client that has
/// received all others, so that at most the descriptors of one answer are in transit to each
/// client.
///
/// # Errors
/// The client is gone.
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
