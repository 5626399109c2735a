//! The door: accepts clients, receives their messages, checks their form, and passes them on.
//!
//! It has no capability, no open file and no right to open one, so that a mistake in parsing
//! strangers' input does the least harm. Each connection has a thread, and only that thread reads,
//! waits and closes for it: a client that sends slowly, floods, or passes descriptors whose closing
//! blocks delays no other client.
//!
//! The life of a connection: it is accepted if its user has a place left ([`crate::share`]); HELLO
//! must arrive within five seconds; then come messages, each at the user's rate. Each is checked:
//! its sender is the process that connected, its form is that of `abi/message.h`, it has the
//! descriptors that its kind needs and no others. A client that breaks a rule gets a message and is
//! disconnected. Descriptors are accepted from HELLO on, where the kernel can refuse them before
//! (Linux 6.16).

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ecalls_abi::message::{
    Answer, MESSAGE_DESCRIPTORS, MESSAGE_MAX, Malformed, REFUSED_INVALID, REFUSED_LIMIT,
    REFUSED_OS, REFUSED_QUOTA, REFUSED_VERSION, Refused, Request,
};
use ecalls_kernel::{now_ns, take_descriptors, upload};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown,
    SocketFlags, UCred,
};
use zerocopy::FromBytes;

use crate::rate::{Bucket, Rate};
use crate::relay::{DEALT_WITH, Kind, Relay, UserRate, Why};
use crate::share::Places;
use crate::subordinate::{IdRange, Subordinates};

/// How long a client may take for its first message.
const HELLO_TIME: Duration = Duration::from_secs(5);

/// The stack of a thread holds a message, its packet, and the needs of the C library.
const STACK_BYTES: usize = 128 << 10;

/// The pause when no connection can be accepted.
const REST: Duration = Duration::from_millis(20);

/// The interval in which the broker is told that a user has to wait.
const SLOW_PERIOD_NS: u64 = 1_000_000_000;

/// Users whose buckets are kept; with more, full ones are dropped.
const USERS_KEPT: usize = 1024;

/// The rate until the broker sets one.
const FIRST_RATE: Rate = Rate {
    per_s: 1000,
    burst: 1000,
};

/// The door's shared state.
#[derive(Debug)]
struct Door {
    relay: Relay,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    places: Places,
    users: HashMap<u32, User>,
    gates: HashMap<u64, Arc<Gate>>,
    everybody: Option<Rate>,
    /// The number of connections for users without their own limit.
    connections: u32,
    turned_away: HashMap<u32, TurnedAway>,
    subordinates: Subordinates,
}

/// Connections of a user that had no place: one thread closes them in sequence.
#[derive(Debug, Default)]
struct TurnedAway {
    sockets: Vec<OwnedFd>,
    has_thread: bool,
}

/// The door's state of a user.
#[derive(Debug, Default)]
struct User {
    bucket: Bucket,
    /// The rate that the broker set; `None`: the general one. `per_s` 0: no limit.
    rate: Option<Rate>,
    /// The number of connections that the broker permits.
    connections: Option<u32>,
    slow: u32,
    slow_ns: u64,
}

