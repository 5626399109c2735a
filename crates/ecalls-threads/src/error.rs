//! The errors of a runtime.

use std::fmt;
use std::io;

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a runtime failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A limit is reached.
    LimitReached {
        /// The name of the limit.
        which: &'static str,
        /// Its value.
        limit: usize,
    },
    /// A parameter is outside its range.
    Invalid {
        /// The parameter.
        what: &'static str,
        /// The value it was given.
        value: usize,
        /// What it may be.
        allowed: &'static str,
    },
    /// The kernel side was required, and is not possible.
    Kernel(ecalls_kernel::Error),
    /// The first thread of the runtime panicked.
    Panicked,
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
    pub(crate) fn os<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os {
            action,
            source: source.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitReached { which, limit } => {
                write!(f, "the limit of {limit} {which} is reached")
            }
            Self::Invalid {
                what,
                value,
                allowed,
            } => write!(f, "{what} is {value}, but must be {allowed}"),
            Self::Kernel(error) => write!(f, "{error}"),
            Self::Panicked => f.write_str("the runtime's first thread panicked"),
            Self::Os { action, source } => write!(f, "{action}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os { source, .. } => Some(source),
            Self::Kernel(error) => Some(error),
            Self::LimitReached { .. } | Self::Invalid { .. } | Self::Panicked => None,
        }
    }
}
