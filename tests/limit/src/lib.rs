//! Limits for tests: no process that they start outlives them, and no wait is without a time limit.
//!
//! A machine has one core, so a process that a failed test leaves behind prevents the next test
//! from loading its own; and a test that waits forever does not tell what it waits for. So a test's
//! processes are [`Running`]: they are killed when they are dropped, and by the kernel when the
//! thread ends that started them, for whatever reason. Every wait for them has a time limit, and a
//! panic that names the process. [`cost`] limits the verification costs of programs;
//! [`library`] builds shared libraries, [`net`] makes network namespaces, and [`calm`] tells
//! whether the machine stood still.

#![allow(
    unsafe_code,
    reason = "what a child does between fork and exec is for its parent to answer for"
)]

pub mod calm;
pub mod cost;
pub mod library;
pub mod net;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

/// The interval of checks whether an event has occurred.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The longest time that the kernel may take to end a killed process.
const DEATH: Duration = Duration::from_secs(20);

/// How often [`compute_until`] looks before it executes a `pause`.
const LOOKS: usize = 1000;

/// Keeps a CPU busy until `done`. At a `pause` (`std::hint::spin_loop`) the test machine goes on to
/// its other processor. That should happen now and then, but each time it costs 0.3 us: a loop of
/// nothing else took 17 s to emulate for each second of its own, and this takes 0.3 s.
pub fn compute_until(mut done: impl FnMut() -> bool) {
    while !(0..LOOKS).any(|_| done()) {
        std::hint::spin_loop();
    }
}

/// Has the kernel end whatever scheduler of sched_ext runs, by SysRq-S. `tools/kernel-log`
/// complains about such an end unless it was announced in the kernel's log, for each once.
///
/// # Panics
/// If it cannot: only root may.
pub fn eject_scheduler() {
    for (file, text) in [
        ("/dev/kmsg", "ecalls-test: SysRq-S is meant\n"),
        ("/proc/sysrq-trigger", "S"),
    ] {
        std::fs::write(file, text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// A process, which is killed when this is dropped, and when the thread ends that started it.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
}

impl Running {
    /// Starts a command.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Running {
        let name = command.get_program().to_string_lossy().into_owned();
        // SAFETY: one system call, and no memory is allocated.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                Ok(())
            });
        }
        let child = command.spawn();
        Running {
            child: child.unwrap_or_else(|error| panic!("{name}: {error}")),
            name,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, if that is a pipe and was not taken before. The pipe is closed when this
    /// is dropped.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output.
    ///
    /// # Panics
    /// That is not a pipe, or was taken before.
    pub fn lines(&mut self) -> Lines {
        let output = self.child.stdout.take().expect("its output is a pipe");
        Lines::of(&self.name, output)
    }

    /// Its standard error.
    ///
    /// # Panics
    /// That is not a pipe, or was taken before.
    pub fn complaints(&mut self) -> Lines {
        let errors = self.child.stderr.take().expect("its errors are a pipe");
        Lines::of(&self.name, errors)
    }

    /// Its exit status; `None`: it still runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It takes longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                start.elapsed() < limit,
                "{} (process {}) does not end within {limit:?}",
                self.name,
                self.id()
            );
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Kills it.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub fn kill(&mut self, limit: Duration) -> ExitStatus {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait(limit)
    }

    /// Waits for its end, and reads its standard output and standard error as far as they are
    /// pipes.
    ///
    /// # Panics
    /// It takes longer than `limit`, or another process that holds these pipes does.
    pub fn output(mut self, limit: Duration) -> Output {
        let start = Instant::now();
        let stdout = self.child.stdout.take().map(read_all);
        let stderr = self.child.stderr.take().map(read_all);
        let status = self.wait(limit);
        let finish = |reader: Option<JoinHandle<Vec<u8>>>| {
            let Some(reader) = reader else {
                return Vec::new();
            };
            while !reader.is_finished() {
                assert!(
                    start.elapsed() < limit,
                    "{} has ended ({status}), and somebody that it started still has its output",
                    self.name
                );
                std::thread::sleep(LOOK_AGAIN);
            }
            reader.join().expect("it only reads")
        };
        Output {
            status,
            stdout: finish(stdout),
            stderr: finish(stderr),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            // Not a panic: there may be one already.
            if start.elapsed() > DEATH {
                eprintln!("{} (process {}) survives SIGKILL", self.name, self.id());
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Whether a thread sleeps in the kernel; `None`: there is none. `task` is its folder in `/proc`.
///
/// # Panics
/// If what the kernel says of it has another form.
pub fn sleeps(task: &str) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("{task}/stat")).ok()?;
    // Its name, in brackets, may have any characters.
    let state = stat.rsplit(") ").next()?.split(' ').next()?;
    Some(state == "S")
}

/// Runs a command to its end, and returns its output.
///
/// # Panics
/// It cannot be started, or takes longer than `limit`.
pub fn output(command: &mut Command, limit: Duration) -> Output {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).output(limit)
}

