//! How long the machine stood still meanwhile: the processors of a virtual machine are away now and
//! then, for longer than an attack may delay the victim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

use crate::raw::make_urgent;

/// How long a nap is.
const NAP: Duration = Duration::from_millis(1);

/// A thread for each processor naps, urgent as the victim is, until this is dropped.
#[derive(Debug)]
pub(crate) struct Standstill {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    longest_us: AtomicU64,
}

impl Standstill {
    pub(crate) fn begin() -> Standstill {
        let shared = Arc::new(Shared::default());
        let all = sched_getaffinity(None).expect("our own");
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let threads = cpus.map(|cpu| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.nap(cpu))
        });
        let threads = threads.collect();
        Standstill { shared, threads }
    }

    /// The longest time by which a nap was too long, us.
    pub(crate) fn longest_us(&self) -> u64 {
        self.shared.longest_us.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn nap(&self, cpu: usize) {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).expect("a processor of ours");
        make_urgent(gettid().as_raw_nonzero().get().cast_unsigned());
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
