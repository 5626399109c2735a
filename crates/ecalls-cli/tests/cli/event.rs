//! Events on their way from one process to another, and from the kernel. All need root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;

use limit::Running;

use crate::{
    PATIENCE, STEP, STEPS, can_host, check_documented, command, ecalls, hold, refused, start,
};

#[test]
fn things_that_are_not_there_are_told_with_those_that_are() {
    if !can_host("things_that_are_not_there_are_told_with_those_that_are") {
        return;
    }
    let _holder = hold(
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
    refused(&["watch", "task", "--threshold", "1ms"], 2, &["sched"]);
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
    let _holder = hold(
        "cli.way",
        &["--format", "s32 x; char who[8]", "--kinds", "a b"],
    );
    let mut watch = start(
        command(&["watch", "cli.way", "--count", "2", "--for", "20s", "--json"]).args([
            "--kind",
            "b",
            "--handler",
            "threshold:x<0",
        ]),
    );
    watch.complaints().find("watching cli.way", PATIENCE);
    let wanted = ["raise", "cli.way", "--kind", "b", "x=-5", "who=me"];
    assert_eq!(ecalls(&wanted).code, 0);
    assert_eq!(ecalls(&["raise", "cli.way", "--kind", "a", "x=-1"]).code, 0);
    assert_eq!(ecalls(&["raise", "cli.way", "--kind", "b", "x=1"]).code, 0);
    assert_eq!(ecalls(&wanted).code, 0);
    let output = watch.output(PATIENCE);
    let out = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3, "{out}");
    check_documented("watch", &out);
    for event in &lines[..2] {
        assert_eq!(event["kind"], "b");
        assert_eq!(event["data"], serde_json::json!({"x": -5, "who": "me"}));
    }
    assert_eq!(lines[2]["received"], 2);
    assert_eq!(lines[2]["filtered"], 1, "the one with x=1");
    assert_eq!(output.status.code(), Some(0));
}

/// 2152 bytes are all that a format can say.
#[test]
fn a_format_has_fields_up_to_the_limit_and_the_last_one_arrives() {
    if !can_host("a_format_has_fields_up_to_the_limit_and_the_last_one_arrives") {
        return;
    }
    refused(
        &[
            "service",
            "cli.more",
            "--format",
            "u8 a[2144]; u64 last; u8 b",
        ],
        2,
        &["u8 b", "at most 2152 bytes"],
    );
    let _holder = hold("cli.most", &["--format", "u8 a[2144]; u64 last"]);
    let mut watch = start(&mut command(&[
        "watch", "cli.most", "--count", "1", "--for", "20s", "--json",
    ]));
    watch.complaints().find("watching cli.most", PATIENCE);
    let last = u64::MAX.to_string();
    let wanted = format!("last={last}");
    refused(&["raise", "cli.most", "a=256"], 2, &["a=256", "fits"]);
    assert_eq!(ecalls(&["raise", "cli.most", "a=1,2,3", &wanted]).code, 0);
    let output = watch.output(PATIENCE);
    let out = String::from_utf8(output.stdout).expect("text");
    let first = out.lines().next().expect("an event");
    let event: serde_json::Value = serde_json::from_str(first).expect("JSON");
    let data = &event["data"];
    assert_eq!(data["last"].to_string(), last);
    let bytes = data["a"].as_array().expect("an array");
    assert_eq!(
        (bytes.len(), &bytes[2], &bytes[3]),
        (2144, &3.into(), &0.into())
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn sockets_of_a_process_are_watched_also_those_that_it_opens_later() {
    if !can_host("sockets_of_a_process_are_watched_also_those_that_it_opens_later") {
        return;
    }
    let pid = std::process::id().to_string();
    let mut watch = start(
        command(&["watch", "socket", "--pid", &pid, "--count", "1"]).args([
            "--kind",
            "data",
            "--handler",
            "threshold:bytes==321",
            "--for",
            "20s",
        ]),
    );
    watch.complaints().find("watching", PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    for _ in 0..STEPS {
        sleep(STEP);
        let mut writer = TcpStream::connect(address).expect("a connection");
        writer.write_all(&[7; 321]).expect("sent");
        let (mut reader, _) = listener.accept().expect("a connection");
        reader.set_read_timeout(Some(PATIENCE)).expect("an option");
        reader.read_exact(&mut [0; 321]).expect("it came");
        if watch.ended().is_some() {
            break;
        }
    }
    let output = watch.output(PATIENCE);
    let out = String::from_utf8(output.stdout).expect("text");
    assert!(
        out.contains(&format!("local_port={}", address.port())),
        "{out}"
    );
    assert_eq!(output.status.code(), Some(0), "{out}");
}

#[test]
fn a_signal_ends_a_watch_with_a_summary() {
    if !can_host("a_signal_ends_a_watch_with_a_summary") {
        return;
    }
    let mut watch = start(&mut command(&["watch", "timer", "--every", "5ms"]));
    watch.lines().find("timer expiry", PATIENCE);
    let pid = watch.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.expect("kill runs").success());
    let output = watch.output(PATIENCE);
    assert_eq!(output.status.code(), Some(0));
    let err = String::from_utf8(output.stderr).expect("text");
    assert!(err.contains("received ") && err.contains("late 0"), "{err}");
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
    let mut watch = command(&["watch", "core", "--for", "60s", "--handler", "sample:10"]);
    let mut watch = Running::start(watch.stdout(Stdio::null()).stderr(Stdio::piped()));
    watch.complaints().find("watching core", PATIENCE);
    let shown = ecalls(&["stat"]).out.contains("sample(10) -> memory(ch ");
    let objects = ecalls(&["stat", "--json"]).out;
    drop(watch);
    assert!(shown);
    // The keys of a service are those of `ecalls services`, and explained there.
    let (services, others): (Vec<&str>, Vec<&str>) = objects
        .lines()
        .partition(|line| line.starts_with(r#"{"what":"service""#));
    check_documented("stat", &others.join("\n"));
    check_documented(
        "services",
        &services.join("\n").replace(r#""what":"service","#, ""),
    );
}
