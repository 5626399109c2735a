//! The network namespace of this process: what the guard of a port does in it.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys::bpf_attach_type;
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
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
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

/// A listener of the loopback interface whose filter drops every packet.
pub(crate) fn void_listener(is_ip6: bool) -> Result<OwnedFd> {
    let action = "listening for what is to be dropped";
    let socket = new_socket(if is_ip6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    })?;
    let mut nothing = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let filter = libc::sock_fprog {
        len: 1,
        filter: &raw mut nothing,
    };
    // SAFETY: `filter` and its one instruction are alive; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(Error::last_os(action));
    }
    let bound = if is_ip6 {
        bind(&socket, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0))
    } else {
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
    };
    bound
        .and_then(|()| listen(&socket, 1))
        .map_err(|error| Error::from_io(action, error.into()))?;
    Ok(socket)
}
