//! The clients: an open loop of connections, one for each request as httperf's in the papers.
//!
//! A request is due at a fixed rate, whatever becomes of those before it, and its time counts from
//! when it was due until its answer is there. After a second the client gives up, in the usual way:
//! it closes the connection, of which the server learns only when it gets there. So a server that
//! is behind works for clients that have gone, which is what the papers measured.
//!
//! It is a process of its own, on a processor of its own, and goes through several addresses of the
//! loopback network, so that the ports do not run out. Idle connections are opened before.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::super::timing::os;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// The hidden command by which this program starts itself as the clients.
pub(crate) const SUBCOMMAND: &str = "clients-part";

/// How long a client waits for its answer, as in the papers.
const TIMEOUT: Duration = Duration::from_secs(1);
/// What comes in the first second does not count: the server is not behind yet.
pub(super) const WARM_UP: Duration = Duration::from_secs(1);
/// The server is at so many addresses from 127.0.0.1 on.
const ADDRESSES: u32 = 16;
/// Descriptors: those of a second of clients, and idle ones.
const FILES: u64 = 200_000;
/// Connections that are begun before answers are looked at.
const AT_ONCE: usize = 64;

/// What they are to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Clients {
    pub(crate) port: u16,
    pub(crate) per_s: f64,
    pub(crate) seconds: f64,
    pub(crate) path: String,
    pub(crate) idle: u32,
}

/// What became of the requests that were due after the first second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Answers {
    pub(super) due_per_s: f64,
    pub(super) replies_per_s: f64,
    /// Of the replies; none: there was none.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// Connections that were refused or reset.
    pub(super) refused_per_s: f64,
    /// How late 1 % of the clients were begun, at least.
    pub(super) late_ms: f64,
    /// All replies, in time or not, from the first second on.
    pub(super) served: u64,
}

struct Client {
    socket: OwnedFd,
    due: Instant,
    has_asked: bool,
    has_answer: bool,
}

/// The clients' process.
pub(crate) fn run(what: &Clients) -> Outcome {
    let files = Rlimit {
        current: Some(FILES),
        maximum: Some(FILES),
    };
    // Without the right to it, there may be too few, which a failing connect then says.
    let _ = setrlimit(Resource::Nofile, files);
    let idle = (0..what.idle).map(|number| begin(what.port, number));
    let _idle: Vec<OwnedFd> = idle.collect::<Result<_, _>>()?;
    let mut loop_ = Loop::new(what)?;
    loop_.run()?;
    let answers = loop_.answers();
    let mut out = Output::new(true);
    out.object(&answers)?;
    out.flush()
}

struct Loop<'a> {
    what: &'a Clients,
    request: Vec<u8>,
    poll: OwnedFd,
    start: Instant,
    /// Those that wait, by number, the oldest first; `None`: it is done.
    clients: VecDeque<Option<Client>>,
    /// The number of the oldest.
    first: u64,
    times: Vec<Duration>,
    late: Vec<Duration>,
    refused: u64,
    served: u64,
}

fn begin(port: u16, number: u32) -> Result<OwnedFd, Failure> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        .map_err(|error| os("making a client's socket", error))?;
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + number % ADDRESSES);
    let address = SocketAddr::V4(SocketAddrV4::new(address, port));
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(os("connecting a client", error)),
    }
}

impl Loop<'_> {
    fn new(what: &Clients) -> Result<Loop<'_>, Failure> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| os("making an epoll set", error))?;
        Ok(Loop {
            what,
            request: format!("GET {} HTTP/1.0\r\n\r\n", what.path).into_bytes(),
            poll,
            start: Instant::now(),
            clients: VecDeque::new(),
            first: 0,
            times: Vec::new(),
            late: Vec::new(),
            refused: 0,
            served: 0,
        })
    }

    fn due(&self, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / self.what.per_s)
    }

    fn run(&mut self) -> Outcome {
        let end = self.start + Duration::from_secs_f64(self.what.seconds);
        let mut events = Vec::with_capacity(256);
        loop {
            let now = Instant::now();
            for _ in 0..AT_ONCE {
                let number = self.first + self.clients.len() as u64;
                let due = self.due(number);
                if due > now || due > end {
                    break;
                }
                self.late.push(now - due);
                self.open(number, due)?;
            }
            self.give_up(now);
            let next = self.due(self.first + self.clients.len() as u64);
            if self.clients.is_empty() && next > end {
                return Ok(());
            }
            let wait = next.saturating_duration_since(Instant::now());
            let wait = wait.min(Duration::from_millis(10)).try_into().ok();
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.poll, room, wait.as_ref())
                .map_err(|error| os("waiting for answers", error))?;
            for event in &events {
                self.step(event.data.u64())?;
            }
        }
    }

    fn open(&mut self, number: u64, due: Instant) -> Outcome {
        let socket = begin(self.what.port, number as u32)?;
        let key = epoll::EventData::new_u64(number);
        epoll::add(&self.poll, &socket, key, epoll::EventFlags::OUT)
            .map_err(|error| os("waiting for a client", error))?;
        self.clients.push_back(Some(Client {
            socket,
            due,
            has_asked: false,
            has_answer: false,
        }));
        Ok(())
    }

    fn give_up(&mut self, now: Instant) {
        while let Some(oldest) = self.clients.front() {
            if oldest.as_ref().is_some_and(|one| now < one.due + TIMEOUT) {
                return;
            }
            self.clients.pop_front();
            self.first += 1;
        }
    }

    fn step(&mut self, number: u64) -> Outcome {
        let Some(at) = number.checked_sub(self.first) else {
            return Ok(());
        };
        let Some(Some(client)) = self.clients.get_mut(at as usize) else {
            return Ok(());
        };
        let counts = client.due >= self.start + WARM_UP;
        if !client.has_asked {
            let is_connected = socket_error(&client.socket).is_ok_and(|error| error.is_ok());
            if !is_connected || rustix::io::write(&client.socket, &self.request).is_err() {
                self.refused += u64::from(counts);
                self.clients[at as usize] = None;
                return Ok(());
            }
            client.has_asked = true;
            let key = epoll::EventData::new_u64(number);
            return epoll::modify(&self.poll, &client.socket, key, epoll::EventFlags::IN)
                .map_err(|error| os("waiting for an answer", error));
        }
        let mut bytes = [0; 4096];
        match rustix::io::read(&client.socket, &mut bytes) {
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            // The server ends the connection, so its end is the one that lingers.
            Ok(0) if client.has_answer => {}
            Ok(count) if count > 0 && (client.has_answer || bytes[8..].starts_with(b" 200")) => {
                if !client.has_answer {
                    client.has_answer = true;
                    let time = client.due.elapsed();
                    self.served += 1;
                    if counts && time <= TIMEOUT {
                        self.times.push(time);
                    }
                }
                return Ok(());
            }
            _ => self.refused += u64::from(counts),
        }
        self.clients[at as usize] = None;
        Ok(())
    }

    fn answers(&mut self) -> Answers {
        let time = self.what.seconds - WARM_UP.as_secs_f64();
        Answers {
            due_per_s: self.what.per_s,
            replies_per_s: self.times.len() as f64 / time,
            p50_ms: quantile(&mut self.times, 50),
            p99_ms: quantile(&mut self.times, 99),
            late_ms: quantile(&mut self.late, 99).unwrap_or(0.0),
            refused_per_s: self.refused as f64 / time,
            served: self.served,
        }
    }
}

/// In ms; `None`: there is none.
fn quantile(times: &mut [Duration], part: usize) -> Option<f64> {
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * part / 100;
    times.get(at).map(|time| time.as_secs_f64() * 1e3)
}
