//! `ecalls sched` beside threads that poll: what is seen of them, the worst cases, and a trace that
//! is read back. That needs root and a kernel with sched_ext, so it runs in the test machine;
//! nothing here depends on how fast that is.

#[allow(dead_code, reason = "the test reads what it needs")]
#[path = "../src/sched/trace/perfetto.rs"]
mod perfetto;
#[path = "sched/user.rs"]
mod user;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ecalls::coop::SlotMemory;
use ecalls::window::{Admission, Window};
use ecalls::{Ecalls, Raise, now_ns};
use ecalls_abi::coop::COOP_POLLING;
use ecalls_kernel::scheduler;
use ecalls_ring::Words;
use limit::Running;
use perfetto::{FtraceEvent, INSTANT, SLICE_BEGIN, SLICE_END, Trace};
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);
const MS: u64 = 1_000_000;
const GROUP: u32 = 3;
const NOBODY: u32 = 65534;
/// Polls of the player from one piece of work that is too long to the next.
const MISBEHAVES_ONCE_IN: u64 = 50;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls"));
    command.arg("sched").args(arguments);
    command
}

/// Exit status, standard output, standard error.
fn sched(arguments: &[&str]) -> (i32, String, String) {
    let output = limit::output(&mut command(arguments), PATIENCE);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("no signal ended it");
    (code, text(&output.stdout), text(&output.stderr))
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let (code, out, err) = sched(arguments);
    assert_eq!(code, 0, "{arguments:?}: {err}");
    let lines = out.lines().map(serde_json::from_str);
    lines.map(|object| object.expect("JSON")).collect()
}

/// The scheduler, held by the command; None where this test cannot run.
fn start() -> Option<Running> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || scheduler::state().is_none() {
        eprintln!("skipped: needs root, ECALLS_TEST_ROOT=1 and sched_ext, as tools/vm/suite has");
        return None;
    }
    let mut holder = Running::start(command(&["start", "--reserve", "10"]).stderr(Stdio::piped()));
    holder.complaints().find("the scheduler runs", PATIENCE);
    Some(holder)
}

/// Runs on the first CPU from here on.
fn pin() {
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(0);
    rustix::thread::sched_setaffinity(None, &cpu).expect("CPU 0");
}

fn burn(ns: u64) {
    let until = now_ns() + ns;
    while now_ns() < until {}
}

fn poll(slot: &SlotMemory, polls: &mut u64, release_ns: u64) {
    *polls += 1;
    let words = slot.words();
    words[0].store(release_ns, Ordering::Relaxed);
    words[1].store(1, Ordering::Relaxed);
    words[3].store(COOP_POLLING.into(), Ordering::Relaxed);
    words[2].store(*polls, Ordering::Release);
    thread::yield_now();
    words[3].store(0, Ordering::Relaxed);
}

/// What the threads are told to do.
#[derive(Default)]
struct Orders {
    stop: AtomicBool,
    flood: AtomicBool,
}

impl Orders {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Polls with a release every 5 ms, and raises an event to itself at each; now and then a piece of
/// work is too long. The service is `name`.
fn play(ecalls: &Ecalls, name: &str, orders: &Orders) {
    pin();
    let mut channel = ecalls.channel().open().expect("a channel");
    let service = ecalls.register_service(name, "u64 value", "zero");
    let service = service.expect("a service");
    let subscription = ecalls.subscribe(name).expect("known");
    let _subscription = subscription.memory(&channel).install().expect("installed");
    let slot = channel.caller().coop_slot(0, GROUP).expect("a slot");
    let (mut polls, mut release) = (0, now_ns() + 5 * MS);
    poll(&slot, &mut polls, release);
    while !orders.stopped() {
        burn(if polls % MISBEHAVES_ONCE_IN == 1 {
            40 * MS
        } else {
            MS / 10
        });
        poll(&slot, &mut polls, release);
        let now = now_ns();
        if now >= release {
            release = now + 5 * MS;
            service.raise(&Raise::new(&[])).expect("raised");
        }
        while channel.try_recv().is_some() {}
    }
}

/// Two threads that wake each other as often as they can while they are to flood: nothing makes
/// more notes for less work.
fn flood(orders: &Orders) {
    let (there, from_here) = io::pipe().expect("a pipe");
    let (here, from_there) = io::pipe().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(|| pass_on(there, from_there));
        let (mut here, mut from_here) = (here, from_here);
        while !orders.stopped() {
            if !orders.flood.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            from_here.write_all(b"!").expect("there is somebody");
            here.read_exact(&mut [0]).expect("an answer");
        }
        drop(from_here);
    });
}

