//! Timed programs (`ecalls run --coop`): whose sleeps count, what lies told by timers gain, and
//! when the kernel's timers are watched. Releases and CPU times are counted; no time is measured.

use std::fs;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use ecalls_kernel::scheduler;
use limit::Running;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{ClockId, clock_nanosleep_absolute, futex};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::group::{cpu_ms, pin};
use super::{NOBODY, PATIENCE, ROLE, Stage, end, limit_until, report};

/// How the role of a liar begins.
pub(crate) const LIE: &str = "lie ";
/// Of each lie. What it can gain, 20 ms, is little beside it.
const LENGTH_MS: i64 = 500;
/// A share is at least so much of another one that should be the same.
const NEARLY: f64 = 0.9;

/// A shell whose children sleep, as many times as `SLEEPS`. They begin when timers are watched.
const SLEEPER: &str = "cat /proc/self/timerslack_ns; sleep 1; \
                       for i in 1 2 3 4 5 6 7 8; do sleep 0.01; done";
const SLEEPS: u64 = 8;

/// Ends the thread that computes, also when a test fails: the scope waits for it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Of all threads of the machine.
fn releases() -> u64 {
    let counts = scheduler::counts().expect("counts");
    counts.iter().map(|count| count.releases).sum()
}

pub(crate) fn timed_sleeps_of_a_program_and_its_descendants_end_with_releases(stage: &Stage) {
    // Somebody who computes, on the same CPU: an idle one runs whoever wakes.
    let stop = &AtomicBool::new(false);
    let count = |(uid, wish): (u32, &[&str])| {
        let mut arguments = vec!["--json"];
        arguments.extend(wish);
        arguments.extend(["--", "sh", "-c", SLEEPER]);
        // The report tells them to root only.
        let before = releases();
        let ended = end(&mut stage.run_as(uid, &arguments));
        let count = releases() - before;
        println!("{uid} {wish:?}: {count} releases, {}", report(&ended));
        (count, ended.out)
    };
    thread::scope(|scope| {
        let _ends = Ends(stop);
        scope.spawn(|| {
            pin(0..1);
            limit::compute_until(|| stop.load(Ordering::Relaxed));
        });
        let [timed, grouped, of_user, plain] = [
            (0, &["--coop"][..]),
            (0, &["--coop", "--group", "3"]),
            (NOBODY, &["--coop"]),
            (0, &[]),
        ]
        .map(count);
        assert!(timed.0 >= SLEEPS, "{timed:?}");
        assert_eq!(timed.1.trim(), "1", "the timer slack");
        assert!(grouped.0 >= SLEEPS, "{grouped:?}");
        assert!(of_user.0 >= SLEEPS, "{of_user:?}");
        assert_eq!(plain.0, 0, "{plain:?}");
    });
}

/// Sleeps of [`hurried`] that are over before they begin.
const HURRIED: u64 = 20;

/// The role of a program whose thread sleeps until a time that has come, and then for what another
/// thread does.
pub(crate) fn hurried() {
    thread::sleep(Duration::from_secs(1));
    let (go, ready) = sync_channel::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            while ready.recv().is_ok() {
                sleep_until_past();
            }
        });
        for _ in 0..HURRIED {
            burn(3_000);
            let _ = go.send(());
        }
        drop(go);
    });
}

/// The releases of a program that plays a role as timed threads, beside a thread that computes.
fn releases_of(stage: &Stage, role: &str) -> u64 {
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(stop);
        scope.spawn(|| {
            pin(0..1);
            limit::compute_until(|| stop.load(Ordering::Relaxed));
        });
        let actor = stage.folder.join("actor").display().to_string();
        let arguments = ["--json", "--coop", "--", &actor, "--exact", "a_role"];
        let ended = end(stage.run(&arguments).env(ROLE, role));
        let report = report(&ended);
        println!("{report}");
        report["releases"].as_u64().unwrap_or(0)
    })
}

pub(crate) fn a_time_that_comes_before_its_sleep_is_of_no_other_sleep(stage: &Stage) {
    // That of the first second, and what the test harness may sleep.
    assert!(releases_of(stage, "hurried") < HURRIED / 4);
}

