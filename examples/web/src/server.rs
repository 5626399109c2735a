//! The loop: it accepts connections, gives those their turns that are ready, ends those whose time
//! is over, and ends itself on SIGTERM or SIGINT.
//!
//! It never waits but in the mechanism's call. At its limit of connections it stops accepting, and
//! so it does for a moment when descriptors or memory run out: then connections wait in the
//! kernel's queue, and the loop does not spin.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::connection::{Connection, Ending, Turn};
use crate::events::{Events, Interest, Ready};
use crate::guard::{self, Guard};
use crate::page::Site;

/// Connections that are accepted before others get their turn.
const ACCEPTS: usize = 64;
/// Time for which nothing is accepted after it failed for want of a descriptor or of memory,
/// unless a connection ends before.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// For a request to come, between two parts of an answer that the client takes, and for what
    /// has begun when the server is told to end.
    pub(crate) timeout: Duration,
    /// Between requests.
    pub(crate) idle: Duration,
}

/// Tokens begin with that of signals, then those of the listeners; the rest are connections.
const SIGNALS: usize = 0;

struct Listener {
    /// `None`: it is closed.
    socket: Option<OwnedFd>,
    token: usize,
    /// The last accept did not say that it would block.
    is_ready: bool,
    /// The mechanism waits for it.
    is_waited_for: bool,
}

pub(crate) struct Server {
    site: Site,
    events: Box<dyn Events>,
    limits: Limits,
    signals: UnixStream,
    listeners: Vec<Listener>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    open: usize,
    turns: Turns,
    /// Of the first listener's port.
    guard: Option<Guard>,
    /// When to look at a connection's deadline, which may be later by then; one for each.
    timers: BTreeSet<(Instant, usize)>,
    timer_of: Vec<Instant>,
    paused_until: Option<Instant>,
    /// It has been told to end, and does so then at the latest.
    ends_at: Option<Instant>,
}

impl Server {
    pub(crate) fn new(site: Site, events: Box<dyn Events>, limits: Limits) -> io::Result<Server> {
        let (signals, writer) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        let mut server = Server {
            site,
            events,
            limits,
            signals,
            listeners: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            open: 0,
            turns: Turns::default(),
            guard: None,
            timers: BTreeSet::new(),
            timer_of: Vec::new(),
            paused_until: None,
            ends_at: None,
        };
        let fd = server.signals.as_raw_fd();
        server.events.add(fd, SIGNALS, Interest::Read)?;
        Ok(server)
    }

