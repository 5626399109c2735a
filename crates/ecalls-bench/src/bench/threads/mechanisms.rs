//! What the kernel's mechanisms cost (SA §5.1, Tables 1 and 2).
//!
//! Table 1 is the time that a thread loses which computes meanwhile: it reads the clock again and
//! again, and the largest gap counts. In each round one thing happens, [`EVENT_US`] after its
//! begin: a timer expires that nobody waits for; or its expiry is a signal, with a handler; or
//! another thread's call ends. A thread that comes back to a runtime says so and waits (the upcall
//! "unblock" is for the next scheduling point); a kernel thread takes the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ecalls_threads::{Runtime, scheduling_point, yield_now};
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId as TimerfdClock, TimerFd, TimerFlags};
use nix::time::ClockId;
use nix::unistd::{getppid, gettid};
use signal_hook::consts::SIGUSR1;

use super::{Effort, PTHREADS, Values, failed, median_us, ns_each};
use crate::exit::{Failure, Outcome};

/// From a round's begin until what happens in it.
const EVENT_US: u64 = 300;
/// How long the thread computes in a round. The event is in the middle: a sleep that ends late
/// still ends in its round.
const ROUND: Duration = Duration::from_micros(2 * EVENT_US);

/// Computes for a round; the largest gap, in ns.
fn watch() -> u64 {
    let start = Instant::now();
    let (mut last, mut largest) = (start, Duration::ZERO);
    while last - start < ROUND {
        let now = Instant::now();
        largest = largest.max(now - last);
        last = now;
    }
    u64::try_from(largest.as_nanos()).unwrap_or(u64::MAX)
}

/// What is lost in a round: the median of those that begin with `begin`, in us.
fn lost_us(effort: Effort, mut begin: impl FnMut() -> Outcome) -> Result<f64, Failure> {
    let gaps = (0..rounds(effort)).map(|_| begin().map(|()| watch()));
    median_us(&mut gaps.collect::<Result<Vec<_>, _>>()?)
}

fn rounds(effort: Effort) -> u64 {
    (1000 / effort.divisor).max(20)
}

/// What the kernel does without a runtime.
pub(super) fn kernel(
    values: &mut Values,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Outcome {
    if wanted("table1_regular") {
        values.add("table1_regular", PTHREADS, timer_us(effort)?);
    }
    if wanted("table1_signal") {
        values.add("table1_signal", PTHREADS, signal_us(effort)?);
    }
    if wanted("table1_unblock") {
        values.add("table1_unblock", PTHREADS, thread_us(effort)?);
    }
    if wanted("table2_getppid") {
        let count = 1_000_000 / effort.divisor;
        let start = Instant::now();
        for _ in 0..count {
            std::hint::black_box(getppid());
        }
        values.add("table2_getppid", PTHREADS, ns_each(count, start) / 1e3);
    }
    Ok(())
}

fn once() -> Expiration {
    Expiration::OneShot(Duration::from_micros(EVENT_US).into())
}

/// A timer of which the kernel makes a descriptor readable that nobody waits for.
fn timer_us(effort: Effort) -> Result<f64, Failure> {
    let timer = TimerFd::new(TimerfdClock::CLOCK_MONOTONIC, TimerFlags::empty()).map_err(failed)?;
    let set = || timer.set(once(), TimerSetTimeFlags::empty());
    lost_us(effort, || set().map_err(failed))
}

/// A timer whose expiry is a signal with a handler.
fn signal_us(effort: Effort) -> Result<f64, Failure> {
    let was_handled = Arc::new(AtomicBool::new(false));
    let id = signal_hook::flag::register(SIGUSR1, Arc::clone(&was_handled)).map_err(failed)?;
    let event = SigEvent::new(SigevNotify::SigevThreadId {
        signal: Signal::SIGUSR1,
        thread_id: gettid().as_raw(),
        si_value: 0,
    });
    let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, event).map_err(failed)?;
    let mut set = || timer.set(once(), TimerSetTimeFlags::empty());
    let lost = lost_us(effort, || set().map_err(failed));
    signal_hook::low_level::unregister(id);
    match was_handled.load(Ordering::Relaxed) {
        true => lost,
        false => Err(failed("no signal of the timer came")),
    }
}

/// A kernel thread that wakes on this CPU, and sleeps again.
fn thread_us(effort: Effort) -> Result<f64, Failure> {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_micros(EVENT_US));
            }
        });
        let lost = lost_us(effort, || Ok(()));
        has_ended.store(true, Ordering::Relaxed);
        lost
    })
}

/// A thread blocks in each round, and comes back while another one computes. The time that the
/// latter loses, and how long a restart takes (SA Table 2): from the call of the scheduler until
/// the thread that came back runs, both in us.
pub(super) fn unblock_us(
    runtime: &Runtime,
    effort: Effort,
    sleep: impl Fn(u64) + Copy + Send + 'static,
) -> Result<(f64, f64), Failure> {
    let start = Instant::now();
    let now_ns = move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let yielded_ns = Arc::new(AtomicU64::new(0));
    let has_ended = Arc::new(AtomicBool::new(false));
    let (called_ns, ends) = (Arc::clone(&yielded_ns), Arc::clone(&has_ended));
    let blocks = runtime.spawn(move || {
        let mut restarts_ns = Vec::new();
        while !ends.load(Ordering::SeqCst) {
            sleep(EVENT_US);
            scheduling_point();
            let called_ns = called_ns.swap(0, Ordering::SeqCst);
            if called_ns != 0 {
                restarts_ns.push(now_ns() - called_ns);
            }
        }
        median_us(&mut restarts_ns)
    });
    let computes = runtime.spawn(move || {
        let gaps = (0..rounds(effort)).map(|_| {
            let gap = watch();
            yielded_ns.store(now_ns(), Ordering::SeqCst);
            yield_now();
            gap
        });
        let lost = median_us(&mut gaps.collect::<Vec<_>>());
        has_ended.store(true, Ordering::SeqCst);
        lost
    });
    let (blocks, computes) = (blocks.map_err(failed)?, computes.map_err(failed)?);
    let ended = |_| failed("a thread of the measurement has ended");
    let restart_us = blocks.join().map_err(ended)??;
    Ok((computes.join().map_err(ended)??, restart_us))
}
