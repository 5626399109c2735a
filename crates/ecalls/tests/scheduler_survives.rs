//! The scheduler when others die, are moved, or take the machine: threads that are killed in any
//! state, a holder that is killed at any moment, a restart, real-time hogs, fork bombs, control
//! groups. Needs root and a kernel with sched_ext, so it runs in the test machine.
//!
//! Shares are compared, not times.

mod harness;
#[path = "scheduler_survives/quota.rs"]
mod quota;
#[path = "scheduler_survives/start.rs"]
mod start;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ecalls::{Admission, Channel, Ecalls, now_ns};
use ecalls_abi::coop::COOP_NONE;
use ecalls_kernel::scheduler::{self, Scheduler};
use harness::stage::{
    Ends, MS, Poller, WATCHDOG, alone, burn, cpu_ns, options, pin, spin, start, window, windowed,
};
use limit::Running;
use limit::cost::{self, Room};

/// Set: this process is one that is killed, and does what the value says.
const VICTIM: &str = "ECALLS_TEST_VICTIM";

/// Starts this program again, as a victim.
fn victim_that(does: &str) -> Running {
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    Running::start(
        program
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, does)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit()),
    )
}

#[test]
fn victim() {
    let Ok(does) = std::env::var(VICTIM) else {
        return;
    };
    if does == "yields" {
        return be_a_crowd();
    }
    let ecalls = Ecalls::open().expect("a core");
    let _scheduler = match does.as_str() {
        "holds" => Some(Scheduler::start(ecalls.access(), &options()).expect("one")),
        _ => {
            be_in_all_states(&ecalls);
            None
        }
    };
    thread::sleep(Duration::from_secs(600));
}

/// A state of a thread, by what it does in it.
type Does = fn(&Channel, usize);

/// Each takes the slot with its own number.
const STATES: &[Does] = &[
    // polls, with work
    |channel, number| {
        let mut poller = Poller::new(channel, number, 0);
        loop {
            poller.poll(now_ns() + 5 * MS, 1);
            burn(MS / 5);
        }
    },
    // is always due
    |channel, number| {
        let mut poller = Poller::new(channel, number, 0);
        loop {
            poller.poll(now_ns(), 1);
            burn(MS / 5);
        }
    },
    // sleeps in a poll
    |channel, number| sleep_in_a_poll(channel, number, 0),
    // was demoted, and works on
    |channel, number| {
        Poller::new(channel, number, 0).poll(COOP_NONE, 1);
        burn(u64::MAX / 2 - now_ns());
    },
    // was demoted, and sleeps
    |channel, number| {
        Poller::new(channel, number, 0).poll(COOP_NONE, 1);
        thread::sleep(Duration::from_secs(600));
    },
    // has a window and had its service
    |channel, number| {
        let slot = channel.caller().coop_slot(number, 0).expect("a slot");
        let wish = window(10_000, 1_000, 0, 1);
        let _ = channel.caller().window(&slot, &wish).expect("an answer");
        burn(u64::MAX / 2 - now_ns());
    },
    // has a window and sleeps
    |channel, number| {
        let slot = channel.caller().coop_slot(number, 0).expect("a slot");
        let wish = window(10_000, 1_000, 0, 1);
        let _ = channel.caller().window(&slot, &wish).expect("an answer");
        thread::sleep(Duration::from_secs(600));
    },
    // polls in a group
    |channel, number| {
        let mut poller = Poller::new(channel, number, 3);
        loop {
            poller.poll(COOP_NONE, now_ns());
            burn(MS / 5);
        }
    },
    // sleeps in a group
    |channel, number| sleep_in_a_poll(channel, number, 3),
    // waits for events
    |channel, number| {
        let _slot = channel.caller().sink_slot(number, 0).expect("a slot");
        thread::yield_now();
        thread::sleep(Duration::from_secs(600));
    },
];

fn sleep_in_a_poll(channel: &Channel, number: usize, group: u32) {
    let mut poller = Poller::new(channel, number, group);
    poller.poll(COOP_NONE, 1);
    poller.sleep(now_ns() + 3_600_000 * MS);
}

fn be_in_all_states(ecalls: &Ecalls) {
    let channel: &'static Channel =
        Box::leak(Box::new(ecalls.channel().open().expect("a channel")));
    for (number, does) in STATES.iter().enumerate() {
        thread::spawn(move || {
            pin();
            does(channel, number);
        });
    }
}

