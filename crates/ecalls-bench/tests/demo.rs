//! `ecalls demo` in three seconds: every event is accounted for, and nothing is left behind, also
//! when it is interrupted. Needs root, lighttpd and wrk; skipped with a line that says so.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use limit::Running;
use serde_json::Value;

/// How long a line, or the end, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an interrupted run may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

fn can_run(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").expect("/proc").uid() == 0;
    let must = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    assert!(
        root || !must,
        "ECALLS_TEST_ROOT is set, but this is not root"
    );
    let installed = |path: &str| Path::new(path).exists();
    if root && installed("/usr/sbin/lighttpd") && installed("/usr/bin/wrk") {
        return true;
    }
    eprintln!("{test}: skipped, needs root, lighttpd and wrk");
    false
}

fn start(seconds: &str) -> Running {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    demo.args(["demo", "--json", "--seconds", seconds]);
    Running::start(demo.stdout(Stdio::piped()))
}

/// What a run may not leave behind: its folder, and its server.
struct Traces {
    folder: PathBuf,
    server: PathBuf,
}

impl Traces {
    fn new(demo: &Running, opening: &Value) -> Traces {
        let name = format!("ecalls-demo-{}", demo.id());
        Traces {
            folder: std::env::temp_dir().join(name),
            server: PathBuf::from(format!("/proc/{}", opening["pid"])),
        }
    }

    fn are_there(&self) -> bool {
        self.folder.exists() && self.server.exists()
    }

    fn are_gone(&self) -> bool {
        !self.folder.exists() && !self.server.exists()
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
    let mut demo = start("3");
    let mut out = demo.lines();
    let first = out.next(PATIENCE).expect("a line");
    let opening: Value = serde_json::from_str(&first).expect("an object");
    let traces = Traces::new(&demo, &opening);
    assert!(traces.are_there());
    let rest = out.rest(PATIENCE);
    let status = demo.wait(PATIENCE);
    assert!(status.success(), "{status}");
    assert!(traces.are_gone());
    let objects = objects(&rest);
    let totals: Vec<_> = objects.iter().filter(|o| o["what"] == "total").collect();
    assert!(!totals.is_empty());
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
    let mut demo = start("60");
    let mut out = demo.lines();
    let first = out.next(PATIENCE).expect("a line");
    let opening: Value = serde_json::from_str(&first).expect("an object");
    let traces = Traces::new(&demo, &opening);
    assert!(traces.are_there());
    let killed = Command::new("kill")
        .args(["-TERM", &demo.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    assert!(demo.wait(ENDS_WITHIN).success());
    assert!(traces.are_gone());
}
