//! Calls that may block their kernel thread. A user-level thread executes them in
//! `ecalls_threads::blocking`, so that its processor executes other threads meanwhile.
//!
//! Reads from sockets and pipes first try without waiting, then wait for the descriptor without a
//! kernel thread (`ecalls_threads::wait_ready`): of thousands of connections that are idle each
//! has only its thread's stack.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ecalls_preload::errno;
use ecalls_threads::{Interest, is_thread, sleep_until, wait_ready, wait_ready_for};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EINVAL, clockid_t, epoll_event, fd_set, iovec, mode_t,
    msghdr, nfds_t, off_t, pid_t, pollfd, rusage, siginfo_t, sigset_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec, timeval,
};

use crate::thread::in_call;
use crate::{cancel, next, time};

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        mod real {
            use super::*;

            ecalls_preload::next! { $(fn $name($($argument: $type),*) -> $result;)* }
        }

        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's arguments.
            in_call(|| unsafe { real::$name($($argument),*) })
        })*
    };
}

calls! {
    fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t;
    fn readv(fd: c_int, to: *const iovec, parts: c_int) -> ssize_t;
    fn writev(fd: c_int, from: *const iovec, parts: c_int) -> ssize_t;
    fn pread(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t;
    fn pread64(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t;
    fn pwrite(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t;
    fn pwrite64(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t;
    fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr,
        length: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendfile(out: c_int, fd: c_int, at: *mut off_t, bytes: size_t) -> ssize_t;
    fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t)
        -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, limit_ms: c_int) -> c_int;
    fn epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, limit_ms: c_int,
        mask: *const sigset_t) -> c_int;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn lockf(fd: c_int, command: c_int, bytes: off_t) -> c_int;
    fn wait(status: *mut c_int) -> pid_t;
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    fn wait4(pid: pid_t, status: *mut c_int, options: c_int, used: *mut rusage) -> pid_t;
    fn waitid(kind: libc::idtype_t, id: libc::id_t, info: *mut siginfo_t, options: c_int) -> c_int;
    fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int;
    fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int;
    fn sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, limit: *const timespec) -> c_int;
    fn sigsuspend(mask: *const sigset_t) -> c_int;
    fn pause() -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const libc::addrinfo,
        found: *mut *mut libc::addrinfo) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let real = || unsafe { next::poll(fds, count, limit_ms) };
    if limit_ms == 0 {
        return real();
    }
    in_call(real)
}

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

/// Waits until a descriptor can be read; false: its time has passed. Nothing else is looked at: the
/// read itself tells.
fn await_input(fd: c_int, limit: Option<Duration>) -> bool {
    cancel::point();
    // SAFETY: the caller's descriptor, or a number that is none, which is refused.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    let in_time = match limit {
        Some(limit) => wait_ready_for(descriptor, Interest::Read, limit).unwrap_or(true),
        None => {
            let _ = wait_ready(descriptor, Interest::Read);
            true
        }
    };
    cancel::point();
    in_time
}

/// Reads by `attempt`, which does not wait, and if there is nothing, once there is, by `real`.
fn read_when_ready(
    fd: c_int,
    attempt: impl FnOnce() -> ssize_t,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !is_thread() || fd < 0 {
        return real();
    }
    cancel::point();
    let before = errno::get();
    let result = attempt();
    if result >= 0 {
        return result;
    }
    if errno::get() == EAGAIN
        && let Waits::For(limit) = Waits::of(fd)
        && !await_input(fd, limit)
    {
        errno::set(EAGAIN);
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
    if flags & (libc::MSG_WAITALL | libc::MSG_DONTWAIT) != 0 {
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
    if flags & (libc::MSG_WAITALL | libc::MSG_DONTWAIT) != 0 {
        return in_call(|| with(flags));
    }
    read_when_ready(fd, || with(flags | libc::MSG_DONTWAIT), || with(flags))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let with = |flags| unsafe { next::recvmsg(fd, message, flags) };
    if flags & (libc::MSG_WAITALL | libc::MSG_DONTWAIT) != 0 {
        return in_call(|| with(flags));
    }
    read_when_ready(fd, || with(flags | libc::MSG_DONTWAIT), || with(flags))
}

/// An accept has no flag for one that does not wait.
fn accept_when_ready(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if is_thread()
        && fd >= 0
        && let Waits::For(limit) = Waits::of(fd)
        && !await_input(fd, limit)
    {
        errno::set(EAGAIN);
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

// --- sleep ---

/// Sleeps in the runtime until a time on CLOCK_MONOTONIC, ns.
fn sleep_through(until_ns: u64) {
    cancel::point();
    while time::now_ns(CLOCK_MONOTONIC) < until_ns {
        sleep_until(until_ns);
        cancel::point();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's times.
    unsafe {
        if !is_thread() || span.is_null() {
            return next::nanosleep(span, left);
        }
        match time::after_ns(&*span) {
            Ok(until_ns) => sleep_through(until_ns),
            Err(error) => {
                errno::set(error);
                return -1;
            }
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's times.
    unsafe {
        let is_known = matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME);
        if !is_thread() || !is_known || time.is_null() {
            return in_call(|| next::clock_nanosleep(clock, flags, time, left));
        }
        let until_ns = if flags & libc::TIMER_ABSTIME != 0 {
            time::until_ns(clock, &*time)
        } else {
            time::after_ns(&*time)
        };
        match until_ns {
            Ok(until_ns) => sleep_through(until_ns),
            Err(error) => return error,
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn usleep(us: libc::c_uint) -> c_int {
    let span = timespec {
        tv_sec: i64::from(us / 1_000_000),
        tv_nsec: i64::from(us % 1_000_000) * 1_000,
    };
    // SAFETY: the span is its own.
    unsafe { nanosleep(&raw const span, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sleep(seconds: libc::c_uint) -> libc::c_uint {
    let mut span = timespec {
        tv_sec: i64::from(seconds),
        tv_nsec: 0,
    };
    // SAFETY: the span is its own; what is left of it is written to it.
    let slept = unsafe { nanosleep(&raw const span, &raw mut span) };
    if slept == 0 {
        return 0;
    }
    if errno::get() == EINVAL {
        return seconds;
    }
    libc::c_uint::try_from(span.tv_sec).unwrap_or(0) + u32::from(span.tv_nsec > 0)
}