#[test]
fn threads_that_are_killed_in_any_state_leave_their_places() {
    let Some(stage) = start() else { return };
    for _ in 0..2 {
        let before = stage.counts();
        let mut victim = victim_that("is in all states");
        wait_long("all have named their slots", || {
            stage.counts().entered == before.entered + STATES.len() as u64
        });
        assert!(stage.counts().windows >= before.windows + 2);
        victim.kill(harness::PATIENCE);
        harness::wait_until("their places are free", || {
            stage.total().left == stage.total().entered
        });
    }
    // What their windows needed is there again.
    let channel = stage.channel();
    thread::scope(|scope| {
        let (answer, _) = windowed(scope, &channel, 0, window(10_000, 9_500, 0, 1), |_| ());
        assert_eq!(answer, Admission::Promised);
    });
    stage.end();
}

/// Nothing is pinned where programs pin.
fn assert_nothing_pinned() {
    let Ok(folder) = fs::read_dir("/sys/fs/bpf") else {
        return;
    };
    let names: Vec<_> = folder
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("ecalls") || name.contains("sched"))
        .collect();
    assert_eq!(names, Vec::<String>::new());
}

/// At which a holder is killed, the last of them as soon as it schedules.
const MOMENTS: u32 = 3;

#[test]
fn a_holder_may_be_killed_at_any_moment() {
    let Some((_, alone)) = alone() else { return };
    let runs = || scheduler::state().is_some_and(|state| state.running.is_some());
    // How long it takes here, so that the moments are spread over it.
    let begin = Instant::now();
    let mut first = victim_that("holds");
    wait_long("it schedules", runs);
    let whole = begin.elapsed();
    let state = scheduler::state().expect("sched_ext");
    // The kernel names it with the version of its table.
    assert!(state.running.as_deref().is_some_and(scheduler::is_ours));
    assert_eq!(state.holder, Some(first.id()));
    first.kill(harness::PATIENCE);
    harness::wait_until("the kernel has its threads back", || !runs());
    for part in 1..MOMENTS {
        let mut victim = victim_that("holds");
        thread::sleep(whole * part / MOMENTS);
        victim.kill(harness::PATIENCE);
        harness::wait_until("the kernel has its threads back", || !runs());
        assert_eq!(scheduler::state().expect("sched_ext").holder, None);
        assert_nothing_pinned();
    }
    drop(alone);
    start().expect("one starts after them").end();
}

/// Threads that yield for ever.
const YIELDERS: usize = 2000;

fn be_a_crowd() {
    // Beside threads that yield, the others would take long to make.
    let all = &Barrier::new(YIELDERS);
    thread::scope(|scope| {
        for _ in 0..YIELDERS {
            let yields = || {
                all.wait();
                std::iter::repeat_with(thread::yield_now).for_each(|()| ());
            };
            let thread = thread::Builder::new().stack_size(16 << 10);
            thread.spawn_scoped(scope, yields).expect("a thread");
        }
    });
}

#[test]
fn it_starts_stops_and_is_killed_beside_a_crowd_that_yields() {
    // To load one beside them takes three times as long: the first is that of the test before.
    let Some(stage) = start() else { return };
    let runs = || scheduler::state().is_some_and(|state| state.running.is_some());
    // In a group, they leave half of the CPUs to those that start it.
    let group = Group::new(Path::new(CGROUPS), "ecalls-crowd", 100).expect("a group");
    let mut crowd = victim_that("yields");
    fs::write(group.0.join("cgroup.procs"), crowd.id().to_string()).expect("moved");
    let tasks = format!("/proc/{}/task", crowd.id());
    wait_long("all are there", || {
        thread::sleep(Duration::from_millis(100));
        fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > YIELDERS)
    });
    let (_, alone) = stage.stop();
    let mut holder = victim_that("holds");
    wait_long("it schedules", runs);
    thread::sleep(Duration::from_millis(500));
    holder.kill(harness::PATIENCE);
    wait_long("the kernel has its threads back", || !runs());
    drop(alone);
    let stage = start().expect("one starts after it");
    thread::sleep(Duration::from_secs(1));
    crowd.kill(5 * harness::PATIENCE);
    drop(group);
    stage.end();
}

