//! Properties of the other end of a unix socket: its process, its unread bytes, and whether it may
//! send descriptors.
//!
//! A process id (SO_PEERCRED) may belong to another process by now; a handle (SO_PEERPIDFD, Linux
//! 6.5) always refers to the same process, and shows when that process has ended.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};

/// The process that connected this socket.
///
/// # Errors
/// [`Error::Closed`] if it has ended and was not waited for, [`Error::Unsupported`] before Linux
/// 6.5.
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

/// SO_PASSRIGHTS of linux/socket.h.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Sets whether messages to this socket may contain descriptors; if not, the kernel refuses to send
/// them (EPERM). A connection inherits this from its listener. False: this kernel has no such
/// option (before Linux 6.16), and descriptors are always allowed.
///
/// # Errors
/// Those of the system.
pub fn take_descriptors(socket: BorrowedFd<'_>, take: bool) -> Result<bool> {
    let value = libc::c_int::from(take);
    // SAFETY: `value` is one number, and the length is its.
    let error = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of_val(&value)).expect("a small number"),
        )
    };
    if error == 0 {
        return Ok(true);
    }
    match std::io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        error => Err(Error::from_io("refusing descriptors", error)),
    }
}

/// Whether the other end has received everything that was sent to it.
///
/// # Errors
/// Those of the system.
pub fn has_read_all(socket: BorrowedFd<'_>) -> Result<bool> {
    let mut memory = [0u32; 16];
    let mut length = libc::socklen_t::try_from(size_of_val(&memory)).expect("a small number");
    // SAFETY: `memory` is room for `length` bytes.
    let error = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if error != 0 {
        return Err(Error::last_os("asking what was received"));
    }
    let sent = usize::try_from(libc::SK_MEMINFO_WMEM_ALLOC).expect("a small index");
    // While the kernel wakes a process that waits for room, it counts one byte for the last packet.
    Ok(memory[sent] <= 1)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_the_other_end_has_not_read_is_noticed() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        assert!(has_read_all(one.as_fd()).unwrap());
        one.write_all(b"word").unwrap();
        assert!(!has_read_all(one.as_fd()).unwrap());
        other.read_exact(&mut [0; 4]).unwrap();
        assert!(has_read_all(one.as_fd()).unwrap());
        one.write_all(b"word").unwrap();
        drop(other);
        assert!(has_read_all(one.as_fd()).unwrap(), "nobody holds it");
    }

    #[test]
    fn descriptors_are_refused_where_the_kernel_can() {
        let (one, other) = UnixStream::pair().unwrap();
        let known = take_descriptors(other.as_fd(), false).unwrap();
        let send = || {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
            let fds = [one.as_fd()];
            assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
            let parts = [std::io::IoSlice::new(b"x")];
            let flags = rustix::net::SendFlags::empty();
            rustix::net::sendmsg(&one, &parts, &mut control, flags)
        };
        assert_eq!(send().is_err(), known);
        take_descriptors(other.as_fd(), true).unwrap();
        assert_eq!(send(), Ok(1));
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process_and_lives() {
        let (one, _other) = UnixStream::pair().unwrap();
        match peer_process(one.as_fd()) {
            Ok(process) => {
                // A handle becomes readable when its process ends.
                assert!(!crate::kernel::sys::wait_readable(process.as_fd(), Some(0)).unwrap());
            }
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        }
    }
}
