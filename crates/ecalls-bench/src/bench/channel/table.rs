//! KECho's Table 1: create, open, submit and poll, with the system calls of each.
//!
//! Two hosts are network namespaces on one bridge, each with a core and a relay. One has the
//! channel `there` open; the other one creates a channel, opens that one until both know each
//! other, submits to it and polls. It is run twice: as it is, for the times, and under `strace`,
//! which counts the calls of all its threads between two marks. What a core loads once, when the
//! first channel is opened, is loaded before. Beside it plain Zenoh does the same, with one host's
//! sessions on the loopback interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ecalls::{Ecalls, Raise};
use ecalls_channel::Publisher;
use ecalls_channel::cluster::{Change, ClusterChannel, Wanted};
use ecalls_channel::frame::Submission;
use serde_json::{Value as Json, json};

use super::peer;
use super::web::failed;
use super::web::net::{Net, Started};
use crate::bench::Bench;
use crate::bench::rows::Section;
use crate::bench::timing::{Value, silent};
use crate::exit::{Failure, Outcome};

pub(super) const SECTION: Section = Section {
    rows: &[
        "table1_create",
        "table1_open",
        "table1_submit",
        "table1_poll",
        "zenoh_create",
        "zenoh_open",
        "zenoh_submit",
        "zenoh_poll",
    ],
    slow: true,
    measure,
};

/// Each operation: our row, Zenoh's, its name, and what the two are.
const ROWS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "table1_create",
        "zenoh_create",
        "create",
        "creating a channel of a cluster",
        "a session that listens, and a publisher",
    ),
    (
        "table1_open",
        "zenoh_open",
        "open",
        "opening another host's channel, until it is a sink there and here",
        "a session that connects, a subscriber, until the source knows it",
    ),
    (
        "table1_submit",
        "zenoh_submit",
        "submit",
        "a program's event to one sink, and to the subscriptions here",
        "a put to one subscriber",
    ),
    (
        "table1_poll",
        "zenoh_poll",
        "poll",
        "taking an event that is there",
        "the same",
    ),
];
const STATISTIC: &str = "one after the other, mean";
const FORMAT: &str = "u8 data[16]";
const EVENTS: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(30);
/// Where another relay is said to be.
const RELAY: &str = "ECALLS_BENCH_RELAY";
const MARKS: &str = "/ecalls-bench/";

fn measure(_: &Bench) -> Result<Vec<Value>, Failure> {
    let ours = match peer::built("ecalls-relay", RELAY) {
        Some(relay) => Some(hosts(&relay)?),
        None => None,
    };
    let theirs = match peer::zenoh() {
        Some(program) => Some(twice(|| {
            let mut command = Command::new(&program);
            command.arg("table");
            command
        })?),
        None => None,
    };
    let mut values = Vec::new();
    for (row, zenoh, name, what, same) in ROWS {
        for (row, taken, what) in [(row, &ours, what), (zenoh, &theirs, same)] {
            values.push(match taken.as_ref().and_then(|taken| taken.get(*name)) {
                Some((ns, calls)) => Value {
                    calls: *calls,
                    ..Value::ns(row, *ns, STATISTIC, what)
                },
                None => Value::missing(row, peer::NO_ZENOH),
            });
        }
    }
    Ok(values)
}

/// By operation: time in ns, and system calls if they could be counted.
type Taken = BTreeMap<String, (f64, Option<f64>)>;

