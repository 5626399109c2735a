//! A desktop's clients beside each other: what one user can run at the same time through a daemon
//! that nobody configured. Needs root and ECALLS_TEST_ROOT=1: it starts the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use limit::Running;

const PATIENCE: Duration = Duration::from_secs(60);

/// Clients of one user's ordinary desktop.
const CLIENTS: usize = 20;

/// A user without privileges.
const SOMEBODY: u32 = 64011;

/// A machine has one core.
static ALONE: Mutex<()> = Mutex::new(());

/// A daemon with the default limits, in a folder of its own. Its parts end in this order.
struct Host {
    _daemon: Running,
    folder: Folder,
    _alone: MutexGuard<'static, ()>,
}

/// Removes itself.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Host {
    fn start() -> Option<Host> {
        if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
            eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("ecalls-desktop-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("open to all");
        let folder = Folder(path);
        let (program, copy) = (env!("CARGO_BIN_EXE_ecalls"), folder.0.join("ecalls"));
        let laid = fs::hard_link(program, &copy);
        laid.or_else(|_| fs::copy(program, &copy).map(drop))
            .expect("a program for all");
        let config = folder.0.join("ecallsd.toml");
        let text = format!("[socket]\npath = {:?}\n", folder.0.join("socket"));
        fs::write(&config, text).expect("a configuration");
        let mut command = Command::new(program);
        command.args(["daemon", "--config"]).arg(&config);
        let mut daemon = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let start = Instant::now();
        while !folder.0.join("socket").exists() {
            assert!(daemon.ended().is_none(), "the daemon has ended");
            assert!(start.elapsed() < PATIENCE, "the daemon has no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Host {
            _daemon: daemon,
            folder,
            _alone: alone,
        })
    }

    /// The command, as a user without privileges runs it.
    fn ecalls(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.0.join("ecalls"));
        command
            .args(arguments)
            .env("ECALLS_SOCKET", self.folder.0.join("socket"))
            .current_dir(Path::new("/"))
            .stdin(Stdio::null())
            .uid(SOMEBODY)
            .gid(SOMEBODY);
        command
    }
}

#[test]
fn twenty_watches_of_one_user_run_at_the_same_time() {
    let Some(host) = Host::start() else { return };
    let watches: Vec<Running> = (0..CLIENTS)
        .map(|number| {
            // Each second one has a text that the daemon compiles.
            let mut arguments = vec!["watch", "task", "--for", "60s"];
            if number % 2 == 1 {
                arguments.extend(["--where", "event.kind == exec"]);
            }
            let mut command = host.ecalls(&arguments);
            let mut watch = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
            watch.complaints().find("watching task", PATIENCE);
            watch
        })
        .collect();
    drop(watches);
}

#[test]
fn a_full_ring_is_reported_with_the_option_that_enlarges_it() {
    let Some(host) = Host::start() else { return };
    let mut command = host.ecalls(&["watch", "timer", "--every", "1ms", "--ring", "100"]);
    let mut watch = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut told = watch.complaints();
    told.find("watching timer", PATIENCE);
    let id = i32::try_from(watch.id()).expect("a process id");
    let id = rustix::process::Pid::from_raw(id).expect("a process");
    let signal = |signal| rustix::process::kill_process(id, signal).expect("a child");
    // Stopped, it reads nothing: the kernel fills the ring of 128 events in 128 ms.
    signal(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    signal(rustix::process::Signal::CONT);
    signal(rustix::process::Signal::TERM);
    let line = told.find("were lost because the ring", PATIENCE);
    assert!(
        line.contains("of 128 events was full; --ring 1024"),
        "{line}"
    );
}
