//! How a loop waits, and what it learns by that (Coop §3.1).
//!
//! Between its events a loop polls: it says when its next timer is due and how important its next
//! best-effort event is, lets others run or sleeps, and learns until when it may run on. Who
//! answers is behind [`Poll`]: nobody ([`crate::plain`]), the scheduler ([`crate::coop`]), or a
//! test.

use std::fmt;
use std::sync::Once;

use ecalls_abi::coop::COOP_NONE;

use crate::descriptors::Descriptors;
use crate::error::Result;

/// As a time: there is none. As an importance: no best-effort work.
pub const NONE: u64 = COOP_NONE;

/// What a loop says when it polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Now.
    pub now_ns: u64,
    /// Release time of its first timer, or [`NONE`].
    pub release_ns: u64,
    /// Least user virtual time of its best-effort events, or [`NONE`].
    pub importance: u64,
    /// With nothing to do the poll sleeps. False: the caller has another place to sleep.
    pub may_sleep: bool,
}

impl Wants {
    /// Something is to be run now: a poll may let others run, but not sleep.
    pub const fn has_work(&self) -> bool {
        self.importance != NONE || self.release_ns <= self.now_ns
    }
}

/// What a loop learns by a poll. All times may have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it is to poll again. Past: when it has run the timers that are due.
    pub slice_end_ns: u64,
    /// When another thread's timer is due: it is to poll by then, too.
    pub next_release_ns: u64,
    /// The least user virtual time of the others of its group: with more than that, it polls.
    pub least_importance: u64,
}

impl Answer {
    /// Nobody else is known.
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

/// Who says when a loop's timers run.
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

/// A way to wait.
pub trait Poll {
    /// Lets others run, if there is work; otherwise sleeps until `wants.release_ns`, or until a
    /// descriptor is ready, whatever comes first, if it may. In both cases it looks at the
    /// descriptors if any are watched.
    ///
    /// # Errors
    /// What the system refuses.
    fn poll(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<Answer>;

    /// The answer of the last poll as it is now: since then the thread may have been stopped, and
    /// given another slice when it went on.
    fn renewed(&self, answer: Answer) -> Answer {
        answer
    }

    /// The caller goes to sleep elsewhere, until `wants.release_ns` or until the descriptors are
    /// ready; [`Poll::poll`] ends that.
    ///
    /// # Errors
    /// What the system refuses.
    fn rest(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<()>;

    /// Who says when this thread's timers run, as far as the last poll could tell.
    fn timing(&self) -> Timing;
}
