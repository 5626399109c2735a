//! Calls that wait until one descriptor is ready: reads, accepts, and polls of one descriptor.
//!
//! They first try without waiting, then wait for the descriptor without a kernel thread
//! (`ecalls_threads::wait_ready`): of thousands of connections that are idle each has only its
//! thread's stack.

use std::ffi::{c_int, c_short, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ecalls_preload::errno;
use ecalls_preload::fortify::{check, check_polls};
use ecalls_threads::{Interest, can_switch, wait_ready, wait_ready_for};
use libc::{
    CLOCK_MONOTONIC, EAGAIN, EINTR, iovec, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

use crate::calls::sleep_through;
use crate::signals::{self, Handled};
use crate::thread::in_call;
use crate::{cancel, next, time};

// --- reads ---

/// How long a read from a descriptor waits that finds nothing: `None` for ever.
enum Waits {
    Not,
    For(Option<Duration>),
}

impl Waits {
    fn of(fd: c_int) -> Self {
        let mut limit = timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let mut bytes = socklen_t::try_from(size_of::<timeval>()).unwrap_or(0);
        // SAFETY: asks for flags, and, of a socket, for a time that it writes.
        let flags = unsafe {
            let to = (&raw mut limit).cast();
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, to, &raw mut bytes);
            libc::fcntl(fd, libc::F_GETFL)
        };
        if flags < 0 || flags & libc::O_NONBLOCK != 0 {
            return Self::Not;
        }
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        let limit =
            Duration::from_secs(part(limit.tv_sec)) + Duration::from_micros(part(limit.tv_usec));
        Self::For((limit > Duration::ZERO).then_some(limit))
    }
}

/// How a wait for a descriptor has ended.
enum Awaited {
    /// It is ready, or cannot be waited for so: the call that follows tells.
    Ready,
    /// The time has passed, or somebody else has ended the wait.
    TimedOut,
    /// The handler of a signal has run.
    Handled(Handled),
}

/// Waits until a descriptor is ready.
fn await_ready(fd: c_int, interest: Interest, limit: Option<Duration>) -> io::Result<Awaited> {
    cancel::point();
    // SAFETY: the caller's descriptor, or a number that is none, which is refused.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    let in_time = match limit {
        Some(limit) => wait_ready_for(descriptor, interest, limit),
        None => wait_ready(descriptor, interest).map(|()| true),
    };
    cancel::point();
    match signals::take() {
        Handled::Nothing if in_time? => Ok(Awaited::Ready),
        Handled::Nothing => Ok(Awaited::TimedOut),
        handled => Ok(Awaited::Handled(handled)),
    }
}

/// Waits until a read, or an accept, finds something; an error: it fails with that.
fn await_read(fd: c_int, limit: Option<Duration>) -> Result<(), c_int> {
    let begun_ns = time::now_ns(CLOCK_MONOTONIC);
    loop {
        let passed = Duration::from_nanos(time::now_ns(CLOCK_MONOTONIC).saturating_sub(begun_ns));
        let left = limit.map(|limit| limit.saturating_sub(passed));
        if left == Some(Duration::ZERO) {
            return Err(EAGAIN);
        }
        match await_ready(fd, Interest::Read, left) {
            Ok(Awaited::TimedOut) => {}
            Ok(Awaited::Handled(Handled::Interrupts)) => return Err(EINTR),
            Ok(Awaited::Handled(_)) => {}
            _ => return Ok(()),
        }
    }
}

/// Reads by `attempt`, which does not wait, and if there is nothing, once there is, by `real`.
fn read_when_ready(
    fd: c_int,
    attempt: impl FnOnce() -> ssize_t,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !can_switch() || fd < 0 {
        return in_call(real);
    }
    cancel::point();
    let before = errno::get();
    let result = attempt();
    if result >= 0 {
        return result;
    }
    if errno::get() == EAGAIN
        && let Waits::For(limit) = Waits::of(fd)
        && let Err(error) = await_read(fd, limit)
    {
        errno::set(error);
        return -1;
    }
    errno::set(before);
    in_call(real)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
    let part = iovec {
        iov_base: to,
        iov_len: bytes,
    };
    // SAFETY: the caller's arguments.
    read_when_ready(
        fd,
        || unsafe { next::preadv2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT) },
        || unsafe { next::read(fd, to, bytes) },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let real = || unsafe { next::recv(fd, to, bytes, flags) };
    if flags & libc::MSG_DONTWAIT != 0 {
        return real();
    }
    if flags & libc::MSG_WAITALL != 0 {
        return in_call(real);
    }
    // SAFETY: as above.
    let attempt = || unsafe { next::recv(fd, to, bytes, flags | libc::MSG_DONTWAIT) };
    read_when_ready(fd, attempt, real)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let with = |flags| unsafe { next::recvfrom(fd, to, bytes, flags, from, length) };
    if flags & libc::MSG_DONTWAIT != 0 {
        return with(flags);
    }
    if flags & libc::MSG_WAITALL != 0 {
        return in_call(|| with(flags));
    }
    read_when_ready(fd, || with(flags | libc::MSG_DONTWAIT), || with(flags))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let with = |flags| unsafe { next::recvmsg(fd, message, flags) };
    if flags & libc::MSG_DONTWAIT != 0 {
        return with(flags);
    }
    if flags & libc::MSG_WAITALL != 0 {
        return in_call(|| with(flags));
    }
    read_when_ready(fd, || with(flags | libc::MSG_DONTWAIT), || with(flags))
}

