//! Programs that this one finds, starts and ends.
//!
//! A [`Running`] program is ended and reaped when it is dropped, so also after failures and SIGINT.
//! If this program is killed, the kernel ends the program, provided that setpriv (of
//! util-linux) is installed to request this; setpriv also makes the program run as the user nobody.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::exit::{Code, Failure};
use crate::stop::Stop;

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
/// The interval of checks whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// The user nobody and its group.
const NOBODY: &str = "65534";
/// Folders of programs for root, in case PATH lacks them.
const FOLDERS_OF_ROOT: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The path of the program of that name.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:{FOLDERS_OF_ROOT}")
        .split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

/// A running program in a process group of its own.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Starts a program, with its standard error in `errors`.
    ///
    /// The kernel ends it with the *thread* that calls this.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        errors: Option<File>,
    ) -> Result<Running, Failure> {
        const AS_NOBODY: &[&str] = &["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
        let errors = errors.map_or_else(Stdio::null, Stdio::from);
        Running::with(AS_NOBODY, program, arguments, errors)
    }

    /// Starts this program itself, as the same user: the user nobody may have no way to its file.
    /// Its errors are this program's.
    pub(crate) fn this(arguments: &[String]) -> Result<Running, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(Code::Failed, format!("finding this program: {error}"))
        })?;
        Running::with(&[], &program, arguments, Stdio::inherit())
    }

    fn with(
        options: &[&str],
        program: &Path,
        arguments: &[String],
        errors: Stdio,
    ) -> Result<Running, Failure> {
        let name = program.display().to_string();
        let mut command = match find("setpriv") {
            None => Command::new(program),
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(options);
                command.args(["--pdeathsig", "KILL", "--"]).arg(program);
                command
            }
        };
        let child = command
            .args(arguments)
            // Some refuse to begin in a folder at which their user may not look.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::new(Code::Failed, format!("starting {name}: {error}")))?;
        Ok(Running { child, name })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Binds it to one processor: the scheduler's placement of server and load has more influence
    /// on the result than everything that is measured.
    pub(crate) fn pin(&self, cpu: usize) {
        let mut set = CpuSet::new();
        set.set(cpu);
        // If it has ended or the processor is gone, this fails and does not matter.
        let _ = sched_setaffinity(self.process(), &set);
    }

    fn process(&self) -> Option<Pid> {
        i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
    }

    /// Its exit status; `None`: it still runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end and returns its output. `None`: the user requested the end first.
    pub(crate) fn output(mut self, stop: &Stop) -> Result<Option<String>, Failure> {
        let status = loop {
            if stop.is_set() {
                return Ok(None);
            }
            match self.ended() {
                Some(status) => break status,
                None => thread::sleep(LOOK),
            }
        };
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            // Output that is not UTF-8 is left out; the caller then fails to parse it.
            let _ = out.read_to_string(&mut text);
        }
        if status.success() {
            return Ok(Some(text));
        }
        let message = format!("{} failed ({status}): {}", self.name, text.trim());
        Err(Failure::new(Code::Failed, message))
    }

    fn signal(&self, signal: Signal) {
        // If the group is gone, so is the program.
        if let Some(group) = self.process() {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        let until = Instant::now() + GRACE;
        while self.ended().is_none() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        // This also ends processes that it started and left behind.
        self.signal(Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_there(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_program_ends_with_its_guard() {
        let sleep = find("sleep").expect("sleep is everywhere");
        // Without setpriv, by which only root may change the user.
        let child = Command::new(sleep)
            .arg("60")
            .process_group(0)
            .spawn()
            .expect("it starts");
        let name = "sleep".to_owned();
        let mut running = Running { child, name };
        let pid = running.pid();
        assert!(running.ended().is_none() && is_there(pid));
        drop(running);
        assert!(!is_there(pid));
    }

    #[test]
    fn a_program_is_found_by_name_and_an_unknown_one_is_not() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
