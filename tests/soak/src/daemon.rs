//! The daemon of a run: its own socket and configuration, in a folder that goes with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long it may take until it answers, and until it has ended.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A running daemon. It is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    folder: PathBuf,
}

impl Daemon {
    /// Starts it and waits until it is ready, as a service manager does (sd_notify(3)).
    pub(crate) fn start(program: &Path) -> Result<Daemon, String> {
        let folder = std::env::temp_dir().join(format!("ecalls-soak.{}", std::process::id()));
        let started = open_folder(&folder).and_then(|()| {
            let configuration = folder.join("ecallsd.toml");
            let socket = folder.join("socket");
            fs::write(&configuration, format!("[socket]\npath = {socket:?}\n"))?;
            let notices = UnixDatagram::bind(folder.join("notify"))?;
            notices.set_read_timeout(Some(LOOK_AGAIN))?;
            let child = Command::new(program)
                .arg("--config")
                .arg(configuration)
                .env("NOTIFY_SOCKET", folder.join("notify"))
                .stdin(Stdio::null())
                .spawn()?;
            Ok((child, notices))
        });
        let (child, notices) = started.map_err(|error| {
            let _ = fs::remove_dir_all(&folder);
            format!(
                "starting {}: {error}; make build makes it",
                program.display()
            )
        })?;
        let mut daemon = Daemon { child, folder };
        daemon.await_ready(&notices)?;
        Ok(daemon)
    }

    fn await_ready(&mut self, notices: &UnixDatagram) -> Result<(), String> {
        let deadline = Instant::now() + START;
        let mut notice = [0; 4096];
        while Instant::now() < deadline {
            let length = notices.recv(&mut notice).unwrap_or(0);
            if notice[..length]
                .split(|byte| *byte == b'\n')
                .any(|line| line == b"READY=1")
            {
                return Ok(());
            }
            if let Ok(Some(end)) = self.child.try_wait() {
                return Err(format!("the daemon ended at once: {end}"));
            }
        }
        Err(format!(
            "the daemon is not ready after {} s",
            START.as_secs()
        ))
    }

    /// Where clients connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// A copy of this program that every user may run.
    pub(crate) fn place_program(&self) -> Result<PathBuf, String> {
        let copy = self.folder.join("client");
        std::env::current_exe()
            .and_then(|program| fs::copy(program, &copy))
            .and_then(|_| fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("copying this program for the clients: {error}"))?;
        Ok(copy)
    }

    /// Its processes: the one that was started, and those below it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut processes = vec![self.child.id()];
        let mut at = 0;
        while let Some(process) = processes.get(at) {
            processes.extend(children(*process));
            at += 1;
        }
        processes
    }

    /// Asks it to end; it must do so by itself, and without an error.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).map_err(|error| format!("ending it: {error}"))?;
        }
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(end)) if end.success() => return Ok(()),
                Ok(Some(end)) => return Err(format!("the daemon ended with {end}")),
                Ok(None) => std::thread::sleep(LOOK_AGAIN),
                Err(error) => return Err(format!("waiting for the daemon: {error}")),
            }
        }
        Err(format!(
            "the daemon does not end within {} s",
            STOP.as_secs()
        ))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn open_folder(folder: &Path) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// The processes that one started, as far as it has not forgotten them.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|line| {
            let pids = line.split_whitespace();
            pids.filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}
