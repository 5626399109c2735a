//! Python's own tests of poll, select and what stands on them, bare and under the
//! library, with a set for each array however small.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{LIMIT, eager, is_night};

/// The tests that are short, and those that are long.
const SHORT: [&str; 4] = [
    "test_select",
    "test_epoll",
    "test_selectors.PollSelectorTestCase",
    "test_asyncio.test_selector_events",
];
const LONG: [&str; 4] = [
    "test_poll",
    "test_selectors",
    "test_asyncio.test_unix_events",
    "test_asyncio.test_events",
];

const DEBIANS: &str = "/usr/bin/python3";

/// The test's last words: "OK (skipped=1)", or what failed. `None`: Python has no such test.
fn verdict(command: &mut Command, test: &str) -> Option<String> {
    command.args(["-m", "unittest", "-q", &format!("test.{test}")]);
    let output = limit::output(command.stdin(Stdio::null()), LIMIT * 5);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("No module named") {
        return None;
    }
    let failures = errors.lines().filter(|line| {
        let starts = ["FAIL:", "ERROR:", "FAILED", "OK"];
        starts.iter().any(|start| line.starts_with(start))
    });
    Some(failures.collect::<Vec<_>>().join("\n"))
}

fn compare(test: &str) {
    let python = if Path::new(DEBIANS).exists() {
        DEBIANS
    } else {
        "python3"
    };
    let Some(bare) = verdict(&mut Command::new(python), test) else {
        println!("not run: {python} has no test.{test} (tools/setup test)");
        return;
    };
    assert!(!bare.is_empty(), "{test} said nothing");
    let ours = verdict(eager(&mut Command::new(python)), test);
    assert_eq!(ours.as_ref(), Some(&bare), "{test}: left under the library");
}

#[test]
fn python_tests_say_the_same() {
    // Nearly all of their time they sleep.
    std::thread::scope(|scope| {
        for test in SHORT {
            scope.spawn(|| compare(test));
        }
    });
    if is_night() {
        LONG.into_iter().for_each(compare);
    }
}
