//! Events from other threads: a list behind a lock, and how its reader sleeps without missing one.
//!
//! One reader (the loop), any number of writers. All is in the lock: a reader that goes to sleep
//! finds nothing and says so in one step, a writer puts in and learns in one step whether somebody
//! sleeps. So no wake-up is lost, and a reader that has not slept since it last took costs a writer
//! no system call.
//!
//! `filled` alone is outside, written in the lock by both sides: the list may hold something. The
//! reader looks at it before each event, for the price of a load; what it misses then it finds
//! before the next.
//!
//! `tests/mailbox.rs` compiles this file with loom's types and tries every interleaving.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// Events that may wait.
pub(crate) const WAITING_MAX: usize = 65_536;

/// Why nothing was put in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// [`WAITING_MAX`] wait.
    Full,
    /// The reader is gone.
    Closed,
}

#[derive(Debug)]
struct List<T> {
    waiting: Vec<T>,
    /// The reader sleeps, as far as it said.
    sleeping: bool,
    writers: usize,
    closed: bool,
}

/// The mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    list: Mutex<List<T>>,
    filled: AtomicBool,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Mailbox<T> {
        Mailbox {
            list: Mutex::new(List {
                waiting: Vec::new(),
                sleeping: false,
                writers: 0,
                closed: false,
            }),
            filled: AtomicBool::new(false),
        }
    }

    /// The list. Nothing in here panics with the lock held, so a poisoned one is whole.
    fn list(&self) -> MutexGuard<'_, List<T>> {
        self.list
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writer: puts one in. True: the reader sleeps, wake it.
    pub(crate) fn put(&self, item: T) -> Result<bool, Refused> {
        let mut list = self.list();
        if list.closed {
            return Err(Refused::Closed);
        }
        if list.waiting.len() == WAITING_MAX {
            return Err(Refused::Full);
        }
        list.waiting.push(item);
        self.filled.store(true, Ordering::Release);
        Ok(std::mem::take(&mut list.sleeping))
    }

    /// Writer: there is one more of us.
    pub(crate) fn join(&self) {
        self.list().writers += 1;
    }

    /// Writer: there is one less. True: the reader sleeps and waits for nobody any more, wake it.
    pub(crate) fn leave(&self) -> bool {
        let mut list = self.list();
        list.writers -= 1;
        if list.writers > 0 {
            return false;
        }
        // The reader looks at the list, and finds nobody.
        self.filled.store(true, Ordering::Release);
        std::mem::take(&mut list.sleeping)
    }

    /// Reader: is there perhaps something?
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Reader: exchanges what waits for an empty list.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        let mut list = self.list();
        list.sleeping = false;
        self.filled.store(false, Ordering::Release);
        std::mem::swap(&mut list.waiting, into);
    }

    /// Reader: can anything still come?
    pub(crate) fn has_writers(&self) -> bool {
        self.list().writers > 0
    }

    /// Reader: I am about to sleep. False: there is something, do not.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut list = self.list();
        list.sleeping = !self.filled.load(Ordering::Relaxed);
        list.sleeping
    }

    /// Reader: I am gone. What waits is dropped by the caller, without the lock.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut list = self.list();
        list.closed = true;
        std::mem::take(&mut list.waiting)
    }
}