/// An accept has no flag for one that does not wait.
fn accept_when_ready(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if can_switch()
        && fd >= 0
        && let Waits::For(limit) = Waits::of(fd)
        && let Err(error) = await_read(fd, limit)
    {
        errno::set(error);
        return -1;
    }
    in_call(real)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(
    fd: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    accept_when_ready(fd, || unsafe { next::accept(fd, from, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    accept_when_ready(fd, || unsafe { next::accept4(fd, from, length, flags) })
}

// --- polls ---

/// What to wait for, if a thread can wait so.
fn interest_of(poll: &pollfd) -> Option<Interest> {
    const READ: c_short = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP;
    const URGENT: c_short = libc::POLLPRI | libc::POLLRDBAND;
    const WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM;
    let has = |events: c_short| poll.events & events != 0;
    match (has(READ), has(URGENT), has(WRITE)) {
        (true, false, false) => Some(Interest::Read),
        (_, true, false) => Some(Interest::ReadOrUrgent),
        (false, false, true) => Some(Interest::Write),
        _ => None,
    }
}

/// The time on CLOCK_MONOTONIC at which a poll ends, in ns; `None`: never.
type Until = Option<u64>;

fn interrupted() -> c_int {
    errno::set(EINTR);
    -1
}

/// A poll for so long: of nothing, which is a sleep, or of one descriptor. `None`: it is another.
///
/// # Safety
/// As for poll(2).
unsafe fn poll_until(fds: *mut pollfd, count: nfds_t, until_ns: Until) -> Option<c_int> {
    if !can_switch() {
        return None;
    }
    // SAFETY: the caller's descriptors.
    let only = (count == 1).then(|| unsafe { *fds });
    let fd = only.map_or(-1, |poll| poll.fd);
    // SAFETY: as above.
    let look = || unsafe { next::poll(fds, count, 0) };
    if fd < 0 && count <= 1 {
        return Some(if sleep_through(until_ns?) {
            look()
        } else {
            interrupted()
        });
    }
    let interest = interest_of(&only?)?;
    loop {
        let ready = look();
        if ready != 0 {
            return Some(ready);
        }
        let left_ns = until_ns.map(|until| until.saturating_sub(time::now_ns(CLOCK_MONOTONIC)));
        if left_ns == Some(0) {
            return Some(0);
        }
        let limit = left_ns.map(Duration::from_nanos);
        match await_ready(fd, interest, limit).ok()? {
            Awaited::Ready | Awaited::TimedOut => {}
            // The kernel restarts no poll.
            Awaited::Handled(_) => return Some(interrupted()),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let real = || unsafe { next::poll(fds, count, limit_ms) };
    if limit_ms == 0 {
        return real();
    }
    let until_ns = u64::try_from(limit_ms)
        .ok()
        .map(|ms| time::now_ns(CLOCK_MONOTONIC).saturating_add(ms * 1_000_000));
    // SAFETY: as above.
    unsafe { poll_until(fds, count, until_ns) }.unwrap_or_else(|| in_call(real))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let real = || unsafe { next::ppoll(fds, count, limit, mask) };
    if !mask.is_null() {
        // SAFETY: as above.
        return unsafe { signals::ppoll(fds, count, limit, mask) };
    }
    // SAFETY: as above.
    let until_ns = unsafe { limit.as_ref() }.map(time::after_ns).transpose();
    let polled = match until_ns {
        // SAFETY: as above.
        Ok(until_ns) => unsafe { poll_until(fds, count, until_ns) },
        // The kernel says what is wrong with the time.
        Err(_) => None,
    };
    polled.unwrap_or_else(|| in_call(real))
}

// --- with the size of the buffer ---

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    size: size_t,
) -> ssize_t {
    check(bytes, size);
    // SAFETY: the caller's arguments.
    unsafe { read(fd, to, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    check(bytes, size);
    // SAFETY: the caller's arguments.
    unsafe { recv(fd, to, bytes, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    size: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    check(bytes, size);
    // SAFETY: the caller's arguments.
    unsafe { recvfrom(fd, to, bytes, flags, from, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit_ms: c_int,
    size: size_t,
) -> c_int {
    check_polls(count, size);
    // SAFETY: the caller's arguments.
    unsafe { poll(fds, count, limit_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
    size: size_t,
) -> c_int {
    check_polls(count, size);
    // SAFETY: the caller's arguments.
    unsafe { ppoll(fds, count, limit, mask) }
}
