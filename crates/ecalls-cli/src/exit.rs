//! How the command ends: an exit code for each action that a caller can take after a failure.
//!
//! A subcommand returns [`Outcome`]. An error of the library becomes a [`Failure`] with the code of
//! the caller's next action; [`report`] prints it on standard error. When the reader of the output
//! has gone (`ecalls watch task | head -1`), the command ends quietly with 0.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The part of `ecalls --help` about exit codes.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  usage error: unknown command, option or value, or a text in E-code with errors
  3  denied: the daemon or root is needed, or a rule or quota of the daemon forbids it
  4  not supported by this kernel; the message names the missing feature and what brings it
  5  a service, kind, field, process or program does not exist, or the scheduler does not run
  6  no events, or fewer than requested, arrived in the given time

Errors go to standard error, data to standard output: as a table or, with --json, as one JSON
object per line. Durations: 250us, 5ms, 10s, 1m, 2h, or several: 1m30s.";

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

/// A failure, with its exit code and message.
#[derive(Debug)]
pub enum Failure {
    /// The message says what happened, names the thing, and says what to do next.
    Message(Code, String),
    /// The reader of standard output has gone.
    BrokenPipe,
}

impl Failure {
    /// A failure with its message.
    pub fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure::Message(code, message.to_string())
    }

    /// A usage error.
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

/// Prints a failure and returns the exit code.
pub fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(code, message)) => {
            crate::output::note(format_args!("ecalls: {message}"));
            ExitCode::from(code as u8)
        }
    }
}
