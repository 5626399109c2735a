//! What the scheduler's tests share: a running scheduler, threads that poll, hog, or have a window.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use ecalls::coop::SlotMemory;
use ecalls::{Admission, Channel, Ecalls, Window, now_ns};
use ecalls_abi::coop::{COOP_NONE, COOP_POLLING};
use ecalls_abi::sched::SchedCount;
use ecalls_kernel::scheduler::{self, Options, Scheduler};
use ecalls_ring::Words;

use zerocopy::FromZeros;

use super::{core, wait_until};

/// A machine has one scheduler. It takes seconds to load, emulated, so it is kept for the next test
/// of a program; who holds the lock has it.
static KEPT: Mutex<Option<Scheduler>> = Mutex::new(None);

type Kept = MutexGuard<'static, Option<Scheduler>>;

pub(crate) const MS: u64 = 1_000_000;

/// The kernel ends a test's scheduler that lets a thread wait for so long.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(6);

/// One core for all tests of a program: it takes seconds to load, emulated. So does the part of it
/// that the first named slot loads, in the thread that names it: no test counts that as its share.
pub(crate) fn shared_core() -> Option<&'static Ecalls> {
    static CORE: OnceLock<Option<Ecalls>> = OnceLock::new();
    let make = || {
        let ecalls = core()?;
        let channel = ecalls.channel().open().expect("a channel");
        let names = || _ = channel.caller().coop_slot(0, 0).expect("a slot");
        thread::scope(|scope| scope.spawn(names).join().expect("joined"));
        Some(ecalls)
    };
    CORE.get_or_init(make).as_ref()
}

pub(crate) struct Stage {
    pub(crate) scheduler: Scheduler,
    pub(crate) ecalls: &'static Ecalls,
    before: SchedCount,
    /// Whether it decides as it does when nobody says otherwise.
    usual: bool,
    kept: Kept,
}

/// None, and the reason told: this machine can run none.
fn lock() -> Option<(&'static Ecalls, Kept)> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if scheduler::state().is_none() {
        eprintln!("skipped: this kernel has no sched_ext; that of tools/vm/suite has");
        return None;
    }
    Some((shared_core()?, kept))
}

/// What the tests' schedulers have in common.
pub(crate) fn options() -> Options {
    Options {
        watchdog: WATCHDOG,
        ..Options::default()
    }
}

/// No test's scheduler runs while this is held.
pub(crate) fn alone() -> Option<(&'static Ecalls, Kept)> {
    let (ecalls, mut kept) = lock()?;
    *kept = None;
    Some((ecalls, kept))
}

pub(crate) fn start() -> Option<Stage> {
    let (ecalls, mut kept) = lock()?;
    let running = kept.take().filter(|scheduler| scheduler.ended().is_none());
    Some(Stage::begin(running, &options(), ecalls, kept))
}

/// One that decides otherwise than those of other tests, and is kept for none of them.
pub(crate) fn start_with(options: &Options) -> Option<Stage> {
    let (ecalls, mut kept) = lock()?;
    *kept = None;
    Some(Stage::begin(None, options, ecalls, kept))
}

/// Of all CPUs.
fn sum(scheduler: &Scheduler) -> SchedCount {
    let all = scheduler.counts().expect("its counters");
    let mut sum = all[0];
    all[1..].iter().for_each(|one| sum.add(one));
    sum
}

/// Whether no thread of this process is left in the scheduler's tables: one that was joined may
/// still be about to end, with its window.
fn nobody_is_left() -> bool {
    let seen = scheduler::seen().expect("its tables");
    seen.iter().all(|row| row.pid != std::process::id())
}

