//! How the command ends: one exit code for each thing that a caller can do about a failure.
//!
//! A subcommand returns [`Outcome`]. An error of the library becomes a [`Failure`] by what can be
//! done about it; [`report`] prints it as one line on standard error. A reader of our output that
//! went away (`ecalls watch task | head -1`) is no failure: the command ends quietly, with 0.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// What `ecalls --help` says about exit codes.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  the call was wrong: unknown command, option or value, or a text in E-code with errors
  3  denied: needs the daemon or root, a rule of the daemon, or more than its quota
  4  this kernel cannot do it; the message says what is missing and since when it exists
  5  no such service, kind, field or process
  6  nothing (or not all) arrived in the time asked for

Errors are one line on standard error. Data is on standard output, as a table or, with --json, as
one JSON object per line. Durations: 250us, 5ms, 10s, 1m, 2h, or several: 1m30s.";

/// What a subcommand returns.
pub type Outcome = Result<(), Failure>;

/// Exit codes, as [`HELP`] explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Failed = 1,
    Usage = 2,
    Denied = 3,
    Unsupported = 4,
    Unknown = 5,
    Nothing = 6,
}

/// A failure: its exit code, and the line that tells the user.
#[derive(Debug)]
pub enum Failure {
    /// Says what happened, to which thing, and what to do next.
    Message(Code, String),
    /// Nobody reads our output any more.
    BrokenPipe,
}

impl Failure {
    /// A failure with its line.
    pub fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure::Message(code, message.to_string())
    }

    /// A call that makes no sense.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Code::Usage, message)
    }
}

impl From<ecalls::Error> for Failure {
    fn from(error: ecalls::Error) -> Failure {
        use ecalls::Error;
        let code = match &error {
            Error::Denied { .. } | Error::Quota { .. } | Error::Hosted { .. } => Code::Denied,
            Error::Unsupported { .. } | Error::Refused { .. } => Code::Unsupported,
            Error::Unknown { .. } => Code::Unknown,
            Error::Ecode(_) => Code::Usage,
            Error::Os { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Code::Denied
            }
            _ => Code::Failed,
        };
        match error {
            Error::Invalid {
                what,
                given,
                expected,
            } => Failure::usage(format_args!("{what} is {given}, expected {expected}")),
            error => Failure::new(code, error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::BrokenPipe;
        }
        Failure::new(Code::Failed, format!("writing the output: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::from(io::Error::from(error))
    }
}

/// Tells the user, and the shell.
pub fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(code, message)) => {
            crate::output::note(format_args!("ecalls: {message}"));
            ExitCode::from(code as u8)
        }
    }
}
