//! E-code on the command line of `ecalls watch`. All need root.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::{PATIENCE, can_host, check_documented, command, ecalls, hold, refused, start};

/// A file with this text.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Counts, and has an output.
const TEXT: &str = "struct output { fixed half; char who[8]; };
         count(7, 2);
         histogram(x);
         output.half = x / 2.0;
         output.who = who;
         return event.kind == b;";

#[test]
fn only_what_a_text_says_is_printed_with_its_output_and_its_counts() {
    if !can_host("only_what_a_text_says_is_printed_with_its_output_and_its_counts") {
        return;
    }
    let _holder = hold(
        "cli.ecode",
        &["--format", "s32 x; char who[8]", "--kinds", "a b"],
    );
    let text = file("output.ec", TEXT);
    let mut watch = start(
        command(&[
            "watch",
            "cli.ecode",
            "--count",
            "2",
            "--for",
            "20s",
            "--json",
        ])
        .arg("--ecode")
        .arg(text)
        .args(["--where", "half > 1.0 && prefix(who, \"m\")"]),
    );
    watch.complaints().find("watching cli.ecode", PATIENCE);
    let wanted = ["raise", "cli.ecode", "--kind", "b", "x=5", "who=me"];
    assert_eq!(ecalls(&wanted).code, 0);
    for other in [
        ["a", "x=5", "who=me"],
        ["b", "x=2", "who=me"],
        ["b", "x=9", "who=you"],
    ] {
        let [kind, x, who] = other;
        let raise = ecalls(&["raise", "cli.ecode", "--kind", kind, x, who]);
        assert_eq!(raise.code, 0, "{}", raise.err);
    }
    assert_eq!(ecalls(&wanted).code, 0);
    let output = watch.output(PATIENCE);
    let out = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    check_documented("watch", &out);
    for event in &lines[..2] {
        assert_eq!(event["data"], serde_json::json!({"half": 2.5, "who": "me"}));
    }
    let last = lines.last().expect("a summary");
    assert_eq!(last["filtered"], 3, "{out}");
    assert_eq!(last["failed"], 0, "{out}");
    let counted = lines.iter().find(|line| line["counter"] == 7);
    assert!(
        counted.is_some_and(|line| line["count"].as_u64() >= Some(10)),
        "{out}"
    );
    assert!(out.contains(r#""what":"histogram""#), "{out}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_wrong_text_is_shown_where_it_is_wrong() {
    if !can_host("a_wrong_text_is_shown_where_it_is_wrong") {
        return;
    }
    refused(
        &["watch", "task", "--where", "pidd > 1", "--for", "1s"],
        2,
        &[
            "--where:1:1: error: 'pidd' is not declared",
            "^^^^",
            "did you mean 'pid'?",
        ],
    );
    let text = file("behind.ec", "struct output { int a; };\noutput.a = 1;\n");
    let path = text.to_str().expect("a path");
    refused(
        &[
            "watch", "task", "--ecode", path, "--where", "pid > 1", "--for", "1s",
        ],
        2,
        &["--where:1:1: error: 'pid' is not declared"],
    );
    refused(
        &["watch", "task", "--ecode", "/nowhere/x.ec", "--for", "1s"],
        2,
        &["/nowhere/x.ec: No such file"],
    );
}

#[test]
fn explain_tells_which_action_dropped_an_event_and_what_for() {
    if !can_host("explain_tells_which_action_dropped_an_event_and_what_for") {
        return;
    }
    let _holder = hold("cli.drops", &["--format", "u32 x"]);
    let text = file("drops.ec", "if (x > 255) drop(x); return 1;");
    let mut watch = start(
        command(&["watch", "cli.drops", "--for", "60s"])
            .arg("--ecode")
            .arg(text)
            .args(["--where", "x != 9"]),
    );
    // Of what is not a byte the lower one counts.
    watch.complaints().find("watching cli.drops", PATIENCE);
    assert_eq!(ecalls(&["raise", "cli.drops", "x=775"]).code, 0);
    assert_eq!(ecalls(&["raise", "cli.drops", "x=9"]).code, 0);
    // An event is handled soon after it is raised, not before that returns.
    let begin = Instant::now();
    let (explained, ours) = loop {
        let explained = ecalls(&["explain", "--json"]).out;
        let notes = explained.lines().map(|line| {
            let note: serde_json::Value = serde_json::from_str(line).expect("JSON");
            note
        });
        let ours: Vec<_> = notes
            .filter(|note| note["service"] == "cli.drops" && note["what"] == "filtered")
            .collect();
        if ours.len() >= 2 || begin.elapsed() > PATIENCE {
            break (explained, ours);
        }
    };
    let by_action = |number| {
        let found = ours.iter().find(|note| note["action"] == number);
        found.unwrap_or_else(|| panic!("no note of action {number}: {ours:?}"))
    };
    let condition = by_action(2);
    assert!(condition["drop"].is_null(), "{condition}");
    let note = by_action(1);
    assert_eq!(note["drop"], 7, "{note}");
    assert!(note["reason"].is_null(), "{note}");
    check_documented("explain", &explained);
    let told = ecalls(&["explain", &note["event"].to_string()]);
    assert!(told.out.contains("called drop(7)"), "{told:?}");
    assert!(ecalls(&["explain"]).out.contains(" drop(7) "));
}

#[test]
fn a_failure_in_the_kernel_is_shown_with_its_line() {
    if !can_host("a_failure_in_the_kernel_is_shown_with_its_line") {
        return;
    }
    let _holder = hold("cli.fault", &["--format", "s32 x", "--kinds", "a"]);
    let condition = "static int v[4];\nv[x] == 0";
    let mut watch = start(&mut command(&[
        "watch",
        "cli.fault",
        "--where",
        "x > 0",
        "--where",
        condition,
        "--count",
        "2",
        "--for",
        "20s",
    ]));
    let mut told = watch.complaints();
    told.find("watching cli.fault", PATIENCE);
    let wanted = ["raise", "cli.fault", "--kind", "a", "x=1"];
    assert_eq!(ecalls(&wanted).code, 0);
    // It fails, so the event goes on.
    assert_eq!(
        ecalls(&["raise", "cli.fault", "--kind", "a", "x=4"]).code,
        0
    );
    let stat = ecalls(&["stat", "--json"]);
    watch.output(PATIENCE);
    let told = told.rest(PATIENCE);
    assert!(
        told.contains("--where:2:3: warning: a run failed here: index outside its array"),
        "{told}"
    );
    assert!(told.contains("    v[x] == 0\n      ^"), "{told}");
    assert!(told.contains("passed because E-code failed 1"), "{told}");
    assert_eq!(stat.code, 0, "{stat:?}");
}

#[test]
fn who_only_counts_wants_no_line() {
    if !can_host("who_only_counts_wants_no_line") {
        return;
    }
    let _holder = hold("cli.count", &["--format", "s32 x", "--kinds", "a"]);
    let only_counts = "count(3);\nreturn 0;";
    let mut watch = start(&mut command(&[
        "watch",
        "cli.count",
        "--where",
        only_counts,
        "--for",
        "2s",
        "--json",
    ]));
    watch.complaints().find("watching cli.count", PATIENCE);
    let raised = ecalls(&["raise", "cli.count", "--kind", "a", "x=1"]);
    assert_eq!(raised.code, 0, "{raised:?}");
    let output = watch.output(PATIENCE);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let out = String::from_utf8(output.stdout).expect("text");
    assert!(out.contains(r#""counter":3"#), "{out}");
    // Nothing comes, and nothing is counted.
    let idle = ecalls(&[
        "watch",
        "cli.count",
        "--where",
        only_counts,
        "--for",
        "100ms",
    ]);
    assert_eq!(idle.code, 6, "{idle:?}");
}
