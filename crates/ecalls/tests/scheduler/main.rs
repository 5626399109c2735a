//! The scheduler in a kernel with sched_ext: fair shares, cooperative polls, policing, windows, and
//! what is left when its holder ends. Needs root and such a kernel, so it runs in the test machine.
//!
//! Where the machine's clock counts instructions (ECALLS_TEST_MEASURE), times are looked at, too.

#[path = "../harness/mod.rs"]
mod harness;
mod policies;
mod windows;
mod yields;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ecalls::coop::SlotMemory;
use ecalls::{Admission, Channel, Raise, Service, Subscription, now_ns};
use ecalls_abi::coop::{COOP_COOPERATIVE, COOP_DEMOTED, COOP_NONE};
use ecalls_abi::sched::WHY_EVENT;
use ecalls_kernel::scheduler::{self, Options, Scheduler};
use harness::stage::{
    Ends, MS, Poller, Stage, again, alone, burn, jain, measured, pin, spin, start, window, windowed,
};

/// On an emulated machine a thread may need longer than its slack for nothing, and is demoted for
/// that.
const ATTEMPTS: usize = 100;

#[test]
fn plain_threads_share_the_cpus_fairly() {
    let Some(stage) = start() else { return };
    let stop = AtomicBool::new(false);
    let shares: Vec<u64> = thread::scope(|scope| {
        let spinners: Vec<_> = (0..5).map(|_| scope.spawn(|| spin(&stop))).collect();
        thread::sleep(Duration::from_secs(4));
        stop.store(true, Ordering::Relaxed);
        let joined = spinners.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|share| share.expect("joined")).collect()
    });
    println!("{shares:?}, {} balanced", stage.counts().balanced);
    assert!(jain(&shares) > 0.98, "{shares:?}");
    stage.end();
}

/// Begins on one CPU with this nice value, and may go to any other from `free` on. CPU time it had
/// between `begin` and `stop`, ns.
fn spin_from(cpu: usize, nice: i32, [free, begin, stop]: &[AtomicBool; 3]) -> u64 {
    let all = rustix::thread::sched_getaffinity(None).expect("its CPUs");
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).expect("a CPU");
    rustix::process::nice(nice).expect("nicer");
    spin(free);
    rustix::thread::sched_setaffinity(None, &all).expect("all CPUs");
    let before = spin(begin);
    spin(stop) - before
}

#[test]
fn heavy_and_light_threads_have_the_cpus_by_their_weights() {
    let Some(stage) = start() else { return };
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() != 2) {
        eprintln!("skipped: not two CPUs");
        return stage.end();
    }
    let phases = &[const { AtomicBool::new(false) }; 3];
    // As many on each CPU, but both heavy ones on the first.
    let places: [(usize, i32); 10] =
        std::array::from_fn(|number| (usize::from(number >= 5), if number < 2 { 0 } else { 10 }));
    let had = thread::scope(|scope| {
        let _ends = phases.each_ref().map(Ends);
        let threads = places.map(|(cpu, nice)| scope.spawn(move || spin_from(cpu, nice, phases)));
        for (phase, ms) in phases.iter().zip([200, 1000, 3000]) {
            thread::sleep(Duration::from_millis(ms));
            phase.store(true, Ordering::Relaxed);
        }
        threads.map(|thread| thread.join().expect("joined"))
    });
    println!("{had:?}, {} balanced", stage.counts().balanced);
    let sum: u64 = had.iter().sum();
    for (ns, (_, nice)) in had.into_iter().zip(places) {
        // 1024 and 110 by the kernel's weights.
        let weight = if nice == 0 { 1024.0 } else { 110.0 };
        let due = weight / (2.0 * 1024.0 + 8.0 * 110.0);
        let part = ns as f64 / sum as f64 / due;
        assert!((0.8..1.2).contains(&part), "{part} of what nice {nice} has");
    }
    stage.end();
}

/// Threads of nice 19 on a CPU.
const LIGHT: usize = 40;