impl Stage {
    fn begin(
        running: Option<Scheduler>,
        options: &Options,
        ecalls: &'static Ecalls,
        kept: Kept,
    ) -> Stage {
        if running.is_some() {
            wait_until("threads of the test before have left", nobody_is_left);
        }
        let before = running.as_ref().map_or_else(SchedCount::new_zeroed, sum);
        let scheduler = running
            .unwrap_or_else(|| Scheduler::start(ecalls.access(), options).expect("a scheduler"));
        Stage {
            before,
            usual: *options == self::options(),
            scheduler,
            ecalls,
            kept,
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        self.ecalls.channel().open().expect("a channel")
    }

    /// What it has counted since this test began.
    pub(crate) fn counts(&self) -> SchedCount {
        self.total().since(&self.before)
    }

    /// What it has counted since it began.
    pub(crate) fn total(&self) -> SchedCount {
        sum(&self.scheduler)
    }

    /// Another test goes on with it. A test that fails ends it instead.
    pub(crate) fn end(self) {
        assert_eq!(
            self.scheduler.ended(),
            None,
            "the kernel has not thrown it out"
        );
        let overdue = self.counts().overdue;
        assert_eq!(
            overdue, 0,
            "threads have waited for a third of the watchdog's time"
        );
        self.keep();
    }

    /// The same, though threads have waited for that long.
    pub(crate) fn keep(mut self) {
        *self.kept = Some(self.scheduler).filter(|_| self.usual);
    }

    /// Stops it; no other test's runs while the result is held.
    pub(crate) fn stop(self) -> (&'static Ecalls, Kept) {
        self.scheduler.stop();
        assert_eq!(scheduler::state().expect("sched_ext").running, None);
        (self.ecalls, self.kept)
    }

    /// Stops it, and after a while starts another one, whose counters begin anew.
    pub(crate) fn restart(self, between: Duration) -> Stage {
        let (ecalls, kept) = self.stop();
        thread::sleep(between);
        Stage::begin(None, &options(), ecalls, kept)
    }
}

/// Ends the threads of a scope when it is dropped, also by a panic: else that would wait for them.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Burns CPU until told. CPU time it had, ns.
pub(crate) fn spin(stop: &AtomicBool) -> u64 {
    limit::compute_until(|| stop.load(Ordering::Relaxed));
    cpu_ns()
}

/// CPU time that this thread has had.
pub(crate) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// 1: all the same.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// A thread's own slot.
pub(crate) struct Poller {
    pub(crate) slot: SlotMemory,
    pub(crate) polls: u64,
}

impl Poller {
    pub(crate) fn new(channel: &Channel, number: usize, group: u32) -> Poller {
        let slot = channel.caller().coop_slot(number, group).expect("a slot");
        Poller { slot, polls: 0 }
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self.slot.words()[at]
    }

    pub(crate) fn read(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    pub(crate) fn publish(&mut self, release_ns: u64, importance: u64) {
        self.polls += 1;
        self.word(0).store(release_ns, Ordering::Relaxed);
        self.word(1).store(importance, Ordering::Relaxed);
        self.word(3).store(COOP_POLLING.into(), Ordering::Relaxed);
        self.word(2).store(self.polls, Ordering::Release);
    }

    /// Polls with best-effort work at hand.
    pub(crate) fn poll(&mut self, release_ns: u64, importance: u64) {
        self.publish(release_ns, importance);
        thread::yield_now();
        self.word(3).store(0, Ordering::Relaxed);
        assert_eq!(self.read(15) >> 32, self.polls, "the poll was answered");
    }

    /// Polls with nothing to do until the release.
    pub(crate) fn sleep(&mut self, release_ns: u64) {
        self.publish(release_ns, COOP_NONE);
        thread::sleep(Duration::from_nanos(release_ns.saturating_sub(now_ns())));
        self.word(3).store(0, Ordering::Relaxed);
        assert_eq!(self.read(15) >> 32, self.polls, "the poll was answered");
    }

    pub(crate) fn state(&self) -> u32 {
        self.read(15) as u32
    }

    /// Demotions: overran, slept, ahead.
    pub(crate) fn offences(&self) -> [u64; 3] {
        [self.read(12), self.read(13), self.read(14)]
    }
}

/// Tries until it comes true, so often.
pub(crate) fn again(what: &str, attempts: usize, mut is_so: impl FnMut() -> bool) {
    assert!((0..attempts).any(|_| is_so()), "{what}");
}

/// Runs on the first CPU from here on: what is told and promised is about one CPU.
pub(crate) fn pin() {
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(0);
    rustix::thread::sched_setaffinity(None, &cpu).expect("CPU 0");
}

/// Whether this machine's clock counts instructions.
pub(crate) fn measured() -> bool {
    std::env::var_os("ECALLS_TEST_MEASURE").is_some()
}

pub(crate) fn burn(ns: u64) {
    let until = now_ns() + ns;
    while now_ns() < until {}
}

pub(crate) fn window(period_us: u64, service_us: u64, x: u16, y: u16) -> Window {
    Window {
        period: Duration::from_micros(period_us),
        service: Duration::from_micros(service_us),
        x,
        y,
        conserving: false,
    }
}

/// A thread on the first CPU that asks for a window, tells the answer, and then does something.
pub(crate) fn windowed<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    channel: &'scope Channel,
    number: usize,
    wish: Window,
    then: impl FnOnce(SlotMemory) -> T + Send + 'scope,
) -> (Admission, thread::ScopedJoinHandle<'scope, T>) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = scope.spawn(move || {
        pin();
        let slot = channel.caller().coop_slot(number, 0).expect("a slot");
        let answer = channel.caller().window(&slot, &wish).expect("an answer");
        tell.send(answer).expect("told");
        then(slot)
    });
    (told.recv().expect("an answer"), thread)
}
