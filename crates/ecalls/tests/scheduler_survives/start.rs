//! Starts of the scheduler: beside programs that keep all CPUs busy, and again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ecalls_kernel::scheduler::Scheduler;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};

use super::harness::{
    self,
    stage::{Ends, cpu_ns, options, spin, start},
};

const HOGS: usize = 8;

/// The number of starts beside them; nightly tries more.
fn starts() -> usize {
    let set = std::env::var("ECALLS_TEST_STARTS").ok();
    set.map_or(1, |text| text.parse().expect("a number"))
}

/// The kernel's numbers of programs and maps.
fn objects() -> (usize, usize) {
    let programs = ProgInfoIter::default().count();
    (programs, MapInfoIter::default().count())
}

#[test]
fn it_starts_beside_hogs_without_waiting_for_them_and_leaves_nothing() {
    let Some(stage) = start() else { return };
    // What the first one loads of the core stays.
    let (ecalls, alone) = stage.stop();
    let begin = || Scheduler::start(ecalls.access(), &options());
    thread::sleep(Duration::from_secs(1));
    let before = objects();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(stop);
        for _ in 0..HOGS {
            scope.spawn(|| spin(stop));
        }
        for _ in 0..starts() {
            let (since, had) = (Instant::now(), cpu_ns());
            let scheduler = begin();
            let (passed, had) = (since.elapsed(), Duration::from_nanos(cpu_ns() - had));
            println!("it took {passed:.2?}, and {had:.2?} of CPU time");
            // Nine threads on two CPUs: 4.5 times as long by its share.
            assert!(passed < 2 * had, "it waited");
            scheduler.expect("a scheduler").stop();
        }
        stop.store(true, Ordering::Relaxed);
    });
    // The kernel frees them later.
    harness::wait_until("all is gone", || objects() == before);
    drop(alone);
}