#[test]
fn a_heavy_thread_waits_for_slices_of_light_ones_and_not_for_ticks() {
    let Some(stage) = start() else { return };
    let (begin, stop) = (&Barrier::new(LIGHT + 1), &AtomicBool::new(false));
    let gap = thread::scope(|scope| {
        let _ends = Ends(stop);
        // They begin together, so they have their turns together, one after the other.
        for _ in 0..LIGHT {
            scope.spawn(|| {
                pin();
                rustix::process::nice(19).expect("nicer");
                begin.wait();
                spin(stop)
            });
        }
        let heavy = scope.spawn(|| {
            pin();
            begin.wait();
            let (mut last, mut gap) = (now_ns(), 0);
            let end = last + 3000 * MS;
            while last < end {
                let now = now_ns();
                gap = (now - last).max(gap);
                last = now;
            }
            gap
        });
        heavy.join().expect("joined")
    });
    println!(
        "beside {LIGHT} light threads it waited for {} ms at most",
        gap / MS
    );
    // 20 ms is a slice of each. A tick of each is 160 ms.
    assert!(gap < 90 * MS, "{gap}");
    stage.end();
}

#[test]
fn a_cooperative_thread_runs_at_its_release_beside_hogs() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let stop = AtomicBool::new(false);
    let (mut tardy, offences) = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| spin(&stop));
        }
        let mut poller = Poller::new(&channel, 0, 0);
        let mut tardy = Vec::new();
        let begin = Instant::now();
        let mut release = now_ns() + 10 * MS;
        while begin.elapsed() < Duration::from_secs(4) {
            poller.poll(release, 7);
            let now = now_ns();
            if now >= release {
                tardy.push(now - release);
                release = now + 10 * MS;
            }
            // Best-effort work.
            burn(MS / 5);
        }
        stop.store(true, Ordering::Relaxed);
        (tardy, poller.offences())
    });
    tardy.sort_unstable();
    let count = stage.counts();
    let worst = tardy.last().copied().unwrap_or(u64::MAX);
    println!(
        "{} releases, p50 {} us, p99 {} us, worst {} us",
        tardy.len(),
        tardy[tardy.len() / 2] / 1000,
        tardy[tardy.len() * 99 / 100] / 1000,
        worst / 1000
    );
    assert!(count.releases >= tardy.len() as u64 / 2, "{count:?}");
    assert!(count.polls > 0 && count.entered == 1, "{count:?}");
    if measured() {
        assert!(tardy.len() > 300, "{}", tardy.len());
        assert!(worst < MS, "worst {worst} ns of {}", tardy.len());
        assert_eq!(offences[0] + offences[1], 0, "overran, slept");
    }
    stage.end();
}

#[test]
fn who_runs_past_its_slice_or_sleeps_otherwise_is_demoted_until_it_polls() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| spin(&stop));
        }
        let _end = Ends(&stop);
        let mut poller = Poller::new(&channel, 1, 0);
        again("a poll makes it cooperative", ATTEMPTS, || {
            poller.poll(COOP_NONE, 1);
            poller.state() == COOP_COOPERATIVE
        });
        again("rule 1: it overran", ATTEMPTS, || {
            poller.poll(COOP_NONE, 1);
            let [overran, ..] = poller.offences();
            burn(60 * MS);
            poller.poll(COOP_NONE, 1);
            poller.offences()[0] > overran
        });
        let [_, slept, _] = poller.offences();
        again("rule 2: it slept otherwise", ATTEMPTS, || {
            poller.poll(COOP_NONE, 1);
            thread::sleep(Duration::from_millis(5));
            thread::yield_now();
            poller.offences()[1] > slept && poller.state() == COOP_DEMOTED
        });
        let [_, slept, _] = poller.offences();
        again("it is forgiven by a poll", ATTEMPTS, || {
            poller.sleep(now_ns() + 5 * MS);
            assert_eq!(poller.offences()[1], slept, "a poll may sleep");
            poller.state() == COOP_COOPERATIVE
        });
    });
    let count = stage.counts();
    assert!(count.overran >= 1 && count.slept >= 1, "{count:?}");
    stage.end();
}

