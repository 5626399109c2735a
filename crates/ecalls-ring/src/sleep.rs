//! The sleeping protocol of a reader: no wake-up is lost, and an awake reader causes none
//! (ECalls-01 §2.3).
//!
//! The word `sleeping` of `up` has two states:
//!
//! | state | set by | when | meaning |
//! |---|---|---|---|
//! | 0 awake | producer | it inserted an event and exchanged 1 for 0 | it alone wakes the reader |
//! | 0 awake | reader | it checked again and found events, or its wait timed out | no wake |
//! | 1 sleeps | reader | before it checks again and waits on the descriptor | wake me |
//! | 1 sleeps | kernel | its wake-up failed: a processor was stopped with a lock | wake me |
//!
//! The reader stores 1 and then checks for events; the producer completes an event and then checks
//! for 1. Between the store and the check both have a full barrier, so at least one of them sees
//! the other: the reader stays awake, or the producer wakes it. If both see each other the reader
//! stays awake and the descriptor has one unneeded wake-up, which [`Sleep::cancel_sleep`] reports.
//! Several producers that see 1 exchange it; one of them gets the 1, and it alone wakes the reader.

use crate::sync::{Ordering, fence};
use crate::words::{SLEEPING, Words};

/// The sleeping flag of one channel, for its reader and its producers.
#[derive(Clone, Copy, Debug)]
pub struct Sleep<W> {
    words: W,
}

impl<W: Words> Sleep<W> {
    /// The flag in the header of `up`. For a slice without a header the flag is always 0.
    pub fn new(words: W) -> Sleep<W> {
        Sleep { words }
    }

    /// Reader: announces that it will sleep. It must then check for events once more, and either
    /// wait on the descriptor or call [`Sleep::cancel_sleep`].
    pub fn prepare_sleep(&self) {
        if let Some(sleeping) = self.words.words().get(SLEEPING) {
            sleeping.store(1, Ordering::SeqCst);
        }
        // The store precedes the loads that check for events.
        fence(Ordering::SeqCst);
    }

    /// Reader: stays awake after all, or its wait ended without a wake-up. True if a producer was
    /// faster: its wake-up is in the descriptor, or will be at any moment.
    pub fn cancel_sleep(&self) -> bool {
        let sleeping = self.words.words().get(SLEEPING);
        sleeping.is_some_and(|sleeping| sleeping.swap(0, Ordering::SeqCst) == 0)
    }

    /// Reader: announces sleep and checks once more with `is_ready`. True: wait on the descriptor
    /// now. False: there is an event, and the announcement is cancelled.
    pub fn may_sleep(&self, is_ready: impl FnOnce() -> bool) -> bool {
        self.prepare_sleep();
        if is_ready() {
            self.cancel_sleep();
            return false;
        }
        true
    }

    /// Producer, after it has completed an event: true if it must wake the reader. Only one
    /// producer per announcement gets true.
    pub fn should_wake(&self) -> bool {
        // The event precedes the load that checks for a sleeper.
        fence(Ordering::SeqCst);
        let sleeping = self.words.words().get(SLEEPING);
        sleeping.is_some_and(|sleeping| {
            sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::words::zeroed;

    #[test]
    fn one_producer_wakes_a_sleeper_and_only_once() {
        let words = zeroed(32);
        let sleep = Sleep::new(&words);
        assert!(!sleep.should_wake());
        assert!(sleep.may_sleep(|| false));
        assert!(sleep.should_wake());
        assert!(!sleep.should_wake());
    }

    #[test]
    fn reader_that_finds_something_stays_awake_and_pays_nothing() {
        let words = zeroed(32);
        let sleep = Sleep::new(&words);
        assert!(!sleep.may_sleep(|| true));
        assert!(!sleep.should_wake());
    }

    #[test]
    fn reader_learns_that_a_wake_up_is_on_its_way() {
        let words = zeroed(32);
        let sleep = Sleep::new(&words);
        sleep.prepare_sleep();
        assert!(!sleep.cancel_sleep());
        sleep.prepare_sleep();
        assert!(sleep.should_wake());
        assert!(sleep.cancel_sleep());
    }

    #[test]
    fn memory_without_a_header_has_no_sleeper() {
        let sleep = Sleep::new(zeroed(3));
        sleep.prepare_sleep();
        assert!(!sleep.should_wake() && !sleep.cancel_sleep());
    }
}
