//! The policies of the kernel that a plain thread may have: SCHED_BATCH, SCHED_IDLE, and the
//! real-time ones, which our scheduler does not see.

use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use limit::Running;

use super::harness::{
    self,
    stage::{Ends, MS, cpu_ns, pin, spin, start},
};

/// Gives the calling thread a policy, by the option of chrt.
fn become_one_of(policy: &str) {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    let status = chrt.args([policy, "-p", "0", &own]).status();
    assert!(status.expect("chrt").success(), "chrt {policy}");
}

/// A hog on the first CPU, of a policy. It counts its CPU time from when all are there.
fn hog_of(policy: &str, all_there: &Barrier, stop: &AtomicBool) -> u64 {
    become_one_of(policy);
    pin();
    all_there.wait();
    let before = cpu_ns();
    spin(stop) - before
}

#[test]
fn a_batch_thread_has_its_share_and_an_idle_one_what_is_left() {
    let Some(stage) = start() else { return };
    let (all_there, stop) = (&Barrier::new(4), &AtomicBool::new(false));
    let had = thread::scope(|scope| {
        let _ends = Ends(stop);
        let hog = |policy| scope.spawn(move || hog_of(policy, all_there, stop));
        let hogs = ["--other", "--batch", "--idle"].map(hog);
        all_there.wait();
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        hogs.map(|hog| hog.join().expect("joined") / MS)
    });
    println!("other, batch, idle: {had:?} ms");
    let [other, batch, idle] = had;
    assert!(batch * 10 > other * 9 && other * 10 > batch * 9, "{had:?}");
    assert!(idle * 50 < other, "{had:?}");
    stage.end();
}

/// How late a thread on the first CPU wakes, in the median and of 20 the latest but one, us.
fn lateness() -> [u128; 2] {
    let mut late: Vec<_> = (0..100)
        .map(|_| {
            let begin = Instant::now();
            thread::sleep(Duration::from_millis(5));
            (begin.elapsed() - Duration::from_millis(5)).as_micros()
        })
        .collect();
    late.sort_unstable();
    [late[50], late[95]]
}

#[test]
fn a_thread_that_wakes_does_not_wait_for_idle_ones() {
    let Some(stage) = start() else { return };
    let (all_there, stop) = (&Barrier::new(3), &AtomicBool::new(false));
    let [alone, beside] = thread::scope(|scope| {
        let _ends = Ends(stop);
        let sleeper = scope.spawn(|| {
            pin();
            let alone = lateness();
            all_there.wait();
            let beside = lateness();
            stop.store(true, Ordering::Relaxed);
            [alone, beside]
        });
        for _ in 0..2 {
            scope.spawn(|| hog_of("--idle", all_there, stop));
        }
        sleeper.join().expect("joined")
    });
    println!("median and 95 of 100: alone {alone:?} us, beside two idle hogs {beside:?} us");
    for (alone, beside) in alone.into_iter().zip(beside) {
        assert!(beside < alone + alone / 2 + 50, "not much later");
    }
    stage.end();
}

#[test]
fn threads_share_what_a_real_time_thread_leaves_of_the_cpus() {
    let Some(stage) = start() else { return };
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("skipped: one CPU");
        return stage.end();
    }
    let stop = &AtomicBool::new(false);
    let had = thread::scope(|scope| {
        let _ends = Ends(stop);
        let hogs = [(); 3].map(|()| scope.spawn(|| spin(stop)));
        let hog = "while :; do :; done";
        let mut real_time = Running::start(
            Command::new("taskset").args(["-c", "0", "chrt", "-f", "50", "sh", "-c", hog]),
        );
        thread::sleep(Duration::from_secs(3));
        stop.store(true, Ordering::Relaxed);
        let had = hogs.map(|hog| hog.join().expect("joined") / MS);
        real_time.kill(harness::PATIENCE);
        had
    });
    println!("three hogs beside a real-time one: {had:?} ms");
    let least = had.iter().min().expect("three");
    assert!(had.iter().all(|had| had * 3 < least * 4), "{had:?}");
    stage.end();
}