/// A connection's thread waits here for the broker.
#[derive(Debug, Default)]
struct Gate {
    /// Detail of the broker's DONE.
    done: Mutex<Option<u32>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, detail: u32) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = Some(detail);
        self.changed.notify_one();
    }

    fn pass(&self) -> u32 {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(detail) = done.take() {
                return detail;
            }
            done = self
                .changed
                .wait(done)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Serves until the broker is gone.
///
/// # Errors
/// Errors of the listening socket.
pub fn serve(relay: Relay, listener: &OwnedFd) -> io::Result<()> {
    let door = Arc::new(Door {
        relay,
        state: Mutex::default(),
    });
    // Accepted connections inherit both options, so the first message carries its sender, and no
    // descriptors.
    sockopt::set_socket_passcred(listener, true)?;
    take_descriptors(listener.as_fd(), false).map_err(io::Error::other)?;
    let reader = Arc::clone(&door);
    thread::Builder::new()
        .name("relay".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || reader.listen_to_broker())?;
    let mut next = 1;
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                door.admit(next, socket);
                next += 1;
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            // Descriptors or memory are used up: existing connections are served.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => thread::sleep(REST),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Door {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the broker's packets until the broker is gone.
    fn listen_to_broker(&self) {
        while let Ok(Some(packet)) = self.relay.receive(true) {
            match packet.kind {
                Kind::Done => {
                    let gate = self.state().gates.get(&packet.connection).cloned();
                    if let Some(gate) = gate {
                        gate.open(packet.detail);
                    }
                }
                Kind::Rate => {
                    if let Ok(rate) = UserRate::read_from_bytes(&packet.body) {
                        self.state().set_rate(&rate);
                    }
                }
                Kind::Subordinates => {
                    if let Ok(ranges) = <[IdRange]>::ref_from_bytes(&packet.body) {
                        let mut state = self.state();
                        if packet.detail == 0 {
                            state.subordinates = Subordinates::default();
                        }
                        state.subordinates.add(ranges);
                    }
                }
                Kind::Open | Kind::Request | Kind::Gone | Kind::Slow => {}
            }
        }
        std::process::exit(0);
    }

    /// Starts a connection's thread if its user has a place left.
    fn admit(self: &Arc<Door>, number: u64, socket: OwnedFd) {
        let Ok(cred) = sockopt::socket_peercred(&socket) else {
            return;
        };
        let uid = self.state().subordinates.account(cred.uid.as_raw());
        if !self.state().take_place(uid) {
            let subject = "connections of one user that have not said HELLO, or do not close";
            let refused = Refused::new(REFUSED_QUOTA, 0, subject, "", "");
            return self.turn_away(uid, socket, refused);
        }
        // Dropping the last reference may block, so the thread that takes it drops it, never this
        // one.
        let socket = Arc::new(Mutex::new(Some(socket)));
        let take = |socket: &Mutex<Option<OwnedFd>>| {
            let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
            socket.take()
        };
        let (door, theirs) = (Arc::clone(self), Arc::clone(&socket));
        let run = move || {
            if let Some(socket) = take(&theirs) {
                door.converse(number, socket, cred, uid);
            }
        };
        if let Err(error) = start_thread(run)
            && let Some(socket) = take(&socket)
        {
            self.state().leave_place(uid);
            let code = error.raw_os_error().and_then(|code| code.try_into().ok());
            let action = "starting a thread of the daemon";
            let refused = Refused::new(REFUSED_OS, code.unwrap_or(0), action, "", "");
            self.turn_away(uid, socket, refused);
            thread::sleep(REST);
        }
    }

    /// Refuses a connection, and lets its user's thread close it.
    fn turn_away(self: &Arc<Door>, uid: u32, socket: OwnedFd, refused: Refused) {
        send(&socket, 0, refused);
        let mut state = self.state();
        let turned_away = state.turned_away.entry(uid).or_default();
        turned_away.sockets.push(socket);
        if turned_away.has_thread {
            return;
        }
        let door = Arc::clone(self);
        // If no thread can be started, they stay open until the user's next connection, which tries
        // again.
        turned_away.has_thread = start_thread(move || door.close_turned_away(uid)).is_ok();
    }

    fn close_turned_away(&self, uid: u32) {
        loop {
            let mut state = self.state();
            let last = state.turned_away.get_mut(&uid);
            let Some(socket) = last.and_then(|turned_away| turned_away.sockets.pop()) else {
                state.turned_away.remove(&uid);
                return;
            };
            drop(state);
            drop(socket);
        }
    }

    /// Handles a connection from its first message until it is closed. `uid`: the user that is
    /// charged.
    fn converse(&self, number: u64, socket: OwnedFd, cred: UCred, uid: u32) {
        let Ok(first) = self.hear_hello(&socket, cred, uid) else {
            // The broker does not know this connection.
            drop(socket);
            return self.state().leave_place(uid);
        };
        self.state().places.greet(uid);
        let gate = Arc::new(Gate::default());
        self.state().gates.insert(number, Arc::clone(&gate));
        let opened = self
            .relay
            .send(Kind::Open, number, 0, &first.bytes, &[socket.as_fd()]);
        if opened.is_ok() {
            match gate.pass() {
                DEALT_WITH => {
                    let why = self.pass_on(number, &socket, (cred, uid), &gate);
                    let gone = self.relay.send(Kind::Gone, number, why as u32, &[], &[]);
                    if gone.is_ok() {
                        gate.pass();
                    }
                }
                most => {
                    let which = "descriptors of the daemon";
                    let refused = Refused::new(REFUSED_LIMIT, most.into(), which, "", "");
                    send(&socket, first.serial, refused);
                }
            }
        }
        self.state().gates.remove(&number);
        // This also closes descriptors that were sent but not received.
        drop(socket);
        self.state().places.leave(uid);
    }

    fn hear_hello(&self, socket: &OwnedFd, cred: UCred, uid: u32) -> Result<Heard, Why> {
        let silent = |_| Why::Silent;
        sockopt::set_socket_passcred(socket, true).map_err(silent)?;
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(HELLO_TIME)).map_err(silent)?;
        let heard = hear(socket, cred)?.ok_or(Why::Silent)?;
        self.wait_for_rate(None, uid);
        sockopt::set_socket_timeout(socket, Timeout::Recv, None).map_err(silent)?;
        let Request::Hello(_) = heard.request else {
            refuse(socket, heard.serial, "the first message", "a HELLO");
            return Err(Why::Silent);
        };
        take_descriptors(socket.as_fd(), true).map_err(|_| Why::Silent)?;
        Ok(heard)
    }

    /// Passes messages on until the connection ends. Returns the reason.
    fn pass_on(
        &self,
        number: u64,
        socket: &OwnedFd,
        (cred, uid): (UCred, u32),
        gate: &Gate,
    ) -> Why {
        loop {
            let heard = match hear(socket, cred) {
                Ok(Some(heard)) => heard,
                Ok(None) => return Why::Closed,
                Err(why) => return why,
            };
            self.wait_for_rate(Some(number), uid);
            let fds: Vec<_> = heard.fds.iter().map(AsFd::as_fd).collect();
            if self
                .relay
                .send(Kind::Request, number, 0, &heard.bytes, &fds)
                .is_err()
            {
                return Why::Closed;
            }
            gate.pass();
        }
    }

    /// Waits until the user's rate permits a request. The broker is told from time to time.
    fn wait_for_rate(&self, connection: Option<u64>, uid: u32) {
        let (wait_ns, told) = self.state().take_token(uid, now_ns());
        if let (Some(connection), Some(slow)) = (connection, told) {
            let _ = self.relay.send(Kind::Slow, connection, slow, &[], &[]);
        }
        if wait_ns > 0 {
            thread::sleep(Duration::from_nanos(wait_ns));
        }
    }
}

