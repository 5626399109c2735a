//! The instance: which of several cores on this machine the program uses.
//!
//! A machine usually has one core. `ECALLS_INSTANCE` names another one, with its own tables,
//! channels, services, users and daemon: for the containers and network namespaces of a machine
//! that are to be hosts of their own, though they share `/run`. The name selects the paths by
//! which a core and its relay are found; nothing else depends on it, and a process uses one
//! instance.
//!
//! An instance is a set of names, and no protection. Loading a core takes privileges over the whole
//! machine, and the services of the kernel report the machine's events in each of its cores, to
//! each user its own. The programs of all cores are attached to the same tracepoints, where each
//! acts on its own core's state only; with each further core a delivery costs about 50 ns more. The
//! scheduler is the machine's, and belongs to one core at a time.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ecalls_abi::message::SOCKET_PATH;
use ecalls_abi::relay::RELAY_SOCKET_PATH;

use crate::error::{Error, Result};

/// The environment variable with the instance's name.
const INSTANCE: &str = "ECALLS_INSTANCE";

/// Bytes of a name.
const NAME_MAX: usize = 31;

/// The paths of an instance.
#[derive(Debug)]
pub(crate) struct Paths {
    /// `None`: the machine's usual core.
    name: Option<String>,
    /// The lock of the core; only root can open it, so no other user can hold it.
    pub(crate) lock: PathBuf,
    /// The daemon's socket.
    socket: PathBuf,
    /// The socket of the relay to other hosts.
    relay: PathBuf,
}

impl Paths {
    /// Those of the instance of that name; `None`: of the machine's usual core.
    fn of(name: Option<&str>) -> Result<Paths> {
        let Some(name) = name else {
            return Ok(Paths {
                name: None,
                lock: "/run/ecalls.lock".into(),
                socket: SOCKET_PATH.into(),
                relay: RELAY_SOCKET_PATH.into(),
            });
        };
        let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_valid) {
            return Err(Error::Invalid {
                what: "the name of the instance (ECALLS_INSTANCE)",
                given: format!("{name:?}"),
                expected: "1 to 31 letters, digits, - and _",
            });
        }
        Ok(Paths {
            name: Some(name.to_owned()),
            lock: format!("/run/ecalls@{name}.lock").into(),
            socket: format!("/run/ecalls@{name}/socket").into(),
            relay: format!("/run/ecalls-relay@{name}/socket").into(),
        })
    }
}

/// The paths of this process's instance.
///
/// # Errors
/// [`Error::Invalid`] if the environment names none that is possible.
pub(crate) fn paths() -> Result<&'static Paths> {
    static PATHS: OnceLock<Paths> = OnceLock::new();

    if let Some(paths) = PATHS.get() {
        return Ok(paths);
    }
    let name = std::env::var_os(INSTANCE);
    let name = name.as_ref().map(|name| name.to_string_lossy());
    let paths = Paths::of(name.as_deref())?;
    Ok(PATHS.get_or_init(|| paths))
}

/// The instance's name; `None`: the machine's usual core.
///
/// # Errors
/// [`Error::Invalid`] if the environment names none that is possible.
pub(crate) fn name() -> Result<Option<&'static str>> {
    Ok(paths()?.name.as_deref())
}

/// The file by which programs that host this instance's core find each other.
///
/// # Errors
/// [`Error::Invalid`] if the environment names no possible instance.
pub fn lock_path() -> Result<&'static Path> {
    Ok(&paths()?.lock)
}

/// The default path of the socket of this instance's daemon.
///
/// # Errors
/// [`Error::Invalid`] if the environment names no possible instance.
pub fn socket_path() -> Result<&'static Path> {
    Ok(&paths()?.socket)
}

/// The path of the socket of this instance's relay to other hosts.
///
/// # Errors
/// [`Error::Invalid`] if the environment names no possible instance.
pub fn relay_socket_path() -> Result<&'static Path> {
    Ok(&paths()?.relay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_selects_lock_and_socket() {
        let usual = Paths::of(None).expect("no name");
        assert_eq!(usual.lock, Path::new("/run/ecalls.lock"));
        assert_eq!(usual.socket, Path::new(SOCKET_PATH));
        let lab = Paths::of(Some("lab_1-b")).expect("a name");
        assert_eq!(lab.lock, Path::new("/run/ecalls@lab_1-b.lock"));
        assert_eq!(lab.socket, Path::new("/run/ecalls@lab_1-b/socket"));
        assert_eq!(lab.relay, Path::new("/run/ecalls-relay@lab_1-b/socket"));
    }

    #[test]
    fn name_of_an_instance_leads_to_no_other_folder() {
        let long = "n".repeat(NAME_MAX + 1);
        for name in ["", ".", "..", "../etc", "a/b", "a b", "a\0", "é", &long] {
            assert!(Paths::of(Some(name)).is_err(), "{name:?}");
        }
    }
}