#[test]
fn a_poll_tells_the_release_and_the_importance_of_others() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let told = AtomicBool::new(false);
    let release = now_ns() + 3_600_000 * MS;
    thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            thread::yield_now();
            let mut other = Poller::new(&channel, 2, 9);
            while !told.load(Ordering::Relaxed) {
                other.poll(release, 41);
                other.publish(release, 41);
                thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(|| {
            pin();
            thread::yield_now();
            let mut poller = Poller::new(&channel, 3, 9);
            let begin = Instant::now();
            while (poller.read(8), poller.read(9)) != (release, 41) {
                assert!(begin.elapsed() < Duration::from_secs(20), "told in time");
                poller.poll(COOP_NONE, 42);
                burn(MS / 10);
            }
            // In another group there is nobody else.
            poller = Poller::new(&channel, 3, 8);
            poller.poll(COOP_NONE, 42);
            poller.poll(COOP_NONE, 42);
            assert_eq!(poller.read(9), COOP_NONE);
            told.store(true, Ordering::Relaxed);
        });
    });
    stage.end();
}

#[test]
fn threads_that_end_leave_room_for_others() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    for round in 0..300 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let group = round % 3;
                Poller::new(&channel, 4, group).poll(now_ns() + MS, round.into());
            });
        });
    }
    let count = stage.counts();
    assert_eq!((count.entered, count.full), (300, 0), "{count:?}");
    stage.end();
}

#[test]
fn a_second_one_is_refused_and_leaves_the_first_alone() {
    let Some(stage) = start() else { return };
    let second = Scheduler::start(stage.ecalls.access(), &Options::default());
    let refused = second.expect_err("one runs").to_string();
    assert!(refused.contains("`ecalls sched stop`"), "{refused}");
    let state = scheduler::state().expect("sched_ext");
    assert_eq!(state.holder, Some(std::process::id()));
    thread::sleep(Duration::from_millis(5));
    assert!(stage.counts().chosen.iter().sum::<u64>() > 0, "it goes on");
    stage.end();
}

/// The kernel is told of the watchdog, and allows 30 s.
#[test]
fn a_watchdog_that_the_kernel_does_not_allow_is_refused() {
    let Some((ecalls, _alone)) = alone() else {
        return;
    };
    let options = Options {
        watchdog: Duration::from_secs(31),
        ..Options::default()
    };
    let refused = Scheduler::start(ecalls.access(), &options).expect_err("too long");
    assert!(refused.to_string().contains("attach"), "{refused}");
}

#[test]
fn a_thread_that_polls_has_its_share_by_nice() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let stop = AtomicBool::new(false);
    let (nice, hog) = thread::scope(|scope| {
        let hog = scope.spawn(|| {
            pin();
            spin(&stop)
        });
        let nice = scope.spawn(|| {
            pin();
            let mut poller = Poller::new(&channel, 5, 0);
            poller.poll(COOP_NONE, 1);
            let before = spin(&AtomicBool::new(true));
            rustix::process::nice(10).expect("nicer");
            while !stop.load(Ordering::Relaxed) {
                poller.poll(COOP_NONE, 1);
                burn(MS);
            }
            spin(&stop) - before
        });
        thread::sleep(Duration::from_secs(3));
        stop.store(true, Ordering::Relaxed);
        (nice.join().expect("joined"), hog.join().expect("joined"))
    });
    // 110 to 1024 by the kernel's weights.
    assert!(nice * 3 < hog, "{nice} of {hog}");
    stage.end();
}

