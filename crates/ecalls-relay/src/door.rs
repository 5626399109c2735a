//! The socket to which programs of this host connect.
//!
//! Who may: root, since only programs that host the core open channels among hosts, and the user as
//! whom the relay runs, for its tests. The socket's permissions say the same, and for each
//! connection the kernel tells who made it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};
use rustix::process::{geteuid, umask};

use crate::error::{Error, Result};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    path: PathBuf,
}

impl Door {
    /// Makes the socket, and its folder if there is none.
    ///
    /// # Errors
    /// [`Error::Os`], for example if another relay listens there.
    pub fn open(path: &Path) -> Result<Door> {
        let failed = Error::os("making the socket for programs");
        if let Some(folder) = path.parent() {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        remove_stale(path).map_err(&failed)?;
        let failed = |errno: Errno| failed(errno.into());
        let socket = stream(SocketFlags::NONBLOCK).map_err(&failed)?;
        let address = SocketAddrUnix::new(path).map_err(&failed)?;
        // From its first moment nobody else can connect.
        let before = umask(Mode::from_raw_mode(0o177));
        let bound = bind(&socket, &address);
        umask(before);
        bound.map_err(&failed)?;
        listen(&socket, BACKLOG).map_err(&failed)?;
        Ok(Door {
            socket,
            path: path.to_owned(),
        })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next program that may connect. `None`: there is none.
    pub fn accept(&self) -> Option<OwnedFd> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.socket, flags) {
                Ok(socket) => match sockopt::socket_peercred(&socket) {
                    Ok(who) if who.uid.is_root() || who.uid == geteuid() => return Some(socket),
                    Ok(who) => eprintln!("ecalls-relay: user {} may not connect", who.uid.as_raw()),
                    Err(_) => {}
                },
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn stream(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Removes a socket on which nobody listens. Other files are not removed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(_) => {}
    }
    let probe = stream(SocketFlags::empty())?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}
