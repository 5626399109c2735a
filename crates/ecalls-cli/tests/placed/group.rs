//! Groups of programs (`ecalls run --group`): who is a member, and what becomes of the others.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ecalls::Ecalls;
use ecalls_kernel::scheduler;
use limit::{Running, compute_until};
use rustix::time::ClockId;

use super::{
    BUSY, Ended, NOBODY, PATIENCE, ROLE, Stage, end, limit_until, number, program, report,
};

/// Members of one user's groups that have a place on a CPU without a slot of their own.
const HEIRS: usize = 24;

/// How many threads of a user's group the scheduler knows.
fn members(stage: &Stage, uid: u32, group: u32) -> usize {
    let mut command = Command::new(program());
    command.args(["sched", "status", "--json"]);
    let ended = end(command.env("ECALLS_SOCKET", stage.folder.join("socket")));
    let status: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let threads = status["threads"].as_array().expect("they are listed");
    let is_member = |thread: &&serde_json::Value| thread["uid"] == uid && thread["group"] == group;
    threads.iter().filter(is_member).count()
}

pub(crate) fn programs_of_a_group_share_and_each_tells_what_all_had(stage: &Stage) {
    let script = format!("echo $ECALLS_GROUP; {BUSY}");
    let start = || {
        let mut command = stage.run(&["--json", "--group", "players", "--", "sh", "-c", &script]);
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let both = [start(), start()].map(|one| one.output(PATIENCE));
    for one in both {
        let ended = Ended {
            code: one.status.code().expect("no signal"),
            out: String::from_utf8(one.stdout).expect("text"),
            err: String::from_utf8(one.stderr).expect("text"),
        };
        let report = report(&ended);
        println!("{report}");
        assert_eq!(ended.out.trim(), report["group_number"].to_string());
        assert_eq!(report["group"], "players");
        // The other one's time is in it, too: they ran side by side.
        assert!(
            number(&report, "group_ns") > 1.2 * number(&report, "cpu_ns"),
            "{report}"
        );
        assert!(number(&report, "group_share") > 0.0, "{report}");
    }
}

/// Programs that it starts, on all CPUs; also in a container, where processes have other numbers.
pub(crate) fn a_group_has_all_that_its_program_starts_but_not_what_becomes_anothers(stage: &Stage) {
    let (one, two) = (
        format!("({BUSY}) & wait"),
        format!("({BUSY}) & ({BUSY}) & wait"),
    );
    let json = ["--json", "--group", "9", "--"];
    let socket = stage.folder.join("socket");
    let mut anywhere = Command::new(program());
    anywhere.arg("run").args(json).args(["sh", "-c", &two]);
    let mut contained = Command::new("unshare");
    contained.args(["-m", "-p", "-f", "--mount-proc", program(), "run"]);
    contained.args(json).args(["sh", "-c", &one]);
    // More than one CPU's part, if two have a CPU each.
    for (mut command, least) in [(anywhere, 0.75), (contained, 0.5)] {
        let report = report(&end(command.env("ECALLS_SOCKET", &socket)));
        println!("{report}");
        assert_eq!(report["group_number"], 9);
        assert_eq!(report["replaced"], false);
        assert!(
            number(&report, "group_ns") > least * number(&report, "cpu_ns"),
            "{report}"
        );
    }
    let actor = stage.folder.join("actor").display().to_string();
    let mut other = stage.run(&json);
    other.args([&actor, "--exact", "a_role", "--nocapture"]);
    let report = report(&end(other.env(ROLE, "other")));
    println!("{report}");
    assert!(
        number(&report, "group_ns") < 0.5 * number(&report, "cpu_ns"),
        "{report}"
    );
}

/// The program waits in one that it has started, while another scheduler begins; then that one
/// computes.
pub(crate) fn members_stay_in_their_group_under_the_next_scheduler(stage: &Stage) {
    let script = format!("sh -c 'echo begun; read line; {BUSY}'; exit 0");
    let mut command = stage.run(&["--json", "--group", "9", "--", "sh", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = Running::start(command.stderr(Stdio::piped()));
    let mut begun = run.lines();
    begun.find("begun", PATIENCE);
    let sched = |what: &str| {
        let mut command = Command::new(program());
        command.args(["sched", what]);
        command.env("ECALLS_SOCKET", stage.folder.join("socket"));
        command
    };
    assert_eq!(end(&mut sched("stop")).code, 0);
    limit_until("it has ended", &stage.folder, || {
        scheduler::state().is_some_and(|state| state.running.is_none())
    });
    let mut next = Running::start(sched("start").stdout(Stdio::null()).stderr(Stdio::piped()));
    next.complaints().find("the scheduler runs", PATIENCE);
    drop(run.input());
    let mut said = run.complaints();
    assert!(run.wait(PATIENCE).success());
    let report: serde_json::Value = serde_json::from_str(&said.rest(PATIENCE)).expect("JSON");
    println!("{report}");
    assert_eq!(report["replaced"], true);
    assert!(
        number(&report, "group_ns") > 0.5 * number(&report, "cpu_ns"),
        "{report}"
    );
}

/// Also by the same number: each tells what it alone had.
pub(crate) fn a_group_of_another_user_is_another_group(stage: &Stage) {
    let start = |uid: u32| {
        let mut command = stage.run_as(uid, &["--json", "--group", "77", "--", "sh", "-c", BUSY]);
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let both = [start(0), start(NOBODY)].map(|one| one.output(PATIENCE));
    for one in both {
        let text = String::from_utf8(one.stderr).expect("text");
        assert!(one.status.success(), "{text}");
        let report: serde_json::Value = serde_json::from_str(&text).expect("the report");
        println!("{report}");
        assert!(
            number(&report, "group_ns") < 1.2 * number(&report, "cpu_ns"),
            "{report}"
        );
    }
}

/// Also if it names a slot of its own as that user.
pub(crate) fn who_becomes_another_user_takes_nobody_into_a_group(stage: &Stage) {
    let actor = stage.folder.join("actor").display().to_string();
    let mut command = stage.run(&["--group", "21", "--", &actor, "--exact", "a_role"]);
    command
        .arg("--nocapture")
        .env(ROLE, "drops")
        .stdin(Stdio::piped());
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    run.lines().find("a child waits", PATIENCE);
    // The first thread is, which is root's.
    assert_eq!([0, NOBODY].map(|uid| members(stage, uid, 21)), [1, 0]);
    drop(run.input());
    assert!(run.wait(PATIENCE).success());
}

/// As root's, in a group of root's, it becomes another user's, names a slot, and makes a process.
pub(crate) fn drops() {
    let uid = rustix::process::Uid::from_raw(NOBODY);
    rustix::thread::set_thread_uid(uid).expect("root may");
    let ecalls = Ecalls::open().expect("the daemon");
    let channel = ecalls.channel().open().expect("a channel");
    let _slot = channel.caller().coop_slot(0, 0).expect("a slot");
    std::thread::yield_now();
    let mut command = Command::new("sh");
    command.args(["-c", "echo a child waits; read line; exit 0"]);
    assert!(Running::start(&mut command).wait(PATIENCE).success());
}

pub(crate) fn a_program_of_many_in_a_group_leaves_places_to_who_asks_for_one(stage: &Stage) {
    let many = 3 * HEIRS;
    let one = "(echo up; read line <&3) &";
    let script =
        format!("exec 3<&0; i=0; while [ $i -lt {many} ]; do i=$((i+1)); {one} done; wait");
    let mut command = stage.run_as(NOBODY, &["--group", "22", "--", "sh", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = Running::start(command.stderr(Stdio::null()));
    let mut said = run.lines();
    for _ in 0..many {
        said.find("up", PATIENCE);
    }
    // The first one has a slot.
    assert_eq!(members(stage, NOBODY, 22), HEIRS + 1);
    let mut command = stage.run_as(NOBODY, &["--json", "--period", "100ms"]);
    let asks = end(command.args(["--service", "1ms", "--", "true"]));
    assert_eq!(report(&asks)["window"], "promised");
    drop(run.input());
    assert!(run.wait(PATIENCE).success());
}

/// Starts a program that is another user's.
pub(crate) fn other() {
    let mut command = Command::new("sh");
    command.args(["-c", BUSY]).uid(NOBODY).gid(NOBODY);
    assert!(end(&mut command).code == 0);
}

/// Two names that have one hash.
const TWINS: [&str; 2] = ["singers30", "drummers10"];

pub(crate) fn two_names_with_one_hash_are_two_groups(stage: &Stage) {
    let number = |name: &str| {
        let script = ["--", "sh", "-c", "echo $ECALLS_GROUP; exit 7"];
        let ended = end(stage.run(&["--group", name]).args(script));
        assert_eq!(ended.code, 7, "the program's own: {}", ended.err);
        let number: u32 = ended.out.trim().parse().expect("a number");
        number
    };
    let [one, other] = TWINS.map(number);
    assert_eq!(one + 1, other, "the next one");
}

/// Members on one CPU, while one more keeps the other CPU busy: so three are right on each.
pub(crate) fn members_that_compute_are_divided_among_busy_cpus(stage: &Stage) {
    let actor = stage.folder.join("actor").display().to_string();
    let mut command = Command::new(program());
    command.args(["run", "--group", "23", "--", &actor, "--exact", "a_role"]);
    command.args(["--nocapture"]).env(ROLE, "herd");
    let ended = end(command.env("ECALLS_SOCKET", stage.folder.join("socket")));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let had = ended.out.lines().find_map(|line| line.strip_prefix("had "));
    let had = had.expect("it told").split(' ');
    let had: Vec<f64> = had.map(|ms| ms.parse().expect("a number")).collect();
    println!("{had:?}");
    let least = had.iter().copied().fold(f64::MAX, f64::min);
    // Five on one CPU would have a fifth of the other one's time.
    assert!(had.iter().all(|one| *one < 2.5 * least), "{had:?}");
}

pub(super) fn pin(cpus: std::ops::Range<usize>) {
    let mut set = rustix::thread::CpuSet::new();
    cpus.for_each(|cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set).expect("the first CPUs");
}

/// The calling thread's CPU time, ms.
pub(super) fn cpu_ms() -> i64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Six threads that compute, of which five begin on one CPU and may go on to the other, where the
/// sixth is all the time: it is never idle. Tells what CPU time each had since they might, ms.
pub(crate) fn herd() {
    let [go, stop] = &[const { AtomicBool::new(false) }; 2];
    let on_one = &AtomicUsize::new(0);
    let had: Vec<String> = std::thread::scope(|scope| {
        let one = |number: usize| {
            scope.spawn(move || {
                pin(if number == 0 { 1..2 } else { 0..1 });
                on_one.fetch_add(1, Ordering::Relaxed);
                compute_until(|| go.load(Ordering::Relaxed));
                if number > 0 {
                    pin(0..2);
                }
                let before = cpu_ms();
                compute_until(|| stop.load(Ordering::Relaxed));
                cpu_ms() - before
            })
        };
        let all: Vec<_> = (0..6).map(one).collect();
        while on_one.load(Ordering::Relaxed) < all.len() {
            std::thread::sleep(Duration::from_millis(10));
        }
        go.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        let all = all.into_iter().map(|one| one.join().expect("joined"));
        all.map(|ms| ms.to_string()).collect()
    });
    println!("\nhad {}", had.join(" "));
}
