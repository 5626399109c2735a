//! Programs that know nothing of our scheduler, in a group or with a window of it (`ecalls run`),
//! and what one user may have of it through the daemon.
//!
//! It needs root and a kernel with sched_ext, so most of it runs in the test machine. Elsewhere it
//! checks that this is said. Nothing depends on how fast the machine is.

mod group;
mod timed;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ecalls::window::{Admission, Window};
use ecalls::{Channel, Ecalls};
use ecalls_kernel::scheduler;
use limit::{Ended, Lines, Running};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(300);
const NOBODY: u32 = 65534;
/// What a user's process in this test is told to be.
const ROLE: &str = "ECALLS_TEST_ROLE";
/// A word of the parts to be tested; none: all.
const PART: &str = "ECALLS_TEST_PART";
/// Computes for a while, whatever the machine.
const BUSY: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
/// Places of a CPU's table that one user has.
const PLACES: usize = 32;

/// A machine has one scheduler.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether the kernel tells its addresses.
const ADDRESSES: &str = "/proc/sys/kernel/kptr_restrict";

/// A daemon, and our scheduler.
struct Stage {
    folder: PathBuf,
    /// What [`ADDRESSES`] was before.
    restricts: String,
    /// What the scheduler's holder says.
    notes: Lines,
    // Dropped in this order.
    _scheduler: Running,
    daemon: Running,
    _alone: MutexGuard<'static, ()>,
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ecalls")
}

fn end(command: &mut Command) -> Ended {
    limit::ended(command, PATIENCE)
}

fn stage() -> Option<Stage> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || scheduler::state().is_none() {
        eprintln!("skipped: needs root and a kernel with sched_ext; that of tools/vm/suite has it");
        return None;
    }
    let folder = std::env::temp_dir().join(format!("ecalls-placed-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("open to all");
    lay(Path::new(program()), &folder.join("ecalls"));
    let own = std::env::current_exe().expect("this binary");
    lay(&own, &folder.join("actor"));
    let config = folder.join("ecallsd.toml");
    let text = format!("[socket]\npath = {:?}\n", folder.join("socket"));
    fs::write(&config, text).expect("a configuration");
    let daemon = daemon(&folder);
    // Nothing that these tests need is found by an address that the kernel tells.
    let restricts = fs::read_to_string(ADDRESSES).expect("a number");
    fs::write(ADDRESSES, "2").expect("hidden from root, too");
    let mut command = Command::new(program());
    command
        .args(["sched", "start", "--watchdog", "6s"])
        .env("ECALLS_SOCKET", folder.join("socket"));
    let mut scheduler = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut notes = scheduler.complaints();
    notes.find("the scheduler runs", PATIENCE);
    Some(Stage {
        folder,
        restricts,
        notes,
        _scheduler: scheduler,
        daemon,
        _alone: alone,
    })
}

/// One that answers, with its configuration in this folder.
fn daemon(folder: &Path) -> Running {
    let log = fs::File::create(folder.join("log")).expect("a log");
    let mut command = Command::new(program());
    command
        .args(["daemon", "--config"])
        .arg(folder.join("ecallsd.toml"));
    let daemon = Running::start(command.stdout(Stdio::null()).stderr(log));
    limit_until("the daemon answers", folder, || {
        let mut question = Command::new(program());
        question
            .arg("services")
            .env("ECALLS_SOCKET", folder.join("socket"));
        folder.join("socket").exists() && end(&mut question).code == 0
    });
    daemon
}

/// Lays a program where every user may execute it. They are large: copied only to another disk.
fn lay(program: &Path, there: &Path) {
    let laid = fs::hard_link(program, there);
    laid.or_else(|_| fs::copy(program, there).map(drop))
        .expect("a program for all");
}

fn limit_until(what: &str, folder: &Path, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(start.elapsed() < PATIENCE, "{what}: {}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Stage {
    /// `ecalls run` on the first CPU.
    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("taskset");
        command.args(["1", program(), "run"]).args(arguments);
        command.env("ECALLS_SOCKET", self.folder.join("socket"));
        command
    }

    /// The same as that of a user.
    fn run_as(&self, uid: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("taskset");
        command.arg("1").arg(self.folder.join("ecalls")).arg("run");
        command.args(arguments).current_dir("/").uid(uid).gid(uid);
        command.env("ECALLS_SOCKET", self.folder.join("socket"));
        command
    }

    /// This binary as a user's process with a role. What it says, by line.
    fn actor(&self, role: &str, uid: u32) -> (Running, Lines) {
        let mut command = play(self.folder.join("actor"), role, uid);
        command.env("ECALLS_SOCKET", self.folder.join("socket"));
        let mut process = Running::start(&mut command);
        let lines = process.lines();
        (process, lines)
    }
}

/// The command that plays a role.
fn play(binary: PathBuf, role: &str, uid: u32) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["--exact", "a_role", "--nocapture"])
        .env(ROLE, role)
        .current_dir("/")
        .uid(uid)
        .gid(uid)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::write(ADDRESSES, &self.restricts);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The report, which is all of standard error.