#[test]
fn a_restart_loses_no_slot_and_no_window() {
    let Some(stage) = start() else { return };
    let (channel, stop) = (&stage.channel(), &AtomicBool::new(false));
    let rounds = &AtomicU64::new(0);
    thread::scope(|scope| {
        let _ends = Ends(stop);
        let ask = |number, wish, then: fn(&AtomicBool)| {
            let (answer, _) = windowed(scope, channel, number, wish, move |_| then(stop));
            answer
        };
        // Always ready, and waiting for its next period; then one that shares beyond its service.
        let works = |stop: &AtomicBool| _ = spin(stop);
        assert_eq!(
            ask(0, window(10_000, 2_000, 0, 1), works),
            Admission::Promised
        );
        let mut conserving = window(10_000, 1_000, 1, 2);
        conserving.conserving = true;
        assert_eq!(ask(1, conserving, works), Admission::Promised);
        let rests = |stop: &AtomicBool| {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(3));
            }
        };
        assert_eq!(
            ask(2, window(20_000, 1_000, 0, 1), rests),
            Admission::Promised
        );
        let refused = ask(3, window(10_000, 9_600, 0, 1), rests);
        assert!(matches!(refused, Admission::Refused { .. }), "{refused}");
        scope.spawn(|| {
            pin();
            let mut poller = Poller::new(channel, 4, 5);
            poller.poll(COOP_NONE, 1);
            while !stop.load(Ordering::Relaxed) {
                // Nobody answers between the two.
                poller.publish(now_ns() + 5 * MS, 1);
                thread::sleep(Duration::from_millis(2));
                if poller.read(15) >> 32 == poller.polls {
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        harness::wait_until("it polls", || rounds.load(Ordering::Relaxed) > 3);
        let again = stage.restart(Duration::from_millis(50));
        let seen = rounds.load(Ordering::Relaxed);
        harness::wait_until("all are as they were", || {
            let count = again.total();
            (count.entered, count.windows, count.refused) == (5, 3, 1)
        });
        harness::wait_until("it polls again", || {
            rounds.load(Ordering::Relaxed) > seen + 3
        });
        again.end();
    });
}

#[test]
fn a_thread_that_is_moved_again_and_again_has_its_share() {
    let Some(stage) = start() else { return };
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("skipped: one CPU");
        return stage.end();
    }
    let (channel, stop) = (&stage.channel(), &AtomicBool::new(false));
    let on = |number: usize| {
        let mut cpu = rustix::thread::CpuSet::new();
        cpu.set(number);
        rustix::thread::sched_setaffinity(None, &cpu).expect("a CPU");
    };
    let all_there = &Barrier::new(5);
    let (movers, hogs) = thread::scope(|scope| {
        let hogs = [0, 1].map(|cpu| {
            scope.spawn(move || {
                all_there.wait();
                on(cpu);
                let before = cpu_ns();
                spin(stop) - before
            })
        });
        // One that polls, always due, and a plain one.
        let mover = |polls: bool| {
            scope.spawn(move || {
                let mut poller = Poller::new(channel, usize::from(polls), 0);
                all_there.wait();
                let before = cpu_ns();
                let mut cpu = 0;
                while !stop.load(Ordering::Relaxed) {
                    cpu = 1 - cpu;
                    on(cpu);
                    if polls {
                        poller.poll(now_ns(), 1);
                    }
                    burn(5 * MS);
                }
                cpu_ns() - before
            })
        };
        let movers = [mover(true), mover(false)];
        all_there.wait();
        thread::sleep(Duration::from_millis(1200));
        stop.store(true, Ordering::Relaxed);
        let movers = movers.map(|thread| thread.join().expect("joined"));
        (movers, hogs.map(|thread| thread.join().expect("joined")))
    });
    println!("moved {movers:?}, hogs {hogs:?}");
    let hogs: u64 = hogs.iter().sum();
    // Of two CPUs four threads have half of one each. Who arrives may wait for a slice of each of
    // the others, 13 ms, before the 5 ms until it moves on: so it has a third of what a hog has at
    // least, and no more than a hog but for what it had when it began.
    for had in movers {
        assert!(had * 2 < hogs * 17 / 10, "not more than a share");
        assert!(had * 2 > hogs / 4, "nor next to nothing");
    }
    stage.end();
}

/// As [`harness::wait_until`], for what takes the start of programs beside hogs, emulated.
fn wait_long(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < 5 * harness::PATIENCE,
            "waited too long: {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A command that computes for ever on the first CPU.
const HOG: &str = "while :; do :; done";

#[test]
fn a_real_time_hog_leaves_something_and_ends_nothing() {
    let Some(stage) = start() else { return };
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(stop);
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let mut real_time = Running::start(
            Command::new("taskset").args(["-c", "0", "chrt", "-f", "50", "sh", "-c", HOG]),
        );
        thread::sleep(Duration::from_secs(2));
        assert_eq!(stage.scheduler.ended(), None);
        real_time.kill(harness::PATIENCE);
        stop.store(true, Ordering::Relaxed);
        let had = hog.join().expect("joined");
        println!("beside a real-time hog for 2 s: {} ms", had / MS);
        assert!(had > 40 * MS, "{had}");
    });
    stage.end();
}

