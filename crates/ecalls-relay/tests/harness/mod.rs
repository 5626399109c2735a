//! What the tests share: relays as processes, and programs that speak to them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod node;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limit::{Lines, Running};

/// How long anything that should happen may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for something that should not happen.
pub const QUIET: Duration = Duration::from_millis(300);

/// A folder of this test, which is empty.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ecalls-relay-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A relay that runs.
#[derive(Debug)]
pub struct Process {
    pub running: Running,
    pub complaints: Lines,
}

/// Starts a relay by this command, and waits until it serves.
pub fn start(mut command: Command, configuration: &Path) -> Process {
    command.arg("--config").arg(configuration);
    let mut running = Running::start(command.stderr(Stdio::piped()));
    let mut complaints = running.complaints();
    complaints.find("serves programs", PATIENCE);
    Process {
        running,
        complaints,
    }
}

/// The relay that is tested.
pub fn relay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ecalls-relay"))
}

/// Waits until `done`, at most [`PATIENCE`].
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
