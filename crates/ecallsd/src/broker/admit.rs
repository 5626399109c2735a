//! The first message of a client: its identity, its admission, and the welcome.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::message::{
    Answer, Hello, REFUSED_DENIED, REFUSED_VERSION, Refused, Request, Welcome,
};
use ecalls_abi::text;
use ecalls_abi::version::SERVICES_MAX;
use ecalls_kernel::objects::FastCall;
use ecalls_kernel::owner::Owner;
use ecalls_kernel::refusal::to_error;
use ecalls_kernel::{Error, now_ns, peer_process, wait_readable};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::Shutdown;
use rustix::net::sockopt;
use tracing::{debug, warn};

use super::Broker;
use crate::client::{Client, Reply, refusal, send};
use crate::policy;
use crate::quota::{Amounts, Charge, Resource};
use crate::relay::{Kind, Packet};
use crate::request::No;

/// Descriptors that the daemon holds per connection: copies in the broker and the door, and the
/// handle of the process.
const DESCRIPTORS: u64 = 4;

/// Bytes of answers that a client may leave unread, as the kernel counts them. Descriptors in
/// unread answers count for the daemon's user.
const UNREAD_BYTES: usize = 8192;

/// The user at the other end of a new connection.
pub(super) fn uid_of(packet: &Packet) -> u32 {
    let cred = packet.fds.first().map(sockopt::socket_peercred);
    cred.and_then(Result::ok)
        .map_or(0, |cred| cred.uid.as_raw())
}

/// The limit of descriptors of this process.
pub(super) fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

/// A client that is identified and charged for, but not yet in the broker's table.
struct Known {
    who: policy::Client,
    owner: Owner,
    process: OwnedFd,
    program: u64,
    charge: Charge,
}

impl Broker {
    /// Watches a client's connection and process: both or neither.
    fn watch(&self, number: u64, socket: &OwnedFd, process: &OwnedFd) -> rustix::io::Result<()> {
        let connection = EventData::new_u64(number * 2);
        epoll::add(&self.epoll, socket, connection, EventFlags::RDHUP)?;
        let ended = EventData::new_u64(number * 2 + 1);
        epoll::add(&self.epoll, process, ended, EventFlags::IN).inspect_err(|_| {
            let _ = epoll::delete(&self.epoll, socket);
        })
    }

    /// Admits a client, or tells it the reason of its refusal. Returns whether the door may
    /// continue.
    pub(super) fn admit(&mut self, mut packet: Packet) -> io::Result<bool> {
        let number = packet.connection;
        let Some(socket) = packet.fds.pop() else {
            // There was no descriptor left for the connection: the door tells the client.
            self.tell_full();
            let detail = u32::try_from(descriptors_max()).unwrap_or(u32::MAX);
            self.relay.send(Kind::Done, number, detail, &[], &[])?;
            return Ok(false);
        };
        let Ok((serial, Request::Hello(hello))) = Request::parse(&packet.body) else {
            return Ok(true); // the door does not send such packets
        };
        let known = match self.get_to_know(&socket, &hello) {
            Ok(known) => known,
            Err(no) => {
                self.turn_away(&socket, serial, *no.0);
                return Ok(true);
            }
        };
        let uid = known.who.account;
        let reply = match self.welcome(&known) {
            Ok(reply) => reply,
            Err(no) => {
                self.shared.users().leave(uid);
                self.turn_away(&socket, serial, *no.0);
                return Ok(true);
            }
        };
        if let Err(error) = self.watch(number, &socket, &known.process) {
            self.shared.users().leave(uid);
            let no = No::from(Error::Os {
                action: "watching a client",
                source: error.into(),
            });
            self.turn_away(&socket, serial, *no.0);
            return Ok(true);
        }
        let (owner, program) = (known.owner, known.program);
        let process = known.process;
        let client = Client::new(known.who, owner, process, socket, program, known.charge);
        debug!("{client} has come");
        self.clients.insert(number, client);
        self.shared.count(|figures| figures.clients += 1);
        let limits = self.policy.limits(&known.who);
        self.tell_rate(uid, &limits)?;
        self.reply(number, serial, reply)
    }

