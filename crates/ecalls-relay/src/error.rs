//! What can go wrong so that the relay does not start, or ends.

use std::fmt;
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is not as it must be.
    Config(String),
    /// The operating system refused something.
    Os {
        /// What was tried.
        action: &'static str,
        source: io::Error,
    },
    /// Zenoh refused something.
    Network {
        /// What was tried.
        action: &'static str,
        message: String,
    },
}

impl Error {
    pub(crate) fn os(action: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Os { action, source }
    }

    pub(crate) fn errno(action: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
        move |errno| Error::Os {
            action,
            source: errno.into(),
        }
    }

    pub(crate) fn network(action: &'static str) -> impl Fn(zenoh::Error) -> Error {
        move |error| Error::Network {
            action,
            message: error.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(message) => f.write_str(message),
            Error::Os { action, source } => write!(f, "{action}: {source}"),
            Error::Network { action, message } => write!(f, "{action}: {message}"),
        }
    }
}

impl std::error::Error for Error {}