#[test]
fn a_window_is_promised_or_admitted_without_guarantee_or_refused() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(stop);
        let ask = |number, wish| {
            let stay = |_| {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            };
            windowed(scope, &channel, number, wish, stay).0
        };
        assert_eq!(ask(0, window(10_000, 9_000, 1, 2)), Admission::Promised);
        assert_eq!(ask(1, window(7_000, 6_500, 1, 2)), Admission::Unpromised);
        match ask(2, window(10_000, 1_000, 0, 1)) {
            Admission::Refused { needs, left } => {
                assert!((needs - 0.1).abs() < 0.001, "{needs}");
                assert!((left - 0.0357).abs() < 0.001, "{left}");
            }
            other => panic!("{other}"),
        }
    });
    // When they have ended, there is room.
    thread::scope(|scope| {
        let (again, channel) = (window(10_000, 9_000, 0, 1), &channel);
        let (_, thread) = windowed(scope, channel, 0, again, move |slot| {
            let caller = channel.caller();
            harness::wait_until("there is room", || {
                caller.window(&slot, &again).expect("an answer") == Admission::Promised
            });
            caller.end_window(&slot).expect("given up");
            let wrong = caller.window(&slot, &window(10_000, 11_000, 0, 1));
            assert!(wrong.is_err(), "C > T: {wrong:?}");
            let slot = caller.coop_slot(0, 3).expect("a slot");
            let wrong = caller.window(&slot, &again);
            assert!(wrong.is_err(), "in a group: {wrong:?}");
        });
        thread.join().expect("joined");
    });
    let count = stage.counts();
    assert!(count.windows >= 3 && count.refused >= 1, "{count:?}");
    stage.end();
}

#[test]
fn promised_windows_are_served_beside_hogs_and_a_greedy_one() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let stop = &AtomicBool::new(false);
    let seconds = if measured() { 3 } else { 1 };
    let wishes = [
        window(10_000, 2_000, 1, 5),
        window(16_000, 2_000, 0, 1),
        // 48 % of the CPU, but at times more of it than the reserve leaves.
        window(8_000, 7_700, 1, 2),
    ];
    let (ran, hogs) = thread::scope(|scope| {
        let run = |slot: SlotMemory| (spin(stop), slot.periods());
        let ask = |number: usize| windowed(scope, &channel, number, wishes[number], run);
        let asked = [ask(0), ask(1), ask(2)];
        let answers = asked.each_ref().map(|(answer, _)| *answer);
        let expected = [
            Admission::Promised,
            Admission::Promised,
            Admission::Unpromised,
        ];
        assert_eq!(answers, expected);
        let hogs: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    pin();
                    spin(stop)
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        let ran = asked.map(|(_, thread)| thread.join().expect("joined"));
        let hogs: Vec<_> = hogs
            .into_iter()
            .map(|hog| hog.join().expect("joined"))
            .collect();
        (ran, hogs)
    });
    println!("{ran:?}, hogs {hogs:?}");
    let share = |ns: u64| ns as f64 / (seconds * 1000 * MS) as f64;
    let [
        (first, first_periods),
        (second, second_periods),
        (greedy, _),
    ] = ran;
    assert!(first_periods.met > 0 && second_periods.met > 0);
    if measured() {
        assert_eq!(first_periods.violated, 0, "no more than 1 of 5");
        assert_eq!(second_periods.missed, 0, "none");
        assert!((290..=305).contains(&(first_periods.met + first_periods.missed)));
        assert!((180..=190).contains(&second_periods.met));
        assert!((0.155..0.21).contains(&share(first)), "{}", share(first));
        assert!((0.12..0.13).contains(&share(second)), "{}", share(second));
        assert!(share(greedy) < 0.7, "{}", share(greedy));
        assert!(share(hogs.iter().sum()) > 0.045, "the reserve");
        assert!(jain(&hogs) > 0.95, "{hogs:?}");
    }
    stage.end();
}

/// What a thread has that raises events to itself.
struct Sink {
    channel: Channel,
    service: Service,
    _subscription: Subscription,
    _slot: SlotMemory,
}

