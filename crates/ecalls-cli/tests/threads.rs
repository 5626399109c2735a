//! `ecalls threads` shows a runtime of this process. Needs neither a core nor privileges; with
//! root it also sees what an ordinary user gets, and with ECALLS_TEST_ROOT=1 the kernel side.

#[path = "threads/scheduler.rs"]
mod scheduler;

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecalls_threads::{KernelSide, Runtime, blocking, scheduling_point, yield_now};
use limit::{Ended, ended};
use serde_json::Value;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user without privileges.
const SOMEBODY: u32 = 64012;

fn threads(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls"));
    command
        .args(["threads", "--every", "100ms"])
        .args(arguments);
    ended(&mut command, PATIENCE)
}

fn own() -> String {
    std::process::id().to_string()
}

/// The runtimes of this process with that number of processors, which tells tests apart.
fn runtimes(processors: u64) -> Vec<Value> {
    let shown = threads(&[&own(), "--once", "--json"]);
    let lines = shown.out.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|line| line["processors"] == processors)
        .collect()
}

/// Looks until there is what it looks for.
fn wait_for(processors: u64, is_there: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = runtimes(processors);
        if let [one] = &found[..]
            && is_there(one)
        {
            return one.clone();
        }
        assert!(start.elapsed() < PATIENCE, "waited too long: {found:?}");
    }
}

fn count(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key} in {of}"))
}

/// The activations whose threads sleep for a time.
fn asleep(runtime: &Value) -> Vec<&Value> {
    let all = runtime["activations"].as_array().expect("with a PID");
    let sleeps = |one: &&Value| one["where"] == "hrtimer_nanosleep";
    all.iter().filter(sleeps).collect()
}

/// Two threads block, in `block`, and one yields: on three processors.
fn check_runtime(processors: usize, kernel: KernelSide, block: fn(Duration)) -> Value {
    let end = Arc::new(AtomicBool::new(false));
    let builder = Runtime::builder().processors(processors).pinned(false);
    let runtime = builder.kernel(kernel).start().expect("a runtime");
    let is_told = runtime.is_told();
    let mut handles = Vec::new();
    for _ in 0..2 {
        let end = Arc::clone(&end);
        let body = move || {
            while !end.load(Ordering::Relaxed) {
                block(Duration::from_millis(300));
            }
        };
        handles.push(runtime.spawn(body).expect("a thread"));
    }
    let named = handles[0].thread();
    named.set_name("a sleeper with a long name");
    let yields = Arc::clone(&end);
    let body = move || {
        while !yields.load(Ordering::Relaxed) {
            yield_now();
        }
    };
    handles.push(runtime.spawn(body).expect("a thread"));
    let is_named =
        |one: &Value| one["thread"] == named.id() && one["thread_name"] == "a sleeper with ";
    let is_other = |one: &Value| one["thread"].is_u64() && one["thread_name"].is_null();
    // Where a kernel thread sleeps is read a moment after its state: it may have woken, or have
    // begun to sleep with another thread.
    let seen = wait_for(processors as u64, |one| {
        let blocks = count(one, "left") + count(one, "told");
        let two = count(one, "blocked") >= 2 && count(one, "threads") == 3 && blocks >= 2;
        let asleep = asleep(one);
        two && asleep.iter().any(|one| is_named(one))
            && asleep.iter().any(|one| is_other(one))
            && one["switches_per_s"]
                .as_f64()
                .is_some_and(|rate| rate > 0.0)
    });
    end.store(true, Ordering::Relaxed);
    handles
        .into_iter()
        .for_each(|one| one.join().expect("no panic"));
    assert_eq!(seen["pid"], std::process::id());
    assert_eq!(seen["kernel_side"], is_told);
    let activations = seen["activations"].as_array().expect("with a PID");
    let sum = ["running", "blocked", "spares"].map(|key| count(&seen, key));
    assert_eq!(sum.iter().sum::<u64>(), activations.len() as u64, "{seen}");
    seen
}

#[test]
fn a_runtime_shows_its_processors_activations_and_where_threads_block() {
    let block = |time| blocking(|| std::thread::sleep(time));
    let seen = check_runtime(3, KernelSide::Never, block);
    assert!(count(&seen, "left") >= 2, "{seen}");
    assert_eq!((count(&seen, "told"), count(&seen, "refused")), (0, 0));
    // It is gone with its runtime.
    assert_eq!(runtimes(3), Vec::<Value>::new());
}

#[test]
fn what_the_kernel_side_told_is_shown() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    let block = |time| {
        std::thread::sleep(time);
        scheduling_point();
    };
    let seen = check_runtime(4, KernelSide::Required, block);
    assert!(count(&seen, "told") >= 2, "{seen}");
}

#[test]
fn the_table_is_for_people_and_every_key_is_documented() {
    let runtime = Runtime::builder().processors(2).kernel(KernelSide::Never);
    let runtime = runtime.start().expect("a runtime");
    let table = threads(&[&own(), "--once"]);
    assert_eq!(table.code, 0, "{table:?}");
    for text in ["PROCESSORS", "UNBLOCKED", "SLEEPS", "spare", "no"] {
        assert!(table.out.contains(text), "{text} in {}", table.out);
    }
    let help = threads(&["--help"]).out;
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: Vec<&str> = help.split(|c| !letter(c)).collect();
    for one in runtimes(2) {
        let activation = &one["activations"][0];
        let objects = [&one, activation].map(|object| object.as_object().expect("an object"));
        for key in objects.into_iter().flat_map(|object| object.keys()) {
            assert!(
                words.contains(&key.as_str()),
                "--help says nothing of {key}"
            );
        }
    }
    // Without a process, among others.
    let all = threads(&["--once", "--json"]).out;
    assert!(all.contains(&format!("\"pid\":{},", own())), "{all}");
    assert!(!all.contains("activations"), "{all}");
    drop(runtime);
}

#[test]
fn a_process_without_one_and_none_at_all_are_told_apart() {
    let mut sleeper = limit::Running::start(Command::new("sleep").arg("60"));
    let without = threads(&[&sleeper.id().to_string(), "--once"]);
    assert_eq!(without.code, 5, "{without:?}");
    assert!(without.err.contains("has no runtime of user-level threads"));
    assert!(sleeper.ended().is_none());
    let none = threads(&["4194305", "--once"]);
    assert!(
        none.code == 5 && none.err.contains("no process"),
        "{none:?}"
    );
}

#[test]
fn a_stranger_sees_none() {
    let uid = std::fs::metadata("/proc/self").expect("/proc").uid();
    if uid != 0 {
        eprintln!("skipped: needs root, to be somebody else");
        return;
    }
    let runtime = Runtime::builder().processors(1).kernel(KernelSide::Never);
    let runtime = runtime.start().expect("a runtime");
    // Somebody may not be able to come to where the program is.
    let path = std::env::temp_dir().join(format!("ecalls-threads-{}", own()));
    std::fs::copy(env!("CARGO_BIN_EXE_ecalls"), &path).expect("a program for all");
    let look = |arguments: &[&str]| {
        let mut command = Command::new(&path);
        command.args(["threads", "--every", "10ms", "--once"]);
        command.args(arguments).current_dir("/");
        ended(command.uid(SOMEBODY).gid(SOMEBODY), PATIENCE)
    };
    let (one, all) = (look(&[&own()]), look(&["--json"]));
    std::fs::remove_file(&path).expect("the copy");
    assert_eq!(one.code, 3, "{one:?}");
    assert!(one.err.contains("not yours to inspect"), "{one:?}");
    assert_eq!((all.code, all.out.as_str()), (0, ""), "{all:?}");
    drop(runtime);
}
