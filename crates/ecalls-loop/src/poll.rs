//! The poll of a loop, and its answer (Coop §3.1).
//!
//! Between its events a loop polls: it publishes when its next timer is due and how important its
//! next best-effort event is, yields or sleeps, and learns until when it may run. An implementation
//! of [`Poll`] answers: without a scheduler ([`crate::plain`]), by the scheduler ([`crate::coop`]),
//! or in a test.

use std::fmt;
use std::sync::Once;

use ecalls_abi::coop::COOP_NONE;

use crate::descriptors::Descriptors;
use crate::error::Result;

/// As a time: there is none. As an importance: no best-effort work.
pub const NONE: u64 = COOP_NONE;

/// The arguments of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// The current time.
    pub now_ns: u64,
    /// Release time of its first timer, or [`NONE`].
    pub release_ns: u64,
    /// Least user virtual time of its best-effort events, or [`NONE`].
    pub importance: u64,
    /// Whether the poll sleeps if there is nothing to do. False: the caller sleeps elsewhere.
    pub may_sleep: bool,
}

impl Wants {
    /// Whether there is work now: then a poll may yield, but not sleep.
    pub const fn has_work(&self) -> bool {
        self.importance != NONE || self.release_ns <= self.now_ns
    }
}

/// The answer of a poll. All times may have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When the loop is to poll again. Past: after the timers that are due.
    pub slice_end_ns: u64,
    /// When another thread's timer is due: the loop is to poll by then, too.
    pub next_release_ns: u64,
    /// The least user virtual time of the others of its group: above it, the loop polls.
    pub least_importance: u64,
}

impl Answer {
    /// The answer without other threads.
    pub const ALONE: Answer = Answer {
        slice_end_ns: NONE,
        next_release_ns: NONE,
        least_importance: NONE,
    };

    /// Until when best-effort events may be started.
    pub const fn until_ns(&self) -> u64 {
        if self.slice_end_ns < self.next_release_ns {
            self.slice_end_ns
        } else {
            self.next_release_ns
        }
    }
}

/// What determines the times at which a loop's timers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timing {
    /// A scheduler that knows this thread's release times and answers its polls.
    Cooperative,
    /// The kernel's timers alone: exact on an idle CPU; on a busy one the thread waits for its turn
    /// like any other.
    Plain,
}

impl Timing {
    /// The name that people read.
    pub const fn name(self) -> &'static str {
        match self {
            Timing::Cooperative => "cooperative",
            Timing::Plain => "plain",
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Logs, once per process, that no scheduler answers its polls.
pub(crate) fn report_plain() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        tracing::info!(
            "no cooperative scheduler: event loops use plain timers (`ecalls sched start` starts \
             the scheduler)"
        );
    });
}

/// An implementation of the poll.
pub trait Poll {
    /// Yields if there is work; otherwise sleeps, if it may, until `wants.release_ns` or until a
    /// descriptor is ready, whichever is first. In both cases it checks the descriptors if any are
    /// watched.
    ///
    /// # Errors
    /// Those of the system.
    fn poll(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<Answer>;

    /// The present form of the last poll's answer: the thread may have been stopped since then, and
    /// given another slice when it continued.
    fn renewed(&self, answer: Answer) -> Answer {
        answer
    }

    /// The caller goes to sleep elsewhere, until `wants.release_ns` or until the descriptors are
    /// ready; [`Poll::poll`] ends this.
    ///
    /// # Errors
    /// Those of the system.
    fn rest(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<()>;

    /// What determines the times at which this thread's timers run, as of the last poll.
    fn timing(&self) -> Timing;
}