/// Answers until there is nobody any more.
fn pass_on(mut from: io::PipeReader, mut to: io::PipeWriter) {
    let mut byte = [0];
    while from.read_exact(&mut byte).is_ok() {
        to.write_all(&byte).expect("there is somebody");
    }
}

/// Computes by a window: 4 ms of each 20, and no more.
fn serve(ecalls: &Ecalls, orders: &Orders) {
    pin();
    let channel = ecalls.channel().open().expect("a channel");
    let slot = channel.caller().coop_slot(0, 0).expect("a slot");
    let window = Window {
        period: Duration::from_millis(20),
        service: Duration::from_millis(4),
        x: 1,
        y: 5,
        conserving: false,
    };
    let answer = channel.caller().window(&slot, &window).expect("an answer");
    assert_eq!(answer, Admission::Promised);
    limit::compute_until(|| orders.stopped());
}

#[test]
fn who_polls_is_seen_and_traced_and_the_worst_cases_name_who_ran() {
    let Some(mut holder) = start() else { return };
    let ecalls = Ecalls::open().expect("the scheduler's core");
    let orders = Orders::default();
    let name = format!("test-{}", std::process::id());
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (ecalls, name, orders) = (&ecalls, &name, &orders);
        let end = Ends(orders);
        let own_tid = || rustix::thread::gettid().as_raw_nonzero().get();
        let tell_other = tell.clone();
        scope.spawn(move || {
            tell.send(own_tid()).expect("told");
            play(ecalls, name, orders);
        });
        let tid = told.recv().expect("its number");
        scope.spawn(move || {
            tell_other.send(own_tid()).expect("told");
            serve(ecalls, orders);
        });
        scope.spawn(move || {
            pin();
            limit::compute_until(|| orders.stopped());
        });
        scope.spawn(move || flood(orders));
        let windowed = told.recv().expect("its number");
        check_seen(tid);
        check_worst(tid);
        check_trace(tid, windowed, name);
        user::check();
        check_loss(orders);
        drop(end);
    });
    check_refusals();
    assert_eq!(sched(&["stop"]).0, 0);
    assert!(holder.wait(PATIENCE).success());
    let (code, _, err) = sched(&["trace", "-d", "1", "-o", "/dev/null"]);
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("start it first"), "{err}");
    check_try_that_the_kernel_ends();
    // The core has ended: the command loads one.
    drop(ecalls);
    check_try();
}

/// What cannot be is said first, whoever asks and whether there is a core or not.
#[test]
fn without_sched_ext_it_is_said_what_is_missing() {
    if scheduler::state().is_some() {
        return;
    }
    for arguments in [
        &["trace", "-o", "/no/such/folder/t.pftrace"][..],
        &["start"],
        &["try", "1s"],
    ] {
        let (code, out, err) = sched(arguments);
        assert_eq!((code, out.as_str()), (4, ""), "{arguments:?}: {err}");
        for part in [
            "sched_ext",
            "apt install -t trixie-backports linux-image-amd64",
        ] {
            assert!(err.contains(part), "{arguments:?}: {err}");
        }
    }
}

/// First the kernel's own scheduler, then ours, and in the end the kernel's again.
fn check_try() {
    let both = json(&["try", "500ms", "--json"]);
    let of = |key: &str| both.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("scheduler"), ["kernel", "ecalls"], "{both:?}");
    for one in &both {
        assert!(one["seconds"].as_f64() >= Some(0.5), "{one}");
        assert!(one["late_max_us"].as_u64() >= one["late_p50_us"].as_u64());
        assert!(one["switches_per_s"].as_f64() > Some(0.0), "{one}");
    }
    let chosen = |one: &Value| one["fair"].as_u64();
    assert_eq!(chosen(&both[0]), None, "{both:?}");
    assert!(chosen(&both[1]) > Some(0), "{both:?}");
    assert_eq!(scheduler::state().and_then(|state| state.running), None);
}

