//! The poll of a thread that the scheduler knows: a slot of `abi/coop.h` (Coop §3.1).
//!
//! A poll writes line 0, yields or sleeps, and reads line 1:
//!
//! | the thread | it | line 1 is written |
//! |---|---|---|
//! | has work: a timer is due, or best-effort events | yields | before it runs again |
//! | has none | sleeps until its release, or until a descriptor is ready | before it runs again |
//!
//! A sleep may end before it began (a descriptor was ready): then no scheduler noticed it, and the
//! poll yields once to be noticed. If it is not answered even then, no scheduler reads the slot.
//! The loop continues as with [`crate::plain`], and asks again every [`ASK_AGAIN_NS`], because a
//! yield costs the rest of the time slice where no scheduler answers. Sleeps ask in any case.
//!
//! The slot is memory of the program, but the scheduler writes it: nothing here relies on a time in
//! the future or on a meaningful importance. A wrong line 1 can at worst make this thread poll too
//! often or too rarely.

use std::fmt::Debug;

use ecalls::coop::SlotMemory;
use ecalls::downcall::Caller;
use ecalls_abi::coop::{
    COOP_BYTES, COOP_COOPERATIVE, COOP_DEMOTED, COOP_POLLING, COOP_UNBOUND, Coop,
};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use ecalls_ring::{AtomicU64, Words};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use crate::descriptors::Descriptors;
use crate::error::{Error, Result};
use crate::poll::{Answer, Poll, Timing, Wants, report_plain};

/// The time that a busy thread without an answer waits before it yields again to be noticed.
pub const ASK_AGAIN_NS: u64 = 100_000_000;

/// Words of a slot, and of its second line.
const WORDS: usize = COOP_BYTES / 8;
const RELEASE: usize = offset_of!(Coop, release_ns) / 8;
const IMPORTANCE: usize = offset_of!(Coop, importance) / 8;
const POLLS: usize = offset_of!(Coop, polls) / 8;
/// The flags and the padding beside them.
const FLAGS: usize = offset_of!(Coop, flags) / 8;
const LINE_1: usize = offset_of!(Coop, next_release_ns) / 8;

/// Yields the CPU: the system call by which the scheduler notices a busy thread.
pub trait Yield {
    /// Returns when this thread runs again.
    fn yield_now(&mut self);
}

/// `sched_yield`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SchedYield;

impl Yield for SchedYield {
    fn yield_now(&mut self) {
        rustix::thread::sched_yield();
    }
}

/// The scheduler's view of the thread, and its counters (Coop §3.2, policing).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The thread is cooperative. False: it is demoted until its next poll, or unknown.
    pub cooperative: bool,
    /// A thread is bound to the slot.
    pub bound: bool,
    /// The time at which it last received the CPU.
    pub dispatch_ns: u64,
    /// Demotions because it ran past its slice and the slack.
    pub overran: u64,
    /// Demotions because it slept other than in a poll.
    pub slept: u64,
    /// Demotions because its virtual time was too far beyond the least.
    pub ahead: u64,
}

/// A slot in use by its thread, which writes line 0 and reads line 1.
#[derive(Debug)]
pub struct Slot<W> {
    memory: W,
    polls: u64,
}

impl Slot<SlotMemory> {
    /// Slot `number` (0 to 15) of a channel of the program, which becomes the calling thread's, in
    /// `group` (0: none).
    ///
    /// # Errors
    /// [`Error::Slot`].
    pub fn of(caller: &Caller, number: usize, group: u32) -> Result<Slot<SlotMemory>> {
        Slot::new(caller.coop_slot(number, group).map_err(Error::Slot)?)
    }
}

impl<W: Words> Slot<W> {
    /// The slot in the first words of `memory`, for the calling thread.
    ///
    /// # Errors
    /// [`Error::NoSlot`] if there are too few.
    pub fn new(memory: W) -> Result<Slot<W>> {
        let words = memory.words().get(..WORDS).ok_or(Error::NoSlot)?;
        let polls = words[POLLS].load(Ordering::Relaxed);
        Ok(Slot { memory, polls })
    }

    /// Begins a poll: writes line 0. Then yield, or sleep until `release_ns`.
    pub fn begin(&mut self, release_ns: u64, importance: u64) {
        self.polls = self.polls.wrapping_add(1);
        self.write(RELEASE, release_ns);
        self.write(IMPORTANCE, importance);
        self.write(FLAGS, flag_word(COOP_POLLING));
        // Stored last: an answer to this number implies that the scheduler read the rest.
        self.write(POLLS, self.polls);
    }

    /// The scheduler's answer to the last poll. `None`: there is none.
    pub fn answer(&self) -> Option<Answer> {
        let line = self.line_1();
        (line.answered == self.polls as u32).then_some(Answer {
            slice_end_ns: line.slice_end_ns,
            next_release_ns: line.next_release_ns,
            least_importance: line.least_importance,
        })
    }

    /// The current answer, if the thread may have been stopped since the first answer, which it
    /// read when it received the CPU at `dispatch_ns`. Then it has another slice; or none if it was
    /// demoted meanwhile, because it becomes cooperative again when it polls.
    fn answer_now(&self, dispatch_ns: u64) -> Option<Answer> {
        let line = self.line_1();
        let mut answer = self.answer()?;
        if line.state == COOP_DEMOTED && line.dispatch_ns != dispatch_ns {
            answer.slice_end_ns = 0;
        }
        Some(answer)
    }

