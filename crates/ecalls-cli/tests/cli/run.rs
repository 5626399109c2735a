//! `ecalls run`: the program's output and exit status are its own, and the report adds up.

use super::{PATIENCE, check_documented, command, ecalls, refused, start};

#[test]
fn a_program_runs_with_its_own_output_and_status_and_a_report_on_stderr() {
    let ended = ecalls(&["run", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(ended.code, 7);
    assert_eq!(ended.out, "out\n");
    for word in ["scheduler", "time", "waited", "turns"] {
        assert!(ended.err.contains(word), "{word}: {ended:?}");
    }
    assert_eq!(ecalls(&["run", "sh", "-c", "kill -9 $$"]).code, 128 + 9);
}

#[test]
fn a_report_counts_what_the_program_started_too() {
    let busy = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait";
    let ended = ecalls(&["run", "--json", "sh", "-c", busy]);
    let report: serde_json::Value = serde_json::from_str(&ended.err).expect("an object alone");
    check_documented("run", &ended.err);
    let number = |key: &str| report[key].as_f64().expect("a number");
    assert!(number("cpu_ns") > 1e6, "{report}");
    assert!(number("turns") >= 1.0, "{report}");
    assert!((0.0..=1.0).contains(&number("got")), "{report}");
}

#[test]
fn a_program_runs_at_the_nice_value_asked_for() {
    let ended = ecalls(&["run", "--nice", "19", "sh", "-c", "nice"]);
    assert_eq!(ended.out, "19\n", "{ended:?}");
}

#[test]
fn a_program_that_is_not_there_is_told() {
    refused(&["run", "no-such-program"], 5, &["no-such-program"]);
    refused(&["run", "--nice", "20", "sh"], 2, &["--nice"]);
}

#[test]
fn a_request_to_end_is_passed_on_to_the_program() {
    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = start(&mut command(&["run", "--", "sh", "-c", script]));
    run.lines().find("ready", PATIENCE);
    let pid = i32::try_from(run.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(run.wait(PATIENCE).code(), Some(3));
}

#[test]
fn the_threads_that_want_the_cpu_are_shown_under_any_scheduler() {
    let ended = ecalls(&["sched", "top", "--json", "--count", "1", "--every", "200ms"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for line in ended.out.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(object["tid"].as_u64().expect("a number") > 0, "{line}");
    }
    let table = ecalls(&["sched", "top", "--count", "1", "--every", "100ms"]).out;
    assert!(table.contains("WAIT PER TURN"), "{table}");
}

/// The library that `--io` loads is beside the command, as in any build.
#[test]
fn a_program_polls_an_epoll_set_on_request() {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../ecalls-io");
    let _ = limit::library::build(package, "libecalls_io.so");
    let script = "import os, select\n\
        poll = select.poll()\n\
        pipes = [os.pipe() for _ in range(50)]\n\
        [poll.register(reader, select.POLLIN) for reader, _ in pipes]\n\
        [poll.poll(0) for _ in range(12)]\n\
        os.write(pipes[7][1], b'x')\n\
        links = [f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd')]\n\
        links = [os.readlink(link) for link in links if os.path.exists(link)]\n\
        sets = [link for link in links if 'eventpoll' in link]\n\
        print(len(poll.poll()), len(sets))\n";
    assert_eq!(ecalls(&["run", "--", "python3", "-c", script]).out, "1 0\n");
    let ours = ecalls(&["run", "--io", "--", "python3", "-c", script]);
    assert_eq!(ours.out, "1 1\n", "{ours:?}");
    refused(
        &["run", "--io", "/sbin/ldconfig"],
        4,
        &["/sbin/ldconfig", "statically linked"],
    );
    refused(
        &["run", "--io", "--threads", "true"],
        2,
        &["--io", "--threads"],
    );
}

/// The library that `--threads` loads is beside the command, as in any build.
#[test]
fn threads_of_a_program_are_user_level_threads_on_request() {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../ecalls-pthread");
    let _ = limit::library::build(package, "libecalls_pthread.so");
    let script = "import os, threading\n\
        event = threading.Event()\n\
        threads = [threading.Thread(target=event.wait) for _ in range(200)]\n\
        [thread.start() for thread in threads]\n\
        print(len(os.listdir('/proc/self/task')))\n\
        event.set()\n";
    let plain = ecalls(&["run", "--", "python3", "-c", script]);
    assert_eq!(plain.out.trim(), "201");
    let threaded = ecalls(&["run", "--threads", "--", "python3", "-c", script]);
    let kernel_threads: u32 = threaded.out.trim().parse().expect("a number");
    assert!(kernel_threads < 50, "{threaded:?}");
    // ldconfig is linked statically, as it must work without libraries.
    refused(
        &["run", "--threads", "/sbin/ldconfig"],
        4,
        &["/sbin/ldconfig", "statically linked"],
    );
}
