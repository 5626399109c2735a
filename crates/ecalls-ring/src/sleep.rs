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
//!
//! A reader may let events gather ([`Sleep::may_sleep_until`]): before `sleeping` it stores from
//! which number of stored events on it is to be woken, and until when it sleeps at most. A producer
//! that sees 1 leaves it, unless its event is that one or a later one, or has a deadline before the
//! end of the sleep. The producers count their events before they check for 1, so the one whose
//! event makes the number complete sees so, if it sees 1 at all.

use crate::sync::{Ordering, fence};
use crate::words::{FLAG, SLEEPING, WAKE_AT, WAKE_BY, Words};

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
        self.announce(0, 0);
    }

    fn announce(&self, at: u64, by_ns: u64) {
        for (word, value) in [(WAKE_AT, at), (WAKE_BY, by_ns)] {
            if let Some(bound) = self.words.words().get(word) {
                bound.store(value, Ordering::Relaxed);
            }
        }
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

    /// Reader: the same as [`Sleep::may_sleep`], but it is to be woken only when so many events
    /// have been stored since the channel exists, or by one with a deadline before `by_ns`; until
    /// then it waits at most.
    pub fn may_sleep_until(&self, at: u64, by_ns: u64, is_ready: impl FnOnce() -> bool) -> bool {
        self.announce(at, by_ns);
        self.is_asleep(is_ready)
    }

    /// Reader: announces sleep and checks once more with `is_ready`. True: wait on the descriptor
    /// now. False: there is an event, and the announcement is cancelled.
    pub fn may_sleep(&self, is_ready: impl FnOnce() -> bool) -> bool {
        self.prepare_sleep();
        self.is_asleep(is_ready)
    }

    fn is_asleep(&self, is_ready: impl FnOnce() -> bool) -> bool {
        if is_ready() {
            self.cancel_sleep();
            return false;
        }
        true
    }

    /// Producer, after it has completed an event: true if it must wake the reader. Only one
    /// producer per announcement gets true.
    pub fn should_wake(&self) -> bool {
        self.should_wake_for(0)
    }

    /// The same for an event with a deadline; 0: it has none.
    pub fn should_wake_for(&self, deadline_ns: u64) -> bool {
        // The event precedes the load that checks for a sleeper.
        fence(Ordering::SeqCst);
        let sleeping = self.words.words().get(SLEEPING);
        sleeping.is_some_and(|sleeping| {
            sleeping.load(Ordering::Acquire) != 0
                && self.is_due(deadline_ns)
                && sleeping.swap(0, Ordering::SeqCst) != 0
        })
    }

    fn is_due(&self, deadline_ns: u64) -> bool {
        let words = self.words.words();
        let word = |word: usize| {
            let word = words.get(word);
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        let at = word(WAKE_AT);
        at == 0 || word(FLAG) >= at || (deadline_ns != 0 && deadline_ns < word(WAKE_BY))
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
    fn reader_that_lets_events_gather_is_woken_by_the_last_or_by_an_urgent_one() {
        let words = zeroed(32);
        let sleep = Sleep::new(&words);
        assert!(sleep.may_sleep_until(2, 100, || false));
        words[FLAG].store(1, Ordering::Relaxed);
        assert!(!sleep.should_wake() && !sleep.should_wake_for(100));
        assert!(sleep.should_wake_for(99));
        assert!(sleep.may_sleep_until(2, 100, || false));
        words[FLAG].store(2, Ordering::Relaxed);
        assert!(sleep.should_wake());
        words[FLAG].store(0, Ordering::Relaxed);
        // The next sleep has no bounds.
        assert!(sleep.may_sleep(|| false));
        assert!(sleep.should_wake());
    }

    #[test]
    fn memory_without_a_header_has_no_sleeper() {
        let sleep = Sleep::new(zeroed(3));
        sleep.prepare_sleep();
        assert!(!sleep.should_wake() && !sleep.cancel_sleep());
    }
}
