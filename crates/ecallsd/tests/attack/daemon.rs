//! The daemon under attack: where it is, how it is configured, what it uses, and what of its core
//! is in the kernel.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ecalls::Ecalls;

use crate::remote::OPEN;
use crate::running::{Daemon, PATIENCE, program};

/// Users whose limits are small and known: quotas.rs goes to their edges.
pub(crate) const SMALL: std::ops::Range<u32> = 60_000..60_040;

/// A folder for this run that every user may look into.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("ecallsd-attack-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our folder");
        folder
    })
}

/// Where the daemon listens.
pub(crate) fn socket() -> PathBuf {
    folder().join("socket")
}

/// Tells the library where the daemon is, for this process and those it starts.
pub(crate) fn choose_socket() {
    // SAFETY: called at the start of main, before there is another thread.
    unsafe { std::env::set_var("ECALLS_SOCKET", socket()) };
}

/// The resources that the daemon uses now. Clients must not make any of them grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// KiB.
    pub(crate) memory: u64,
}

/// Starts one with these lines behind the usual configuration, and waits until it answers.
pub(crate) fn start(further: &str) -> Daemon {
    start_by(program(), further)
}

/// The same with the command that starts it: `ecallsd`, or a program that runs `ecallsd`.
pub(crate) fn start_by(command: Command, further: &str) -> Daemon {
    let mut daemon = Daemon::spawn(command, folder(), &configuration(further));
    daemon.await_answer(|_| Ecalls::open_within(Duration::ZERO).is_ok());
    daemon
}

/// Starts one, and does not look whether it answers.
pub(crate) fn start_without_waiting() -> Daemon {
    Daemon::spawn(program(), folder(), &configuration(""))
}

/// The lines of a configuration by which the daemon serves its counters.
pub(crate) fn metrics() -> String {
    format!("[metrics]\nlisten = {:?}", folder().join("metrics"))
}

/// The counters of a daemon that has these lines.
pub(crate) fn counters() -> String {
    let stream = UnixStream::connect(folder().join("metrics"));
    let mut stream = stream.expect("the daemon's counters");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .expect("it listens");
    let mut counters = String::new();
    stream.read_to_string(&mut counters).expect("it answers");
    counters
}

/// The resources of all processes of a daemon.
pub(crate) fn usage(daemon: &Daemon) -> Usage {
    let count = |folder: String| fs::read_dir(folder).map_or(0, Iterator::count);
    let mut usage = Usage {
        descriptors: 0,
        threads: 0,
        memory: 0,
    };
    for pid in daemon.processes() {
        usage.descriptors += count(format!("/proc/{pid}/fd"));
        usage.threads += count(format!("/proc/{pid}/task"));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rss = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let rss = rss.and_then(|rss| rss.split_whitespace().next()?.parse::<u64>().ok());
        usage.memory += rss.unwrap_or(0);
    }
    usage
}

/// The parts of cores that are in the kernel, of any process.
pub(crate) type Residue = Vec<(u32, String)>;

/// Waits until nothing of a core is in the kernel but what was there `before`.
pub(crate) fn await_end_of_core(before: &Residue) {
    let start = Instant::now();
    loop {
        let mut left = ecalls_kernel::residue();
        left.retain(|part| !before.contains(part));
        if left.is_empty() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "left of the core: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn configuration(further: &str) -> String {
    let users: Vec<_> = SMALL.map(|uid| uid.to_string()).collect();
    format!(
        "[log]\nlevel = \"info\"\n\
         [[allow]]\nusers = [{}]\nlimits = {{ connections = 4, channels = 3, subscriptions = 3, \
         services = 2, timers = 2, bytes = \"2M\", descriptors = 64, queued_events = 16, \
         events_up_per_s = 1000, events_up_burst = 10, events_raised_per_s = 1000, \
         events_raised_burst = 10, requests_per_s = 200, requests_burst = 50 }}\n\
         [[allow]]\nservices = [{OPEN:?}]\npublish = true\n{further}",
        users.join(", "),
    )
}
