//! How long the machine stands still: the processors of a virtual machine are away now and then,
//! and other programs have them. What a test measures in time tells of what it tests only while
//! they are there.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long a nap is.
const NAP: Duration = Duration::from_millis(2);

/// How often [`measured`] measures.
const TIMES: usize = 6;

/// A thread for each processor naps until this is dropped: by how much a nap was too long, its
/// processor was away.
#[derive(Debug)]
pub struct Standstill {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    longest_us: AtomicU64,
}

impl Standstill {
    /// From now on. Each of the threads calls `before` first: so they can have the priority of what
    /// is measured.
    ///
    /// # Panics
    /// If the kernel does not tell which processors there are.
    pub fn begin(before: impl Fn() + Clone + Send + 'static) -> Standstill {
        let shared = Arc::new(Shared::default());
        let all = sched_getaffinity(None).expect("our own");
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let threads = cpus.map(|cpu| {
            let (shared, before) = (Arc::clone(&shared), before.clone());
            std::thread::spawn(move || {
                before();
                shared.nap(cpu);
            })
        });
        let threads = threads.collect();
        Standstill { shared, threads }
    }

    /// The longest time by which a nap was too long.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.shared.longest_us.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn nap(&self, cpu: usize) {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).expect("a processor of ours");
        while !self.stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            std::thread::sleep(NAP);
            let late = start.elapsed().saturating_sub(NAP).as_micros();
            let late = u64::try_from(late).expect("small");
            self.longest_us.fetch_max(late, Ordering::Relaxed);
        }
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Measures by `test`, which panics if a figure is not as it should be. That counts if no processor
/// was away for longer than `most` meanwhile; else it is measured again, a few times.
///
/// # Panics
/// As `test` does, or if a processor was away each time.
pub fn measured(most: Duration, test: impl Fn()) {
    let mut stood_still = Vec::new();
    while stood_still.len() < TIMES {
        let standstill = Standstill::begin(|| ());
        let Err(panic) = catch_unwind(AssertUnwindSafe(&test)) else {
            return;
        };
        let longest = standstill.longest();
        if longest <= most {
            resume_unwind(panic);
        }
        eprintln!("not valid, as a processor was away for {longest:?}");
        stood_still.push(longest);
    }
    panic!("no valid measurement: a processor was away for {stood_still:?}, and {most:?} may be");
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_right_is_measured_once() {
        let times = Cell::new(0);
        measured(Duration::ZERO, || times.set(times.get() + 1));
        assert_eq!(times.get(), 1);
    }

    #[test]
    #[should_panic(expected = "a wrong figure")]
    fn what_is_wrong_on_a_machine_that_goes_on_is_a_failure() {
        measured(Duration::MAX, || panic!("a wrong figure"));
    }

    #[test]
    fn what_is_wrong_on_a_machine_that_stands_still_is_measured_again() {
        let times = Cell::new(0);
        measured(Duration::ZERO, || {
            times.set(times.get() + 1);
            // Each nap takes a little longer than it should.
            std::thread::sleep(20 * NAP);
            assert!(times.get() > 1, "a wrong figure");
        });
        assert_eq!(times.get(), 2);
    }
}
