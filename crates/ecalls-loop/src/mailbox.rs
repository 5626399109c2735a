//! Events from other threads: a list behind a lock, whose reader sleeps without missing an event.
//!
//! There is one reader (the loop), and any number of writers. All state is behind the lock: a
//! reader that goes to sleep checks the list and sets its flag in one step, a writer inserts and
//! reads the flag in one step. So no wake-up is lost, and if the reader has not slept since it last
//! took the list, a writer makes no system call.
//!
//! Only `filled` is outside, written under the lock by both sides: the list may contain events. The
//! reader checks it before each event, at the cost of a load; an event that it misses is found
//! before the next one.
//!
//! `tests/mailbox.rs` compiles this file with loom's types and tests every interleaving.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// The most events that may wait.
pub(crate) const WAITING_MAX: usize = 65_536;

/// The reason why an event was not inserted.
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
    /// The reader sleeps, or is about to.
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

    /// The list. No code panics with the lock held, so a poisoned list is valid.
    fn list(&self) -> MutexGuard<'_, List<T>> {
        self.list
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writer: inserts an event. True: the reader sleeps, wake it.
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

    /// Writer: registers one more writer.
    pub(crate) fn join(&self) {
        self.list().writers += 1;
    }

    /// Writer: removes one writer. True: the reader sleeps and no writer is left, wake it.
    pub(crate) fn leave(&self) -> bool {
        let mut list = self.list();
        list.writers -= 1;
        if list.writers > 0 {
            return false;
        }
        // The reader checks the list, and finds no writer.
        self.filled.store(true, Ordering::Release);
        std::mem::take(&mut list.sleeping)
    }

    /// Reader: whether there may be an event.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Reader: exchanges the list for an empty one.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        let mut list = self.list();
        list.sleeping = false;
        self.filled.store(false, Ordering::Release);
        std::mem::swap(&mut list.waiting, into);
    }

    /// Reader: whether further events are possible.
    pub(crate) fn has_writers(&self) -> bool {
        self.list().writers > 0
    }

    /// Reader: announces that it is about to sleep. False: there is an event, do not sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut list = self.list();
        list.sleeping = !self.filled.load(Ordering::Relaxed);
        list.sleeping
    }

    /// Reader: ends. The caller drops the waiting events, without the lock.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut list = self.list();
        list.closed = true;
        std::mem::take(&mut list.waiting)
    }
}
