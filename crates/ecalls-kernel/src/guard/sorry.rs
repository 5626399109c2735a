//! The answer to clients whom the guard turns away: a thread with the listeners to which the kernel
//! side (bpf/guard/own.h) sends their connections.
//!
//! A client that has sent the begin of a request gets [`ANSWER`], whatever it asks, and one that
//! begins with a handshake of TLS gets [`ALERT`]. Then the thread waits until the client closes:
//! who closes first with bytes unread resets the connection, and the answer may be lost with it.
//! Any other client, and one that takes longer than [`TIME`] for all this, is reset. So each
//! connection costs a descriptor for that time at most, no memory of its own, and a few system
//! calls; the kernel side admits [`SORRY_MAX`] at a time.
//!
//! No error of accept ends it: each kind is said once, and all are counted.
//!
//! The thread steps back for others: the processor is the server's.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::error::{Error, Result};
use crate::kernel::worker::Worker;

/// Connections that are answered at a time.
pub const SORRY_MAX: u32 = 256;
/// How long each may take.
pub(super) const TIME: Duration = Duration::from_secs(2);
/// What is read of each, at most, before and after it is answered.
const BYTES_MAX: usize = 65_536;
/// Of the thread: it gets a tenth of what others get that want the processor, too.
const NICE: i32 = 10;
/// Connections that are accepted before others are looked at.
const AT_ONCE: usize = 16;

/// Errors that the connection had met, of accept(2): it is gone, and the next may be well.
const NETWORK: [Errno; 9] = [
    Errno::CONNABORTED,
    Errno::NETDOWN,
    Errno::PROTO,
    Errno::NOPROTOOPT,
    Errno::HOSTDOWN,
    Errno::NONET,
    Errno::HOSTUNREACH,
    Errno::OPNOTSUPP,
    Errno::NETUNREACH,
];

const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
Retry-After: 5\r\n\
Content-Type: text/plain; charset=utf-8\r\n\
Content-Length: 55\r\n\
Cache-Control: no-store\r\n\
Connection: close\r\n\
\r\n\
The server is busy. Please try again in a few seconds.\n";

/// A record of TLS (RFC 8446, 5.1 and 6): a fatal alert, `internal_error`. Before the handshake it
/// is in the clear in each version, and there is none that says more.
const ALERT: &[u8] = &[21, 3, 1, 0, 2, 2, 80];
/// The first byte of a record with a message of the handshake.
const HANDSHAKE: u8 = 22;

/// The thread.
#[derive(Debug)]
pub(super) struct Sorry {
    failed: Arc<AtomicU64>,
    _worker: Worker,
}

impl Sorry {
    /// How often accepting failed.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Starts the thread with these listeners.
pub(super) fn start(listeners: Vec<OwnedFd>) -> Result<Sorry> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)
        .map_err(|error| Error::from_io("making an epoll set", error.into()))?;
    let failed = Arc::<AtomicU64>::default();
    let counter = failed.clone();
    let action = "starting the thread that answers who is turned away";
    let worker = Worker::start("guard-sorry", action, move |stop| {
        let answerer = Answerer {
            set,
            listeners,
            clients: VecDeque::new(),
            first: 0,
            failed: counter,
            said: Vec::new(),
        };
        if let Err(error) = answerer.run(stop) {
            // Connections fill the kernel's queue, and the next ones are dropped.
            eprintln!("ecalls: the guard answers nobody any more: {error}");
        }
    })?;
    Ok(Sorry {
        failed,
        _worker: worker,
    })
}

struct Client {
    socket: TcpStream,
    until: Instant,
    read: usize,
    has_answer: bool,
}

struct Answerer {
    set: OwnedFd,
    listeners: Vec<OwnedFd>,
    /// By number, the oldest first; `None`: it is done.
    clients: VecDeque<Option<Client>>,
    /// The number of the oldest.
    first: u64,
    failed: Arc<AtomicU64>,
    /// The errors that were said.
    said: Vec<Errno>,
}

