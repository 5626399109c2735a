//! Which sockets may be read, through shared memory (ECalls-01 §3.2, ECalls-05 §5.2): the papers'
//! `socket_interest` and `socket_ready`.
//!
//! A [`ReadySockets`] is one thread's. While a socket has work, asking costs no system call; with
//! none, sleeping costs one. A socket is introduced by one call and stays introduced until it is
//! closed; changes of interest after that cost none.
//!
//! A hint is an edge: the socket *may* be ready, for data, a connection, the end of the stream or
//! an error. It comes once when the socket is added, and then whenever more has come since the last
//! one was taken. So read or accept until that would block, from a socket that does not block.
//!
//! Descriptors are hinted by number. Once a socket is closed everywhere it is told no more. A hint
//! that was there before may then name a new socket with its number, which was hinted anyway.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ecalls_kernel::now_ns;
use ecalls_kernel::ready::ReadyMap;
use ecalls_ring::{Ready, Words};

use crate::Result;

#[derive(Clone, Debug)]
struct Memory(Arc<ReadyMap>);

impl Words for Memory {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// The sockets of one thread. Dropping it ends their introductions.
///
/// ```no_run
/// use std::io::Read;
/// use std::os::fd::AsRawFd;
/// let mut socket = std::net::TcpStream::connect("192.0.2.1:80")?;
/// socket.set_nonblocking(true)?;
/// let mut ready = ecalls::ReadySockets::open()?;
/// ready.add(&socket)?;
/// loop {
///     ready.wait(None)?;
///     ready.take(|descriptor| {
///         assert_eq!(descriptor, socket.as_raw_fd());
///         while socket.read(&mut [0; 512]).is_ok_and(|bytes| bytes != 0) {}
///     });
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadySockets {
    map: Arc<ReadyMap>,
    ready: Ready<Memory>,
}

impl ReadySockets {
    /// Opens a map; the first one of a process loads the kernel side.
    ///
    /// # Errors
    /// [`Error::Denied`] without CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; [`Error::LimitReached`];
    /// and what the kernel refuses.
    ///
    /// [`Error::Denied`]: crate::Error::Denied
    /// [`Error::LimitReached`]: crate::Error::LimitReached
    pub fn open() -> Result<ReadySockets> {
        let map = Arc::new(ReadyMap::open()?);
        let ready = Ready::new(Memory(Arc::clone(&map)));
        Ok(ReadySockets { map, ready })
    }

    /// Adds a socket of IPv4 or IPv6; it is hinted once, and then whenever more has come. One
    /// system call.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another descriptor; [`Error::LimitReached`] if eight maps have it.
    ///
    /// [`Error::Invalid`]: crate::Error::Invalid
    /// [`Error::LimitReached`]: crate::Error::LimitReached
    pub fn add(&mut self, socket: impl AsFd) -> Result<()> {
        let socket = socket.as_fd();
        self.map.introduce(socket)?;
        self.resume(socket.as_raw_fd());
        Ok(())
    }

    /// Ends that; without it nothing happens. One system call. A socket that is closed need not be
    /// removed, unless another process holds it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&mut self, socket: impl AsFd) -> Result<()> {
        self.pause(socket.as_fd().as_raw_fd());
        self.map.dismiss(socket.as_fd())
    }

    /// No more hints of that descriptor, until [`ReadySockets::resume`]. No system call.
    pub fn pause(&mut self, descriptor: i32) {
        self.ready.unwant(descriptor.cast_unsigned());
    }

    /// Hints of a descriptor again, whose socket was added: it is hinted once. No system call.
    pub fn resume(&mut self, descriptor: i32) {
        self.ready.want(descriptor.cast_unsigned());
    }

    /// Whether there is a hint.
    pub fn is_ready(&self) -> bool {
        self.ready.is_ready()
    }

    /// Takes the hints: calls `f` with each descriptor that may be ready. Returns how many.
    pub fn take(&mut self, mut f: impl FnMut(i32)) -> usize {
        self.ready.take(|descriptor| f(descriptor.cast_signed()))
    }

    /// Sleeps until there is a hint, at most for `timeout`. False: there is none. One system call,
    /// and none if there is one already.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let until_ns = timeout.map(|timeout| {
            let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            now_ns().saturating_add(ns)
        });
        while self.prepare_wait() {
            let left = until_ns.map(|until| until.saturating_sub(now_ns()));
            let slept = self.map.wait(left);
            self.end_wait();
            if !slept? && !self.is_ready() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Requests a wake-up before waiting on [`ReadySockets::as_fd`] with epoll or tokio. False:
    /// there is a hint already, do not wait. After the wait, call [`ReadySockets::end_wait`].
    pub fn prepare_wait(&mut self) -> bool {
        self.ready.may_sleep()
    }

    /// Ends a wait: the descriptor becomes unreadable again, and no wake-up is requested.
    pub fn end_wait(&mut self) {
        self.ready.end_sleep();
        self.map.clear_wake();
    }
}

impl AsFd for ReadySockets {
    /// Readable after a wake-up that [`ReadySockets::prepare_wait`] requested.
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.map).as_fd()
    }
}

impl fmt::Debug for ReadySockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadySockets")
            .field("is_ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}