/// Two hosts with relays, and what the second one takes.
fn hosts(relay: &Path) -> Result<Taken, Failure> {
    let folder = std::env::temp_dir().join(format!("ecalls-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let taken = in_folder(relay, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    taken
}

fn in_folder(relay: &Path, folder: &Path) -> Result<Taken, Failure> {
    let switch = Net::switch("10.79.1.254").map_err(failed)?;
    let (mut nets, mut running) = (Vec::new(), Vec::new());
    for number in 1..=2u8 {
        let address = format!("10.79.1.{number}");
        let net = switch.host(number, &address).map_err(failed)?;
        let (instance, file) = (instance(number), folder.join(format!("{number}.toml")));
        // The first host is known.
        let connect = if number == 1 {
            ""
        } else {
            "\"10.79.1.1:7914\""
        };
        let configuration = format!(
            "[lane]\ninterface = \"eth\"\n[network]\nlisten = [\"{address}:7914\"]\n\
             scouting = false\nconnect = [{connect}]\n"
        );
        std::fs::write(&file, configuration)?;
        let mut command = net.command(&relay.to_string_lossy());
        command.arg("--config").arg(&file).stderr(Stdio::null());
        running.push(Started::of(&mut command, instance).map_err(failed)?);
        nets.push(net);
        // The second one's first attempt to connect succeeds.
        std::thread::sleep(Duration::from_millis(500));
    }
    let _there = nets[0]
        .start_own(&[super::PART, "table", "there"], 1)
        .map_err(failed)?;
    let part = || -> Result<Command, Failure> {
        let own = nets[1].own(&[super::PART, "table", "here"]);
        let mut own = own.map_err(failed)?;
        own.env("ECALLS_INSTANCE", instance(2));
        Ok(own)
    };
    let taken = twice_fallible(part)?;
    let _ = std::fs::remove_file(format!("/run/ecalls@{}.lock", instance(2)));
    Ok(taken)
}

fn instance(number: u8) -> String {
    format!("{}-{number}", super::web::INSTANCE)
}

fn twice(command: impl Fn() -> Command) -> Result<Taken, Failure> {
    twice_fallible(|| Ok(command()))
}

/// Runs a command for its times, and again under `strace` for its calls.
fn twice_fallible(command: impl Fn() -> Result<Command, Failure>) -> Result<Taken, Failure> {
    let times = peer::said(&mut command()?)?;
    let calls = traced(&command()?)?;
    let times = times.as_object().ok_or_else(|| silent("times"))?;
    Ok(times
        .iter()
        .map(|(name, ns)| {
            let ns = ns.as_f64().unwrap_or(f64::NAN);
            (name.clone(), (ns, calls.get(name).copied()))
        })
        .collect())
}

/// System calls by operation; without `strace`, none.
fn traced(command: &Command) -> Result<BTreeMap<String, f64>, Failure> {
    let file = std::env::temp_dir().join(format!("ecalls-bench-{}.strace", std::process::id()));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&file);
    strace.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        strace.env(name, value.unwrap_or_default());
    }
    if let Err(error) = strace.stdin(Stdio::null()).output() {
        return match error.kind() {
            std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            _ => Err(error.into()),
        };
    }
    let text = std::fs::read_to_string(&file)?;
    let _ = std::fs::remove_file(&file);
    Ok(count(&text))
}

/// The calls between the marks of each operation; those of many events divided by them.
fn count(text: &str) -> BTreeMap<String, f64> {
    let (mut counts, mut inside) = (BTreeMap::new(), None);
    for line in text.lines() {
        if let Some((_, mark)) = line.split_once(MARKS) {
            let name = mark.split('"').next().unwrap_or_default();
            inside = name.strip_suffix("-begin").map(str::to_owned);
        } else if let Some(name) = &inside
            && line.contains('(')
            && !line.contains(" resumed>")
        {
            *counts.entry(name.clone()).or_insert(0.0) += 1.0;
        } else if let Some(name) = &inside {
            counts.entry(name.clone()).or_insert(0.0);
        }
    }
    for (name, _) in [("submit", ()), ("poll", ())] {
        let count: &mut f64 = counts.entry(name.to_owned()).or_default();
        *count = (*count / f64::from(EVENTS) * 100.0).round() / 100.0;
    }
    counts
}

/// The part of a host.
pub(super) fn part(words: &[&str]) -> Outcome {
    match words {
        ["there"] => there(),
        ["here"] => here(),
        _ => Err(Failure::usage("no such host")),
    }
}

fn wanted<'a>(name: &'a str, events: Option<(&'a str, &'a str)>) -> Wanted<'a> {
    Wanted {
        cluster: "bench",
        name,
        events,
        interface: None,
        reliable: false,
    }
}