/// The time before was waited for: its figures come whatever becomes of the scheduler.
fn check_try_that_the_kernel_ends() {
    let mut command = command(&["try", "2s", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut trial = Running::start(&mut command);
    let mut told = trial.complaints();
    told.find("ours schedules", PATIENCE);
    limit::eject_scheduler();
    told.find("ended the scheduler", PATIENCE);
    let output = trial.output(PATIENCE);
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8(output.stdout).expect("text");
    let objects = lines.lines().map(serde_json::from_str::<Value>);
    let objects: Vec<Value> = objects.map(|object| object.expect("JSON")).collect();
    let of = |key: &str| {
        objects
            .iter()
            .map(|one| one[key].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("scheduler"), ["kernel", "ecalls"], "{lines}");
    assert!(objects[0]["seconds"].as_f64() >= Some(2.0), "{lines}");
}

/// Ends the threads also when a check fails.
struct Ends<'a>(&'a Orders);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// The thread among those that `status` shows, once it has been released often enough.
fn row(tid: i32) -> (Value, Value) {
    let begin = Instant::now();
    loop {
        let status = json(&["status", "--json"]).remove(0);
        let threads = status["threads"].as_array().expect("threads");
        let own = threads.iter().find(|row| row["tid"] == tid).cloned();
        if let Some(own) = own
            && own["tardiness"]["buckets"].as_array().expect("pairs").len() > 1
        {
            return (own, status["groups"].clone());
        }
        assert!(begin.elapsed() < PATIENCE, "{status}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn check_seen(tid: i32) {
    let (own, groups) = row(tid);
    assert_eq!(own["group"], GROUP, "{own}");
    assert!(own["overran"].as_u64() >= Some(1), "{own}");
    for times in ["tardiness", "delay", "slice"] {
        let buckets = own[times]["buckets"].as_array().expect("pairs");
        assert!(!buckets.is_empty(), "{times}: {own}");
        let max = own[times]["max_us"].as_u64();
        assert!(max >= own[times]["p99_us"].as_u64(), "{times}: {own}");
    }
    let groups = groups.as_array().expect("groups");
    let group = groups.iter().find(|row| row["group"] == GROUP);
    let group = group.expect("its group");
    assert_eq!(group["kind"], "group");
    // They are read one after the other, in any order.
    let overran = |row: &Value| row["overran"].as_u64().expect("a count");
    assert!(overran(group) + 1 >= overran(&own), "{group} {own}");
    let lines = json(&[
        "top", "--json", "--count", "1", "--every", "500ms", "--rows", "1000",
    ]);
    let line = lines.iter().find(|line| line["tid"] == tid);
    let line = line.expect("it runs all the time");
    assert!(line["kind"] == "cooperative" || line["kind"] == "fair");
    assert!(line["tardy_max_us"].is_u64(), "{line}");
    let (_, table, _) = sched(&["top", "--count", "1", "--every", "50ms", "--worst"]);
    assert!(
        table.contains("DEMOTED") && table.contains("LATE"),
        "{table}"
    );
}

fn check_worst(tid: i32) {
    let begin = Instant::now();
    let status = json(&["status", "--json", "--worst", "--forget"]).remove(0);
    let worst = status["worst"].as_array().expect("worst cases").clone();
    assert!((1..=16).contains(&worst.len()), "{status}");
    assert_eq!(status["policy"], "spread");
    assert_eq!(status["reserve_percent"], 10, "as it was started");
    let number = |value: &Value| value.as_u64().expect("a number");
    let mut latest = u64::MAX;
    for one in &worst {
        assert_eq!(one["tid"], tid, "{one}");
        let by = one["by"].as_array().expect("who ran");
        let ran: u64 = by.iter().map(|by| number(&by["ran_ns"])).sum();
        let tardy = number(&one["tardy_ns"]);
        assert_eq!(ran + number(&one["rest_ns"]), tardy, "{one}");
        assert!(tardy <= latest, "the worst one first: {worst:?}");
        latest = tardy;
    }
    thread::sleep(Duration::from_millis(100));
    let status = json(&["status", "--json", "--worst"]).remove(0);
    let elapsed = u64::try_from(begin.elapsed().as_nanos()).expect("some seconds");
    for one in status["worst"].as_array().expect("worst cases") {
        assert!(number(&one["ago_ns"]) < elapsed, "forgotten: {one}");
    }
    let (_, text, _) = sched(&["status", "--worst"]);
    assert!(text.contains("KIND") && text.contains("AGO"), "{text}");
}

fn trace_file() -> PathBuf {
    std::env::temp_dir().join(format!("ecalls-{}.pftrace", std::process::id()))
}

/// What is to be on these tracks, more than once. On a slow machine not every second has all of it.
const EXPECTED: &[&str] = &[
    "poll",
    "release",
    "late",
    "chosen by release",
    "chosen by window",
    "end of period",
    "demoted: overran",
    "raised",
    "delivered",
];

fn check_trace(tid: i32, windowed: i32, service: &str) {
    let file = trace_file();
    let path = file.to_str().expect("a path");
    let begin = Instant::now();
    let (trace, names) = loop {
        let summary = json(&["trace", "-d", "1", "-o", path, "--json"]).remove(0);
        println!("{summary}");
        let bytes = std::fs::read(&file).expect("the trace");
        std::fs::remove_file(&file).expect("removed");
        let trace = Trace::decode(bytes.as_slice()).expect("a trace");
        let is_whole = summary["lost"] == 0;
        let switches = check_switches(&trace, tid, is_whole);
        assert_eq!(summary["switches"], switches, "{summary}");
        let names = check_tracks(&trace, &[tid, windowed], service);
        let has = |name: &&str| names.get(*name).is_some_and(|count| *count > 1);
        if EXPECTED.iter().all(has) {
            break (trace, names);
        }
        assert!(begin.elapsed() < PATIENCE, "{names:?}");
    };
    // An arrow has two ends, but for those that were raised before.
    assert!(names["raised"] <= names["delivered"], "{names:?}");
    let trees = trace
        .packet
        .iter()
        .filter_map(|packet| packet.process_tree.as_ref());
    let mut threads = trees.flat_map(|tree| &tree.threads);
    let own = threads.find(|thread| thread.tid() == tid).expect("known");
    assert_eq!(own.tgid().unsigned_abs(), std::process::id());
}

/// On each CPU time goes on, and each thread that stops is the one that ran. How many there are.
fn check_switches(trace: &Trace, tid: i32, is_whole: bool) -> usize {
    let mut cpus: HashMap<u32, Vec<&FtraceEvent>> = HashMap::new();
    let bundles = trace
        .packet
        .iter()
        .filter_map(|packet| packet.ftrace_events.as_ref());
    for bundle in bundles {
        cpus.entry(bundle.cpu()).or_default().extend(&bundle.event);
    }
    let mut count = 0;
    let mut ran = false;
    for events in cpus.values() {
        assert!(
            events.is_sorted_by_key(|event| event.timestamp()),
            "time goes on"
        );
        let switches = events
            .iter()
            .filter_map(|event| event.sched_switch.as_ref());
        let switches: Vec<_> = switches.collect();
        count += switches.len();
        ran |= switches.iter().any(|switch| switch.next_pid() == tid);
        for pair in switches.windows(2) {
            assert!(
                !is_whole || pair[0].next_pid() == pair[1].prev_pid(),
                "{pair:?}"
            );
        }
    }
    assert!(ran, "the thread that polls is there");
    count
}

/// Tracks of these threads and the service: time goes on, slices are closed. How often each name is
/// there.
fn check_tracks(trace: &Trace, tids: &[i32], service: &str) -> HashMap<String, usize> {
    let mut names = HashMap::new();
    let descriptors = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_descriptor.as_ref());
    let mine: Vec<u64> = descriptors
        .filter(|track| {
            let thread = track.thread.as_ref();
            thread.is_some_and(|thread| tids.iter().any(|tid| thread.tid() == i64::from(*tid)))
                || track.name() == format!("events of {service}")
        })
        .map(perfetto::TrackDescriptor::uuid)
        .collect();
    assert!(mine.len() <= tids.len() + 1, "one each, and the service's");
    let (mut last_ns, mut open) = (0, HashMap::new());
    for packet in &trace.packet {
        let Some(event) = &packet.track_event else {
            continue;
        };
        assert!(packet.timestamp() >= last_ns, "time goes on");
        last_ns = packet.timestamp();
        let depth = open.entry(event.track_uuid()).or_insert(0);
        match event.r#type() {
            SLICE_BEGIN => *depth += 1,
            SLICE_END => *depth -= 1,
            kind => assert_eq!(kind, INSTANT),
        }
        assert!((0..=1).contains(depth), "slices do not overlap");
        if mine.contains(&event.track_uuid()) {
            *names.entry(event.name().to_owned()).or_insert(0) += 1;
        }
    }
    assert!(open.values().all(|depth| *depth == 0), "slices are closed");
    names
}

/// Who reads too late loses notes: how many is said, and in the file.
fn check_loss(orders: &Orders) {
    let file = trace_file();
    let path = file.to_str().expect("a path");
    let begin = Instant::now();
    let (summary, said, trace) = loop {
        let mut tracing = command(&["trace", "-d", "60", "-o", path, "--json"]);
        tracing.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tracing = Running::start(&mut tracing);
        while !file.exists() {
            assert!(tracing.ended().is_none(), "the trace does not begin");
            thread::sleep(Duration::from_millis(10));
        }
        orders.flood.store(true, Ordering::Relaxed);
        let pid = Pid::from_raw(i32::try_from(tracing.id()).expect("a process"));
        let signal = |signal| kill_process(pid.expect("a process"), signal).expect("it lives");
        signal(Signal::STOP);
        thread::sleep(Duration::from_millis(1400));
        signal(Signal::CONT);
        orders.flood.store(false, Ordering::Relaxed);
        signal(Signal::INT);
        let output = tracing.output(PATIENCE);
        let trace = std::fs::read(&file).expect("the trace");
        std::fs::remove_file(&file).expect("removed");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        println!("{summary}");
        if summary["lost"] != 0 {
            let trace = Trace::decode(trace.as_slice()).expect("a trace");
            break (summary, output.stderr, trace);
        }
        assert!(begin.elapsed() < PATIENCE, "nothing was lost");
    };
    let said = String::from_utf8(said).expect("text");
    let count = &summary["lost"];
    assert!(
        said.contains(&format!("{count} notes found no place")),
        "{said}"
    );
    let packets = trace.packet.iter();
    let mut tracks = packets.filter_map(|packet| packet.track_descriptor.as_ref());
    let track = tracks
        .find(|track| track.name() == "lost notes")
        .expect("a track");
    let packets = trace.packet.iter();
    let events = packets.filter_map(|packet| packet.track_event.as_ref());
    let lost = events.filter(|event| event.track_uuid() == track.uuid());
    let notes = lost.flat_map(|event| &event.debug_annotations);
    let notes: u64 = notes.map(perfetto::DebugAnnotation::uint_value).sum();
    assert_eq!(*count, notes, "{summary}");
}

fn check_refusals() {
    // There is one scheduler at a time.
    for arguments in [&["start"][..], &["try", "1s"]] {
        let (code, _, err) = sched(arguments);
        assert_eq!(code, 1, "{arguments:?}: {err}");
        assert!(err.contains("`ecalls sched stop` ends it"), "{err}");
    }
    // Only root traces; and nothing is left where another's trace would have been.
    let file = trace_file();
    let path = file.to_str().expect("a path");
    let mut other = command(&["trace", "-d", "10ms", "-o", path]);
    let output = limit::output(other.uid(NOBODY).gid(NOBODY), PATIENCE);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("needs root"), "{err}");
    assert!(!file.exists());
    let (code, _, err) = sched(&["trace", "-d", "1", "-o", "/no/such/folder/t.pftrace"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("writing /no/such/folder"), "{err}");
    // There is one trace at a time.
    let start_long = || Running::start(&mut command(&["trace", "-d", "60", "-o", "/dev/null"]));
    let mut long = start_long();
    let begin = Instant::now();
    loop {
        // Time for it to begin, before the next short one may be in its way.
        thread::sleep(Duration::from_secs(1) + begin.elapsed() / 4);
        let (code, _, err) = sched(&["trace", "-d", "10ms", "-o", "/dev/null"]);
        if code != 0 {
            assert!(err.contains("at a time"), "{err}");
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the long one never began");
        long.kill(PATIENCE);
        long = start_long();
    }
    long.kill(PATIENCE);
    // Whoever dies leaves nothing on.
    assert_eq!(sched(&["trace", "-d", "10ms", "-o", "/dev/null"]).0, 0);
}
