//! The events of a loop: a table, and two heaps of its indices (Coop §2.1).
//!
//! An event is queued in one heap, or running, or its entry is free:
//!
//! | state | from | to |
//! |---|---|---|
//! | free | | queued: `insert` |
//! | queued | `insert`, `finish` | running: `pop_due`, `pop_best_effort`; free: `remove` |
//! | running | `pop_*` | free: `finish`; queued: `finish`, if `resubmit` came meanwhile |
//!
//! While an event runs, its payload is with the caller. A name (`id`) consists of the index and the
//! number of its submission: it is never reused for another event, so cancelling an event that has
//! run already, or twice, has no effect.

use crate::error::{Error, Result};
use crate::event::When;
use crate::heap::{Entry, Heap};

/// Bits of a name that contain the index.
const PLACE_BITS: u32 = 20;
/// The most events, queued or running.
pub(crate) const EVENTS_MAX: usize = 1 << PLACE_BITS;

/// The state of an event.
#[derive(Debug)]
enum State<T> {
    Free,
    Queued { when: When, payload: T },
    Running { again: Option<When> },
}

#[derive(Debug)]
struct Place<T> {
    /// The name of the present or last event in this entry.
    id: u64,
    state: State<T>,
}

/// An event that runs now.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) id: u64,
    pub(crate) when: When,
    pub(crate) payload: T,
}

