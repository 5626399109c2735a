//! The errors of a loop.

use std::fmt;
use std::io;

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a loop failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A limit of this crate is reached.
    LimitReached {
        /// The name of the limit.
        which: &'static str,
        /// Its value.
        limit: usize,
    },
    /// This thread has a loop already.
    SecondLoop,
    /// The loop is running: an event may not call `run` again.
    Running,
    /// The loop is gone.
    Closed,
    /// The thread did not get the slot.
    Slot(ecalls::Error),
    /// The memory given as a slot is too small for one.
    NoSlot,
    /// The system refused an operation.
    Os {
        /// The operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: the system refused `action`.
    pub(crate) fn os(action: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
        move |errno| Error::Os {
            action,
            source: errno.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::LimitReached { which, limit } => write!(f, "there are {limit} {which} already"),
            Error::SecondLoop => f.write_str("this thread has a loop already"),
            Error::Running => f.write_str("the loop runs already"),
            Error::Closed => f.write_str("the loop is gone"),
            Error::Slot(error) => write!(f, "the thread's slot: {error}"),
            Error::NoSlot => f.write_str("the memory is too small for a slot"),
            Error::Os { action, source } => write!(f, "{action}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Os { source, .. } => Some(source),
            Error::Slot(error) => Some(error),
            _ => None,
        }
    }
}
