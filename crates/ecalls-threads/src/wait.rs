//! Lists of waiting threads: what the locks, and `join`, are made of.
//!
//! A user-level thread that waits gives up its processor; a kernel thread from outside of the
//! runtime, and a thread that stays in its kernel thread, sleeps on a futex.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec};

use crate::activation::Activation;
use crate::calls;
use crate::spin::Spin;
use crate::sync::{AtomicU32, Ordering};
use crate::thread::{After, Thread};

/// One that waits.
#[derive(Clone, Debug)]
enum Waiter {
    /// A thread, and the epoch of its wait.
    Thread(Arc<Thread>, u64),
    /// A kernel thread: 1 in its word wakes it.
    Outside(Arc<AtomicU32>),
}

impl Waiter {
    /// False: something else has woken it before.
    fn wake(self) -> bool {
        match self {
            Self::Thread(thread, epoch) => calls::wake(&thread, epoch),
            Self::Outside(word) => {
                let first = word.swap(1, Ordering::AcqRel) == 0;
                // Nothing is lost if nobody sleeps yet: the word is looked at first.
                let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
                first
            }
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(a, x), Self::Thread(b, y)) => Arc::ptr_eq(a, b) && x == y,
            (Self::Outside(a), Self::Outside(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// Somebody woke the thread, or the wait was needless.
    Woken,
    /// The time has come.
    TimedOut,
    /// The handler of a signal has run, in a kernel thread that waited for this, too.
    Interrupted,
}

/// The key of a list that only one object uses.
const ONLY: usize = 0;

/// Those that wait, in the order in which they came, each for a key: the objects that share the
/// list are told apart by it.
#[derive(Debug)]
pub(crate) struct Waiters(Spin<VecDeque<(usize, Waiter)>>);

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self(Spin::new(VecDeque::new()))
    }

    /// Waits to be woken, unless `is_needless`, which is called when wakers already see the caller.
    pub(crate) fn wait_unless(&self, is_needless: impl FnOnce() -> bool) {
        self.wait_for(ONLY, None, is_needless);
    }

    /// The same until a time on CLOCK_MONOTONIC, ns; false: the time has come.
    pub(crate) fn wait_until(
        &self,
        until_ns: Option<u64>,
        is_needless: impl FnOnce() -> bool,
    ) -> bool {
        self.wait_for(ONLY, until_ns, is_needless)
    }

    /// The same for a key.
    pub(crate) fn wait_for(
        &self,
        key: usize,
        until_ns: Option<u64>,
        is_needless: impl FnOnce() -> bool,
    ) -> bool {
        self.wait(key, until_ns, false, is_needless) == Waited::Woken
    }

    /// The same; with `for_signals` a signal that a kernel thread handles ends the wait, if the
    /// kernel does not restart calls for it (SA_RESTART).
    pub(crate) fn wait(
        &self,
        key: usize,
        until_ns: Option<u64>,
        for_signals: bool,
        is_needless: impl FnOnce() -> bool,
    ) -> Waited {
        let Some((activation, thread)) = Activation::get().and_then(|a| Some((a, a.movable()?)))
        else {
            return self.wait_outside(key, until_ns, for_signals, is_needless);
        };
        let activation = activation.enter();
        let waiter = Waiter::Thread(Arc::clone(&thread), thread.wait.epoch());
        self.0.lock().push_back((key, waiter.clone()));
        if is_needless() {
            if !self.forget(&waiter) {
                // Woken already: the wake-up was for somebody who waits.
                self.wake(key, 1);
            }
            // The epoch ends, so that a waker that still has it comes too late.
            thread.wait.resume();
            activation.leave();
            return Waited::Woken;
        }
        if let Some(until_ns) = until_ns {
            thread.shared.add_timer(until_ns, &thread);
        }
        // SAFETY: `current` is the thread on whose stack this is.
        unsafe { thread.suspend(After::Wait) };
        thread.wait.resume();
        match until_ns {
            Some(until_ns) => {
                let _scheduler = calls::Entered::new();
                let in_time = thread.shared.timers.remove(until_ns, &thread);
                match !self.forget(&waiter) || in_time {
                    true => Waited::Woken,
                    false => Waited::TimedOut,
                }
            }
            None => {
                if thread.interrupted.swap(false, Ordering::AcqRel) {
                    self.forget(&waiter);
                }
                Waited::Woken
            }
        }
    }

    fn wait_outside(
        &self,
        key: usize,
        until_ns: Option<u64>,
        for_signals: bool,
        is_needless: impl FnOnce() -> bool,
    ) -> Waited {
        let word = Arc::new(AtomicU32::new(0));
        let waiter = Waiter::Outside(Arc::clone(&word));
        self.0.lock().push_back((key, waiter.clone()));
        let needless = is_needless();
        let mut waited = Waited::Woken;
        while !needless && word.load(Ordering::Acquire) == 0 {
            waited = calls::blocking(|| sleep_on(&word, 0, until_ns));
            if waited == Waited::TimedOut || for_signals && waited == Waited::Interrupted {
                break;
            }
        }
        let woken = word.load(Ordering::Acquire) != 0;
        if !self.forget(&waiter) && (needless || !woken) {
            // The wake-up was for somebody who waits.
            self.wake(key, 1);
        }
        match needless || woken {
            true => Waited::Woken,
            false => waited,
        }
    }

    /// In the child of a fork: nobody waits.
    pub(crate) fn forget_all(&self) {
        self.0.forget();
    }

    /// Whether that one was still waiting.
    fn forget(&self, waiter: &Waiter) -> bool {
        let _scheduler = calls::Entered::new();
        let mut all = self.0.lock();
        let before = all.len();
        all.retain(|(_, other)| !other.is(waiter));
        all.len() < before
    }

    /// Wakes the one that has waited longest.
    pub(crate) fn wake_one(&self) -> bool {
        self.wake(ONLY, 1) > 0
    }

    /// Wakes all that wait now.
    pub(crate) fn wake_all(&self) {
        self.wake(ONLY, usize::MAX);
    }

    /// Wakes at most so many that wait for the key, and returns their number.
    pub(crate) fn wake(&self, key: usize, most: usize) -> usize {
        let _scheduler = calls::Entered::new();
        let mut woken = 0;
        let mut left = usize::MAX;
        while woken < most && left > 0 {
            let next = {
                let mut all = self.0.lock();
                // Those that begin to wait meanwhile are not meant.
                left = left.min(all.len());
                let place = all.iter().take(left).position(|(other, _)| *other == key);
                place.and_then(|place| {
                    left -= 1;
                    all.remove(place)
                })
            };
            match next {
                Some((_, waiter)) => woken += usize::from(waiter.wake()),
                None => break,
            }
        }
        woken
    }
}

/// Sleeps while the word has that value, at most until that time.
pub(crate) fn sleep_on(word: &AtomicU32, value: u32, until_ns: Option<u64>) -> Waited {
    let until = until_ns.map(timespec);
    let slept = futex::wait_bitset(
        word,
        futex::Flags::PRIVATE,
        value,
        until.as_ref(),
        std::num::NonZeroU32::MAX,
    );
    match slept {
        Err(Errno::TIMEDOUT) => Waited::TimedOut,
        Err(Errno::INTR) => Waited::Interrupted,
        _ => Waited::Woken,
    }
}

pub(crate) fn timespec(ns: u64) -> Timespec {
    let part = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: part(ns / 1_000_000_000),
        tv_nsec: part(ns % 1_000_000_000),
    }
}

/// The time on CLOCK_MONOTONIC, ns.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
