//! What the server tells the guard of its port, if there is one (abi/guard.h): the connections that
//! it has accepted and not served yet, and since when the first of them waits. Nothing is asked and
//! nothing is waited for: it is three stores for each turn.
#![allow(unsafe_code, reason = "the page is shared memory")]

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecalls_abi::guard::{GUARD_NAME, GUARD_PAGE_TOLD, GuardPage};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, recvmsg, socket_with,
};
use rustix::time::{ClockId, clock_gettime};

/// The interval in which a guard is looked for, and whether it is still there.
const LOOK: Duration = Duration::from_millis(500);
/// What the kernel calls a descriptor of a map. Its memory cannot be taken away, unlike a file's.
const MAP: &str = "anon_inode:bpf-map";

#[derive(Debug)]
pub(crate) struct Guard {
    port: u16,
    /// The guard's end, and its page when that has come.
    socket: Option<OwnedFd>,
    page: Option<Page>,
    next: Instant,
    served: u64,
}

impl Guard {
    pub(crate) fn of(port: u16) -> Guard {
        Guard {
            port,
            socket: None,
            page: None,
            next: Instant::now(),
            served: 0,
        }
    }

    /// So many connections wait, the first of them since then.
    pub(crate) fn tell(&mut self, waiting: usize, since_ns: u64) {
        if let Some(page) = &self.page {
            page.store(offset_of!(GuardPage, numconnects), waiting as u64);
            page.store(
                offset_of!(GuardPage, since_ns),
                if waiting > 0 { since_ns } else { 0 },
            );
            page.store(offset_of!(GuardPage, served), self.served);
        }
    }

    /// So many requests more are answered.
    pub(crate) fn has_served(&mut self, requests: u64) {
        self.served += requests;
    }

    /// Looks for a guard that has come or gone, now and then.
    pub(crate) fn look(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        if self.page.is_some() {
            // It never says more, so what comes is its end.
            if !matches!(self.socket.as_ref().map(is_quiet), Some(true)) {
                (self.socket, self.page) = (None, None);
            }
            return;
        }
        if self.socket.is_none() {
            self.socket = connect_to(self.port).ok();
        }
        match self.socket.as_ref().map(receive) {
            Some(Ok(page)) => {
                page.store(offset_of!(GuardPage, told), GUARD_PAGE_TOLD);
                self.page = Some(page);
            }
            // Another server has the page now.
            Some(Err(Errno::AGAIN)) | None => {}
            Some(Err(_)) => self.socket = None,
        }
    }
}

/// `CLOCK_MONOTONIC`, which the kernel side compares with its own time.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn connect_to(port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let name = format!("{GUARD_NAME}{port}");
    connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    Ok(socket)
}

fn is_quiet(socket: &OwnedFd) -> bool {
    recv(socket, &mut [0; 1][..], RecvFlags::empty()) == Err(Errno::AGAIN)
}

/// The page that the guard has sent.
fn receive(socket: &OwnedFd) -> Result<Page, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [io::IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut into, &mut control, flags)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let fd = fd.ok_or(Errno::PROTO)?;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match std::fs::read_link(link) {
        Ok(kind) if kind.as_os_str() == MAP => Page::map(&fd),
        _ => Err(Errno::PROTO),
    }
}

#[derive(Debug)]
struct Page(NonNull<GuardPage>);

impl Page {
    fn map(fd: &OwnedFd) -> Result<Page, Errno> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let size = size_of::<GuardPage>();
        // SAFETY: the kernel chooses an address that nothing else has.
        let address = unsafe { mmap(std::ptr::null_mut(), size, rights, MapFlags::SHARED, fd, 0)? };
        NonNull::new(address.cast()).map(Page).ok_or(Errno::NOMEM)
    }

    fn store(&self, offset: usize, value: u64) {
        // SAFETY: the word is in the page.
        let word = unsafe { self.0.as_ptr().byte_add(offset) };
        // SAFETY: it is aligned, and both sides access it by single loads and stores only.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        word.store(value, Ordering::Relaxed);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it, and nothing refers to it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<GuardPage>()) };
    }
}
