//! Sources of events: descriptors, channels, and other objects with a descriptor for sleeping.
//!
//! A ready source becomes an event of the type that its owner chose: the callback runs as an event,
//! not in the poll. It becomes an event again while the source is ready.
//!
//! Some sources wake only readers that requested it, like a [`Channel`]: [`Source::arm`] requests a
//! wake-up. A source is armed while it waits, and disarmed once when it was found ready, so a busy
//! one costs nothing.

use std::os::fd::{AsFd, BorrowedFd};

use ecalls::{Channel, ReadySockets};
use rustix::event::epoll::EventFlags;

use crate::error::{Error, Result};
use crate::event::{Turn, When, best_effort, timer};

/// Bits of a name that contain the index.
const PLACE_BITS: u32 = 20;
/// The most sources of one loop.
pub(crate) const SOURCES_MAX: usize = 4096;

/// An object with a descriptor that shows when it is ready.
pub trait Source: AsFd {
    /// Requests a wake-up. False: the source is ready now.
    fn arm(&mut self) -> bool {
        true
    }

    /// Called when the source was found ready: clears the descriptor's readiness, if that is
    /// needed.
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

/// Ready while sockets may be: its callback takes their hints.
impl Source for ReadySockets {
    fn arm(&mut self) -> bool {
        self.prepare_wait()
    }

    fn disarm(&mut self) {
        self.end_wait();
    }
}

/// The readiness to wait for.
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
    /// Either of them.
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

/// The readiness of a source. An error or the end of the other side makes it ready for both: the
/// next read or write returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// It can be read without waiting.
    pub readable: bool,
    /// It can be written without waiting.
    pub writable: bool,
}

impl Ready {
    /// The readiness of a source with only one kind of readiness.
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

/// The type of the event of a ready source.
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

/// The name of a watched source. It is never reused for another one.
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

/// A source and its callback, with their types erased.
pub(crate) trait Body {
    fn fd(&self) -> BorrowedFd<'_>;
    fn arm(&mut self) -> bool;
    fn disarm(&mut self);
    fn call(&mut self, turn: &Turn<'_>, ready: Ready);
}

/// The only implementation of it.
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
    /// Its queued or running event.
    pub(crate) event: Option<u64>,
    pub(crate) ready: Ready,
    /// While its event runs, it is with the caller.
    pub(crate) body: Option<Box<dyn Body>>,
}

impl Watched {
    /// It was found ready, perhaps again.
    pub(crate) fn found(&mut self, ready: Ready) {
        self.ready = self.ready.and(ready);
    }
}

/// The sources of one loop, by name: index and number, as for events.
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

    /// The name that the next [`Sources::insert`] assigns.
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