    fn get_to_know(&mut self, socket: &OwnedFd, hello: &Hello) -> Result<Known, No> {
        if hello.abi_version != ABI_VERSION {
            let version = u64::from(ABI_VERSION);
            return Err(No(Box::new(Refused::new(
                REFUSED_VERSION,
                version,
                "",
                "",
                "",
            ))));
        }
        let system = |error: rustix::io::Errno| {
            No::from(Error::Os {
                action: "identifying a client",
                source: error.into(),
            })
        };
        sockopt::set_socket_send_buffer_size(socket, UNREAD_BYTES).map_err(system)?;
        let cred = sockopt::socket_peercred(socket).map_err(system)?;
        let pid = u32::try_from(cred.pid.as_raw_pid()).unwrap_or(0);
        if pid == 0 {
            let (action, needs) = ("using the daemon", "a process that its namespace knows");
            return Err(No(Box::new(Refused::new(
                REFUSED_DENIED,
                0,
                action,
                "",
                needs,
            ))));
        }
        let mut who = policy::Client {
            pid,
            uid: cred.uid.as_raw(),
            account: self.subordinates.account(cred.uid.as_raw()),
            gid: cred.gid.as_raw(),
        };
        let limits = self.policy.limits(&who);
        let amounts = Amounts::NONE
            .and(Resource::Connections, 1)
            .and(Resource::Descriptors, DESCRIPTORS);
        let charge = self.shared.ledger.charge(who.account, &limits, amounts)?;
        // The number may belong to another process by now, but the handle does not. While the
        // process of the handle lives, the number belongs to it.
        let process = peer_process(socket.as_fd())?;
        // As events name it, in whatever PID namespace the daemon is.
        let identity = self.shared.core.identify_here(pid)?;
        who.pid = identity.pid;
        if wait_readable(process.as_fd(), Some(0))? {
            return Err(No::from(Error::Closed("the process")));
        }
        let user = self.shared.users().enter(who.account, &limits)?;
        let owner = Owner {
            pid: who.pid,
            start_ns: identity.start_ns,
            uid: who.uid,
            user,
        };
        Ok(Known {
            who,
            owner,
            process,
            program: identity.program,
            charge,
        })
    }

    fn welcome(&self, known: &Known) -> Result<Reply, No> {
        let core = &self.shared.core;
        let mut welcome = Welcome {
            abi_version: ABI_VERSION,
            pid: known.who.pid,
            uid: known.who.uid,
            cpus: core.cpus(),
            daemon: std::process::id(),
            services: u32::try_from(SERVICES_MAX).unwrap_or(u32::MAX),
            start_ns: core.host()?.start_ns,
            ..Welcome::default()
        };
        let fast_call = core.fast_call()?;
        // The mechanisms' names are short enough.
        let _ = text::write(&mut welcome.mechanism, fast_call.name());
        // The holder of the program can bind maps to it, which then live as long as the core: so
        // only a client without another mechanism gets it.
        let fds = match fast_call {
            FastCall::Run => vec![core.generic_program()?],
            _ => Vec::new(),
        };
        Ok(Reply {
            answer: Answer::Welcome(welcome),
            fds,
        })
    }

    /// Handles a message for whose descriptors there was no room.
    pub(super) fn tell_full(&mut self) {
        if let Some(left_out) = self.lines.admit((0, "full"), now_ns()) {
            warn!(
                left_out,
                "out of descriptors (at most {}): clients are refused; see `descriptors` in \
                 [machine], and LimitNOFILE= of the unit",
                descriptors_max()
            );
        }
    }

    /// Refuses a client with a reason, and ends its connection.
    fn turn_away(&mut self, socket: &OwnedFd, serial: u32, refused: Refused) {
        let uid = sockopt::socket_peercred(socket).map_or(0, |cred| cred.uid.as_raw());
        let uid = self.subordinates.account(uid);
        if let Some(left_out) = self.lines.admit((uid, "admit"), now_ns()) {
            let why = to_error(&refused);
            warn!(left_out, "a process of user {uid} was turned away: {why}");
        }
        self.shared.count(|figures| figures.refused += 1);
        let _ = send(socket, serial, &refusal(refused));
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
    }
}
