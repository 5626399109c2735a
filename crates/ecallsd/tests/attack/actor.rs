//! Processes of other users: this binary again, in a role. It and the test talk in lines over its
//! standard input and output; when its input ends it shall end, too.

use std::io::{StdinLock, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::OnceLock;

use limit::{Lines, Running};

use crate::daemon;
use crate::running::PATIENCE;

/// Set: the role that this process plays.
const ROLE: &str = "ECALLS_ATTACK_ROLE";

/// Names of roles and what they do.
pub(crate) type Roles = &'static [(&'static str, fn(&mut Stage))];

/// An actor's arguments, and its connection to the test.
#[derive(Debug)]
pub(crate) struct Stage {
    arguments: Vec<String>,
    input: std::io::Lines<StdinLock<'static>>,
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

    /// Tells the test that the role has done everything, and waits for the test's end.
    pub(crate) fn done(&mut self) {
        self.say("done");
        self.hear();
    }

    /// The next command of the test; None: the test is over.
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
    process: Running,
    input: Option<ChildStdin>,
    lines: Lines,
}

impl Actor {
    /// Starts a command of [`command`].
    pub(crate) fn of(role: &str, mut command: Command) -> Actor {
        let mut process = Running::start(&mut command);
        Actor {
            role: role.to_owned(),
            input: process.input(),
            lines: process.lines(),
            process,
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        match self.lines.next(PATIENCE) {
            Some(line) => line,
            None => panic!("{} has ended: {}", self.role, self.process.wait(PATIENCE)),
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
            panic!("{}: {error}: {:?}", self.role, self.process.ended());
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
        let status = self.process.wait(PATIENCE);
        assert!(status.success(), "{}: {status}", self.role);
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        let status = self.process.kill(PATIENCE);
        assert_eq!(status.signal(), Some(9), "{}", self.role);
    }
}
