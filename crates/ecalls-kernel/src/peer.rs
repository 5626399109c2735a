//! Who is at the other end of a unix socket: a handle of the process itself.
//!
//! Its number (SO_PEERCRED) may belong to somebody else by now; the handle (SO_PEERPIDFD, Linux
//! 6.5) never does, and tells when the process has ended.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};

/// The process that connected this socket.
///
/// # Errors
/// [`Error::Closed`] when it has ended and nobody has waited for it, [`Error::Unsupported`] before
/// Linux 6.5.
pub fn peer_process(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of_val(&fd)).expect("a small number");
    // SAFETY: `fd` is room for the `length` bytes of one descriptor.
    let error = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if error != 0 {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOPROTOOPT) => Error::Unsupported {
                feature: "handle of a socket's peer (SO_PEERPIDFD)",
                since: "Linux 6.5",
            },
            Some(libc::ESRCH | libc::EINVAL | libc::ENODATA) => Error::Closed("the process"),
            _ => Error::from_io("asking who connected", error),
        });
    }
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process_and_lives() {
        let (one, _other) = UnixStream::pair().unwrap();
        match peer_process(one.as_fd()) {
            Ok(process) => {
                // A handle becomes readable when its process ends.
                assert!(!crate::wait_readable(process.as_fd(), Some(0)).unwrap());
            }
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        }
    }
}