fn report(ended: &Ended) -> serde_json::Value {
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(&ended.err).unwrap_or_else(|error| panic!("{error}: {}", ended.err))
}

fn number(report: &serde_json::Value, key: &str) -> f64 {
    report[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {report}"))
}

/// What nobody answers is said before the program begins.
#[test]
fn without_our_scheduler_a_place_is_refused_and_says_what_is_missing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (code, word) = match scheduler::state() {
        None => (4, "sched_ext"),
        Some(_) => (5, "ecalls sched start"),
    };
    for wish in [
        &["--group", "players"][..],
        &["--period", "10ms", "--service", "2ms"],
        &["--coop"],
    ] {
        let mut command = Command::new(program());
        command.arg("run").args(wish).args(["--", "echo", "begun"]);
        let ended = end(&mut command);
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (code, ""),
            "{}",
            ended.err
        );
        assert!(ended.err.contains(word), "{}", ended.err);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (wrong, word) in [
        (&["--group", "0"][..], "65535"),
        (&["--group", ""], "65535"),
        (&["--period", "10ms"], "--service"),
        (&["--service", "10ms"], "--period"),
        (&["--window", "1/5"], "--period"),
        (&["--period", "1ms", "--service", "2ms"], "--service"),
        (&["--period", "11s", "--service", "2ms"], "--period"),
        (
            &["--period", "1s", "--service", "2ms", "--window", "5/5"],
            "--window",
        ),
        (
            &["--period", "1s", "--service", "1ms", "--window", "5"],
            "X/Y",
        ),
        (
            &["--period", "1s", "--service", "1ms", "--group", "a"],
            "--group",
        ),
        (&["--period", "1s", "--service", "1ms", "--coop"], "--coop"),
    ] {
        let mut command = Command::new(program());
        let ended = end(command.arg("run").args(wrong).args(["--", "echo", "begun"]));
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (2, ""),
            "{wrong:?}: {}",
            ended.err
        );
        assert!(ended.err.contains(word), "{wrong:?}: {}", ended.err);
    }
}

