//! An event: when it runs, its name, and the argument of its callback (Coop Figure 2).

use std::ops::Deref;

use crate::event_loop::Loop;

/// The type of an event, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It runs at its release time or as soon as possible after it, before all best-effort events.
    /// Of the due timers, the one with the earliest release runs first.
    Timer {
        /// A time of CLOCK_MONOTONIC, ns. A time in the past is due at once.
        release_ns: u64,
    },
    /// It runs when no timer is due; the least user virtual time is first.
    BestEffort {
        /// The program's measure of the progress of this work: the less, the more important.
        /// Threads of one group share the measure.
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
    /// The key by which events of this type are ordered.
    pub(crate) const fn key(self) -> u64 {
        match self {
            When::Timer { release_ns } => release_ns,
            When::BestEffort { user_virtual_time } => user_virtual_time,
        }
    }
}

/// The name of a submitted event, by which it is cancelled or moved. It is never reused for another
/// event, even after its own has run, nor does it refer to an event of another loop.
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

/// The argument of a callback: its loop, and the properties of its event.
#[derive(Debug)]
pub struct Turn<'a> {
    pub(crate) events: &'a Loop,
    pub(crate) event: Event,
    pub(crate) when: When,
    pub(crate) start_ns: u64,
}

impl Turn<'_> {
    /// The running event.
    pub fn event(&self) -> Event {
        self.event
    }

    /// Its type and time when it was submitted.
    pub fn when(&self) -> When {
        self.when
    }

    /// The time at which the callback was called, without reading the clock again.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// The lateness of a timer: the time of the call minus its release time. 0 for a best-effort
    /// event.
    pub fn tardiness_ns(&self) -> u64 {
        match self.when {
            When::Timer { release_ns } => self.start_ns.saturating_sub(release_ns),
            When::BestEffort { .. } => 0,
        }
    }

    /// Submits this event again after the callback has returned: the same callback, without an
    /// allocation. If a callback calls this several times, the last call counts; [`Loop::cancel`]
    /// withdraws it. It has no effect for a source, which becomes an event again while it is ready.
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