/// The results of a command that ended by itself.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Runs a command to its end.
///
/// # Panics
/// As [`output`], or if a signal ended it, or its output is not UTF-8.
pub fn ended(command: &mut Command, limit: Duration) -> Ended {
    let output = output(command, limit);
    Ended {
        code: output.status.code().expect("no signal ended it"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came until an error is what there is.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// The output of a process, line by line. It is read at once, so that the process never blocks.
#[derive(Debug)]
pub struct Lines {
    name: String,
    lines: Receiver<String>,
}

impl Lines {
    /// The lines of a pipe; `name` identifies it in messages.
    pub fn of(name: &str, pipe: impl Read + Send + 'static) -> Lines {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                // Read on also when nobody listens any more.
                let _ = sender.send(line);
            }
        });
        Lines {
            name: name.to_owned(),
            lines,
        }
    }

    /// The next line; `None`: the output has ended.
    ///
    /// # Panics
    /// It takes longer than `limit`.
    pub fn next(&mut self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing for {limit:?}", self.name),
        }
    }

    /// The next line that contains this text.
    ///
    /// # Panics
    /// There is none, or it takes longer than `limit`.
    pub fn find(&mut self, text: &str, limit: Duration) -> String {
        let start = Instant::now();
        let mut said = Vec::new();
        while let Some(line) = self.next(limit.saturating_sub(start.elapsed())) {
            if line.contains(text) {
                return line;
            }
            said.push(line);
        }
        panic!("{} has not said {text:?} but {said:#?}", self.name);
    }

    /// All that is still said.
    ///
    /// # Panics
    /// If it takes longer.
    pub fn rest(&mut self, limit: Duration) -> String {
        let start = Instant::now();
        let mut text = String::new();
        while let Some(line) = self.next(limit.saturating_sub(start.elapsed())) {
            text += &line;
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn is_there(pid: u32) -> bool {
        std::fs::exists(format!("/proc/{pid}")).expect("/proc")
    }

    #[test]
    fn output_and_status_are_those_of_the_command() {
        let output = output(&mut shell("echo out; echo err >&2; exit 3"), 20 * SECOND);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"out\n"[..], &b"err\n"[..])
        );
    }

    #[test]
    #[should_panic(expected = "does not end within 100ms")]
    fn process_that_does_not_end_is_a_failure() {
        output(&mut shell("exec sleep 60"), SECOND / 10);
    }

    #[test]
    #[should_panic(expected = "somebody that it started still has its output")]
    fn output_that_a_descendant_keeps_open_is_a_failure() {
        output(&mut shell("sleep 5 & exit 0"), SECOND);
    }

    #[test]
    #[should_panic(expected = "says nothing for")]
    fn line_that_never_comes_is_a_failure() {
        let mut silent = Running::start(shell("echo one; exec sleep 60").stdout(Stdio::piped()));
        let mut lines = silent.lines();
        assert_eq!(lines.next(20 * SECOND).as_deref(), Some("one"));
        lines.next(SECOND / 10);
    }

    #[test]
    fn process_ends_with_its_guard_and_with_the_thread_that_started_it() {
        let guarded = Running::start(&mut shell("exec sleep 60"));
        let pid = guarded.id();
        drop(guarded);
        assert!(!is_there(pid));
        let forgotten = std::thread::spawn(|| Running::start(&mut shell("exec sleep 60")));
        let mut forgotten = forgotten.join().expect("no panic");
        forgotten.wait(20 * SECOND);
    }
}
