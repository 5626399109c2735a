//! Only the poll (Coop §3.1: `coop_poll`), for event loops of other libraries.
//!
//! Such a loop calls [`CoopPoll::poll`] between its events. If it sleeps in a call of its own, it
//! calls [`CoopPoll::before_sleep`] before and [`CoopPoll::after_sleep`] after that instead.

use std::fmt;

use ecalls::downcall::Caller;
use ecalls_ring::Words;
use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::clock::{Clock, Monotonic};
use crate::coop::{Cooperative, Slot};
use crate::descriptors::timespec;
use crate::error::{Error, Result};
use crate::poll::{Answer, NONE, Timing, Wants, report_plain};

/// The cooperative poll, whatever holds its slot.
trait Cooperates {
    fn sleep(&mut self, release_ns: u64, importance: u64);
    fn wake(&mut self, now_ns: u64) -> Answer;
    fn give_way(&mut self, now_ns: u64, release_ns: u64, importance: u64) -> Answer;
    fn timing(&self) -> Timing;
}

impl<W: Words> Cooperates for Cooperative<W> {
    fn sleep(&mut self, release_ns: u64, importance: u64) {
        Cooperative::sleep(self, release_ns, importance);
    }

    fn wake(&mut self, now_ns: u64) -> Answer {
        Cooperative::wake(self, now_ns)
    }

    fn give_way(&mut self, now_ns: u64, release_ns: u64, importance: u64) -> Answer {
        Cooperative::give_way(self, now_ns, release_ns, importance)
    }

    fn timing(&self) -> Timing {
        crate::poll::Poll::timing(self)
    }
}

/// One thread's polls.
pub struct CoopPoll {
    /// `None`: the thread is not scheduled cooperatively.
    scheduler: Option<Box<dyn Cooperates>>,
}

impl CoopPoll {
    /// Polls of a thread without a cooperative scheduler: they sleep precisely, and return at once
    /// if there is work. Sets the thread's timer slack to the minimum.
    pub fn plain() -> CoopPoll {
        no_slack();
        report_plain();
        CoopPoll { scheduler: None }
    }

    /// Polls by slot `slot` (0 to 15) of a channel of the program, in `group` (0: none).
    ///
    /// # Errors
    /// [`Error::Slot`].
    pub fn by_slot(caller: &Caller, slot: usize, group: u32) -> Result<CoopPoll> {
        Ok(CoopPoll::cooperative(Slot::of(caller, slot, group)?))
    }

    /// Polls by a slot that the scheduler has bound to the calling thread.
    pub fn cooperative<W: Words + 'static>(slot: Slot<W>) -> CoopPoll {
        no_slack();
        CoopPoll {
            scheduler: Some(Box::new(Cooperative::new(slot))),
        }
    }

    /// One poll: `release_ns` is the release time of the caller's first timer, `importance` the
    /// least user virtual time of its best-effort work, each [`NONE`] if there is none. With work,
    /// or with a timer that is due, the thread yields; otherwise it sleeps until `release_ns` or a
    /// signal.
    ///
    /// # Errors
    /// [`Error::Os`] if there is neither: the caller would sleep forever.
    pub fn poll(&mut self, release_ns: u64, importance: u64) -> Result<Answer> {
        let wants = Wants {
            now_ns: Monotonic.now_ns(),
            release_ns,
            importance,
            may_sleep: true,
        };
        if wants.has_work() {
            let scheduler = self.scheduler.as_mut();
            return Ok(scheduler.map_or(Answer::ALONE, |scheduler| {
                scheduler.give_way(wants.now_ns, release_ns, importance)
            }));
        }
        if release_ns == NONE {
            return Err(Error::os("sleeping without end")(rustix::io::Errno::DEADLK));
        }
        self.before_sleep(release_ns, importance);
        // A signal ends the sleep: the caller reads its clock anyway.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(release_ns));
        Ok(self.after_sleep())
    }

    /// The caller is about to sleep in a call of its own, at most until `release_ns`.
    pub fn before_sleep(&mut self, release_ns: u64, importance: u64) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.sleep(release_ns, importance);
        }
    }

    /// The caller has slept.
    pub fn after_sleep(&mut self) -> Answer {
        let scheduler = self.scheduler.as_mut();
        scheduler.map_or(Answer::ALONE, |scheduler| {
            scheduler.wake(Monotonic.now_ns())
        })
    }

    /// What determines the times at which this thread's timers run, as of the last poll.
    pub fn timing(&self) -> Timing {
        let scheduler = self.scheduler.as_ref();
        scheduler.map_or(Timing::Plain, |scheduler| scheduler.timing())
    }
}

impl fmt::Debug for CoopPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoopPoll")
            .field("timing", &self.timing())
            .finish_non_exhaustive()
    }
}

/// The kernel adds up to 50 us to a thread's timeouts unless this is disabled. A filter may forbid
/// the call: then the thread's timeouts are as late as those of others.
pub(crate) fn no_slack() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
