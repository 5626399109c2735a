//! The command from outside: every wrong call says what is wrong and what to do, with the right
//! exit code; and with root, the ways of an event from one process to another.
//!
//! What needs root is skipped, with a line that says so, unless ECALLS_TEST_ROOT is set: then it
//! has to work.
//!
//! - `call`: calls without an event: wrong ones, help, and what any user may ask;
//! - `ecode`: texts of E-code;
//! - `event`: events on their way;
//! - `run`: programs and what the scheduler gave them.

mod call;
mod ecode;
mod event;
mod run;
mod watch_ecode;

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use limit::{Ended, Running};

/// How long a call may take that ends by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether something has happened.
const STEP: Duration = Duration::from_millis(50);

/// Looks before a test gives up.
const STEPS: usize = 200;

fn end(command: &mut Command) -> Ended {
    limit::ended(command, PATIENCE)
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

/// A process that holds a service until it is dropped.
fn hold(name: &str, more: &[&str]) -> Running {
    let mut command = command(&["service", name, "--for", "60s"]);
    command.args(more).stdout(Stdio::null());
    let mut holder = Running::start(command.stderr(Stdio::piped()));
    holder.complaints().find("registered", PATIENCE);
    holder
}

/// Starts a command whose output will be looked at.
fn start(command: &mut Command) -> Running {
    command.stdin(Stdio::null());
    Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Every key of these JSON lines is in the help of the subcommand.
fn check_documented(subcommand: &str, lines: &str) {
    let help = ecalls(&[subcommand, "--help"]).out;
    let words: Vec<&str> = help
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect();
    for line in lines.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        for key in object.as_object().expect("an object").keys() {
            let known = words.contains(&key.as_str());
            assert!(known, "{subcommand} --help says nothing of {key}");
        }
    }
}
