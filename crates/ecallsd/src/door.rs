//! The door: accepts clients, reads what they send, checks its form, and passes it on.
//!
//! It has no capability, no file and no right to open one, so that a mistake in reading what
//! strangers write does the least harm. Each connection has a thread, and that thread alone reads,
//! waits and closes for it: a client that sends slowly, floods, or passes descriptors that block
//! whoever closes them holds up nobody else.
//!
//! The life of a connection: accepted if its user has a place left ([`crate::share`]); HELLO within
//! five seconds; then one message at a time, each at its user's rate, each checked: its sender
//! is the process that connected, its form is that of `abi/message.h`, it has the descriptors that
//! its kind needs and no others. Whoever breaks a rule is told and disconnected.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ecalls_abi::message::{
    Answer, MESSAGE_DESCRIPTORS, MESSAGE_MAX, Malformed, REFUSED_INVALID, REFUSED_QUOTA,
    REFUSED_VERSION, Refused, Request,
};
use ecalls_kernel::now_ns;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown,
    SocketFlags, UCred,
};
use zerocopy::FromBytes;

use crate::rate::{Bucket, Rate};
use crate::relay::{Kind, Relay, UserRate, Why};
use crate::share::Places;

/// How long a client may take for its first message.
const HELLO_TIME: Duration = Duration::from_secs(5);

/// A thread's stack: a message, its packet, and what the system library needs.
const STACK_BYTES: usize = 128 << 10;

/// How long to rest when no connection can be accepted.
const REST: Duration = Duration::from_millis(20);

/// How often the broker hears that a user has to wait.
const SLOW_PERIOD_NS: u64 = 1_000_000_000;

/// Users whose buckets are kept; beyond that, full ones are forgotten.
const USERS_KEPT: usize = 1024;

/// Until the broker says what holds.
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
}

/// What the door knows of a user.
#[derive(Debug, Default)]
struct User {
    bucket: Bucket,
    /// What the broker said; None: as for everybody. `per_s` 0: no limit.
    rate: Option<Rate>,
    slow: u32,
    slow_ns: u64,
}

/// Where a connection's thread waits until the broker is done.
#[derive(Debug, Default)]
struct Gate {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn pass(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            done = self
                .changed
                .wait(done)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *done = false;
    }
}

