//! Windows by other options of the scheduler than the usual ones, so each of these tests loads one
//! of its own. That takes seconds, emulated, and so does the next one with the usual options: by
//! this module's name its tests are the last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ecalls::coop::SlotMemory;
use ecalls::{Admission, Raise, now_ns};
use ecalls_kernel::scheduler::{Options, WindowOrder};

use super::Sink;
use super::harness::PATIENCE;
use super::harness::stage::{
    Ends, MS, Stage, burn, options, pin, spin, start_with, window, windowed,
};

/// Of each 40 ms two of three services of 18 ms fit. By the order of DWCS the third is the one that
/// may best be missed; by any other one some window is violated.
#[test]
fn dwcs_misses_no_more_than_each_window_allows_where_not_all_fit() {
    let Some(stage) = start_with(&Options {
        windows: WindowOrder::Dwcs,
        ..options()
    }) else {
        return;
    };
    let channel = stage.channel();
    let stop = &AtomicBool::new(false);
    let allowed = [(1, 2), (1, 3), (1, 6)];
    let (periods, hog) = thread::scope(|scope| {
        let _end = Ends(stop);
        let run = |slot: SlotMemory| {
            spin(stop);
            slot.periods()
        };
        let number = &mut 0;
        let asked = allowed.map(|(x, y)| {
            *number += 1;
            windowed(scope, &channel, *number, window(40_000, 18_000, x, y), run)
        });
        let answers = asked.each_ref().map(|(answer, _)| *answer);
        assert_eq!(answers, [Admission::Promised; 3]);
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        thread::sleep(Duration::from_millis(2400));
        stop.store(true, Ordering::Relaxed);
        let periods = asked.map(|(_, thread)| thread.join().expect("joined"));
        (periods, hog.join().expect("joined"))
    });
    println!("{periods:?}, hog {} ms", hog / MS);
    for (periods, (x, y)) in periods.iter().zip(allowed) {
        let all = periods.met + periods.missed;
        assert!((55..=65).contains(&all), "{periods:?}");
        assert_eq!(periods.violated, 0, "{x} of {y}: {periods:?}");
        assert!(
            periods.missed <= u64::from(x) * all.div_ceil(y.into()),
            "{x} of {y}: {periods:?}"
        );
    }
    // Two services in each period, and what they leave is the hog's.
    let met: u64 = periods.iter().map(|periods| periods.met).sum();
    assert!(met >= 2 * 58, "{periods:?}");
    assert!(hog > 5 * 2400 * MS / 100, "the reserve: {hog} ns");
    stage.end();
}

/// A window that claims 95 of 100 ms in each period, though it may miss each second one: what that
/// leaves, 47.5 %, is the task server's, as 2 of each 6 ms.
#[test]
fn the_task_server_has_its_service_in_each_period_beside_a_window_that_claims_nearly_all() {
    let Some(stage) = start_with(&Options {
        windows: WindowOrder::Dwcs,
        server: Duration::from_millis(2),
        ..options()
    }) else {
        return;
    };
    // The first one loads a part of the core, in seconds, emulated.
    read_singles(&stage, 1);
    let channel = stage.channel();
    let stop = &AtomicBool::new(false);
    let (late, hog, passed) = thread::scope(|scope| {
        let _end = Ends(stop);
        let wish = window(100_000, 95_000, 1, 2);
        let (answer, greedy) = windowed(scope, &channel, 0, wish, |_| spin(stop));
        assert_eq!(answer, Admission::Unpromised);
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let begin = now_ns();
        let late = scope
            .spawn(|| read_singles(&stage, 40))
            .join()
            .expect("read");
        let passed = now_ns() - begin;
        stop.store(true, Ordering::Relaxed);
        greedy.join().expect("joined");
        (late, hog.join().expect("joined"), passed)
    });
    let share = hog as f64 / passed as f64;
    println!("late by ns: {late:?}; share {share}");
    // One of the server's periods that was used up, and one in which the window may go first.
    assert!(late.iter().all(|&late| late < 12 * MS), "{late:?}");
    assert!((0.28..0.36).contains(&share), "a third: {share}");
    stage.end();
}

/// Reads so many events, one every 31 ms, each 0.2 ms of work, that it raised to itself. How late
/// it looks at each, ns.
fn read_singles(stage: &Stage, count: usize) -> Vec<u64> {
    let mut sink = Sink::new(stage, 1);
    let mut late = Vec::new();
    for _ in 0..count {
        let release = now_ns() + 31 * MS;
        let raise = Raise::new(&[]).at(Some(release), None).cpu();
        sink.service.raise(&raise).expect("raised");
        let event = sink.channel.recv_timeout(PATIENCE);
        assert!(event.expect("read").is_some(), "an event");
        late.push(now_ns() - release);
        burn(MS / 5);
    }
    late.sort_unstable();
    late
}
