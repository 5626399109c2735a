//! A listening socket with its options.
#![allow(unsafe_code, reason = "rustix does not know TCP_DEFER_ACCEPT")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// `defer`: accept gets a connection only when its first bytes have come, or this time has passed.
pub(crate) fn listen(
    address: SocketAddr,
    backlog: i32,
    defer: Option<Duration>,
) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Connections inherit it: the end of an answer does not wait for an acknowledgement.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and [::] can be listened at together.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if let Some(time) = defer {
        set_defer(&socket, time)?;
    }
    bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

fn set_defer(socket: &OwnedFd, time: Duration) -> io::Result<()> {
    let seconds = libc::c_int::try_from(time.as_secs().max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads so many bytes from there, during the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as libc::socklen_t,
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