/// Has a channel open until it is killed.
fn there() -> Outcome {
    let ecalls = Ecalls::host()?;
    let events = Some((FORMAT, ""));
    let _channel = ClusterChannel::open(&ecalls, &wanted("there", events), |_| ())?;
    println!("opened");
    loop {
        std::thread::park();
    }
}

/// Does one of each, and says how long each took.
fn here() -> Outcome {
    let ecalls = Ecalls::host()?;
    let mut times = serde_json::Map::new();
    let mut timed = |name: &str, events: u32, call: &mut dyn FnMut() -> Outcome| -> Outcome {
        mark(&format!("{name}-begin"));
        let begin = Instant::now();
        call()?;
        let took = begin.elapsed().as_nanos() as f64 / f64::from(events);
        mark(&format!("{name}-end"));
        times.insert(name.to_owned(), json!(took));
        Ok(())
    };
    let events = Some((FORMAT, ""));
    warm_up(&ecalls)?;
    let mut created = None;
    timed("create", 1, &mut || {
        created = Some(ClusterChannel::open(
            &ecalls,
            &wanted("here", events),
            |_| (),
        )?);
        Ok(())
    })?;
    let (told, heard) = channel();
    let mut opened = None;
    timed("open", 1, &mut || {
        let told = told.clone();
        let change = move |change| {
            if matches!(change, Change::Joined(..)) {
                let _ = told.send(());
            }
        };
        opened = Some(ClusterChannel::open(
            &ecalls,
            &wanted("there", None),
            change,
        )?);
        heard.recv_timeout(PATIENCE).map_err(|_| silent("a host"))
    })?;
    let publisher = Publisher::to_sinks(&ecalls, "there")?;
    let mut memory = ecalls.channel().ring(256).open()?;
    let _subscription = ecalls.subscribe("here")?.memory(&memory).install()?;
    let submission = Submission {
        data: vec![7; 16],
        ..Submission::default()
    };
    timed("submit", EVENTS, &mut || {
        (0..EVENTS).try_for_each(|_| {
            publisher.submit(&submission)?;
            Ok(())
        })
    })?;
    for _ in 0..EVENTS {
        ecalls.raise("here", &Raise::new(&[7; 16]))?;
    }
    timed("poll", EVENTS, &mut || {
        for _ in 0..EVENTS {
            memory.try_recv().ok_or_else(|| silent("an event"))?;
        }
        Ok(())
    })?;
    println!("{}", Json::Object(times));
    Ok(())
}

/// The core loads its parts when they are first needed: here.
fn warm_up(ecalls: &Ecalls) -> Outcome {
    let wanted = wanted("warm", Some((FORMAT, "")));
    let _channel = ClusterChannel::open(ecalls, &wanted, |_| ())?;
    let memory = ecalls.channel().ring(256).open()?;
    let _subscription = ecalls.subscribe("warm")?.memory(&memory).install()?;
    let submission = Submission {
        data: vec![7; 16],
        ..Submission::default()
    };
    Publisher::to_sinks(ecalls, "warm")?.submit(&submission)?;
    Ok(())
}

/// A moment that `strace` sees.
fn mark(name: &str) {
    let _ = std::fs::metadata(format!("{MARKS}{name}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_two_marks_are_counted_once_and_those_of_many_events_divided() {
        let mark = |name| format!("7 statx(AT_FDCWD, \"{MARKS}{name}\", ...) = -1 ENOENT\n");
        let text = [
            "7 getpid() = 7\n".to_owned(),
            mark("create-begin"),
            "7 bpf(1 <unfinished ...>\n8 futex(1) = 0\n7 <... bpf resumed>) = 3\n".to_owned(),
            mark("create-end"),
            "7 close(3) = 0\n".to_owned(),
            mark("submit-begin"),
            "7 sendto(3) = 1\n".repeat(200),
            mark("submit-end"),
        ];
        let counts = count(&text.concat());
        assert_eq!(counts["create"], 2.0);
        assert_eq!(counts["submit"], 2.0);
        assert_eq!(counts["poll"], 0.0);
        assert_eq!(counts.len(), 3);
    }
}
