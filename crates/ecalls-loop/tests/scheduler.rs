//! Loops that poll cooperatively, under our scheduler in a kernel with sched_ext, on a CPU that is
//! busy all the time (Coop §5.2, Figure 6 in small). Needs root and such a kernel, so it runs in
//! the test machine.
//!
//! Where the machine's clock counts instructions (ECALLS_TEST_MEASURE), times are looked at, too.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ecalls::{Ecalls, now_ns};
use ecalls_kernel::scheduler::{self, Options, Scheduler};
use ecalls_loop::{Loop, Tardiness, Timing, best_effort, timer};

/// Loops, and threads that only compute.
const PLAYERS: usize = 8;
const HOGS: usize = 4;
const SECONDS: u64 = 4;
const MS: u64 = 1_000_000;
/// Of one best-effort event.
const CHUNK_NS: u64 = 500_000;

fn burn(ns: u64) {
    let until = now_ns() + ns;
    limit::compute_until(|| now_ns() >= until);
}

struct Played {
    timing: Timing,
    tardiness: Tardiness,
    chunks: u64,
}

/// A player: a frame timer, and best-effort work without end.
fn play(number: usize, events: &Loop) -> Played {
    let period = (25 + number as u64) * MS;
    let (begin, end) = (events.now_ns(), events.now_ns() + SECONDS * 1000 * MS);
    let mut frame = 0;
    events
        .submit(timer(begin + period), move |turn| {
            frame += 1;
            let next = begin + (frame + 1) * period;
            if next > end {
                return turn.stop();
            }
            turn.again(timer(next));
        })
        .expect("a timer");
    let chunks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&chunks);
    events
        .submit(best_effort(0), move |turn| {
            burn(CHUNK_NS);
            counted.set(counted.get() + 1);
            turn.again(best_effort(counted.get()));
        })
        .expect("best-effort work");
    events.run().expect("a run");
    Played {
        timing: events.timing(),
        tardiness: events.tardiness(),
        chunks: chunks.get(),
    }
}

/// All of them at once, with a loop of `events` each.
fn play_all(events: impl Fn() -> Loop + Sync) -> Vec<Played> {
    let stop = AtomicBool::new(false);
    let played: Vec<Played> = thread::scope(|scope| {
        for _ in 0..HOGS {
            scope.spawn(|| limit::compute_until(|| stop.load(Ordering::Relaxed)));
        }
        let events = &events;
        let players: Vec<_> = (0..PLAYERS)
            .map(|number| scope.spawn(move || play(number, &events())))
            .collect();
        let joined = players.into_iter().map(thread::ScopedJoinHandle::join);
        let played = joined.map(|one| one.expect("a player")).collect();
        stop.store(true, Ordering::Relaxed);
        played
    });
    for (number, one) in played.iter().enumerate() {
        let late = &one.tardiness;
        println!(
            "player {number}, {}: {} timers late by p50 {} us, p99 {} us, max {} us; {} chunks",
            one.timing,
            late.timers,
            late.p50_ns / 1000,
            late.p99_ns / 1000,
            late.max_ns / 1000,
            one.chunks
        );
        assert!(one.chunks > 0);
    }
    played
}

/// The worst of all players.
fn worst(played: &[Played], of: fn(&Tardiness) -> u64) -> u64 {
    let all = played.iter().map(|one| of(&one.tardiness));
    all.max().unwrap_or(u64::MAX)
}

#[test]
fn many_loops_keep_their_time_on_a_busy_cpu() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || scheduler::state().is_none() {
        eprintln!("skipped: needs root and a kernel with sched_ext; that of tools/vm/suite has it");
        return;
    }
    let plain = play_all(|| Loop::new().expect("a loop"));
    assert!(plain.iter().all(|one| one.timing == Timing::Plain));
    let ecalls = Ecalls::open().expect("a core");
    let scheduler = Scheduler::start(ecalls.access(), &Options::default()).expect("a scheduler");
    let channels: Vec<_> = (0..PLAYERS)
        .map(|_| ecalls.channel().open().expect("a channel"))
        .collect();
    let next = AtomicUsize::new(0);
    let ours = play_all(|| {
        let channel = &channels[next.fetch_add(1, Ordering::Relaxed)];
        Loop::by_slot(channel.caller(), 0, 0).expect("a loop")
    });
    assert!(ours.iter().all(|one| one.timing == Timing::Cooperative));
    assert_eq!(scheduler.ended(), None);
    if std::env::var_os("ECALLS_TEST_MEASURE").is_some() {
        let (p99, max) = (
            worst(&ours, |late| late.p99_ns),
            worst(&ours, |late| late.max_ns),
        );
        assert!(p99 < 3 * CHUNK_NS / 2, "one chunk is the floor: {p99} ns");
        assert!(max < 3 * CHUNK_NS, "{max} ns");
        assert!(3 * max < worst(&plain, |late| late.max_ns), "timely");
        let least = ours.iter().map(|one| one.chunks).min();
        let most = ours.iter().map(|one| one.chunks).max();
        assert!(
            least.map(|count| count * 11 / 10) > most,
            "fair: {least:?} to {most:?}"
        );
    }
    scheduler.stop();
}
