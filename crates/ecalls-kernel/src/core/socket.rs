//! Registers sockets with the socket service (ECalls-05 §5.2), by a descriptor of this process or
//! of another one.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ecalls_abi::service::{SOCKET_CONNECTION, SocketInterest};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::kernel::sys;

/// Registers a socket: its events go to `interest.target`.
///
/// Only a listener gets the kind CONNECTION: the kernel side regards a connection that has it as
/// one that inherited its listener's registration.
///
/// The events are those of the process and user in `interest`, or of this process if it names none.
///
/// # Errors
/// [`Error::Invalid`] if the descriptor is not a socket.
pub fn register(core: &Core, socket: BorrowedFd<'_>, interest: &SocketInterest) -> Result<()> {
    write(core, socket, interest, MapFlags::ANY)
}

/// The same, unless the socket is registered already: then that registration stays.
pub fn register_if_absent(
    core: &Core,
    socket: BorrowedFd<'_>,
    interest: &SocketInterest,
) -> Result<()> {
    write(core, socket, interest, MapFlags::NO_EXIST)
}

fn write(
    core: &Core,
    socket: BorrowedFd<'_>,
    interest: &SocketInterest,
    flags: MapFlags,
) -> Result<()> {
    let mut row = *interest;
    if row.pid == 0 {
        row.pid = core.own_pid();
        row.uid = core.identify(row.pid)?.uid;
    }
    if !sys::is_listener(socket) {
        row.kinds &= !(1 << SOCKET_CONNECTION);
    }
    let key = socket.as_raw_fd().to_ne_bytes();
    match core
        .map("socket_interest")?
        .update(&key, row.as_bytes(), flags)
    {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(not_a_socket(socket, &error)),
        Ok(()) => Ok(()),
    }
}

/// Ends a registration; without one it does nothing.
pub fn unregister(core: &Core, socket: BorrowedFd<'_>) -> Result<()> {
    match core
        .map("socket_interest")?
        .delete(&socket.as_raw_fd().to_ne_bytes())
    {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(not_a_socket(socket, &error))
        }
        _ => Ok(()),
    }
}

fn not_a_socket(socket: BorrowedFd<'_>, error: &libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::InvalidInput | libbpf_rs::ErrorKind::Other => Error::Invalid {
            what: "the descriptor",
            given: socket.as_raw_fd().to_string(),
            expected: "an open socket",
        },
        _ => Error::from_bpf("registering a socket", error),
    }
}

/// Copies of all sockets that process `pid` has open, with their descriptor numbers there.
pub fn sockets_of(pid: u32) -> Result<Vec<(u32, OwnedFd)>> {
    let process = sys::pidfd(pid)?;
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .map_err(|error| Error::from_io("reading a process' descriptors", error))?;
    let mut sockets = Vec::new();
    for entry in folder.flatten() {
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_string_lossy().parse::<u32>();
        let Ok(number) = number else { continue };
        if !is_socket {
            continue;
        }
        // The descriptor may have been closed since it was listed; then it is left out.
        let fd = i32::try_from(number).unwrap_or(-1);
        if let Ok(copy) = sys::descriptor_of(process.as_fd(), fd) {
            sockets.push((number, copy));
        }
    }
    sockets.sort_by_key(|(number, _)| *number);
    Ok(sockets)
}
