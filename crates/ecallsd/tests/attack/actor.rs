//! Processes of other users: this binary again, in a role. It and the test talk in lines over its
//! standard input and output; when its input ends it shall end, too.

use std::io::{BufRead, BufReader, Lines, StdinLock, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::daemon;

/// How long anything that should happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Set: the role that this process plays.
const ROLE: &str = "ECALLS_ATTACK_ROLE";

/// Names of roles and what they do.
pub(crate) type Roles = &'static [(&'static str, fn(&mut Stage))];

/// What an actor has: its arguments, and the test that listens.
#[derive(Debug)]
pub(crate) struct Stage {
    arguments: Vec<String>,
    input: Lines<StdinLock<'static>>,
}

impl Stage {
    /// Argument number `at`.
    pub(crate) fn argument(&self, at: usize) -> &str {
        self.arguments.get(at).map_or("", String::as_str)
    }

    /// The same as a number; 0 if there is none.
    pub(crate) fn number(&self, at: usize) -> u64 {
        self.argument(at).parse().unwrap_or(0)
    }

    /// Tells the test something, on one line.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        let mut out = std::io::stdout().lock();
        // A test that is gone does not listen.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }

    /// What the test says next; None: it is over.
    pub(crate) fn hear(&mut self) -> Option<String> {
        self.input.next()?.ok()
    }
}

/// Plays the role that the environment names, if it names one.
pub(crate) fn play(roles: &[Roles]) -> Option<ExitCode> {
    let name = std::env::var(ROLE).ok()?;
    let role = roles
        .iter()
        .flat_map(|roles| roles.iter())
        .find(|(known, _)| *known == name);
    let Some((_, role)) = role else {
        eprintln!("there is no role {name}");
        return Some(ExitCode::FAILURE);
    };
    role(&mut Stage {
        arguments: std::env::args().skip(1).collect(),
        input: std::io::stdin().lines(),
    });
    Some(ExitCode::SUCCESS)
}

/// A copy of this binary that every user may execute.
pub(crate) fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let copy = daemon::folder().join("actor");
        std::fs::copy(std::env::current_exe().expect("this binary"), &copy).expect("a copy");
        copy
    })
}

/// The command that plays a role as user `uid`.
pub(crate) fn command(role: &str, uid: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env(ROLE, role)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .gid(uid)
        .uid(uid);
    command
}

/// Starts a role as user `uid`.
pub(crate) fn start(role: &str, uid: u32, arguments: &[&str]) -> Actor {
    Actor::of(role, command(role, uid, arguments))
}

/// A process that plays a role. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Actor {
    role: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Actor {
    /// Starts a command of [`command`].
    pub(crate) fn of(role: &str, mut command: Command) -> Actor {
        let mut child = command.spawn().expect("an actor");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Actor {
            role: role.to_owned(),
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        self.hear_within(PATIENCE)
    }

    /// The same, for what takes longer.
    pub(crate) fn hear_within(&mut self, time: Duration) -> String {
        match self.lines.recv_timeout(time) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing for {time:?}", self.role),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{} has ended: {:?}", self.role, self.child.wait());
            }
        }
    }

    /// Waits for this very line.
    pub(crate) fn expect(&mut self, line: &str) {
        assert_eq!(self.hear(), line, "{}", self.role);
    }

    /// Tells it something.
    pub(crate) fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("not ended");
        writeln!(input, "{line}").unwrap_or_else(|error| {
            panic!("{}: {error}: {:?}", self.role, self.child.try_wait());
        });
    }

    /// Tells it something and hears the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// Lets it end, and waits until it has: in good order.
    pub(crate) fn end(mut self) {
        self.input = None;
        let status = self.wait();
        assert!(status.success(), "{}: {status}", self.role);
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a process of ours");
        let status = self.child.wait().expect("a child");
        assert_eq!(status.signal(), Some(9), "{}", self.role);
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "{} does not end", self.role);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits until `done`, at most [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
