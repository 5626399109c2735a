//! A running daemon: the built `ecallsd` with a folder of its own, in which are its configuration,
//! its socket and its log; and what can be seen of it from outside.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use limit::Running;
use rustix::process::{Pid, Signal};

/// How long anything that should happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running daemon. It does not outlive this: it would have the machine's core.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Running,
    folder: PathBuf,
}

/// The built daemon.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ecallsd"))
}

/// The same with a configuration.
pub(crate) fn command(config: &Path) -> Command {
    let mut command = program();
    command.arg("--config").arg(config);
    command
}

/// Waits until `done`, at most [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Daemon {
    /// Starts `command` (`ecallsd`, or a program that runs it) with this configuration, whose
    /// socket is the folder's, and does not wait. What it tells goes behind what is in the log.
    pub(crate) fn spawn(mut command: Command, folder: &Path, config: &str) -> Daemon {
        let path = folder.join("ecallsd.toml");
        let text = format!("[socket]\npath = {:?}\n{config}\n", folder.join("socket"));
        fs::write(&path, text).expect("a configuration");
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"));
        command
            .arg("--config")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        Daemon {
            process: Running::start(&mut command),
            folder: folder.to_owned(),
        }
    }

    /// Waits until it serves, for which the caller has a sign.
    pub(crate) fn await_answer(&mut self, mut answers: impl FnMut(&Daemon) -> bool) {
        let start = Instant::now();
        while !answers(self) {
            if let Some(status) = self.process.ended() {
                panic!("the daemon has ended: {status}\n{}", self.log());
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the daemon does not answer\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Everything that it, and daemons with this folder before it, have told so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The process that was started: the broker.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// That process and its descendants.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut processes = vec![self.pid()];
        let mut at = 0;
        while let Some(pid) = processes.get(at) {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children"));
                let children = children.unwrap_or_default();
                let pids = children.split_whitespace();
                processes.extend(pids.filter_map(|pid| pid.parse::<u32>().ok()));
            }
            at += 1;
        }
        processes
    }

    /// The door's process.
    pub(crate) fn door(&self) -> Pid {
        let mut door = None;
        // The kernel may leave a child out while processes come and go.
        wait_until("the door is a child", || {
            door = self.processes().get(1).copied();
            door.is_some()
        });
        Pid::from_raw(door.expect("found").cast_signed()).expect("a process")
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.ended().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("a child");
    }

    /// Waits for its end: how it ended, and what it has told.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        (self.process.wait(PATIENCE), self.log())
    }

    /// Asks it to end, and waits until it has: in good order.
    pub(crate) fn stop(&mut self) -> String {
        self.signal(Signal::TERM);
        let (status, told) = self.ended();
        assert!(status.success(), "ecallsd: {status}\n{told}");
        told
    }

    /// Kills it as it stands; what it started ends by itself.
    pub(crate) fn kill(&mut self) {
        let others = self.processes();
        self.process.kill(PATIENCE);
        wait_until("what it started ends", || {
            let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
            !others.iter().any(is_there)
        });
    }
}