    /// Listens at an address, before the server runs; returns which it is.
    pub(crate) fn listen(
        &mut self,
        address: SocketAddr,
        backlog: i32,
        defers: bool,
    ) -> io::Result<SocketAddr> {
        let defer = defers.then_some(self.limits.timeout);
        let socket = crate::socket::listen(address, backlog, defer)?;
        let local = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        self.guard.get_or_insert_with(|| Guard::of(local.port()));
        let token = SIGNALS + 1 + self.listeners.len();
        self.events.add(socket.as_raw_fd(), token, Interest::Read)?;
        self.listeners.push(Listener {
            socket: Some(socket),
            token,
            is_ready: false,
            is_waited_for: true,
        });
        Ok(local)
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            self.events.wait(self.time_to_wait(), &mut ready)?;
            let now = Instant::now();
            self.turns.now_ns = guard::now_ns();
            for one in ready.drain(..) {
                self.note(one, now);
            }
            self.accept(now)?;
            // Those that want another turn get it after a look at what else is ready.
            for _ in 0..self.turns.queue.len() {
                if let Some(at) = self.turns.queue.pop_front() {
                    self.turn(at, now)?;
                }
            }
            if let Some(guard) = &mut self.guard {
                guard.look(now);
                guard.tell(self.turns.waiting, self.turns.now_ns);
            }
            self.expire(now)?;
            if let Some(ends_at) = self.ends_at
                && (self.open == 0 || now >= ends_at)
            {
                return Ok(());
            }
        }
    }

    /// `None`: until something is ready.
    fn time_to_wait(&self) -> Option<Duration> {
        let accepts = self.accepts_more() && self.listeners.iter().any(|one| one.is_ready);
        if !self.turns.queue.is_empty() || (accepts && self.paused_until.is_none()) {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let next = [timer, self.paused_until, self.ends_at];
        let next = next.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn note(&mut self, ready: Ready, now: Instant) {
        if ready.token == SIGNALS {
            self.stop(now);
        } else if let Some(at) = ready.token.checked_sub(self.first_token()) {
            if let Some(Some(connection)) = self.connections.get_mut(at) {
                connection.is_ready(ready.read, ready.write);
                self.turns.push(connection, at);
            }
        } else if let Some(listener) = self.listeners.get_mut(ready.token - SIGNALS - 1) {
            listener.is_ready = true;
        }
    }

    fn first_token(&self) -> usize {
        SIGNALS + 1 + self.listeners.len()
    }

    /// The listeners are closed, so that another server can take over; connections get a last turn,
    /// for requests that have come.
    fn stop(&mut self, now: Instant) {
        let _ = io::Read::read(&mut &self.signals, &mut [0; 16]);
        if self.ends_at.is_some() {
            return;
        }
        self.ends_at = Some(now + self.limits.timeout);
        self.paused_until = None;
        for listener in &mut self.listeners {
            if let Some(socket) = listener.socket.take() {
                self.events.remove(socket.as_raw_fd(), listener.token);
            }
        }
        for (at, place) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = place {
                connection.is_ready(true, false);
                self.turns.push(connection, at);
            }
        }
    }

    fn accepts_more(&self) -> bool {
        self.ends_at.is_none() && self.open < self.limits.connections
    }

    fn accept(&mut self, now: Instant) -> io::Result<()> {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        for number in 0..self.listeners.len() {
            for _ in 0..ACCEPTS {
                let listener = &self.listeners[number];
                let Some(socket) = &listener.socket else {
                    break;
                };
                if !listener.is_ready || !self.accepts_more() || self.paused_until.is_some() {
                    break;
                }
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                match accept_with(socket, flags) {
                    Ok(socket) => self.begin(socket, now),
                    Err(Errno::AGAIN) => self.listeners[number].is_ready = false,
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.paused_until = Some(now + PAUSE);
                    }
                    // A client that has gone, and errors of its connection.
                    Err(_) => {}
                }
            }
        }
        let waits = self.accepts_more() && self.paused_until.is_none();
        let interest = match waits {
            true => Interest::Read,
            false => Interest::Nothing,
        };
        for listener in &mut self.listeners {
            if let Some(socket) = &listener.socket
                && listener.is_waited_for != waits
            {
                self.events
                    .change(socket.as_raw_fd(), listener.token, interest)?;
                listener.is_waited_for = waits;
            }
        }
        Ok(())
    }

    fn begin(&mut self, socket: OwnedFd, now: Instant) {
        let mut connection = Connection::new(socket, now, &self.limits);
        let at = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.timer_of.push(now);
            self.connections.len() - 1
        });
        self.timer_of[at] = connection.deadline;
        self.timers.insert((connection.deadline, at));
        self.turns.push(&mut connection, at);
        self.connections[at] = Some(connection);
        self.open += 1;
    }

    fn ending(&self) -> Ending {
        match self.ends_at {
            Some(_) => Ending::Now,
            None if self.open >= self.limits.connections => Ending::AfterAnswer,
            None => Ending::NotYet,
        }
    }

    fn turn(&mut self, at: usize, now: Instant) -> io::Result<()> {
        let ending = self.ending();
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return Ok(());
        };
        connection.is_queued = false;
        let since_ns = connection.waits_since_ns.take();
        if let (Some(guard), Some(since_ns)) = (&mut self.guard, since_ns) {
            // This one counts, too, and is the first of them.
            guard.tell(self.turns.waiting, since_ns);
        }
        let before = connection.answered;
        let turn = connection.turn(&self.site, &self.limits, ending, now);
        if let Some(guard) = &mut self.guard {
            guard.has_served(connection.answered - before);
        }
        self.turns.waiting -= usize::from(since_ns.is_some());
        self.follow(at, turn)
    }

    /// Does what a turn ended with.
    fn follow(&mut self, at: usize, turn: Turn) -> io::Result<()> {
        let token = self.first_token() + at;
        let Some(connection) = &mut self.connections[at] else {
            return Ok(());
        };
        let fd: RawFd = connection.fd();
        match turn {
            Turn::Again => self.turns.push(connection, at),
            Turn::Ends => {
                self.end(at);
                return Ok(());
            }
            Turn::Waits(interest) => {
                let known = connection.interest.replace(interest);
                let told = match known {
                    None => self.events.add(fd, token, interest),
                    Some(known) if known == interest => Ok(()),
                    Some(_) => self.events.change(fd, token, interest),
                };
                if told.is_err() {
                    // The kernel has no room for it: this connection is lost, no other.
                    if known.is_none() {
                        connection.interest = None;
                    }
                    self.end(at);
                    return Ok(());
                }
            }
        }
        if connection.deadline < self.timer_of[at] {
            self.timers.remove(&(self.timer_of[at], at));
            self.timer_of[at] = connection.deadline;
            self.timers.insert((connection.deadline, at));
        }
        Ok(())
    }

    fn end(&mut self, at: usize) {
        let token = self.first_token() + at;
        let Some(connection) = self.connections[at].take() else {
            return;
        };
        if connection.interest.is_some() {
            self.events.remove(connection.fd(), token);
        }
        self.turns.waiting -= usize::from(connection.waits_since_ns.is_some());
        drop(connection);
        self.timers.remove(&(self.timer_of[at], at));
        self.free.push(at);
        self.open -= 1;
        // It gave something back.
        self.paused_until = None;
    }

    fn expire(&mut self, now: Instant) -> io::Result<()> {
        while let Some((due, at)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            let Some(connection) = &mut self.connections[at] else {
                continue;
            };
            let turn = match connection.deadline {
                // It had something to do meanwhile.
                later if later > now => None,
                _ => Some(connection.expire(&self.site, &self.limits, now)),
            };
            self.timer_of[at] = connection.deadline;
            self.timers.insert((connection.deadline, at));
            if let Some(turn) = turn {
                self.follow(at, turn)?;
            }
        }
        Ok(())
    }
}

/// Connections that can go on, the first of them first.
#[derive(Default)]
struct Turns {
    queue: VecDeque<usize>,
    /// Of these: those that may cost time.
    waiting: usize,
    /// The time of this turn of the loop.
    now_ns: u64,
}

impl Turns {
    fn push(&mut self, connection: &mut Connection, at: usize) {
        if connection.is_queued {
            return;
        }
        connection.is_queued = true;
        if !connection.lingers() {
            connection.waits_since_ns = Some(self.now_ns);
            self.waiting += 1;
        }
        self.queue.push_back(at);
    }
}
