//! The socket that clients connect to: passed by systemd, or created here.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, umask};

use crate::config::{Names, Socket};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener {
    pub fd: OwnedFd,
    /// Its path if it was created here; it is then removed at the end.
    pub path: Option<PathBuf>,
}

/// The socket from systemd, or a new one as configured.
///
/// # Errors
/// AddrInUse: another daemon listens there.
pub fn listen(socket: &Socket, names: &Names) -> io::Result<Listener> {
    if let Some(fd) = handed_over()? {
        return Ok(Listener { fd, path: None });
    }
    make(socket, names).map(|fd| Listener {
        fd,
        path: Some(socket.path.0.clone()),
    })
}

/// The socket of the unit, if there is one.
fn handed_over() -> io::Result<Option<OwnedFd>> {
    let mut numbers = sd_notify::listen_fds()?;
    let Some(number) = numbers.next() else {
        return Ok(None);
    };
    // The number alone does not prove that it is open; copying it by a handle of our own process
    // does.
    let process = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let fd = rustix::process::pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
    let fits = sockopt::socket_type(&fd) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_acceptconn(&fd) == Ok(true);
    if !fits || numbers.next().is_some() {
        let message = "systemd handed over something else than one SOCK_SEQPACKET socket: see \
                       ListenSequentialPacket= in ecallsd.socket";
        return Err(io::Error::other(message));
    }
    Ok(Some(fd))
}

fn make(socket: &Socket, names: &Names) -> io::Result<OwnedFd> {
    let path = &socket.path.0;
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    remove_stale(path)?;
    let fd = open()?;
    let address = SocketAddrUnix::new(path)?;
    // The socket has its permissions from the first moment: a client that reconnects while its
    // daemon restarts would else be told that it may not connect, instead of trying again.
    let before = umask(Mode::from_raw_mode(!socket.mode.0 & 0o777));
    let bound = rustix::net::bind(&fd, &address);
    umask(before);
    bound?;
    let gid = socket
        .group
        .as_ref()
        .and_then(|who| names.group(who.as_ref()));
    if gid.is_some() {
        std::os::unix::fs::chown(path, None, gid)?;
    }
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Removes a socket on which nobody listens. One with a listener belongs to another daemon, and
/// other files are not removed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        Ok(_) => {}
    }
    let probe = open()?;
    match rustix::net::connect(probe.as_fd(), &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::config::{self, SocketPath};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ecallsd-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn at(path: &Path) -> Socket {
        Socket {
            path: SocketPath(path.to_owned()),
            mode: config::Mode(0o640),
            group: None,
        }
    }

    #[test]
    fn the_socket_has_its_permissions_and_replaces_a_stale_one() {
        let folder = folder("listen");
        let path = folder.join("socket");
        let names = Names::default();
        let first = make(&at(&path), &names).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let busy = make(&at(&path), &names).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(make(&at(&path), &names).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn at_no_moment_has_the_socket_other_permissions() {
        let folder = folder("moment");
        let path = folder.join("socket");
        let done = AtomicBool::new(false);
        let (made, modes) = thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut modes = BTreeSet::new();
                while !done.load(Ordering::Relaxed) || modes.is_empty() {
                    let found = fs::metadata(&path);
                    modes.extend(found.map(|found| found.permissions().mode() & 0o777));
                }
                modes
            });
            let made = (0..1000).filter(|_| make(&at(&path), &Names::default()).is_ok());
            let made = made.count();
            done.store(true, Ordering::Relaxed);
            (made, looks.join().unwrap())
        });
        assert_eq!(made, 1000);
        assert_eq!(modes, BTreeSet::from([0o640]));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let folder = folder("file");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        fs::write(&path, "mine").unwrap();
        assert!(make(&at(&path), &Names::default()).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_dir_all(&folder).unwrap();
    }
}