/// A part of the test, and what it shows.
type Part = (&'static str, fn(&Stage));

const PARTS: &[Part] = &[
    (
        "programs of a group share and each tells what all had",
        group::programs_of_a_group_share_and_each_tells_what_all_had,
    ),
    (
        "a group of another user is another group",
        group::a_group_of_another_user_is_another_group,
    ),
    (
        "a window is promised or refused before the program begins",
        a_window_is_promised_or_refused_before_the_program_begins,
    ),
    (
        "a user has half a cpu for windows and half the places until its process ends",
        a_user_has_half_a_cpu_for_windows_and_half_the_places_until_its_process_ends,
    ),
    (
        "players poll in the group that they are started in and c programs have windows",
        players_poll_in_the_group_that_they_are_started_in_and_c_programs_have_windows,
    ),
    (
        "only a child of the same user is bound by its parent",
        only_a_child_of_the_same_user_is_bound_by_its_parent,
    ),
    (
        "a trace is roots beside the daemon",
        a_trace_is_roots_beside_the_daemon,
    ),
    (
        "a group has all that its program starts but not what becomes anothers",
        group::a_group_has_all_that_its_program_starts_but_not_what_becomes_anothers,
    ),
    (
        "who becomes another user takes nobody into a group",
        group::who_becomes_another_user_takes_nobody_into_a_group,
    ),
    (
        "a program of many in a group leaves places to who asks for one",
        group::a_program_of_many_in_a_group_leaves_places_to_who_asks_for_one,
    ),
    (
        "two names with one hash are two groups",
        group::two_names_with_one_hash_are_two_groups,
    ),
    (
        "timed sleeps of a program and its descendants end with releases",
        timed::timed_sleeps_of_a_program_and_its_descendants_end_with_releases,
    ),
    (
        "a time that comes before its sleep is of no other sleep",
        timed::a_time_that_comes_before_its_sleep_is_of_no_other_sleep,
    ),
    (
        "a timer descriptor counts for who arms it",
        timed::a_timer_descriptor_counts_for_who_arms_it,
    ),
    (
        "a sleep until a time of the day is timed",
        timed::a_sleep_until_a_time_of_the_day_is_timed,
    ),
    (
        "who tells lies with timers has its share",
        timed::who_tells_lies_with_timers_has_its_share,
    ),
    (
        "the kernels timers are watched while a timed program exists",
        timed::the_kernels_timers_are_watched_while_a_timed_program_exists,
    ),
    (
        "members that compute are divided among busy cpus",
        group::members_that_compute_are_divided_among_busy_cpus,
    ),
];

/// One stage for all: to load a core and a scheduler takes longer than what is done with them.
#[test]
fn programs_that_know_nothing_of_the_scheduler_have_their_place_in_it() {
    let Some(mut stage) = stage() else { return };
    let mut failed = Vec::new();
    let wanted = std::env::var(PART).unwrap_or_default();
    for (name, test) in PARTS.iter().filter(|(name, _)| name.contains(&wanted)) {
        let begin = Instant::now();
        let part = catch_unwind(AssertUnwindSafe(|| test(&stage)));
        if part.is_err() {
            failed.push(*name);
        }
        println!("{name}: {:.1} s", begin.elapsed().as_secs_f64());
    }
    assert!(failed.is_empty(), "{failed:?}");
    if !wanted.is_empty() {
        return;
    }
    println!("a restarted daemon has the scheduler again");
    a_restarted_daemon_has_the_scheduler_again(&mut stage);
    println!("members stay in their group under the next scheduler");
    group::members_stay_in_their_group_under_the_next_scheduler(&stage);
}

/// The next one's core is another, of which what schedules knows nothing until it is started anew.
fn a_restarted_daemon_has_the_scheduler_again(stage: &mut Stage) {
    stage.daemon.kill(PATIENCE);
    stage.daemon = daemon(&stage.folder);
    stage
        .notes
        .find("the scheduler was started again", PATIENCE);
    let mut command = stage.run(&["--json", "--group", "9", "--", "sh", "-c", BUSY]);
    let report = report(&end(&mut command));
    assert!(number(&report, "group_ns") > 0.0, "{report}");
}

fn a_window_is_promised_or_refused_before_the_program_begins(stage: &Stage) {
    let window = |service: &str, script: &str| {
        let period = ["--json", "--period", "100ms", "--service", service];
        let mut command = stage.run(&period);
        end(command.args(["--window", "1/5", "--", "sh", "-c", script]))
    };
    let promised = report(&window("20ms", BUSY));
    println!("{promised}");
    assert_eq!(promised["window"], "promised");
    assert!(
        number(&promised, "met") + number(&promised, "missed") > 0.0,
        "{promised}"
    );
    let mut command = stage.run(&[
        "--period",
        "10ms",
        "--service",
        "9.9ms",
        "--",
        "echo",
        "begun",
    ]);
    let refused = end(&mut command);
    assert_eq!(
        (refused.code, refused.out.as_str()),
        (3, ""),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("is left"), "{}", refused.err);
    // A program that is not there.
    let mut command = stage.run(&["--group", "9", "--", "no-such-program"]);
    let missing = end(&mut command);
    assert_eq!(missing.code, 5, "{}", missing.err);
    assert!(missing.err.contains("no-such-program"), "{}", missing.err);
}

fn a_user_has_half_a_cpu_for_windows_and_half_the_places_until_its_process_ends(stage: &Stage) {
    // The command, too, is a client of the daemon.
    let wish = ["--json", "--period", "100ms", "--service", "10ms"];
    let mut command = stage.run_as(NOBODY, &wish);
    assert_eq!(
        report(&end(command.args(["--", "true"])))["window"],
        "promised"
    );
    for round in 0..2 {
        let (mut crowd, mut lines) = stage.actor("crowd", NOBODY);
        let told = format!("{PLACES} promised, 1 without a place");
        lines.find(&told, PATIENCE);
        println!("round {round}: {told}");
        // What it had is free for the next one.
        crowd.kill(PATIENCE);
        let (mut greedy, mut lines) = stage.actor("greedy", NOBODY);
        lines.find("half: promised; more: refused", PATIENCE);
        greedy.kill(PATIENCE);
    }
}

/// The players of examples/, in Rust and in C, and the C library's test of windows. The test
/// machine has them; elsewhere they run without a scheduler, by the tests of their crates.
fn players_poll_in_the_group_that_they_are_started_in_and_c_programs_have_windows(stage: &Stage) {
    let built = Path::new(program()).parent().expect("a folder");
    let c = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for player in [built.join("examples/frames"), c.join("frames-static")] {
        let player = player.display().to_string();
        let arguments = [
            "--json", "--group", "players", "--", &player, "1", "20", "200",
        ];
        let ended = end(&mut stage.run(&arguments));
        let report = report(&ended);
        println!("{}{report}", ended.out);
        // Also what the player has had by its own slot.
        let group = number(&report, "group_ns");
        assert!(3.0 * group > number(&report, "cpu_ns"), "{report}");
        assert!(ended.out.contains("timing: cooperative"), "{}", ended.out);
    }
    let mut windows = Command::new(c.join("window-static"));
    let ended = end(windows.env("ECALLS_SOCKET", stage.folder.join("socket")));
    assert_eq!(ended.code, 0, "{}", ended.err);
}

fn only_a_child_of_the_same_user_is_bound_by_its_parent(stage: &Stage) {
    let (mut parent, mut lines) = stage.actor("parent", 0);
    lines.find(
        "child: Fair; of another user: Unknown; not a child: handing a slot to a child: No child",
        PATIENCE,
    );
    parent.kill(PATIENCE);
}

fn a_trace_is_roots_beside_the_daemon(stage: &Stage) {
    let file = stage.folder.join("trace");
    let trace = |uid: u32| {
        let mut command = Command::new(stage.folder.join("ecalls"));
        command.args(["sched", "trace", "--json", "-d", "200ms", "-o"]);
        command.arg(&file).uid(uid).gid(uid).current_dir("/");
        end(command.env("ECALLS_SOCKET", stage.folder.join("socket")))
    };
    let refused = trace(NOBODY);
    assert_eq!(
        (refused.code, refused.out.as_str()),
        (3, ""),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("needs root"), "{}", refused.err);
    assert!(!file.exists(), "nothing was begun");
    let traced = trace(0);
    assert_eq!(traced.code, 0, "{}", traced.err);
    let summary: serde_json::Value = serde_json::from_str(&traced.out).expect("JSON");
    assert!(number(&summary, "switches") > 0.0, "{summary}");
    let bytes = fs::metadata(&file).expect("the trace").len();
    assert!(bytes > 0, "{summary}");
}

/// Not a test: what this binary does as another user.
#[test]
fn a_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("parent") => parent(),
        Ok("crowd") => crowd(),
        Ok("greedy") => greedy(),
        Ok("other") => group::other(),
        Ok("drops") => group::drops(),
        Ok("herd") => group::herd(),
        Ok("hurried") => timed::hurried(),
        Ok("waits for a descriptor") => timed::waits_for_a_descriptor(),
        Ok("sleeps by the time of the day") => timed::sleeps_by_the_time_of_the_day(),
        Ok(lie) if lie.starts_with(timed::LIE) => timed::lie(lie),
        _ => {}
    }
}

