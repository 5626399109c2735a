//! One connection: what it has received, what it has still to send, and its turns.
//!
//! In a turn a connection sends what it can, answers the requests that it has, and reads, until it
//! must wait or has had its share. It reads only while it has nothing to send, so neither a client
//! that sends without end nor one that never reads makes it hold more than [`INPUT_MAX`] and
//! [`OUTPUT_MAX`] bytes and one open file.
//!
//! `readable` and `writable` are hints: set when the mechanism reports so, cleared only when a call
//! says that it would block. A new connection is tried at once; most have their request there.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::events::Interest;
use crate::page::{Body, Site, Then};
use crate::request::{HEAD_MAX, Status, parse};
use crate::server::Limits;

const INPUT_MAX: usize = HEAD_MAX;
/// Above this no further request is answered before something was sent.
const OUTPUT_MAX: usize = 64 * 1024;
/// Requests that a connection gets answered in one turn, and calls that it makes.
const SHARE: usize = 16;
/// Bytes of a file that one call sends.
const FILE_PART: usize = 256 * 1024;
/// Time in which a client must end a connection that we have ended, and bytes that it may still
/// send: closing before it has read our answer would destroy that.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 256 * 1024;

/// What a turn ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Waits(Interest),
    /// It has had its share, and could go on.
    Again,
    Ends,
}

/// Whether connections are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    NotYet,
    /// With the next answer: others want their place.
    AfterAnswer,
    /// As soon as what has begun is answered: the server ends.
    Now,
}

