//! What can go wrong, in terms of what a caller can do about it.

use std::io;

/// The error of everything in this crate.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel lacks something. `since` is the version or option that brings it.
    #[error("this kernel has no {feature}: needs {since} (`ecalls doctor` tells more)")]
    Unsupported {
        /// What is missing.
        feature: &'static str,
        /// The kernel version or build option that brings it.
        since: &'static str,
    },
    /// The caller may not do this.
    #[error("{action} needs {privilege}")]
    Denied {
        /// What was tried.
        action: &'static str,
        /// What it needs.
        privilege: &'static str,
    },
    /// A named limit was reached.
    #[error("limit reached: {which} (at most {limit})")]
    LimitReached {
        /// The limit's name.
        which: &'static str,
        /// Its value.
        limit: usize,
    },
    /// This user has, or does, as much of something as the daemon lets it.
    #[error(
        "quota used up: {which} of your user ({}`ecalls stat --by uid` shows it)",
        at_most(*limit)
    )]
    Quota {
        /// The quota's name.
        which: &'static str,
        /// Its value; 0: unknown to the process that refused.
        limit: u64,
    },
    /// There is no such thing.
    #[error("no {what} named {name:?}: {hint}")]
    Unknown {
        /// Kind of thing.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// What to do next.
        hint: String,
    },
    /// An argument has no meaning.
    #[error("{what} is {given}: {expected}")]
    Invalid {
        /// Which argument.
        what: &'static str,
        /// What was given.
        given: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The process, channel, subscription or core is gone.
    #[error("{0} is gone")]
    Closed(&'static str),
    /// The daemon has ended, and its core with it: no event comes any more.
    #[error(
        "the daemon has ended, and its events with it (systemctl status ecallsd tells why): \
         open again when it is back"
    )]
    DaemonGone,
    /// The core belongs to another program: to a daemon, which has it for itself.
    #[error(
        "process {pid} hosts the core. If it is a daemon, its clients reach it by its socket \
         (ECALLS_SOCKET names another one than /run/ecalls/socket); else stop it first"
    )]
    Hosted {
        /// The process that loaded it.
        pid: u32,
    },
    /// A running core has another version of the contract.
    #[error(
        "the running core{} speaks version {theirs}, this program {ours}: stop the older one",
        loaded_by(*pid)
    )]
    Version {
        /// Version of the running core.
        theirs: u32,
        /// Version of this program.
        ours: u32,
        /// Process that loaded the core; 0: the daemon, which did not say which one it is.
        pid: u32,
    },
    /// A running core comes from another build of the same version.
    #[error("the running core (loaded by process {pid}) comes from another build: stop it first")]
    OtherBuild {
        /// Process that loaded it.
        pid: u32,
    },
    /// The kernel refused one of our programs.
    #[error(
        "the kernel refused {object}: {source} (ECALLS_LIBBPF_LOG=1 shows its reasons, \
         `ecalls doctor` what it lacks)"
    )]
    Load {
        /// Which object file.
        object: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The kernel has everything that one of our programs needs, and does not accept it.
    #[error(
        "the kernel refused {what}: {why} (ECALLS_LIBBPF_LOG=1 shows all that it says; please \
         report it)"
    )]
    Refused {
        /// Which object file.
        what: &'static str,
        /// The line in which it says why.
        why: String,
    },
    /// What is wrong with a text in E-code, for people: places, lines, hints.
    #[error("{0}")]
    Ecode(String),
    /// A system call failed.
    #[error("{action}: {source}")]
    Os {
        /// What was being done.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The same text as `Display`: a program whose `main` returns this error ends with a readable line.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn loaded_by(pid: u32) -> String {
    match pid {
        0 => String::new(),
        pid => format!(" (loaded by process {pid})"),
    }
}

fn at_most(limit: u64) -> String {
    match limit {
        0 => String::new(),
        limit => format!("at most {limit}; "),
    }
}

impl Error {
    /// The last error of the C library, while doing `action`.
    pub(crate) fn last_os(action: &'static str) -> Error {
        Error::from_io(action, io::Error::last_os_error())
    }

    /// A negative errno, while doing `action`.
    pub(crate) fn from_errno(action: &'static str, negative: i64) -> Error {
        let code = i32::try_from(-negative).unwrap_or(libc::EIO);
        Error::from_io(action, io::Error::from_raw_os_error(code))
    }

    /// An error of the system, while doing `action`.
    pub(crate) fn from_io(action: &'static str, source: io::Error) -> Error {
        Error::Os { action, source }
    }

    /// An error of libbpf, while doing `action`.
    pub(crate) fn from_bpf(action: &'static str, error: &libbpf_rs::Error) -> Error {
        let kind = match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
            libbpf_rs::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            libbpf_rs::ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        };
        Error::from_io(action, io::Error::new(kind, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_versions_that_meet_are_told() {
        let (theirs, ours) = (5, 4);
        let told = |pid| Error::Version { theirs, ours, pid }.to_string();
        let rest = "speaks version 5, this program 4: stop the older one";
        assert_eq!(
            told(7),
            format!("the running core (loaded by process 7) {rest}")
        );
        assert_eq!(told(0), format!("the running core {rest}"));
    }

    #[test]
    fn a_quota_is_told_with_its_limit_if_that_is_known() {
        let which = "channels";
        let told = Error::Quota { which, limit: 7 }.to_string();
        assert_eq!(
            told,
            "quota used up: channels of your user (at most 7; `ecalls stat --by uid` shows it)"
        );
        let told = Error::Quota { which, limit: 0 }.to_string();
        assert_eq!(
            told,
            "quota used up: channels of your user (`ecalls stat --by uid` shows it)"
        );
    }
}
