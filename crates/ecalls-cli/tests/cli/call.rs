//! Calls without an event: wrong ones, help, and what any user may ask.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use limit::Running;

use crate::{PATIENCE, check_documented, check_refusal, command, ecalls, end, is_root, refused};

/// A user who may nothing.
const NOBODY: u32 = 65534;

const SIGUSR1: i32 = 10;

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
        ("--threshold", "5 parsecs"),
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
        check_refusal(arguments, &ended, 3, &["ecallsd", "root"]);
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
        // By a process of its own: a file that this one holds open for writing would go along into
        // what other threads start meanwhile, and could not be executed as long.
        let copied = Command::new("install")
            .args(["-m", "755", env!("CARGO_BIN_EXE_ecalls")])
            .arg(&path)
            .status();
        assert!(copied.expect("install runs").success());
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
    for text in ["0  done", "3  denied", "6  no events"] {
        assert!(help.contains(text), "{help}");
    }
    for (arguments, help) in [
        (&["services", "--json"][..], "services"),
        (&["doctor", "--json"], "doctor"),
    ] {
        check_documented(help, &ecalls(arguments).out);
    }
}

/// A folder with a copy of the command, and no other program unless a test puts one there.
struct Beside(PathBuf);

impl Beside {
    fn new(test: &str) -> Beside {
        let name = format!("ecalls-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_ecalls"))
            .arg(folder.join("ecalls"))
            .status();
        assert!(copied.expect("cp runs").success());
        Beside(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("ecalls"));
        command.args(arguments);
        command
    }

    /// A program there that is a shell script, made by a process of its own, as [`Copy`] is.
    fn put(&self, script: &str) {
        let made = Command::new("sh")
            .args([
                "-c",
                r#"printf '#!/bin/sh\n%s\n' "$1" >"$0"; chmod 755 "$0""#,
            ])
            .arg(self.0.join("ecalls-bench"))
            .arg(script)
            .status();
        assert!(made.expect("sh runs").success());
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bench_and_demo_become_the_program_beside_the_command_with_all_arguments() {
    let beside = Beside::new("beside");
    beside.put(r#"echo "$@"; exit 9"#);
    for (arguments, given) in [
        (
            &["bench", "events", "--row", "pipe"][..],
            "bench events --row pipe\n",
        ),
        (&["demo", "--help"], "demo --help\n"),
        (&["bench"], "bench\n"),
    ] {
        let ended = end(&mut beside.command(arguments));
        assert_eq!((ended.code, ended.out.as_str()), (9, given), "{ended:?}");
    }
    beside.put("kill -USR1 $$");
    let mut command = beside.command(&["demo"]);
    let output = Running::start(command.stdout(Stdio::null())).output(PATIENCE);
    assert_eq!(output.status.signal(), Some(SIGUSR1), "{output:?}");
}

#[test]
fn where_the_program_of_bench_is_missing_its_package_is_named() {
    let beside = Beside::new("missing");
    let arguments = &["bench", "events"];
    let mut command = beside.command(arguments);
    let ended = end(command.env("PATH", "/nowhere"));
    check_refusal(
        arguments,
        &ended,
        1,
        &["Debian package ecalls-bench", "make install"],
    );
    // Elsewhere in PATH it is found.
    let elsewhere = Beside::new("elsewhere");
    elsewhere.put("echo found");
    let mut command = beside.command(arguments);
    let ended = end(command.env("PATH", &elsewhere.0));
    assert_eq!(ended.out, "found\n", "{ended:?}");
}

#[test]
fn service_to_add_needs_a_file_that_can_be_read() {
    let file = "/nowhere/service.bpf.o";
    refused(&["service", "add", file], 2, &[file, "cannot be read"]);
    refused(
        &["service", "add", "/nowhere/service.ec"],
        2,
        &["cannot be read"],
    );
    refused(&["service", "add"], 2, &["FILE"]);
    refused(&["service"], 2, &["NAME"]);
}

/// What bash offers for the last of these words.
fn completed(words: &str) -> Vec<String> {
    let script = r#"
        eval "$("$0" completions bash)"
        COMP_WORDS=($1 "$2") COMP_CWORD=$(set -- $1; echo $#)
        _ecalls ecalls "$2" "${1##* }"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let (before, last) = words.rsplit_once(' ').expect("two words");
    let mut bash = Command::new("bash");
    bash.args(["-c", script, env!("CARGO_BIN_EXE_ecalls"), before, last]);
    let ended = end(&mut bash);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.out.lines().map(str::to_owned).collect()
}

#[test]
fn options_and_values_are_completed_also_those_of_bench_and_demo() {
    for (words, offered) in [
        ("ecalls watch --thr", &["--threshold"][..]),
        ("ecalls sched start --policy ", &["spread", "dwcs"]),
        ("ecalls bench ev", &["events"]),
        ("ecalls bench --che", &["--check"]),
        (
            "ecalls bench sched --scheduler ",
            &["ecalls", "eevdf", "rr"],
        ),
        ("ecalls demo --serv", &["--server"]),
    ] {
        assert_eq!(completed(words), offered, "{words}");
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = ecalls(&["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(ended.out.contains("watch") && ended.out.contains("threshold"));
    }
    let folder = std::env::temp_dir().join(format!("ecalls-man-{}", std::process::id()));
    let ended = ecalls(&["man", folder.to_str().expect("a path in UTF-8")]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let page = std::fs::read_to_string(folder.join("ecalls-watch.1")).expect("a page");
    assert!(page.contains("deadline"));
    let all = std::fs::read_to_string(folder.join("ecalls.1")).expect("a page");
    assert!(
        all.contains("bench"),
        "it is named, and its page is its program's"
    );
    assert!(!folder.join("ecalls-bench.1").exists());
    std::fs::remove_dir_all(folder).expect("ours to remove");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut doctor = command(&["doctor", "--all"]);
    doctor.stdout(writer).stderr(Stdio::piped());
    let output = Running::start(&mut doctor).output(PATIENCE);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
