//! Sources of events: descriptors, channels, and whatever else has a descriptor to sleep on.
//!
//! A source that is ready becomes an event of the type that its owner chose: the callback runs in
//! its turn, not in the poll. It comes again while the source is ready.
//!
//! Some sources wake nobody who did not ask, like a [`Channel`]: [`Source::arm`] asks. A source is
//! armed while it waits, and disarmed once when it was found ready, so a busy one costs nothing.

use std::os::fd::{AsFd, BorrowedFd};

use ecalls::Channel;
use rustix::event::epoll::EventFlags;

use crate::error::{Error, Result};
use crate::event::{Turn, When, best_effort, timer};

/// Bits of a name that say the place.
const PLACE_BITS: u32 = 20;
/// Sources of one loop at most.
pub(crate) const SOURCES_MAX: usize = 4096;

/// Something with a descriptor that says when it is ready.
pub trait Source: AsFd {
    /// Asks for a wake-up. False: it is ready now.
    fn arm(&mut self) -> bool {
        true
    }

    /// It was found ready: takes back what makes the descriptor ready, if anything must.
    fn disarm(&mut self) {}
}

/// Any descriptor: a socket, a pipe, an eventfd.
#[derive(Clone, Copy, Debug)]
pub struct Fd<F>(pub F);

impl<F: AsFd> AsFd for Fd<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<F: AsFd> Source for Fd<F> {}

/// A channel is ready while events wait in it: its subscriptions become events of the loop.
impl Source for Channel {
    fn arm(&mut self) -> bool {
        self.prepare_wait()
    }

    fn disarm(&mut self) {
        self.end_wait();
    }
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    readable: bool,
    writable: bool,
}

impl Interest {
    /// It can be read without waiting.
    pub const READABLE: Interest = Interest {
        readable: true,
        writable: false,
    };
    /// It can be written without waiting.
    pub const WRITABLE: Interest = Interest {
        readable: false,
        writable: true,
    };
    /// Either.
    pub const BOTH: Interest = Interest {
        readable: true,
        writable: true,
    };

    pub(crate) fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.readable);
        flags.set(EventFlags::OUT, self.writable);
        flags
    }
}

/// What a source is ready for. An error or the other side's end makes it ready for both: the next
/// read or write tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// It can be read without waiting.
    pub readable: bool,
    /// It can be written without waiting.
    pub writable: bool,
}

impl Ready {
    /// What a source that only is or is not ready says.
    pub(crate) const READABLE: Ready = Ready {
        readable: true,
        writable: false,
    };

    pub(crate) fn from_flags(flags: EventFlags) -> Ready {
        let ended = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        Ready {
            readable: ended || flags.contains(EventFlags::IN),
            writable: ended || flags.contains(EventFlags::OUT),
        }
    }

    fn and(self, other: Ready) -> Ready {
        Ready {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
        }
    }
}

/// The type of the event that a ready source becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// A timer, released when the source was found ready: before all best-effort events.
    Timer,
    /// A best-effort event of this user virtual time.
    BestEffort(u64),
}

impl As {
    pub(crate) fn when(self, now_ns: u64) -> When {
        match self {
            As::Timer => timer(now_ns),
            As::BestEffort(user_virtual_time) => best_effort(user_virtual_time),
        }
    }
}

/// The name of a watched source. It never means another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    pub(crate) owner: u32,
    pub(crate) id: u64,
}

impl Watch {
    /// The name as a number: unique in its loop.
    pub const fn raw(self) -> u64 {
        self.id
    }
}

/// A source and its callback, whatever their types.
pub(crate) trait Body {
    fn fd(&self) -> BorrowedFd<'_>;
    fn arm(&mut self) -> bool;
    fn disarm(&mut self);
    fn call(&mut self, turn: &Turn<'_>, ready: Ready);
}

/// The one kind of body there is.
pub(crate) struct Pair<S, F> {
    pub(crate) source: S,
    pub(crate) callback: F,
}

impl<S: Source, F: FnMut(&Turn<'_>, &mut S, Ready)> Body for Pair<S, F> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    fn arm(&mut self) -> bool {
        self.source.arm()
    }

    fn disarm(&mut self) {
        self.source.disarm();
    }

    fn call(&mut self, turn: &Turn<'_>, ready: Ready) {
        (self.callback)(turn, &mut self.source, ready);
    }
}

/// A watched source.
pub(crate) struct Watched {
    pub(crate) kind: As,
    /// Its event is queued or runs.
    pub(crate) event: Option<u64>,
    pub(crate) ready: Ready,
    /// With whoever runs it, while it runs.
    pub(crate) body: Option<Box<dyn Body>>,
}

impl Watched {
    /// It was found ready, perhaps once more.
    pub(crate) fn found(&mut self, ready: Ready) {
        self.ready = self.ready.and(ready);
    }
}

/// The sources of one loop, by name: place and number, as events have.
pub(crate) struct Sources {
    table: Vec<(u64, Option<Watched>)>,
    free: Vec<u32>,
    sequence: u64,
}

impl Sources {
    pub(crate) fn new() -> Sources {
        Sources {
            table: Vec::new(),
            free: Vec::new(),
            sequence: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// The name that the next [`Sources::insert`] gives.
    pub(crate) fn next_name(&self) -> Result<u64> {
        let at = match self.free.last() {
            Some(at) => u64::from(*at),
            None if self.table.len() < SOURCES_MAX => self.table.len() as u64,
            None => {
                return Err(Error::LimitReached {
                    which: "sources in the loop",
                    limit: SOURCES_MAX,
                });
            }
        };
        Ok((self.sequence << PLACE_BITS) | at)
    }

    pub(crate) fn insert(&mut self, watched: Watched) -> Result<u64> {
        let id = self.next_name()?;
        self.sequence += 1;
        match self.free.pop() {
            Some(at) => self.table[at as usize] = (id, Some(watched)),
            None => self.table.push((id, Some(watched))),
        }
        Ok(id)
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Watched> {
        let at = id & ((1 << PLACE_BITS) - 1);
        let (name, watched) = self.table.get_mut(at as usize)?;
        watched.as_mut().filter(|_| *name == id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Watched> {
        self.get(id)?;
        let at = id & ((1 << PLACE_BITS) - 1);
        self.free.push(at as u32); // PLACE_BITS of it
        self.table[at as usize].1.take()
    }
}