impl State {
    /// Takes a place for a new connection, if the user has one left.
    fn take_place(&mut self, uid: u32) -> bool {
        let user = self.users.get(&uid).and_then(|user| user.connections);
        let most = match uid {
            0 => u32::MAX,
            _ => user.unwrap_or(self.connections),
        };
        self.places.take(uid, most)
    }

    /// Releases the place of a connection that has not said HELLO.
    fn leave_place(&mut self, uid: u32) {
        self.places.greet(uid);
        self.places.leave(uid);
    }

    fn set_rate(&mut self, said: &UserRate) {
        let rate = Rate {
            per_s: said.per_s,
            burst: said.burst,
        };
        match said.uid {
            UserRate::EVERYBODY => {
                self.everybody = Some(rate);
                self.connections = said.connections;
                for user in self.users.values_mut() {
                    user.rate = None;
                    user.connections = None;
                }
            }
            uid => {
                let user = self.users.entry(uid).or_default();
                user.rate = Some(rate);
                user.connections = Some(said.connections);
            }
        }
    }

    /// The time to wait in ns, and the number of waits since the broker was last told.
    fn take_token(&mut self, uid: u32, now_ns: u64) -> (u64, Option<u32>) {
        if self.users.len() >= USERS_KEPT && !self.users.contains_key(&uid) {
            self.users.retain(|_, user| !user.bucket.is_full(now_ns));
        }
        let user = self.users.entry(uid).or_default();
        let rate = user.rate.or(self.everybody).unwrap_or(FIRST_RATE);
        if uid == 0 || rate.per_s == 0 {
            return (0, None);
        }
        let wait_ns = user.bucket.take(rate, now_ns);
        user.slow += u32::from(wait_ns > 0);
        let tell = user.slow > 0 && now_ns.saturating_sub(user.slow_ns) >= SLOW_PERIOD_NS;
        let told = tell.then(|| {
            user.slow_ns = now_ns;
            std::mem::take(&mut user.slow)
        });
        (wait_ns, told)
    }
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("client".to_owned());
    thread.stack_size(STACK_BYTES).spawn(run).map(|_| ())
}

