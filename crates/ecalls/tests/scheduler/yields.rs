//! Plain threads that yield: each is next when the other one stops, and the kernel takes it without
//! asking our scheduler. Other CPUs must get their part of them all the same; and of those that
//! make way for a thread that is bound to its CPU.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};

use super::harness::stage::{Ends, MS, burn, cpu_ns, start};

/// How long another thread computes beside them.
const HOG_NS: u64 = 200 * MS;

/// Yields until it is to stop. CPU time that it has had.
fn yields(stop: &AtomicBool) -> u64 {
    let before = cpu_ns();
    while !stop.load(Ordering::Relaxed) {
        sched_yield();
    }
    cpu_ns() - before
}

/// Binds the calling thread to these CPUs.
fn bind(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).expect("CPUs of this machine");
}

fn has_two_cpus() -> bool {
    let has = thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
    if !has {
        eprintln!("skipped: one CPU");
    }
    has
}

/// CPU time of so many threads that yield, ms, beside one that computes on the second CPU and ends.
fn beside_one_that_ends(yielders: usize) -> Vec<u64> {
    let (stop, begins) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        let _ends = Ends(stop);
        let hog = scope.spawn(move || {
            bind(&[1]);
            burn(HOG_NS);
        });
        let yielder = |_| {
            scope.spawn(move || {
                bind(&[0]);
                yields(begins);
                bind(&[0, 1]);
                yields(stop)
            })
        };
        let yielders: Vec<_> = (0..yielders).map(yielder).collect();
        thread::sleep(Duration::from_nanos(HOG_NS / 2));
        begins.store(true, Ordering::Relaxed);
        hog.join().expect("joined");
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        let had = yielders
            .into_iter()
            .map(|one| one.join().expect("joined") / MS);
        had.collect()
    })
}

#[test]
fn one_of_two_threads_that_yield_goes_to_a_cpu_that_becomes_idle() {
    let Some(stage) = start() else { return };
    if has_two_cpus() {
        let had = beside_one_that_ends(2);
        println!("two that yield: {had:?} ms of 2 s");
        assert!(had.iter().all(|&had| had > 1500), "{had:?}");
    }
    stage.end();
}

#[test]
fn three_threads_that_yield_share_two_cpus() {
    let Some(stage) = start() else { return };
    if has_two_cpus() {
        let had = beside_one_that_ends(3);
        println!("three that yield: {had:?} ms of 2 s");
        let least = had.iter().min().expect("three");
        // One that kept a CPU to itself would have twice as much; 1.5 times is seen by chance.
        assert!(had.iter().all(|had| had * 4 < least * 7), "{had:?}");
    }
    stage.end();
}

/// Rounds, in each of which a thread wakes and computes where it is bound.
const ROUNDS: u64 = 25;

/// From the first CPU the thread may leave again and again: each time a bound one wakes there.
/// CPU time that it has had of the time from then on.
fn makes_way(wakes: &Barrier, has_run: &AtomicBool) -> [u64; 2] {
    let (mut had, mut passed) = (0, 0);
    for _ in 0..ROUNDS {
        bind(&[0]);
        bind(&[0, 1]);
        wakes.wait();
        let (before, begin) = (cpu_ns(), Instant::now());
        while !has_run.swap(false, Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        had += cpu_ns() - before;
        passed += u64::try_from(begin.elapsed().as_nanos()).expect("a short time");
    }
    [had, passed]
}

#[test]
fn a_thread_that_makes_way_for_a_bound_one_goes_to_an_idle_cpu() {
    let Some(stage) = start() else { return };
    if has_two_cpus() {
        let (wakes, has_run) = (&Barrier::new(2), &AtomicBool::new(false));
        let [had, passed] = thread::scope(|scope| {
            scope.spawn(move || {
                bind(&[0]);
                for _ in 0..ROUNDS {
                    wakes.wait();
                    thread::sleep(Duration::from_millis(5));
                    burn(HOG_NS / 10);
                    has_run.store(true, Ordering::Relaxed);
                }
            });
            let free = scope.spawn(move || makes_way(wakes, has_run));
            free.join().expect("joined")
        });
        println!("makes way: {} of {} ms", had / MS, passed / MS);
        assert!(had * 10 > passed * 9, "{had} of {passed} ns");
    }
    stage.end();
}
