//! The network namespace of this process: what the guard of a port does in it.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys::bpf_attach_type;
use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_user_timeout};
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, bind,
    listen, socket_with,
};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::{Error, Result};
use crate::kernel::sys;

/// Whether the caller may attach programs to its network namespace.
pub(crate) fn may_attach() -> bool {
    let wanted = CapabilitySet::NET_ADMIN;
    let has =
        capabilities(None).map_or_else(|_| sys::is_root(), |sets| sets.effective.contains(wanted));
    has && sys::may_host()
}

/// Attaches a program to it, by a link.
pub(crate) fn attach(program: BorrowedFd<'_>, kind: bpf_attach_type) -> Result<OwnedFd> {
    let action = "attaching a program to the network namespace";
    let own = File::open("/proc/thread-self/ns/net");
    let own = own.map_err(|error| Error::from_io(action, error))?;
    sys::attach_to(program, own.as_fd(), kind, action)
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| Error::from_io("opening a socket", error.into()))
}

/// Its number, which no other namespace ever has.
pub(crate) fn cookie() -> Result<u64> {
    let socket = new_socket(AddressFamily::INET)?;
    let mut cookie = 0u64;
    let mut bytes: libc::socklen_t = 8;
    // SAFETY: `cookie` is alive and as long as `bytes` says.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast::<c_void>(),
            &raw mut bytes,
        )
    };
    if result < 0 {
        return Err(Error::last_os("reading the network namespace's number"));
    }
    Ok(cookie)
}

/// More connections than the guard's listeners have in their queues.
const BACKLOG: i32 = 4096;

/// A listener of the loopback interface that takes what is for `port`, which only the choice of a
/// listener sends there, or nothing. No packet comes to it by its own port.
///
/// Its connections are no obstacle to a server that starts again at their port, and end after
/// `timeout_ms` if the other side is silent.
pub(crate) fn own_listener(is_ip6: bool, port: Option<u16>, timeout_ms: u32) -> Result<OwnedFd> {
    let action = "listening for what is turned away";
    let family = if is_ip6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let socket = new_socket(family)?;
    filter(&socket, port).map_err(|error| Error::from_io(action, error))?;
    set_socket_reuseaddr(&socket, true)
        .and_then(|()| set_tcp_user_timeout(&socket, timeout_ms))
        .and_then(|()| match family {
            AddressFamily::INET6 => bind(&socket, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)),
            _ => bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)),
        })
        .and_then(|()| listen(&socket, BACKLOG))
        .map_err(|error| Error::from_io(action, error.into()))?;
    Ok(socket)
}

/// Drops what comes to a socket of TCP and is not for that port, or all.
fn filter(socket: &OwnedFd, port: Option<u16>) -> io::Result<()> {
    let step = |code, jf, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let verdict = |takes| {
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            if takes { u32::MAX } else { 0 },
        )
    };
    let mut steps = match port {
        None => vec![verdict(false)],
        // The port follows that of the sender, in the first bytes that the filter sees.
        Some(port) => vec![
            step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 2),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, port.into()),
            verdict(true),
            verdict(false),
        ],
    };
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: `program` and its instructions are alive; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