/// A well-formed message.
#[derive(Debug)]
struct Heard {
    serial: u32,
    request: Request,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// The next message of a connection. `None`: the connection was closed, or the time is over.
fn hear(socket: &OwnedFd, cred: UCred) -> Result<Option<Heard>, Why> {
    let mut bytes = [0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit();
        rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(_) => return Ok(None),
        }
    };
    let mut fds = Vec::new();
    let mut sender = None;
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => fds.extend(rights),
            RecvAncillaryMessage::ScmCredentials(who) => sender = Some(who),
            _ => {}
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let bytes = &bytes[..received.bytes];
    // The serial of a malformed message is used only for the answer.
    let serial = bytes.get(8..12).and_then(|at| at.try_into().ok());
    let serial = serial.map_or(0, u32::from_ne_bytes);
    if received.flags.intersects(ReturnFlags::TRUNC) {
        refuse(socket, serial, "a message of more than 2048 bytes", FORM);
        return Err(Why::Malformed);
    }
    if sender.is_none_or(|sender| sender.pid != cred.pid) {
        refuse(
            socket,
            serial,
            "a message of another process",
            "a connection of its own for each process",
        );
        return Err(Why::Sender);
    }
    let request = match Request::parse(bytes) {
        Ok((_, request)) => request,
        Err(malformed) => {
            refuse_malformed(socket, serial, &malformed);
            return Err(Why::Malformed);
        }
    };
    let truncated = received.flags.intersects(ReturnFlags::CTRUNC);
    if truncated || !are_right(&request, &fds) {
        refuse(
            socket,
            serial,
            "the descriptors beside a message",
            "a socket to watch or forget, a sealed text for each handler in E-code, else none",
        );
        return Err(Why::Descriptors);
    }
    Ok(Some(Heard {
        serial,
        request,
        bytes: bytes.to_vec(),
        fds,
    }))
}

/// Whether a request has the descriptors that it needs: sockets or texts.
fn are_right(request: &Request, fds: &[OwnedFd]) -> bool {
    let is_right = |fd: &OwnedFd| match request {
        Request::Subscribe(_) | Request::ReplaceHandler(_) => upload::is_sealed(fd.as_fd()),
        _ => sockopt::socket_type(fd).is_ok(),
    };
    fds.len() == request.descriptors() && fds.iter().all(is_right)
}

const FORM: &str = "the form that ecalls/message.h describes";

fn refuse_malformed(socket: &OwnedFd, serial: u32, malformed: &Malformed) {
    match malformed {
        Malformed::Version(_) => {
            let version = u64::from(ecalls_abi::ABI_VERSION);
            let refused = Refused::new(REFUSED_VERSION, version, "", "", "");
            send(socket, serial, refused);
        }
        Malformed::Size { .. } | Malformed::Kind(_) => {
            refuse(socket, serial, &malformed.to_string(), FORM);
        }
    }
}

/// Tells a client its mistake; the connection ends afterwards.
fn refuse(socket: &OwnedFd, serial: u32, given: &str, expected: &str) {
    let refused = Refused::new(REFUSED_INVALID, 0, "what was sent", given, expected);
    send(socket, serial, refused);
}

/// Sends the last message, without waiting for a client that does not read.
fn send(socket: &OwnedFd, serial: u32, refused: Refused) {
    let packet = Answer::Refused(refused).packet(serial);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(socket, packet.as_bytes(), flags);
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

#[cfg(test)]
mod tests;
