//! The daemon under attack: the built `ecallsd` with a socket, a configuration and a log of its
//! own, and what can be seen of it from outside.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ecalls::Ecalls;

use crate::actor::{PATIENCE, wait_until};

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

/// What the daemon uses now. Nothing of it may grow by what clients did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// KiB.
    pub(crate) memory: u64,
}

/// A running daemon. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it with these lines behind the usual configuration, and waits until it answers.
    pub(crate) fn start(further: &str) -> Daemon {
        Daemon::start_by(Command::new(env!("CARGO_BIN_EXE_ecallsd")), further)
    }

    /// The same with the command that starts it: `ecallsd`, or a program that runs `ecallsd`.
    pub(crate) fn start_by(command: Command, further: &str) -> Daemon {
        let mut daemon = Daemon::spawn(command, further);
        daemon.await_answer();
        daemon
    }

    fn spawn(mut command: Command, further: &str) -> Daemon {
        let config = folder().join("ecallsd.toml");
        fs::write(&config, configuration(further)).expect("a configuration");
        let log = folder().join("log");
        let file = File::options().create(true).append(true).open(&log);
        let child = command
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file.expect("a log"))
            .spawn()
            .expect("ecallsd");
        Daemon { child, log }
    }

    fn await_answer(&mut self) {
        wait_until("the daemon answers", || {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("ecallsd has ended: {status}\n{}", self.log());
            }
            Ecalls::open_within(Duration::ZERO).is_ok()
        });
    }

    /// Everything that it has told so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// That process and its descendants.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut processes = vec![self.child.id()];
        let mut at = 0;
        while let Some(pid) = processes.get(at) {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children"));
                let children = children.unwrap_or_default();
                processes.extend(
                    children
                        .split_whitespace()
                        .filter_map(|pid| pid.parse::<u32>().ok()),
                );
            }
            at += 1;
        }
        processes
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What all its processes use.
    pub(crate) fn usage(&self) -> Usage {
        let count = |folder: String| fs::read_dir(folder).map_or(0, Iterator::count);
        let mut usage = Usage {
            descriptors: 0,
            threads: 0,
            memory: 0,
        };
        for pid in self.processes() {
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

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a child");
        wait_until("the daemon ends", || !self.is_alive());
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "ecallsd: {status}\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What is of cores in the kernel, whoever left it there.
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
        "[socket]\npath = {:?}\n[log]\nlevel = \"info\"\n\
         [[allow]]\nusers = [{}]\nlimits = {{ connections = 4, channels = 3, subscriptions = 3, \
         services = 2, timers = 2, bytes = \"2M\", descriptors = 64, queued_events = 16, \
         events_up_per_s = 1000, events_up_burst = 10, events_raised_per_s = 1000, \
         events_raised_burst = 10, requests_per_s = 200, requests_burst = 50 }}\n{further}",
        socket(),
        users.join(", "),
    )
}