/// Serves until the broker is gone.
///
/// # Errors
/// Those of the socket that clients connect to.
pub fn serve(relay: Relay, listener: &OwnedFd) -> io::Result<()> {
    let door = Arc::new(Door {
        relay,
        state: Mutex::default(),
    });
    // Accepted connections inherit it, so the first message has its sender, too.
    sockopt::set_socket_passcred(listener, true)?;
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
            // Out of descriptors or memory: those who are here go, too.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => thread::sleep(REST),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Door {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the broker says, until it is gone; then the door has nothing to do.
    fn listen_to_broker(&self) {
        while let Ok(Some(packet)) = self.relay.receive(true) {
            match packet.kind {
                Kind::Done => {
                    let gate = self.state().gates.get(&packet.connection).cloned();
                    if let Some(gate) = gate {
                        gate.open();
                    }
                }
                Kind::Rate => {
                    if let Ok(rate) = UserRate::read_from_bytes(&packet.body) {
                        self.state().set_rate(&rate);
                    }
                }
                Kind::Open | Kind::Request | Kind::Gone | Kind::Slow => {}
            }
        }
        std::process::exit(0);
    }

    /// Starts a connection's thread, if its user has a place left. If it has none, the thread
    /// only closes it.
    fn admit(self: &Arc<Door>, number: u64, socket: OwnedFd) {
        let Ok(cred) = sockopt::socket_peercred(&socket) else {
            return;
        };
        let placed = self.state().places.take(cred.uid.as_raw());
        let door = Arc::clone(self);
        let run = move || match placed {
            true => door.converse(number, &socket, cred),
            false => turn_away(&socket),
        };
        let thread = thread::Builder::new()
            .name("client".to_owned())
            .stack_size(STACK_BYTES);
        if thread.spawn(run).is_err() {
            if placed {
                self.state().places.leave(cred.uid.as_raw());
            }
            thread::sleep(REST);
        }
    }

    /// A connection from its first message to its last.
    fn converse(&self, number: u64, socket: &OwnedFd, cred: UCred) {
        let uid = cred.uid.as_raw();
        let hello = self.hear_hello(socket, cred);
        self.state().places.leave(uid);
        // Else the broker has not heard of it.
        let Ok(first) = hello else { return };
        let gate = Arc::new(Gate::default());
        self.state().gates.insert(number, Arc::clone(&gate));
        let opened = self
            .relay
            .send(Kind::Open, number, 0, &first.bytes, &[socket.as_fd()]);
        if opened.is_ok() {
            gate.pass();
            let why = self.pass_on(number, socket, cred, &gate);
            let gone = self.relay.send(Kind::Gone, number, why as u32, &[], &[]);
            if gone.is_ok() {
                gate.pass();
            }
        }
        self.state().gates.remove(&number);
    }

    fn hear_hello(&self, socket: &OwnedFd, cred: UCred) -> Result<Heard, Why> {
        let silent = |_| Why::Silent;
        sockopt::set_socket_passcred(socket, true).map_err(silent)?;
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(HELLO_TIME)).map_err(silent)?;
        let heard = hear(socket, cred)?.ok_or(Why::Silent)?;
        self.wait_for_rate(None, cred.uid.as_raw());
        sockopt::set_socket_timeout(socket, Timeout::Recv, None).map_err(silent)?;
        match heard.request {
            Request::Hello(_) => Ok(heard),
            _ => {
                refuse(socket, heard.serial, "the first message", "a HELLO");
                Err(Why::Silent)
            }
        }
    }

    /// Passes messages on until there are none. Why there are none.
    fn pass_on(&self, number: u64, socket: &OwnedFd, cred: UCred, gate: &Gate) -> Why {
        loop {
            let heard = match hear(socket, cred) {
                Ok(Some(heard)) => heard,
                Ok(None) => return Why::Closed,
                Err(why) => return why,
            };
            self.wait_for_rate(Some(number), cred.uid.as_raw());
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

    /// Waits until the user may ask again. The broker hears of it now and then.
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
    fn set_rate(&mut self, said: &UserRate) {
        let rate = Rate {
            per_s: said.per_s,
            burst: said.burst,
        };
        match said.uid {
            UserRate::EVERYBODY => {
                self.everybody = Some(rate);
                for user in self.users.values_mut() {
                    user.rate = None;
                }
            }
            uid => self.users.entry(uid).or_default().rate = Some(rate),
        }
    }

    /// How long to wait, ns, and how many waits there were since the broker heard of them last.
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

/// A message whose form is right.
#[derive(Debug)]
struct Heard {
    serial: u32,
    request: Request,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// The next message of a connection. None: it was closed, or the time ran out.
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
    // The serial of a message that is wrong is only for the answer.
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
            "one socket to watch or forget one, else none",
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

/// Whether these are the descriptors that the request needs: all those are sockets.
fn are_right(request: &Request, fds: &[OwnedFd]) -> bool {
    fds.len() == request.descriptors() && fds.iter().all(|fd| sockopt::socket_type(fd).is_ok())
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

/// A user has all the places that it may have before HELLO.
fn turn_away(socket: &OwnedFd) {
    let subject = "connections of one user that have not said HELLO";
    send(socket, 0, Refused::new(REFUSED_QUOTA, 0, subject, "", ""));
}

/// Tells a client what it did; the connection ends afterwards.
fn refuse(socket: &OwnedFd, serial: u32, given: &str, expected: &str) {
    let refused = Refused::new(REFUSED_INVALID, 0, "what was sent", given, expected);
    send(socket, serial, refused);
}

/// The last word: if the client does not read, it does not hear it.
fn send(socket: &OwnedFd, serial: u32, refused: Refused) {
    let packet = Answer::Refused(refused).packet(serial);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(socket, packet.as_bytes(), flags);
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

#[cfg(test)]
mod tests;
