//! The request to a thread to end, which it obeys where it wants to: deferred cancellation.
//!
//! One word, whose bits are:
//!
//! | bit | who sets it, when |
//! |---|---|
//! | `REQUESTED` | anybody, at any time; it stays |
//! | `DEFERRED` | the thread, while it does not want to obey |
//! | `ENDS` | the thread, once it obeys, or its end has begun for another reason; it stays |
//!
//! Whoever requests then interrupts the thread ([`Current::interrupt`](crate::Current::interrupt)),
//! which ends a wait in which it is. The thread looks with [`Request::is_due_at_wait`] before each
//! wait and after it. No request is missed: of the word and the thread's wait (its epoch) each side
//! writes one and then, behind a fence, reads the other. So either the thread sees the request
//! before it waits, or who requests sees the wait that is about to begin (tests/model.rs).

use crate::sync::{AtomicU32, Ordering, fence};

const REQUESTED: u32 = 1;
const DEFERRED: u32 = 2;
const ENDS: u32 = 4;

/// See above.
#[derive(Debug, Default)]
pub struct Request(AtomicU32);

impl Request {
    /// Nothing is requested.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Requests; true: the thread must be interrupted, too.
    #[must_use = "a thread that waits must be interrupted"]
    pub fn request(&self) -> bool {
        let before = self.0.fetch_or(REQUESTED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        before & (DEFERRED | ENDS) == 0
    }

    /// Whether the thread should end now. Called by the thread.
    #[inline]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::Relaxed) == REQUESTED
    }

    /// The same before a wait: behind a fence, which [`is_due`](Self::is_due) has not.
    #[must_use]
    pub fn is_due_at_wait(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_due()
    }

    /// Whether the thread does not want to obey, from now on; returns what held before. Called by
    /// the thread.
    pub fn set_deferred(&self, is_deferred: bool) -> bool {
        let before = if is_deferred {
            self.0.fetch_or(DEFERRED, Ordering::SeqCst)
        } else {
            self.0.fetch_and(!DEFERRED, Ordering::SeqCst)
        };
        before & DEFERRED != 0
    }

    /// The thread ends: nothing is due any more. Called by the thread.
    pub fn set_ends(&self) {
        self.0.fetch_or(ENDS, Ordering::SeqCst);
    }
}
