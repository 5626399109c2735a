//! What the tests share: whether they may run, and a network of their own.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ecalls::Ecalls;
use ecalls_abi::wire::text_id;
use ecalls_channel::frame::Origin;
use ecalls_channel::source::{LaneStat, channels};
use limit::{Lines, Running};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::Value;

/// How long anything that should happen may take on a busy machine, or on an emulated one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait for something that should not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(60);

/// The format of a test's channel.
pub(crate) const FORMAT: &str = "u64 value";

/// Another host.
pub(crate) const OTHER: u64 = 0x0200_0000_0007;

/// What is counted of an open channel.
pub(crate) fn stat_of(ecalls: &Ecalls, name: &str) -> LaneStat {
    let (all, ..) = channels(ecalls).expect("the channels");
    let own = all.into_iter().find(|stat| stat.name == name);
    own.expect("it is open")
}

/// What the other host's frame with this number says of itself.
pub(crate) fn origin_of(channel: &str, sequence: u64) -> Origin {
    Origin {
        channel: text_id(channel),
        format: text_id(FORMAT),
        host: OTHER,
        epoch: 1000,
        sequence,
    }
}

/// The core, or None where the test may not run: without `ECALLS_TEST_ROOT`. The first one stays
/// until the process ends: to load one anew for each test costs seconds on an emulated machine.
pub(crate) fn core() -> Option<Ecalls> {
    static FIRST: OnceLock<Ecalls> = OnceLock::new();
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return None;
    }
    let core = Ecalls::host().expect("root can open the core on a supported kernel");
    FIRST.get_or_init(|| core.clone());
    Some(core)
}

/// Moves this thread into a new network namespace, which ends with it.
pub(crate) fn own_network() {
    // SAFETY: a thread's network namespace concerns no memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may");
    ip("link set lo up");
}

/// Of interfaces that are made in a namespace: what IPv6 sends by itself would be counted by the
/// bridge. Without IPv6 there is no such file.
const WITHOUT_IP6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// The same, in which the interfaces that are made send nothing by themselves.
pub(crate) fn quiet_network() {
    own_network();
    let _ = std::fs::write(WITHOUT_IP6, "1");
}

/// The same with a bridge, for the calling test, which has its names alone; `None`: it may not run,
/// or not here.
pub(crate) fn bridge() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());

    if std::env::var_os(HOST).is_some() || std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    quiet_network();
    if !succeeds("link add bridge type bridge") || !succeeds("link add probe type veth") {
        eprintln!("skipped: this kernel has no bridge or no veth");
        return None;
    }
    ip("link set bridge up");
    Some(alone)
}

/// Runs `ip` with these arguments in the namespace of this thread.
pub(crate) fn ip(arguments: &str) -> String {
    let mut command = Command::new("ip");
    let ended = limit::ended(command.args(arguments.split(' ')), PATIENCE);
    assert_eq!(ended.code, 0, "ip {arguments}: {ended:?}");
    ended.out
}

/// Whether `ip` accepts these arguments: what the kernel lacks, it refuses.
pub(crate) fn succeeds(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    limit::ended(command.args(arguments.split(' ')), PATIENCE).code == 0
}

/// Waits until `done`, at most [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes as the judge reads and writes them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;

    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

/// The answers of the judge, a second reading of abi/wire.h in another language.
pub(crate) fn judged(questions: &[Value]) -> Vec<Value> {
    use std::io::Write;

    let judge = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/judge.py");
    let mut command = Command::new("python3");
    command
        .arg(judge)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut lines = running.lines();
    let mut input = running.input().expect("a pipe");
    let mut answers = Vec::new();
    for question in questions {
        writeln!(input, "{question}").expect("it reads");
        let line = lines.next(PATIENCE).expect("an answer");
        answers.push(serde_json::from_str(&line).expect("JSON"));
    }
    answers
}

/// Set: this process is the host with this number.
pub(crate) const HOST: &str = "ECALLS_TEST_HOST";

/// A host: this test binary again, in a namespace and with a core of its own.
pub(crate) struct Member {
    pub(crate) running: Running,
    pub(crate) lines: Lines,
    input: ChildStdin,
    /// What it has said of itself.
    pub(crate) id: String,
}

impl Member {
    /// Starts a host of this instance, whose interface has this hardware address and is connected
    /// to the bridge of this thread's namespace.
    pub(crate) fn start(number: u8, instance: &str, hardware: &str) -> Member {
        use std::io::Write;

        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "host", "--nocapture"])
            .env(HOST, number.to_string())
            .env("ECALLS_INSTANCE", instance)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut lines = running.lines();
        let thread = lines.find("thread ", PATIENCE);
        let thread = thread.rsplit(' ').next().expect("its number");
        ip(&format!(
            "link add port{number} type veth peer name eth address {hardware} netns {thread}"
        ));
        ip(&format!("link set port{number} master bridge"));
        ip(&format!("link set port{number} up"));
        let mut input = running.input().expect("a pipe");
        writeln!(input, "go").expect("it reads");
        let ready = lines.find("ready ", PATIENCE);
        let id = ready.rsplit(' ').next().expect("its id").to_owned();
        Member {
            running,
            lines,
            input,
            id,
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        use std::io::Write;

        writeln!(self.input, "{line}").expect("it reads");
    }
}