/// Hands slots to processes, and tells what the scheduler takes them for then.
fn parent() {
    let ecalls = Ecalls::open().expect("the daemon");
    let channel = ecalls.channel().open().expect("a channel");
    let socket = PathBuf::from(std::env::var_os("ECALLS_SOCKET").expect("set"));
    let folder = socket.parent().expect("a folder");
    let program = folder.join("ecalls").display().to_string();
    let waits = |parent: &str| format!("{program} run --waits {parent} -- true");
    let hand = |number: usize, uid: u32, script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let shell = Running::start(command.uid(uid).gid(uid).stdin(Stdio::null()));
        // The shell itself, or what it waits for.
        let mut pid = shell.id();
        limit_until("it waits", folder, || {
            pid = child_of(shell.id()).unwrap_or(pid);
            is_stopped(pid)
        });
        let slot = channel.caller().hand_slot(number, 0, None, pid);
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a number");
        kill_process(pid, Signal::CONT).expect("it goes on");
        // That has woken it. It stops again when it has yielded.
        limit_until("it has yielded", folder, || {
            is_stopped(pid.as_raw_pid().cast_unsigned())
        });
        let standing = match slot {
            Ok(slot) => format!("{:?}", slot.standing()),
            Err(error) => error.to_string(),
        };
        kill_process(pid, Signal::KILL).expect("it ends");
        standing
    };
    let me = std::process::id().to_string();
    let child = hand(0, 0, &format!("exec {}", waits(&me)));
    let other = hand(1, NOBODY, &format!("exec {}", waits(&me)));
    let far = hand(2, 0, &format!("{}; true", waits("$$")));
    println!("child: {child}; of another user: {other}; not a child: {far}");
    wait();
}

fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.ok()?.split_whitespace().next()?.parse().ok()
}

fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything.
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| state.starts_with('T'))
}

fn pin() {
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(0);
    rustix::thread::sched_setaffinity(None, &cpu).expect("CPU 0");
    std::thread::yield_now();
}

/// What the calling thread is answered.
fn ask(channel: &Channel, number: usize, service_ms: u64) -> Admission {
    let window = Window {
        period: Duration::from_secs(1),
        service: Duration::from_millis(service_ms),
        x: 0,
        y: 1,
        conserving: false,
    };
    let caller = channel.caller();
    let slot = caller.coop_slot(number, 0).expect("a slot");
    caller.window(&slot, &window).expect("an answer")
}

/// The last answer, unless one is the promise.
fn ask_until_promised(channel: &Channel, number: usize, service_ms: u64, tries: u32) -> Admission {
    let mut answer = ask(channel, number, service_ms);
    for _ in 1..tries {
        if answer == Admission::Promised {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        answer = ask(channel, number, service_ms);
    }
    answer
}

/// One thread more than a user has places for, with a little window each.
fn crowd() {
    let ecalls = Ecalls::open().expect("the daemon");
    let channels: Vec<Channel> = (0..3)
        .map(|_| ecalls.channel().open().expect("a channel"))
        .collect();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..=PLACES {
            let (channel, tell) = (&channels[number / 16], tell.clone());
            scope.spawn(move || {
                pin();
                // The room of who had it before may come a little later. The last one stays out.
                let tries = if number < PLACES { 1000 } else { 1 };
                let answer = ask_until_promised(channel, number % 16, 1, tries);
                tell.send(answer).expect("heard");
                loop {
                    std::thread::park();
                }
            });
            if number == PLACES - 1 {
                let all = (0..PLACES).all(|_| told.recv() == Ok(Admission::Promised));
                assert!(all, "each has a window");
            }
        }
        let last = told.recv().expect("an answer");
        let without = u32::from(last == Admission::NoPlace);
        println!("{PLACES} promised, {without} without a place");
        wait();
    });
}

/// Half of a CPU, and then more.
fn greedy() {
    pin();
    let ecalls = Ecalls::open().expect("the daemon");
    let channel = ecalls.channel().open().expect("a channel");
    let half = ask_until_promised(&channel, 0, 490, 1000) == Admission::Promised;
    let more = ask(&channel, 0, 510);
    let half = if half { "promised" } else { "refused" };
    let more = match more {
        Admission::Refused { left, .. } if left <= 0.5 => "refused",
        _ => "admitted",
    };
    println!("half: {half}; more: {more}");
    wait();
}

/// Until whoever started this process ends it.
fn wait() {
    let _ = std::io::stdin().lines().next();
}