/// What it is about, for its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// A request that has begun, or the first.
    Request,
    /// Between requests.
    Idle,
    Answer,
    Linger,
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the output that are sent.
    sent: usize,
    /// What follows the output.
    body: Option<Body>,
    /// Bytes of a request's body that are still to be skipped.
    skips: u64,
    readable: bool,
    writable: bool,
    /// It ends when all is sent.
    closes: bool,
    about: About,
    /// Bytes that came after our end.
    lingered: u64,
    pub(crate) deadline: Instant,
    /// What the mechanism waits for; `None`: it does not know this socket yet.
    pub(crate) interest: Option<Interest>,
    /// It waits for its turn,
    pub(crate) is_queued: bool,
    /// since then, `CLOCK_MONOTONIC`; `None`: with nothing that costs time.
    pub(crate) waits_since_ns: Option<u64>,
    /// Requests that were answered.
    pub(crate) answered: u64,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, now: Instant, limits: &Limits) -> Connection {
        Connection {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            body: None,
            skips: 0,
            readable: true,
            writable: true,
            closes: false,
            about: About::Request,
            lingered: 0,
            deadline: now + limits.timeout,
            interest: None,
            is_queued: false,
            waits_since_ns: None,
            answered: 0,
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn is_ready(&mut self, read: bool, write: bool) {
        self.readable |= read;
        self.writable |= write;
    }

    /// Nothing has come of a request, and nothing is to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.input.is_empty() && !self.has_output() && self.skips == 0
    }

    /// Its answer is sent, and it only waits for the client's end.
    pub(crate) fn lingers(&self) -> bool {
        self.about == About::Linger
    }

    fn has_output(&self) -> bool {
        self.sent < self.output.len() || self.body.is_some()
    }

    pub(crate) fn turn(
        &mut self,
        site: &Site,
        limits: &Limits,
        ending: Ending,
        now: Instant,
    ) -> Turn {
        let mut answered = 0;
        for _ in 0..SHARE {
            let before = (self.sent, self.body.as_ref().map(|body| body.left));
            let step = if self.has_output() {
                self.send()
            } else if self.about == About::Linger {
                self.linger()
            } else if self.closes {
                self.end()
            } else {
                self.serve(site, ending, &mut answered)
            };
            let after = (self.sent, self.body.as_ref().map(|body| body.left));
            self.look_at_time(limits, before != after || answered > 0, now);
            match step {
                Ok(None) => {}
                Ok(Some(turn)) => return turn,
                Err(_) => return Turn::Ends,
            }
        }
        Turn::Again
    }

    /// Its time is over. A client that has begun a request is told.
    pub(crate) fn expire(&mut self, site: &Site, limits: &Limits, now: Instant) -> Turn {
        if self.about != About::Request || self.input.is_empty() {
            return Turn::Ends;
        }
        site.refuse(Status::Timeout, Then::Closes, true, &mut self.output);
        self.closes = true;
        self.turn(site, limits, Ending::Now, now)
    }

    /// Answers what it has, then reads. `None`: there is more to do.
    fn serve(
        &mut self,
        site: &Site,
        ending: Ending,
        answered: &mut usize,
    ) -> Result<Option<Turn>, Errno> {
        if self.skips > 0 {
            let skipped = self.skips.min(self.input.len() as u64);
            self.input.drain(..skipped as usize);
            self.skips -= skipped;
        }
        while self.skips == 0 && *answered < SHARE && !self.closes && self.body.is_none() {
            if self.output.len() > OUTPUT_MAX || !self.answer(site, ending) {
                break;
            }
            *answered += 1;
            self.answered += 1;
        }
        if self.has_output() {
            return Ok(None);
        }
        if *answered >= SHARE {
            return Ok(Some(Turn::Again));
        }
        if !self.readable {
            return Ok(Some(match ending {
                Ending::Now if self.is_idle() => Turn::Ends,
                _ => Turn::Waits(Interest::Read),
            }));
        }
        let room = INPUT_MAX - self.input.len();
        self.input.reserve_exact(room);
        match recv(
            &self.socket,
            rustix::buffer::spare_capacity(&mut self.input),
            RecvFlags::empty(),
        ) {
            Ok((_, 0)) => return Ok(Some(Turn::Ends)),
            // What is still there is less than what it had room for: nothing.
            Ok((_, bytes)) => self.readable = bytes >= room,
            Err(Errno::AGAIN) => self.readable = false,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if self.input.is_empty() {
            // An idle connection holds no memory.
            self.input = Vec::new();
        }
        Ok(None)
    }

    /// Answers the first request that it has; false: there is none.
    fn answer(&mut self, site: &Site, ending: Ending) -> bool {
        if self.input.is_empty() {
            return false;
        }
        match parse(&self.input) {
            Ok(None) => return false,
            Ok(Some(request)) => {
                let then = match (request.keeps && ending == Ending::NotYet, request.is_old) {
                    (false, _) => Then::Closes,
                    (true, false) => Then::Keeps,
                    (true, true) => Then::KeepsOld,
                };
                self.body = site.answer(&request, then, &mut self.output);
                self.closes = then == Then::Closes;
                self.skips = request.body;
                let head = request.head;
                self.input.drain(..head);
                let skipped = self.skips.min(self.input.len() as u64);
                self.input.drain(..skipped as usize);
                self.skips -= skipped;
            }
            Err(status) => {
                site.refuse(status, Then::Closes, true, &mut self.output);
                self.closes = true;
            }
        }
        true
    }

    fn send(&mut self) -> Result<Option<Turn>, Errno> {
        if !self.writable {
            return Ok(Some(Turn::Waits(Interest::Write)));
        }
        let sent = if self.sent < self.output.len() {
            let mut flags = SendFlags::NOSIGNAL;
            if self.body.is_some() {
                flags |= SendFlags::MORE;
            }
            send(&self.socket, &self.output[self.sent..], flags).inspect(|bytes| self.sent += bytes)
        } else if let Some(body) = &mut self.body {
            let part = body.left.min(FILE_PART as u64) as usize;
            match rustix::fs::sendfile(&self.socket, &body.file, None, part) {
                // It has become shorter: the promised length cannot be kept.
                Ok(0) => return Err(Errno::IO),
                Ok(bytes) => {
                    body.left -= bytes as u64;
                    if body.left == 0 {
                        self.body = None;
                    }
                    Ok(bytes)
                }
                Err(error) => Err(error),
            }
        } else {
            Ok(0)
        };
        match sent {
            Ok(_) => {}
            Err(Errno::AGAIN) => self.writable = false,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if !self.has_output() {
            self.output = Vec::new();
            self.sent = 0;
        }
        Ok(None)
    }

    /// Says that nothing more comes, and waits for the client to say so.
    fn end(&mut self) -> Result<Option<Turn>, Errno> {
        shutdown(&self.socket, Shutdown::Write)?;
        self.about = About::Linger;
        (self.input, self.readable) = (Vec::new(), true);
        Ok(None)
    }

    fn linger(&mut self) -> Result<Option<Turn>, Errno> {
        if !self.readable {
            return Ok(Some(Turn::Waits(Interest::Read)));
        }
        let mut bytes = [0; 4096];
        match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => return Ok(Some(Turn::Ends)),
            Ok((bytes, _)) => self.lingered += bytes as u64,
            Err(Errno::AGAIN) => self.readable = false,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok((self.lingered > LINGER_BYTES).then_some(Turn::Ends))
    }

    /// Its deadline begins anew with whatever it is about next, with each request that is answered
    /// and with each part of an answer that the client takes. A request that comes byte by byte
    /// gets no more time for that.
    fn look_at_time(&mut self, limits: &Limits, has_moved: bool, now: Instant) {
        let about = match self.about {
            About::Linger => About::Linger,
            _ if self.has_output() => About::Answer,
            _ if !self.is_idle() => About::Request,
            // The first request has not come yet.
            About::Request if !has_moved => About::Request,
            _ => About::Idle,
        };
        if about == self.about && !has_moved {
            return;
        }
        self.about = about;
        self.deadline = now
            + match about {
                About::Request | About::Answer => limits.timeout,
                About::Idle => limits.idle,
                About::Linger => LINGER,
            };
    }
}