    /// Ends a poll: a later sleep does not belong to it.
    pub fn end(&mut self) {
        self.write(FLAGS, flag_word(0));
    }

    /// The scheduler's view of the thread.
    pub fn standing(&self) -> Standing {
        let line = self.line_1();
        Standing {
            cooperative: line.state == COOP_COOPERATIVE,
            bound: line.state != COOP_UNBOUND && line.state <= COOP_DEMOTED,
            dispatch_ns: line.dispatch_ns,
            overran: line.overran,
            slept: line.slept,
            ahead: line.ahead,
        }
    }

    fn write(&self, word: usize, value: u64) {
        if let Some(place) = self.words().get(word) {
            // Release: the scheduler that sees a word sees those written before it. It costs
            // nothing on the processors that order stores by themselves.
            place.store(value, Ordering::Release);
        }
    }

    /// A copy of line 1; line 0 of it is empty. It is written while this thread does not run, but
    /// for the counts and the state, so the words fit together.
    fn line_1(&self) -> Coop {
        let mut copy = [0_u64; WORDS];
        let words = self.words().iter().zip(&mut copy).skip(LINE_1);
        for (word, place) in words {
            *place = word.load(Ordering::Acquire);
        }
        Coop::read_from_bytes(copy.as_bytes()).unwrap_or_default()
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

/// The word of `flags` and the padding beside it.
fn flag_word(flags: u32) -> u64 {
    let [a, b, c, d] = flags.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

/// The cooperative poll.
#[derive(Debug)]
pub struct Cooperative<W, Y = SchedYield> {
    slot: Slot<W>,
    cpu: Y,
    /// The last poll was answered.
    answered: bool,
    /// If not: the time at which it yields again to be noticed.
    ask_ns: u64,
    /// If so: the time at which the thread received the CPU with the answer.
    dispatch_ns: u64,
    /// The caller sleeps, or slept, in a call of its own.
    resting: bool,
}

impl<W: Words> Cooperative<W> {
    /// Polls by `slot`, which the scheduler has bound to the calling thread.
    pub fn new(slot: Slot<W>) -> Cooperative<W> {
        Cooperative::with_yield(slot, SchedYield)
    }
}

impl<W: Words, Y: Yield> Cooperative<W, Y> {
    /// The same with another way to yield: for a scheduler that is only simulated.
    pub fn with_yield(slot: Slot<W>, cpu: Y) -> Cooperative<W, Y> {
        Cooperative {
            slot,
            cpu,
            answered: false,
            ask_ns: 0,
            dispatch_ns: 0,
            resting: false,
        }
    }

    /// The scheduler's view of the thread.
    pub fn standing(&self) -> Standing {
        self.slot.standing()
    }

    /// Begins a poll before a sleep. [`Cooperative::wake`] ends it.
    pub fn sleep(&mut self, release_ns: u64, importance: u64) {
        self.slot.begin(release_ns, importance);
        self.resting = true;
    }

    /// Ends the poll of a sleep, and returns the answer.
    pub fn wake(&mut self, now_ns: u64) -> Answer {
        self.resting = false;
        let answer = self.slot.answer();
        self.seen(answer, now_ns)
    }

    /// A poll of a thread that has work.
    pub fn give_way(&mut self, now_ns: u64, release_ns: u64, importance: u64) -> Answer {
        self.resting = false;
        self.slot.begin(release_ns, importance);
        self.seen(None, now_ns)
    }

    /// Obtains an answer, if a scheduler runs, and ends the poll.
    fn seen(&mut self, mut answer: Option<Answer>, now_ns: u64) -> Answer {
        if answer.is_none() && (self.answered || now_ns >= self.ask_ns) {
            self.cpu.yield_now();
            answer = self.slot.answer();
            self.ask_ns = now_ns.saturating_add(ASK_AGAIN_NS);
            if answer.is_none() {
                report_plain();
            }
        }
        self.slot.end();
        self.answered = answer.is_some();
        self.dispatch_ns = self.slot.line_1().dispatch_ns;
        answer.unwrap_or(Answer::ALONE)
    }
}

impl<W: Words, Y: Yield> Poll for Cooperative<W, Y> {
    fn poll(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<Answer> {
        if !wants.has_work() && wants.may_sleep {
            self.sleep(wants.release_ns, wants.importance);
            let slept = descriptors.sleep_until(wants.release_ns);
            let answer = self.wake(wants.now_ns);
            return slept.map(|()| answer);
        }
        let answer = if wants.has_work() || !self.resting {
            self.give_way(wants.now_ns, wants.release_ns, wants.importance)
        } else {
            self.wake(wants.now_ns)
        };
        if descriptors.is_watching() || !wants.may_sleep {
            descriptors.look()?;
        }
        Ok(answer)
    }

    fn renewed(&self, answer: Answer) -> Answer {
        match self.answered {
            true => self.slot.answer_now(self.dispatch_ns).unwrap_or(answer),
            false => answer,
        }
    }

    fn rest(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<()> {
        descriptors.set_timer(wants.release_ns)?;
        self.sleep(wants.release_ns, wants.importance);
        Ok(())
    }

    fn timing(&self) -> Timing {
        match self.answered {
            true => Timing::Cooperative,
            false => Timing::Plain,
        }
    }
}