/// The result of a withdrawal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn<T> {
    /// A queued event.
    Event(T),
    /// The repetition of a running event.
    Repetition,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    table: Vec<Place<T>>,
    free: Vec<u32>,
    /// The position in its heap of a queued event.
    places: Vec<u32>,
    timers: Heap,
    best_effort: Heap,
    /// Number of submissions.
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue {
            table: Vec::new(),
            free: Vec::new(),
            places: Vec::new(),
            timers: Heap::default(),
            best_effort: Heap::default(),
            sequence: 0,
        }
    }

    /// Number of events, queued or running.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// The release time of the first timer.
    pub(crate) fn release_ns(&self) -> Option<u64> {
        self.timers.first().map(|entry| entry.key)
    }

    /// The least user virtual time.
    pub(crate) fn importance(&self) -> Option<u64> {
        self.best_effort.first().map(|entry| entry.key)
    }

    pub(crate) fn insert(&mut self, when: When, payload: T) -> Result<u64> {
        let at = self.place()?;
        let id = (self.sequence << PLACE_BITS) | u64::from(at);
        self.table[at as usize].id = id;
        self.queue(at, when, payload);
        Ok(id)
    }

    /// Withdraws an event; `None` if there is nothing to withdraw. The payload of a queued event is
    /// returned to the caller, which drops it when this queue is not borrowed: dropping may run any
    /// code.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Withdrawn<T>> {
        let at = self.find(id)?;
        match std::mem::replace(&mut self.table[at as usize].state, State::Free) {
            State::Free => None,
            State::Running { again } => {
                self.table[at as usize].state = State::Running { again: None };
                again.map(|_| Withdrawn::Repetition)
            }
            State::Queued { when, payload } => {
                self.unqueue(at, when);
                self.free.push(at);
                Some(Withdrawn::Event(payload))
            }
        }
    }

    /// Gives an event another time. A running one is queued when it is done. False: the event is
    /// gone.
    pub(crate) fn resubmit(&mut self, id: u64, when: When) -> bool {
        let Some(at) = self.find(id) else {
            return false;
        };
        match std::mem::replace(&mut self.table[at as usize].state, State::Free) {
            State::Free => false,
            State::Running { .. } => {
                self.table[at as usize].state = State::Running { again: Some(when) };
                true
            }
            State::Queued { when: old, payload } => {
                self.unqueue(at, old);
                self.queue(at, when, payload);
                true
            }
        }
    }

    /// The first timer, if its release time has come. Its state becomes running.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Taken<T>> {
        let first = self.timers.first().filter(|first| first.key <= now_ns)?;
        self.timers.remove(0, &mut self.places);
        self.start(first.slot)
    }

    /// The best-effort event with the least user virtual time. Its state becomes running.
    pub(crate) fn pop_best_effort(&mut self) -> Option<Taken<T>> {
        let first = self.best_effort.first()?;
        self.best_effort.remove(0, &mut self.places);
        self.start(first.slot)
    }

    /// Ends the running of an event: queues it again, or frees its entry and returns the payload.
    pub(crate) fn finish(&mut self, id: u64, payload: T) -> Option<T> {
        let at = self.find(id)?;
        match &self.table[at as usize].state {
            State::Running { again: Some(when) } => {
                let when = *when;
                self.queue(at, when, payload);
                None
            }
            State::Running { again: None } => {
                self.table[at as usize].state = State::Free;
                self.free.push(at);
                Some(payload)
            }
            State::Free | State::Queued { .. } => Some(payload),
        }
    }

    /// Whether the event is running, and will be queued again.
    #[cfg(test)]
    pub(crate) fn is_to_run_again(&self, id: u64) -> bool {
        self.find(id).is_some_and(|at| {
            matches!(
                self.table[at as usize].state,
                State::Running { again: Some(_) }
            )
        })
    }

    /// A free entry.
    fn place(&mut self) -> Result<u32> {
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        let at = self.table.len();
        if at == EVENTS_MAX {
            return Err(Error::LimitReached {
                which: "events in the loop",
                limit: EVENTS_MAX,
            });
        }
        self.table.push(Place {
            id: 0,
            state: State::Free,
        });
        self.places.push(0);
        Ok(at as u32) // below EVENTS_MAX
    }

    fn find(&self, id: u64) -> Option<u32> {
        let at = id & (EVENTS_MAX as u64 - 1);
        let place = self.table.get(at as usize)?;
        (place.id == id).then_some(at as u32)
    }

    fn queue(&mut self, at: u32, when: When, payload: T) {
        self.table[at as usize].state = State::Queued { when, payload };
        let entry = Entry {
            key: when.key(),
            sequence: self.sequence,
            slot: at,
        };
        self.sequence += 1;
        let heap = match when {
            When::Timer { .. } => &mut self.timers,
            When::BestEffort { .. } => &mut self.best_effort,
        };
        heap.push(entry, &mut self.places);
    }

    fn unqueue(&mut self, at: u32, when: When) {
        let place = self.places[at as usize] as usize;
        let heap = match when {
            When::Timer { .. } => &mut self.timers,
            When::BestEffort { .. } => &mut self.best_effort,
        };
        let removed = heap.remove(place, &mut self.places);
        debug_assert_eq!(removed.slot, at);
    }

    fn start(&mut self, at: u32) -> Option<Taken<T>> {
        let place = &mut self.table[at as usize];
        let state = std::mem::replace(&mut place.state, State::Running { again: None });
        match state {
            State::Queued { when, payload } => Some(Taken {
                id: place.id,
                when,
                payload,
            }),
            State::Free | State::Running { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{best_effort, timer};

    #[test]
    fn name_of_an_event_that_ran_means_no_other() {
        let mut queue = Queue::new();
        let first = queue.insert(timer(1), 'a').unwrap();
        let taken = queue.pop_due(1).unwrap();
        assert_eq!(queue.finish(taken.id, taken.payload), Some('a'));
        let second = queue.insert(timer(1), 'b').unwrap();
        assert_ne!(first, second);
        assert_eq!(queue.remove(first), None);
        assert!(!queue.resubmit(first, timer(0)));
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.remove(second), Some(Withdrawn::Event('b')));
        assert_eq!(queue.remove(second), None);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn running_event_is_queued_again_when_it_is_done() {
        let mut queue = Queue::new();
        let id = queue.insert(best_effort(5), ()).unwrap();
        queue.pop_best_effort().unwrap();
        assert!(queue.resubmit(id, timer(9)));
        assert!(queue.is_to_run_again(id));
        assert_eq!(queue.release_ns(), None);
        assert_eq!(queue.finish(id, ()), None);
        assert_eq!(queue.release_ns(), Some(9));
    }

    #[test]
    fn event_that_cancels_itself_does_not_run_again() {
        let mut queue = Queue::new();
        let id = queue.insert(timer(0), ()).unwrap();
        queue.pop_due(0).unwrap();
        assert_eq!(queue.remove(id), None);
        assert!(queue.resubmit(id, timer(1)));
        assert_eq!(queue.remove(id), Some(Withdrawn::Repetition));
        assert_eq!(queue.finish(id, ()), Some(()));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn queue_of_all_the_events_there_may_be_refuses_one_more() {
        let mut queue = Queue::new();
        for key in 0..EVENTS_MAX as u64 {
            queue.insert(best_effort(key), ()).unwrap();
        }
        assert!(queue.insert(timer(0), ()).is_err());
        queue.pop_best_effort().unwrap();
        assert!(queue.insert(timer(0), ()).is_err(), "a running one counts");
    }
}