/// Whether a process has closed its standard error: so shells say how far they are.
fn closed_errors(process: u32) -> bool {
    fs::symlink_metadata(format!("/proc/{process}/fd/2")).is_err()
}

/// A control group of version 2 with shares.
struct Group(PathBuf);

const CGROUPS: &str = "/sys/fs/cgroup";

impl Group {
    /// None, and the reason told, where there is none.
    fn new(within: &Path, name: &str, weight: u32) -> Option<Group> {
        let _ = fs::write(within.join("cgroup.subtree_control"), "+cpu");
        let group = Group(within.join(name));
        fs::create_dir(&group.0).expect("root can make a group");
        if fs::write(group.0.join("cpu.weight"), weight.to_string()).is_err() {
            eprintln!("skipped: control groups have no cpu.weight here");
            return None;
        }
        Some(group)
    }

    fn weigh(&self, weight: u32) {
        fs::write(self.0.join("cpu.weight"), weight.to_string()).expect("a weight");
    }

    fn limit(&self, max: &str) {
        fs::write(self.0.join("cpu.max"), max).expect("a limit");
    }

    /// Runs a shell command in it.
    fn run(&self, script: &str) -> Running {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ >{} && {script}", procs.display());
        Running::start(Command::new("sh").args(["-c", &script]))
    }

    /// Runs hogs in it, all on the first CPU. They compute when this returns.
    fn run_hogs(&self, count: usize) -> Vec<Running> {
        let script = format!("exec taskset -c 0 sh -c 'exec 2>&-; {HOG}'");
        let hogs: Vec<_> = (0..count).map(|_| self.run(&script)).collect();
        wait_long("they compute", || {
            hogs.iter().all(|hog| closed_errors(hog.id()))
        });
        hogs
    }

    fn processes(&self) -> Vec<u32> {
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let numbers = inside.lines().map(|line| line.parse().expect("a number"));
        numbers.collect()
    }

    /// How many of its processes have closed their standard error.
    fn closed_errors(&self) -> usize {
        let closed = |one: &&u32| closed_errors(**one);
        self.processes().iter().filter(closed).count()
    }

    /// The CPU time that each of its processes has had, ns.
    fn times(&self) -> BTreeMap<u32, u64> {
        let time = |one| {
            let text = fs::read_to_string(format!("/proc/{one}/schedstat")).expect("its figures");
            let time = text.split(' ').next().and_then(|time| time.parse().ok());
            (one, time.expect("a time"))
        };
        self.processes().into_iter().map(time).collect()
    }

