//! The command from outside: every wrong call says what is wrong and what to do, with the right
//! exit code; and with root, the ways of an event from one process to another.
//!
//! What needs root is skipped, with a line that says so, unless ECALLS_TEST_ROOT is set: then it
//! has to work.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A user who may nothing.
const NOBODY: u32 = 65534;

/// What a call of the command came to.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("the command runs");
    Ended {
        code: output.status.code().expect("no signal ended it"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls"));
    command.args(arguments);
    command
}

fn ecalls(arguments: &[&str]) -> Ended {
    end(&mut command(arguments))
}

/// Calls the command wrongly.
fn refused(arguments: &[&str], code: i32, texts: &[&str]) {
    let ended = ecalls(arguments);
    check_refusal(arguments, &ended, code, texts);
}

fn check_refusal(arguments: &[&str], ended: &Ended, code: i32, texts: &[&str]) {
    assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
    assert_eq!(ended.out, "", "{arguments:?}: errors are no data");
    for text in texts {
        assert!(
            ended.err.contains(text),
            "{arguments:?}: {text:?} in {ended:?}"
        );
    }
    for text in ["panicked", "RUST_BACKTRACE", "Error {"] {
        assert!(!ended.err.contains(text), "{arguments:?}: {ended:?}");
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").expect("/proc").uid() == 0
}

/// Whether a core can be hosted here; says why not.
fn can_host(test: &str) -> bool {
    let must = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if !is_root() {
        assert!(!must, "ECALLS_TEST_ROOT is set, but this is not root");
        eprintln!("{test}: skipped, needs root");
        return false;
    }
    let tried = ecalls(&["watch", "core", "--for", "1ms"]);
    if tried.code == 6 {
        return true;
    }
    assert!(!must, "ECALLS_TEST_ROOT is set, but no core: {tried:?}");
    eprintln!("{test}: skipped, no core on this kernel: {}", tried.err);
    false
}

/// A service that is held by a process of its own until it is dropped.
struct Holder(Child);

impl Holder {
    fn start(name: &str, more: &[&str]) -> Holder {
        let mut child = command(&["service", name, "--for", "60s"])
            .args(more)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the command runs");
        wait_for_line(&mut child, "registered");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_line(child: &mut Child, text: &str) {
    let err = child.stderr.take().expect("piped");
    let mut lines = BufReader::new(err).lines();
    let found = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains(text));
    assert!(found.is_some(), "a line with {text:?}");
    // Whoever writes more there shall not block or fail.
    std::thread::spawn(move || lines.for_each(drop));
}

#[test]
fn calls_that_are_no_calls_are_refused_with_usage() {
    for (arguments, text) in [
        (&["nonsense"][..], "nonsense"),
        (&["watch"], "SERVICE"),
        (&["watch", "task", "--nonsense"], "--nonsense"),
        (&["watch", "task", "more"], "more"),
        (&["raise"], "SERVICE"),
        (&["service"], "NAME"),
        (&["completions", "nonsense"], "bash"),
        (&["bench", "nonsense"], "events"),
        (&["stat", "task"], "task"),
    ] {
        refused(arguments, 2, &[text, "--help"]);
    }
}

#[test]
fn a_call_without_command_prints_the_help() {
    let ended = ecalls(&[]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("Usage: ecalls"), "{ended:?}");
}

#[test]
fn durations_need_a_unit_and_a_sense() {
    for (option, value) in [
        ("--deadline", "5"),
        ("--for", "soon"),
        ("--every", "0s"),
        ("--min-delay", "5 parsecs"),
        ("--deadline", "-5ms"),
        ("--for", ""),
    ] {
        let given = format!("{option}={value}");
        refused(&["watch", "task", &given], 2, &[option]);
    }
    refused(&["watch", "task", "--for", "5"], 2, &["250us, 5ms, 10s"]);
    refused(&["raise", "x", "--release", "5"], 2, &["250us, 5ms, 10s"]);
    refused(&["stat", "--watch", "5"], 2, &["250us, 5ms, 10s"]);
}

#[test]
fn values_without_a_meaning_are_refused_with_what_would_be_right() {
    refused(&["watch", "task", "--handler", "nice:1"], 2, &["sample:10"]);
    refused(
        &["watch", "task", "--handler", "threshold:x"],
        2,
        &["threshold:field>=5"],
    );
    refused(&["watch", "task", "--pid", "init"], 2, &["init"]);
    refused(&["watch", "task", "--count", "0"], 2, &["--count"]);
    refused(&["raise", "x", "load"], 2, &["field=value"]);
    refused(&["raise", "x", "--target", "some"], 2, &["`all`"]);
    refused(&["raise", "x", "--priority", "high"], 2, &["--priority"]);
}

#[test]
fn a_process_that_is_not_there_is_told() {
    refused(
        &["watch", "task", "--pid", "4194305"],
        5,
        &["4194305", "ps -e"],
    );
    refused(
        &["raise", "x", "--target", "4194305"],
        5,
        &["4194305", "ps -e"],
    );
}

#[test]
fn an_unprivileged_user_is_told_what_is_needed() {
    // The file itself may lie where only its owner may go.
    let copy = Copy::new();
    let call = |arguments: &[&str]| {
        let mut command = Command::new(&copy.0);
        command.args(arguments).current_dir("/");
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        end(&mut command)
    };
    for arguments in [
        &["watch", "task"][..],
        &["raise", "x"],
        &["service", "x"],
        &["stat"],
    ] {
        let ended = call(arguments);
        check_refusal(arguments, &ended, 3, &["needs root"]);
    }
    let doctor = call(&["doctor", "--json"]);
    let by_us = ecalls(&["doctor"]).code;
    assert_eq!(
        doctor.code, by_us,
        "a fault of the kernel, if any: {doctor:?}"
    );
    assert!(doctor.out.contains(r#""what":"choice""#), "{doctor:?}");
    let services = call(&["services"]);
    assert_eq!(services.code, 0, "{services:?}");
    assert!(
        services.out.contains("kinds: fork exec exit"),
        "{services:?}"
    );
    assert!(services.err.contains("root"), "{services:?}");
}

/// A copy of the command where everybody can reach it.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Copy {
        let name = format!("ecalls-test-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::copy(env!("CARGO_BIN_EXE_ecalls"), &path).expect("a copy");
        let everybody = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, everybody).expect("the owner may");
        Copy(path)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn help_documents_the_exit_codes_and_every_json_key_is_documented() {
    let help = ecalls(&["--help"]).out;
    for text in ["0  done", "3  denied", "6  nothing"] {
        assert!(help.contains(text), "{help}");
    }
    for (arguments, help) in [
        (&["services", "--json"][..], "services"),
        (&["doctor", "--json"], "doctor"),
    ] {
        let text = ecalls(&[help, "--help"]).out;
        for line in ecalls(arguments).out.lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            for key in object.as_object().expect("an object").keys() {
                assert!(
                    text.contains(key.as_str()),
                    "{help} --help says nothing of {key}"
                );
            }
        }
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = ecalls(&["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(ended.out.contains("watch") && ended.out.contains("min-delay"));
    }
    let folder = std::env::temp_dir().join(format!("ecalls-man-{}", std::process::id()));
    let ended = ecalls(&["man", folder.to_str().expect("a path in UTF-8")]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let page = std::fs::read_to_string(folder.join("ecalls-watch.1")).expect("a page");
    assert!(page.contains("deadline"));
    std::fs::remove_dir_all(folder).expect("ours to remove");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let mut child = command(&["doctor", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn things_that_are_not_there_are_told_with_those_that_are() {
    if !can_host("things_that_are_not_there_are_told_with_those_that_are") {
        return;
    }
    let _holder = Holder::start(
        "cli.there",
        &["--format", "u8 x; s16 y", "--kinds", "low high"],
    );
    refused(
        &["watch", "cli.not", "--for", "1s"],
        5,
        &["cli.not", "there are socket"],
    );
    refused(&["raise", "cli.not"], 5, &["cli.not", "cli.there"]);
    refused(&["raise", "task"], 2, &["built-in"]);
    refused(
        &["raise", "cli.there", "z=1"],
        5,
        &["\"z\"", "there are x, y"],
    );
    refused(
        &["raise", "cli.there", "y=1", "x=256"],
        2,
        &["x=256", "fits"],
    );
    refused(&["raise", "cli.there", "x=many"], 2, &["many", "number"]);
    refused(
        &["raise", "cli.there", "--kind", "middle"],
        5,
        &["middle", "low, high"],
    );
    refused(
        &["watch", "task", "--kind", "birth"],
        5,
        &["birth", "fork, exec, exit"],
    );
    let handler = ["watch", "task", "--handler", "threshold:size>1"];
    refused(&handler, 5, &["size", "there are pid"]);
    refused(
        &["service", "cli.there"],
        2,
        &["cli.there", "no living service"],
    );
    refused(
        &["service", "two words"],
        2,
        &["two words", "without blanks"],
    );
    refused(
        &["service", "cli.new", "--format", "u7 x"],
        2,
        &["u7 x", "u8..u64"],
    );
    refused(&["watch", "timer"], 2, &["--every"]);
    refused(&["watch", "task", "--every", "1s"], 2, &["timer"]);
    refused(&["watch", "task", "--min-delay", "1ms"], 2, &["sched"]);
}

#[test]
fn nothing_in_the_time_asked_for_is_told_by_the_exit_code() {
    if !can_host("nothing_in_the_time_asked_for_is_told_by_the_exit_code") {
        return;
    }
    let ended = ecalls(&["watch", "core", "--for", "100ms", "--count", "3"]);
    assert_eq!(ended.code, 6, "{ended:?}");
    assert!(ended.err.contains("0 of 3 events"), "{ended:?}");
}

#[test]
fn a_raised_event_is_watched_with_its_fields() {
    if !can_host("a_raised_event_is_watched_with_its_fields") {
        return;
    }
    let _holder = Holder::start(
        "cli.way",
        &["--format", "s32 x; char who[8]", "--kinds", "a b"],
    );
    let watch = command(&["watch", "cli.way", "--count", "2", "--for", "20s", "--json"])
        .args(["--kind", "b", "--handler", "threshold:x<0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let wanted = [
        "raise", "cli.way", "--kind", "b", "x=-5", "who=me", "--json",
    ];
    // Until the watch is there nobody wants it.
    let offered = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        ecalls(&wanted).out.contains(r#""offered":1"#)
    });
    assert!(offered, "the watch subscribed");
    assert_eq!(ecalls(&["raise", "cli.way", "--kind", "a", "x=-1"]).code, 0);
    assert_eq!(ecalls(&["raise", "cli.way", "--kind", "b", "x=1"]).code, 0);
    assert_eq!(ecalls(&wanted).code, 0);
    let output = watch.wait_with_output().expect("it ends");
    let out = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3, "{out}");
    for event in &lines[..2] {
        assert_eq!(event["kind"], "b");
        assert_eq!(event["data"], serde_json::json!({"x": -5, "who": "me"}));
    }
    assert_eq!(lines[2]["received"], 2);
    assert_eq!(lines[2]["filtered"], 1, "the one with x=1");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn timer_events_come_and_are_counted() {
    if !can_host("timer_events_come_and_are_counted") {
        return;
    }
    let ended = ecalls(&[
        "watch", "timer", "--every", "5ms", "--count", "5", "--for", "10s",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.out.lines().count(), 5, "{ended:?}");
    assert!(ended.err.contains("received 5, late 0"), "{ended:?}");
}

#[test]
fn stat_shows_the_chain_of_a_subscription() {
    if !can_host("stat_shows_the_chain_of_a_subscription") {
        return;
    }
    let mut watch = command(&["watch", "core", "--for", "60s", "--handler", "sample:10"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    let shown = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        ecalls(&["stat"]).out.contains("sample(10) -> memory(ch ")
    });
    watch.kill().expect("ours to end");
    watch.wait().expect("it ends");
    assert!(shown);
}
