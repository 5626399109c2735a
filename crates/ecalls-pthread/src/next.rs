//! The functions that this library stands before: the C library's own.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use ecalls_preload::next;
use libc::{
    clockid_t, cpu_set_t, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pid_t, pollfd,
    pthread_attr_t, pthread_barrier_t, pthread_barrierattr_t, pthread_cond_t, pthread_condattr_t,
    pthread_key_t, pthread_mutex_t, pthread_mutexattr_t, pthread_once_t, pthread_rwlock_t,
    pthread_rwlockattr_t, pthread_spinlock_t, pthread_t, sem_t, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};

pub(crate) type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Defines functions that call the C library's within `$around`, e.g. `in_call`.
macro_rules! around {
    ($around:ident; $(
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $(, $version:literal)?;
    )*) => {
        mod real {
            use super::*;

            ecalls_preload::next! {
                $(fn $name($($argument: $type),*) -> $result $(, $version)?;)*
            }
        }

        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's arguments.
            $around(|| unsafe { real::$name($($argument),*) })
        })*
    };
}
pub(crate) use around;

next! {
    fn pthread_create(thread: *mut pthread_t, attr: *const pthread_attr_t, start: Start,
        argument: *mut c_void) -> c_int;
    fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    fn pthread_tryjoin_np(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    fn pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void,
        until: *const timespec) -> c_int;
    fn pthread_detach(thread: pthread_t) -> c_int;
    fn pthread_exit(result: *mut c_void) -> !;
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int;
    fn pthread_getattr_np(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int;
    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int;
    fn pthread_getname_np(thread: pthread_t, name: *mut c_char, bytes: size_t) -> c_int;
    fn pthread_getschedparam(thread: pthread_t, policy: *mut c_int,
        param: *mut libc::sched_param) -> c_int;
    fn pthread_setschedparam(thread: pthread_t, policy: c_int,
        param: *const libc::sched_param) -> c_int;
    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int;
    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int;
    fn pthread_setaffinity_np(thread: pthread_t, bytes: size_t, cpus: *const cpu_set_t)
        -> c_int;
    fn pthread_getaffinity_np(thread: pthread_t, bytes: size_t, cpus: *mut cpu_set_t)
        -> c_int;
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn raise(signal: c_int) -> c_int;
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn sigpending(set: *mut sigset_t) -> c_int;
    fn sigsuspend(mask: *const sigset_t) -> c_int;
    fn sigtimedwait(set: *const sigset_t, info: *mut libc::siginfo_t, limit: *const timespec)
        -> c_int;
    fn pthread_key_create(key: *mut pthread_key_t,
        destructor: Option<unsafe extern "C-unwind" fn(*mut c_void)>) -> c_int;
    fn __call_tls_dtors();
    fn pthread_key_delete(key: pthread_key_t) -> c_int;

    fn pthread_mutex_init(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int;
    fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int;
    fn pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t,
        until: *const timespec) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_cond_init(cond: *mut pthread_cond_t, attr: *const pthread_condattr_t) -> c_int,
        c"GLIBC_2.3.2";
    fn pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int,
        c"GLIBC_2.3.2";
    fn pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t,
        until: *const timespec) -> c_int, c"GLIBC_2.3.2";
    fn pthread_cond_clockwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t,
        clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int, c"GLIBC_2.3.2";
    fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int, c"GLIBC_2.3.2";
    fn pthread_rwlock_init(lock: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t)
        -> c_int;
    fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t,
        until: *const timespec) -> c_int;
    fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t,
        until: *const timespec) -> c_int;
    fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_barrier_init(barrier: *mut pthread_barrier_t, attr: *const pthread_barrierattr_t,
        count: c_uint) -> c_int;
    fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int;
    fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int;
    fn pthread_once(control: *mut pthread_once_t, first: unsafe extern "C-unwind" fn()) -> c_int;
    fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int;
    fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int;
    fn sem_init(sem: *mut sem_t, shared: c_int, value: c_uint) -> c_int;
    fn sem_wait(sem: *mut sem_t) -> c_int;
    fn sem_trywait(sem: *mut sem_t) -> c_int;
    fn sem_timedwait(sem: *mut sem_t, until: *const timespec) -> c_int;
    fn sem_clockwait(sem: *mut sem_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn sem_post(sem: *mut sem_t) -> c_int;

    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize)
        -> c_long;
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn sched_yield() -> c_int;
    fn sched_getaffinity(pid: pid_t, bytes: size_t, cpus: *mut cpu_set_t) -> c_int;
    fn sched_setaffinity(pid: pid_t, bytes: size_t, cpus: *const cpu_set_t) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec)
        -> c_int;

    fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t;
    fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr,
        length: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    fn preadv2(fd: c_int, to: *const iovec, parts: c_int, at: off_t, flags: c_int) -> ssize_t;

    fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t)
        -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, limit_ms: c_int,
        mask: *const sigset_t) -> c_int;
}
