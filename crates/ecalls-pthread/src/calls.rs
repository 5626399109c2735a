//! Calls that may block their kernel thread. A user-level thread executes them in
//! `ecalls_threads::blocking`, so that its processor executes other threads meanwhile. Sleeps are
//! the runtime's; what waits for one descriptor is in `ready.rs`.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use ecalls_preload::errno;
use ecalls_threads::{can_switch, sleep_until};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EINTR, EINVAL, clockid_t, epoll_event, fd_set, iovec, mode_t,
    msghdr, off_t, pid_t, rusage, siginfo_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    timeval,
};

use crate::next::{self, around};
use crate::signals::{self, Handled};
use crate::thread::in_call;
use crate::{cancel, time};

around! {
    in_call;
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
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *mut timeval) -> c_int;
    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, limit_ms: c_int) -> c_int;
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
    fn pause() -> c_int;
    fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const libc::addrinfo,
        found: *mut *mut libc::addrinfo) -> c_int;
}

// --- sleep ---

/// Sleeps in the runtime until a time on CLOCK_MONOTONIC, ns; false: a signal's handler has run.
pub(crate) fn sleep_through(until_ns: u64) -> bool {
    cancel::point();
    while time::now_ns(CLOCK_MONOTONIC) < until_ns {
        sleep_until(until_ns);
        cancel::point();
        if signals::take() != Handled::Nothing {
            return false;
        }
    }
    true
}

/// The same, as a sleep(2) answers, of which the caller learns what is left.
///
/// # Safety
/// `left` is to a time, or null.
unsafe fn sleep_for(until_ns: u64, left: *mut timespec) -> c_int {
    if sleep_through(until_ns) {
        return 0;
    }
    if !left.is_null() {
        let left_ns = until_ns.saturating_sub(time::now_ns(CLOCK_MONOTONIC));
        // SAFETY: as the caller says.
        unsafe { *left = time::span(left_ns) };
    }
    EINTR
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's times.
    let error = unsafe {
        if !can_switch() || span.is_null() {
            return in_call(|| next::nanosleep(span, left));
        }
        match time::after_ns(&*span) {
            Ok(until_ns) => sleep_for(until_ns, left),
            Err(error) => error,
        }
    };
    if error == 0 {
        return 0;
    }
    errno::set(error);
    -1
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
        if !can_switch() || !is_known || time.is_null() {
            return in_call(|| next::clock_nanosleep(clock, flags, time, left));
        }
        let until_ns = if flags & libc::TIMER_ABSTIME != 0 {
            time::until_ns(clock, &*time).map(|until_ns| (until_ns, ptr::null_mut()))
        } else {
            time::after_ns(&*time).map(|until_ns| (until_ns, left))
        };
        match until_ns {
            Ok((until_ns, left)) => sleep_for(until_ns, left),
            Err(error) => error,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn usleep(us: libc::c_uint) -> c_int {
    let span = timespec {
        tv_sec: i64::from(us / 1_000_000),
        tv_nsec: i64::from(us % 1_000_000) * 1_000,
    };
    // SAFETY: the span is its own.
    unsafe { nanosleep(&raw const span, ptr::null_mut()) }
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