/// The role of a program that waits for a timer descriptor, without a timeout.
pub(crate) fn waits_for_a_descriptor() {
    thread::sleep(Duration::from_secs(1));
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
    let timer = timer.expect("a timer");
    let in_ten_ms = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        },
    };
    for _ in 0..SLEEPS {
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &in_ten_ms).expect("set");
        let _ = poll(&mut [PollFd::new(&timer, PollFlags::IN)], None);
    }
}

pub(crate) fn a_timer_descriptor_counts_for_who_arms_it(stage: &Stage) {
    assert!(releases_of(stage, "waits for a descriptor") > SLEEPS / 2);
}

/// The role of a program that sleeps until times of the day, and waits for a word of memory until
/// such a time, as condition variables of POSIX do.
pub(crate) fn sleeps_by_the_time_of_the_day() {
    let word = AtomicU32::new(0);
    let private = futex::Flags::PRIVATE | futex::Flags::CLOCK_REALTIME;
    let in_ten_ms = || {
        let mut at = clock_gettime(ClockId::Realtime);
        at.tv_nsec += 10_000_000;
        at.tv_sec += at.tv_nsec / 1_000_000_000;
        at.tv_nsec %= 1_000_000_000;
        at
    };
    thread::sleep(Duration::from_secs(1));
    for _ in 0..SLEEPS {
        let _ = clock_nanosleep_absolute(ClockId::Realtime, &in_ten_ms());
        let _ = futex::wait_bitset(&word, private, 0, Some(&in_ten_ms()), NonZeroU32::MAX);
    }
}

pub(crate) fn a_sleep_until_a_time_of_the_day_is_timed(stage: &Stage) {
    assert!(releases_of(stage, "sleeps by the time of the day") > SLEEPS * 3 / 2);
}

/// What a liar does again and again.
const LIES: &[(&str, fn())] = &[
    ("timers that are always due", || {
        thread::sleep(Duration::ZERO);
        sleep_until_past();
        burn(200);
    }),
    ("tiny periods", || {
        thread::sleep(Duration::from_nanos(1));
        burn(200);
    }),
    ("tiny periods and whole turns", || {
        thread::sleep(Duration::from_nanos(1));
        burn(1_500);
    }),
    ("it computes for long", || {
        thread::sleep(Duration::from_micros(1));
        burn(40_000);
    }),
    ("a timer descriptor that is always due", || {
        let _timer = due_timer();
        // The time has come for the next wake-up.
        thread::sleep(Duration::from_nanos(1));
        burn(200);
    }),
    (
        "a timer descriptor, and another thread that wakes it",
        || {
            let (ask, asked) = sync_channel::<()>(0);
            let (answer, answered) = sync_channel(0);
            thread::scope(|scope| {
                scope.spawn(move || asked.iter().try_for_each(|()| answer.send(())));
                for _ in 0..20 {
                    let _timer = due_timer();
                    let _ = ask.send(());
                    let _ = answered.recv();
                    burn(500);
                }
                drop(ask);
            });
        },
    ),
    (
        "threads, one after the other, each as far ahead as it may be",
        || {
            let link = || {
                let end = cpu_ms() + 15;
                while cpu_ms() < end {
                    thread::sleep(Duration::from_nanos(1));
                    burn(200);
                }
            };
            thread::spawn(link).join().expect("a link");
        },
    ),
    ("moves between processors", || {
        for cpu in [0, 1] {
            pin(cpu..cpu + 1);
            for _ in 0..10 {
                thread::sleep(Duration::from_nanos(1));
                burn(200);
            }
        }
    }),
    ("many threads with tiny periods", || {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        thread::sleep(Duration::from_nanos(1));
                        burn(100);
                    }
                });
            }
        });
    }),
];

/// A timer descriptor whose time has come.
fn due_timer() -> OwnedFd {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
    let timer = timer.expect("a timer");
    let at = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: 0,
            tv_nsec: 1,
        },
    };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at).expect("set");
    let _ = poll(&mut [PollFd::new(&timer, PollFlags::IN)], None);
    timer
}

fn sleep_until_past() {
    let past = Timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &past);
}

/// Computes for so many microseconds.
fn burn(us: u64) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(us) {}
}

