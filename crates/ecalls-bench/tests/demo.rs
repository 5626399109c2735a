//! `ecalls demo` in three seconds: every event is accounted for, and nothing is left behind, also
//! when it is interrupted. Needs root, lighttpd and wrk; skipped with a line that says so.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use limit::Running;
use serde_json::Value;

/// How long a line, or the end, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an interrupted run may take to end, and the kernel to free what it had.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

fn can_run(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").expect("/proc").uid() == 0;
    let must = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    assert!(
        root || !must,
        "ECALLS_TEST_ROOT is set, but this is not root"
    );
    let programs = ["/usr/sbin/lighttpd", "/usr/bin/wrk"];
    let installed = programs.iter().all(|path| Path::new(path).exists());
    assert!(
        installed || !must,
        "ECALLS_TEST_ROOT is set, but lighttpd or wrk is missing: `tools/setup demo` installs both"
    );
    if root && installed {
        return true;
    }
    eprintln!("{test}: skipped, needs root, lighttpd and wrk");
    false
}

/// A run of the demonstration, with a folder for temporary files of its own.
struct Demo {
    program: Running,
    folder: PathBuf,
    /// The parts of cores that were in the kernel before.
    residue: Vec<(u32, String)>,
    /// What is left in the kernel tells of one run at a time.
    _alone: MutexGuard<'static, ()>,
}

impl Demo {
    fn start(seconds: &str) -> Demo {
        static ALONE: Mutex<()> = Mutex::new(());

        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("ecalls-demo-test-{}-{seconds}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let residue = ecalls_kernel::residue();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
        command.args(["demo", "--json", "--seconds", seconds]);
        command.env("TMPDIR", &folder).stdout(Stdio::piped());
        Demo {
            program: Running::start(&mut command),
            folder,
            residue,
            _alone: alone,
        }
    }

    /// What is left of it: files, processes, and parts of its core.
    fn traces(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.folder).expect("its folder");
        let files = files.map(|file| file.expect("a file").path().display().to_string());
        let variable = format!("TMPDIR={}", self.folder.display());
        let processes = std::fs::read_dir("/proc").expect("/proc");
        let processes = processes.filter_map(|process| {
            let path = process.ok()?.path().join("environ");
            let environment = std::fs::read(&path).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            let is_ours = variables.any(|one| one == variable.as_bytes());
            is_ours.then(|| path.display().to_string())
        });
        let new = |part: &(u32, String)| !self.residue.contains(part);
        let core = ecalls_kernel::residue().into_iter().filter(new);
        let core = core.map(|(id, name)| format!("{name} ({id}) of a core"));
        files.chain(processes).chain(core).collect()
    }

    /// The kernel frees maps and programs a moment after their last user has ended.
    fn assert_that_nothing_is_left(&self) {
        let begin = Instant::now();
        let mut left = self.traces();
        while !left.is_empty() && begin.elapsed() < ENDS_WITHIN {
            std::thread::sleep(Duration::from_millis(50));
            left = self.traces();
        }
        assert!(left.is_empty(), "left behind: {left:?}");
        std::fs::remove_dir(&self.folder).expect("an empty folder");
    }
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("an object per line"))
        .collect()
}

#[test]
fn every_event_of_the_server_is_accounted_for_and_nothing_is_left_behind() {
    if !can_run("demo") {
        return;
    }
    let mut demo = Demo::start("3");
    let mut out = demo.program.lines();
    assert!(out.next(PATIENCE).is_some());
    let there = demo.traces();
    assert!(there.len() > 3, "a folder, processes and a core: {there:?}");
    let rest = out.rest(PATIENCE);
    let status = demo.program.wait(PATIENCE);
    assert!(status.success(), "{status}");
    demo.assert_that_nothing_is_left();
    let objects = objects(&rest);
    let totals: Vec<_> = objects.iter().filter(|o| o["what"] == "total").collect();
    let services: Vec<_> = totals.iter().map(|total| &total["service"]).collect();
    assert_eq!(services, ["socket", "task", "sched", "filter"]);
    for total in &totals {
        assert_eq!(total["whole"], true, "{total}");
    }
    let socket = totals.iter().find(|total| total["service"] == "socket");
    let of_server = &socket.expect("the socket service")["of_server"];
    assert!(of_server.as_u64().expect("a number") > 100, "{of_server}");
    let filter = totals.iter().find(|total| total["service"] == "filter");
    let filter = filter.expect("the sockets through E-code");
    assert!(filter["filtered"].as_u64() > Some(100), "{filter}");
    assert_eq!(filter["failed"], 0, "{filter}");
    assert!(objects.iter().any(|o| o["what"] == "tick"));
    assert!(objects.iter().any(|o| o["what"] == "requests_per_s"));
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    if !can_run("demo, interrupted") {
        return;
    }
    let mut demo = Demo::start("60");
    let mut out = demo.program.lines();
    assert!(out.next(PATIENCE).is_some());
    let killed = Command::new("kill")
        .args(["-TERM", &demo.program.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    assert!(demo.program.wait(ENDS_WITHIN).success());
    demo.assert_that_nothing_is_left();
}