    fn usage_us(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("cpu.stat")).expect("its figures");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        value
            .and_then(|value| value.parse().ok())
            .expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let begin = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begin.elapsed() < harness::PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The parts of what they had together in a while.
fn parts(groups: &[&Group]) -> Vec<f64> {
    let usage = || {
        groups
            .iter()
            .map(|group| group.usage_us())
            .collect::<Vec<_>>()
    };
    thread::sleep(Duration::from_millis(200));
    let before = usage();
    thread::sleep(Duration::from_secs(1));
    let had: Vec<u64> = usage()
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    let sum: u64 = had.iter().sum();
    had.iter().map(|one| *one as f64 / sum as f64).collect()
}

/// The groups have these parts.
fn assert_have(groups: &[&Group], expected: &[f64]) {
    let parts = parts(groups);
    println!("{parts:.3?}, expected {expected:?}");
    for (part, right) in parts.iter().zip(expected) {
        assert!((part / right - 1.0).abs() < 0.25, "{part}, not {right}");
    }
}

#[test]
fn control_groups_share_by_their_weights_however_many_threads_they_have() {
    let Some(stage) = start() else { return };
    let root = Path::new(CGROUPS);
    let Some(many) = Group::new(root, "ecalls-many", 300) else {
        return stage.end();
    };
    let nested = Group::new(root, "ecalls-nested", 100).expect("a group");
    let lower = Group::new(&nested.0, "lower", 100).expect("a group");
    let upper = Group::new(&nested.0, "upper", 300).expect("a group");
    let mut hogs = many.run_hogs(5);
    hogs.extend(lower.run_hogs(2));
    hogs.extend(upper.run_hogs(1));
    let groups = [&many, &lower, &upper];
    assert_have(&groups, &[0.75, 0.0625, 0.1875]);
    many.weigh(100);
    assert_have(&groups, &[0.5, 0.125, 0.375]);
    // The upper one's only thread goes: what it had is the lower one's.
    drop(hogs.pop());
    assert_have(&[&many, &lower], &[0.5, 0.5]);
    // And comes to another group.
    let moved = hogs.last().expect("a hog").id();
    fs::write(upper.0.join("cgroup.procs"), moved.to_string()).expect("moved");
    assert_have(&groups, &[0.5, 0.125, 0.375]);
    // Who is idle has what nobody else wants.
    fs::write(nested.0.join("cpu.idle"), "1").expect("idle");
    let parts = parts(&groups);
    assert!(parts[0] > 0.95, "of 100 to 1: {parts:?}");
    drop(hogs);
    drop((lower, upper));
    drop(nested);
    stage.end();
}

/// More than the scheduler has places for.
const COMERS: usize = 4500;

#[test]
fn control_groups_that_come_and_go_leave_their_places() {
    let Some(stage) = start() else { return };
    let root = Path::new(CGROUPS);
    let Some(few) = Group::new(root, "ecalls-few", 100) else {
        return stage.end();
    };
    // They are gone for the scheduler some time after they are for us.
    for _ in 0..COMERS / 50 {
        let names: [_; 50] = std::array::from_fn(|number| root.join(format!("ecalls-{number}")));
        for name in &names {
            fs::create_dir(name).expect("made");
        }
        for name in &names {
            fs::remove_dir(name).expect("removed");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let many = Group::new(root, "ecalls-many", 300).expect("a group");
    let within = Group::new(&many.0, "ecalls-within", 100).expect("a group");
    let hogs = [few.run_hogs(1), within.run_hogs(2)];
    assert_have(&[&few, &within], &[0.25, 0.75]);
    drop(hogs);
    drop(within);
    drop(many);
    stage.end();
}

/// Processes of the bomb.
const BOMB: usize = 200;

/// Starts them in a control group, all at once.
fn explode(group: &Group) -> Running {
    // They wait for each other, else the last one would have to wait for its turn to be made: each
    // reads from a pipe that ends for all of them at once. Who has it open has closed fd 2.
    let gate = std::env::temp_dir().join(format!("ecalls-bomb-{}", std::process::id()));
    let made = Command::new("mkfifo").arg(&gate).status();
    assert!(made.expect("mkfifo").success());
    let writer = fs::OpenOptions::new().read(true).write(true).open(&gate);
    let one = format!("(exec 3<{} 2>&-; read -r go <&3; {HOG}) &", gate.display());
    let bomb = group.run(&format!(
        "i=0; while [ $i -lt {BOMB} ]; do i=$((i+1)); {one} done; wait"
    ));
    wait_long("all are there", || {
        thread::sleep(Duration::from_millis(100));
        group.closed_errors() == BOMB
    });
    fs::remove_file(&gate).expect("it is there");
    let before = group.times();
    drop(writer.expect("the pipe"));
    // Each of them wakes where the least virtual time is, and has a turn first, of a tick or two.
    wait_long("each has had its first turn", || {
        thread::sleep(Duration::from_millis(100));
        let times = group.times().into_iter();
        // The shell that has started them only waits.
        let had_one = |(one, time): &(u32, u64)| time - before.get(one).unwrap_or(time) > MS;
        times.filter(had_one).count() == BOMB
    });
    bomb
}

/// CPU time of a hog and of a thread that polls, both on the first CPU, and how long that was.
fn two_beside_a_bomb(channel: &Channel) -> (u64, u64, u64) {
    let stop = &AtomicBool::new(false);
    let (ready, begun) = (&Barrier::new(3), &AtomicBool::new(false));
    thread::scope(|scope| {
        let hog = scope.spawn(|| {
            pin();
            ready.wait();
            let before = spin(begun);
            spin(stop) - before
        });
        let honest = scope.spawn(|| {
            pin();
            let mut poller = Poller::new(channel, 0, 0);
            let mut polls_until = |told: &AtomicBool| {
                while !told.load(Ordering::Relaxed) {
                    poller.poll(now_ns() + 5 * MS, 1);
                    burn(MS / 5);
                }
                spin(told)
            };
            ready.wait();
            let before = polls_until(begun);
            polls_until(stop) - before
        });
        ready.wait();
        // Half of the bomb is on this CPU, and leaves it one by one.
        thread::sleep(Duration::from_millis(1500));
        begun.store(true, Ordering::Relaxed);
        let begin = now_ns();
        thread::sleep(Duration::from_millis(1500));
        stop.store(true, Ordering::Relaxed);
        let elapsed = now_ns() - begin;
        let [hog, honest] = [hog, honest].map(|thread| thread.join().expect("joined"));
        (hog, honest, elapsed)
    })
}

#[test]
fn many_processes_in_a_control_group_have_the_share_of_the_group() {
    let Some(stage) = start() else { return };
    let Some(group) = Group::new(Path::new(CGROUPS), "ecalls-bomb", 100) else {
        return stage.end();
    };
    let bomb = explode(&group);
    let (hog, honest, elapsed) = two_beside_a_bomb(&stage.channel());
    println!("beside {BOMB} processes: hog {hog} ns, honest {honest} of {elapsed}");
    // All of the bomb weighs as much as one thread, and has more on the other CPU than it would
    // have here: so these two have half of this one each.
    assert!(hog * 100 > elapsed * 45, "{hog} of {elapsed}");
    assert!(honest * 100 > elapsed * 45, "{honest} of {elapsed}");
    drop(group);
    drop(bomb);
    stage.end();
}

/// Who come while the lightest thread is ahead of them.
const CROWD: usize = 60;

/// Computes as the lightest thread there is, and counts its turns.
fn be_light(turns: &AtomicU64, stop: &AtomicBool) {
    rustix::process::nice(19).expect("nicer");
    let mut before = now_ns();
    while !stop.load(Ordering::Relaxed) {
        let now = now_ns();
        if now - before > 20 * MS {
            turns.fetch_add(1, Ordering::Relaxed);
        }
        before = now;
    }
}

#[test]
fn the_lightest_threads_are_not_forgotten_in_a_crowd() {
    let Some(stage) = start() else { return };
    let (channel, stop) = (&stage.channel(), &AtomicBool::new(false));
    let turns = &[const { AtomicU64::new(0) }; 2];
    let have_more = |seen: [u64; 2]| {
        let mut both = turns.iter().zip(seen);
        both.all(|(turns, seen)| turns.load(Ordering::Relaxed) > seen)
    };
    let seen = || turns.each_ref().map(|turns| turns.load(Ordering::Relaxed));
    thread::scope(|scope| {
        let _ends = Ends(stop);
        scope.spawn(|| {
            pin();
            be_light(&turns[0], stop);
        });
        // One that the scheduler knows by a slot.
        scope.spawn(|| {
            pin();
            let _slot = channel.caller().sink_slot(0, 0).expect("a slot");
            thread::yield_now();
            be_light(&turns[1], stop);
        });
        let hog = || {
            pin();
            spin(stop)
        };
        scope.spawn(hog);
        // After a turn beside one hog they are most of a second ahead; and are overtaken.
        let before = seen();
        wait_long("they have a turn", || have_more(before));
        for _ in 0..CROWD {
            scope.spawn(hog);
        }
        thread::sleep(Duration::from_secs(1));
        // The others need half a minute to a minute to be where they are.
        let (before, begin) = (seen(), now_ns());
        wait_long("they have another one", || have_more(before));
        let waited = (now_ns() - begin) / MS;
        println!("the lightest ones waited for {waited} ms");
        // Each second somebody looks for such threads.
        let most = WATCHDOG / 3 + Duration::from_secs(3);
        assert!(u128::from(waited) < most.as_millis(), "{waited} ms");
        assert_eq!(stage.scheduler.ended(), None);
    });
    stage.keep();
}

/// The verifier's work on the scheduler: instructions, by program.
const COSTS: &str = include_str!("../../../bpf/sched/verifier-cost");
/// By which kernels may differ, and small changes.
const ROOM: Room = Room {
    margin: 1.5,
    small: 0.0,
};

#[test]
fn the_verifier_looks_at_no_more_instructions_than_the_record_says() {
    let Some(stage) = start() else { return };
    let costs = stage.scheduler.verified().expect("their costs");
    let recorded = cost::compare(COSTS, &costs, ROOM);
    assert_eq!(recorded, costs.len(), "what is recorded is there");
    stage.end();
}