fn process_ms() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// The role of a liar: it waits until timers are watched, lies, and tells what CPU time it had.
pub(crate) fn lie(role: &str) {
    let lie = LIES
        .iter()
        .find(|one| role.strip_prefix(LIE) == Some(one.0));
    let (_, lie) = lie.expect("a known lie");
    thread::sleep(Duration::from_secs(1));
    println!("begins");
    let (begin, before) = (Instant::now(), process_ms());
    while begin.elapsed().as_millis() < 2 * LENGTH_MS as u128 {
        lie();
    }
    println!("had {}", process_ms() - before);
}

/// CPU time that a liar had, and in that time hogs on so many processors, ms.
fn beside_hogs(stage: &Stage, lie: &str, processors: usize) -> (f64, f64) {
    let stop = &AtomicBool::new(false);
    let hogs: Vec<AtomicI64> = (0..processors).map(|_| AtomicI64::new(0)).collect();
    let hogs_ms = || {
        hogs.iter()
            .map(|ms| ms.load(Ordering::Relaxed))
            .sum::<i64>()
    };
    let actor = stage.folder.join("actor").display().to_string();
    thread::scope(|scope| {
        let _ends = Ends(stop);
        for (cpu, ms) in hogs.iter().enumerate() {
            scope.spawn(move || {
                pin(cpu..cpu + 1);
                limit::compute_until(|| {
                    ms.store(cpu_ms(), Ordering::Relaxed);
                    stop.load(Ordering::Relaxed)
                });
            });
        }
        let arguments = ["--coop", "--", &actor, "--exact", "a_role", "--nocapture"];
        let mut command = stage.run(&arguments);
        command.env(ROLE, format!("{LIE}{lie}"));
        let mut liar = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut lines = liar.lines();
        lines.find("begins", PATIENCE);
        let before = hogs_ms();
        let had = lines.find("had ", PATIENCE);
        let hogs = hogs_ms() - before;
        let had = had.rsplit(' ').next().and_then(|ms| ms.parse().ok());
        (had.expect("a number"), hogs as f64)
    })
}

pub(crate) fn who_tells_lies_with_timers_has_its_share(stage: &Stage) {
    let mut failed = Vec::new();
    for (lie, _) in LIES {
        let processors = if lie.starts_with("moves") { 2 } else { 1 };
        let (had, hogs) = beside_hogs(stage, lie, processors);
        println!("{lie}: {had} ms, and on {processors} processors hogs {hogs} ms");
        // With the thread that waits for the two. Who moves has half of one processor.
        let times = if lie.starts_with("many") {
            1.0 / 3.0
        } else {
            1.0
        };
        let times = times * (2 * processors - 1) as f64;
        if hogs < NEARLY * had * times || hogs < f64::from(LENGTH_MS as i32) / 3.0 {
            failed.push(format!("{lie}: {had} ms, and hogs {hogs} ms"));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// The links of the scheduler's holder to tracepoints, by what the kernel says of its descriptors.
fn tracing_links() -> usize {
    let holder = scheduler::state().and_then(|state| state.holder);
    let folder = format!("/proc/{}/fdinfo", holder.expect("it runs"));
    let descriptors = fs::read_dir(folder).expect("its descriptors").flatten();
    let is_tracing = |told: &String| told.contains("link_type:\traw_tracepoint");
    let told = descriptors.filter_map(|one| fs::read_to_string(one.path()).ok());
    told.filter(is_tracing).count()
}

pub(crate) fn the_kernels_timers_are_watched_while_a_timed_program_exists(stage: &Stage) {
    // What the programs of other parts had watched is over.
    thread::sleep(Duration::from_secs(1));
    let before = tracing_links();
    for _ in 0..2 {
        let mut command = stage.run(&["--coop", "--", "sleep", "1000"]);
        let mut program = Running::start(command.stderr(Stdio::null()));
        limit_until("it is attached", &stage.folder, || {
            tracing_links() == before + 1
        });
        // Whatever ends the program: the parent alone leaves it, so its child is ended first.
        let child = super::child_of(program.id()).expect("it was executed");
        let pid = rustix::process::Pid::from_raw(child.cast_signed()).expect("a number");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        program.wait(PATIENCE);
        limit_until("it is detached", &stage.folder, || {
            tracing_links() == before
        });
    }
}