impl Sink {
    /// The calling thread's, on the first CPU, by slot `number`.
    fn new(stage: &Stage, number: usize) -> Sink {
        let channel = stage.channel();
        let (service, name) = harness::own_service(stage.ecalls);
        let subscription = stage.ecalls.subscribe(&name).expect("known");
        let subscription = subscription.memory(&channel).install().expect("installed");
        pin();
        let slot = channel.caller().sink_slot(number, 0).expect("a slot");
        thread::yield_now();
        Sink {
            channel,
            service,
            _subscription: subscription,
            _slot: slot,
        }
    }
}

/// Reads two events every 80 ms, each 6 ms of work, that it raised to itself: 15 % of the CPU, but
/// the second comes when it has just had more than the others. How late it looks at each, ns.
fn read_pairs(stage: &Stage, cpu: bool) -> Vec<u64> {
    let mut sink = Sink::new(stage, 0);
    let mut late = Vec::new();
    for _ in 0..if measured() { 20 } else { 3 } {
        let begin = now_ns() + 40 * MS;
        for release in [begin, begin + 10 * MS] {
            let raise = Raise::new(&[]).at(Some(release), None);
            let raise = if cpu { raise.cpu() } else { raise };
            sink.service.raise(&raise).expect("raised");
        }
        for release in [begin, begin + 10 * MS] {
            sink.channel.recv().expect("an event");
            late.push(now_ns() - release);
            burn(6 * MS);
        }
        thread::sleep(Duration::from_millis(24));
    }
    late.sort_unstable();
    late
}

/// Raises events to itself all the time, and works all the time. The CPU time it had, ns.
fn read_always(stage: &Stage, stop: &AtomicBool) -> u64 {
    let mut sink = Sink::new(stage, 1);
    let before = spin(&AtomicBool::new(true));
    while !stop.load(Ordering::Relaxed) {
        let soon = Some(now_ns() + MS / 2);
        let raise = Raise::new(&[]).at(soon, soon.map(|at| at + 10 * MS)).cpu();
        sink.service.raise(&raise).expect("raised");
        burn(MS / 4);
        while sink.channel.try_recv().is_some() {}
    }
    spin(stop) - before
}

#[test]
fn an_event_brings_its_sink_the_cpu_earlier_and_not_more() {
    let Some(stage) = start() else { return };
    let stop = &AtomicBool::new(false);
    let (mut with, mut without, mut share) = (Vec::new(), Vec::new(), 0.0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                pin();
                spin(stop)
            });
        }
        without = scope
            .spawn(|| read_pairs(&stage, false))
            .join()
            .expect("read");
        with = scope
            .spawn(|| read_pairs(&stage, true))
            .join()
            .expect("read");
        let greedy = scope.spawn(|| read_always(&stage, stop));
        thread::sleep(Duration::from_secs(if measured() { 2 } else { 1 }));
        stop.store(true, Ordering::Relaxed);
        share = greedy.join().expect("read") as f64 / (2000 * MS) as f64;
    });
    println!("late by ns: with {with:?}, without {without:?}; share {share}");
    let count = stage.counts();
    assert!(count.chosen[WHY_EVENT as usize] > 0, "{count:?}");
    if measured() {
        let worst = with.last().copied().unwrap_or(u64::MAX);
        assert!(worst < 2 * MS, "{with:?}");
        assert!(without[without.len() * 3 / 4] > 5 * MS, "{without:?}");
        // A fifth, and 20 ms of 2 s.
        assert!((0.15..0.23).contains(&share), "{share}");
    }
    stage.end();
}

#[test]
fn a_scheduler_that_is_started_later_knows_the_windows() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let wish = window(10_000, 2_000, 0, 1);
        let (answer, _) = windowed(scope, &channel, 0, wish, |_| spin(stop));
        assert_eq!(answer, Admission::Promised);
        let again = stage.restart(Duration::ZERO);
        let begin = Instant::now();
        let windows = || again.counts().windows;
        while windows() == 0 && begin.elapsed() < harness::PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(windows(), 1);
        again.end();
    });
}
