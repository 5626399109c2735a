//! How a thread waits and is woken: one word, by itself so that a model can explore it.
//!
//! The word has an epoch, and one of three states.
//!
//! | state | who sets it, when |
//! |---|---|
//! | `RUNS` | the thread itself, when it continues after a wait: with the next epoch |
//! | `WAITS` | the scheduler, once the thread has left its stack (`settle`) |
//! | `WOKEN` | the one waker whose `notify` succeeds in this epoch |
//!
//! A waker that comes before the thread has left its stack changes `RUNS` to `WOKEN`, and the
//! scheduler, which then cannot settle, makes the thread ready itself. So the lists of waiters need
//! no lock across the switch, and of several wakers in one epoch (a signal and a timeout) one
//! succeeds.

use crate::sync::{AtomicU64, Ordering};

const RUNS: u64 = 0;
const WAITS: u64 = 1;
const WOKEN: u64 = 2;
const STATE: u64 = 3;
const EPOCH: u64 = 4;

/// What a waker has achieved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Notified {
    /// Another waker was first.
    Late,
    /// The thread was about to wait: the scheduler will see it.
    Early,
    /// The caller must make the thread ready.
    Waiting,
}

/// See above.
#[derive(Debug)]
pub(crate) struct WaitWord(AtomicU64);

impl WaitWord {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(RUNS))
    }

    /// The epoch of the thread's next wait. Called by the thread.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !STATE
    }

    /// The thread has left its stack; false: it was woken meanwhile. Called by its scheduler.
    pub(crate) fn settle(&self) -> bool {
        let epoch = self.epoch();
        let (old, new) = (epoch | RUNS, epoch | WAITS);
        self.0
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The thread continues. Called by the thread.
    pub(crate) fn resume(&self) {
        self.0.store(self.epoch() + EPOCH, Ordering::Release);
    }

    pub(crate) fn notify(&self, epoch: u64) -> Notified {
        let woken = epoch | WOKEN;
        for (state, achieved) in [(RUNS, Notified::Early), (WAITS, Notified::Waiting)] {
            // A thread that settles between the two is seen by the second.
            if self
                .0
                .compare_exchange(epoch | state, woken, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return achieved;
            }
        }
        Notified::Late
    }
}