/// The keys of what is no client in the set: the end, and the listeners from here on.
const STOP: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 16;

impl Answerer {
    fn run(mut self, stop: &OwnedFd) -> io::Result<()> {
        // If it may not step back, it goes on as it is.
        let _ = setpriority_process(Some(gettid()), NICE);
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.set, stop, epoll::EventData::new_u64(STOP), flags)?;
        for (key, listener) in (LISTENERS..).zip(&self.listeners) {
            epoll::add(&self.set, listener, epoll::EventData::new_u64(key), flags)?;
        }
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let wait = self.wait();
            match epoll::wait(&self.set, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    key if key >= LISTENERS => self.accept((key - LISTENERS) as usize),
                    number => self.step(number),
                }
            }
            self.end_late();
        }
    }

    /// Until the oldest is late.
    fn wait(&self) -> Option<Timespec> {
        let oldest = self.clients.front()?.as_ref()?;
        let wait = oldest.until.saturating_duration_since(Instant::now());
        wait.try_into().ok()
    }

    fn accept(&mut self, listener: usize) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..AT_ONCE {
            let socket = match accept_with(&self.listeners[listener], flags) {
                Ok(socket) => TcpStream::from(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    self.fail(error);
                    if NETWORK.contains(&error) {
                        continue;
                    }
                    // Without descriptors or memory: a moment later.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            };
            let number = self.first + self.clients.len() as u64;
            let key = epoll::EventData::new_u64(number);
            if let Err(error) = epoll::add(&self.set, &socket, key, epoll::EventFlags::IN) {
                self.fail(error);
                // Its user may watch no further descriptor: the client is reset.
                let _ = set_socket_linger(&socket, Some(Duration::ZERO));
                continue;
            }
            self.clients.push_back(Some(Client {
                socket,
                until: Instant::now() + TIME,
                read: 0,
                has_answer: false,
            }));
            // Most have asked already.
            self.step(number);
        }
    }

    /// A connection was not accepted.
    fn fail(&mut self, error: Errno) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if self.said.contains(&error) {
            return;
        }
        self.said.push(error);
        let hint = match error {
            Errno::MFILE => "raise its limit (`ulimit -n`, LimitNOFILE= of its unit); ",
            _ => "",
        };
        eprintln!(
            "ecalls: the guard could not accept a connection to answer it: {error}; {hint}it goes \
             on, and only counts this from now on (sorry_failed of --json)"
        );
    }

    fn step(&mut self, number: u64) {
        let Some(at) = number.checked_sub(self.first) else {
            return;
        };
        let Some(place) = self.clients.get_mut(at as usize) else {
            return;
        };
        if place.as_mut().is_some_and(|client| !client.step()) {
            *place = None;
        }
    }

    fn end_late(&mut self) {
        let now = Instant::now();
        while let Some(oldest) = self.clients.front() {
            if let Some(client) = oldest {
                if now < client.until {
                    return;
                }
                client.reset();
            }
            self.clients.pop_front();
            self.first += 1;
        }
    }
}

impl Client {
    /// Whether it goes on.
    fn step(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) if self.has_answer => return false,
                Ok(count) if self.takes(&bytes[..count]) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.reset();
        false
    }

    /// What it has sent; false: that is no request.
    fn takes(&mut self, bytes: &[u8]) -> bool {
        self.read += bytes.len();
        if !self.has_answer {
            let answer = match bytes.first() {
                Some(b'A'..=b'Z') => ANSWER, // of a method
                Some(&HANDSHAKE) => ALERT,
                _ => return false,
            };
            if !self
                .socket
                .write(answer)
                .is_ok_and(|written| written == answer.len())
            {
                return false;
            }
            self.has_answer = true;
            if shutdown(&self.socket, Shutdown::Write).is_err() {
                return false;
            }
        }
        self.read < BYTES_MAX
    }

    /// Its socket is to leave nothing behind when it is closed.
    fn reset(&self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}
