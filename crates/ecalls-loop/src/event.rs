//! An event: when it runs, its name, and what its callback gets (Coop Figure 2).

use std::ops::Deref;

use crate::event_loop::Loop;

/// The type of an event, and the time that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At its release time or as soon as possible after it, before all best-effort events. Of those
    /// that are due the earliest release runs first.
    Timer {
        /// A time of CLOCK_MONOTONIC, ns. In the past: at once.
        release_ns: u64,
    },
    /// When no timer is due, least user virtual time first.
    BestEffort {
        /// The program's measure of what it has had: the less, the more important. Threads of one
        /// group share the measure.
        user_virtual_time: u64,
    },
}

/// A timer.
pub const fn timer(release_ns: u64) -> When {
    When::Timer { release_ns }
}

/// A best-effort event.
pub const fn best_effort(user_virtual_time: u64) -> When {
    When::BestEffort { user_virtual_time }
}

impl When {
    /// What events of its type are ordered by.
    pub(crate) const fn key(self) -> u64 {
        match self {
            When::Timer { release_ns } => release_ns,
            When::BestEffort { user_virtual_time } => user_virtual_time,
        }
    }
}

/// The name of a submitted event, by which it is cancelled or moved. It never means another event,
/// also when its own has run, and none of another loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub(crate) owner: u32,
    pub(crate) id: u64,
}

impl Event {
    /// The name as a number: unique in its loop.
    pub const fn raw(self) -> u64 {
        self.id
    }
}

/// What a callback gets: its loop, and what it should know about itself.
#[derive(Debug)]
pub struct Turn<'a> {
    pub(crate) events: &'a Loop,
    pub(crate) event: Event,
    pub(crate) when: When,
    pub(crate) start_ns: u64,
}

impl Turn<'_> {
    /// The event that runs.
    pub fn event(&self) -> Event {
        self.event
    }

    /// As it was submitted.
    pub fn when(&self) -> When {
        self.when
    }

    /// When the callback was called: now, without looking at the clock again.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// How late a timer is: the call's time minus its release time. 0 for a best-effort event.
    pub fn tardiness_ns(&self) -> u64 {
        match self.when {
            When::Timer { release_ns } => self.start_ns.saturating_sub(release_ns),
            When::BestEffort { .. } => 0,
        }
    }

    /// Submits this event once more, when the callback has returned: the same callback, nothing is
    /// allocated. Of several times in one callback the last counts; [`Loop::cancel`] withdraws it.
    /// For a source it means nothing: that comes again while it is ready.
    pub fn again(&self, when: When) {
        self.events.resubmit(self.event, when);
    }
}

impl Deref for Turn<'_> {
    type Target = Loop;

    fn deref(&self) -> &Loop {
        self.events
    }
}
