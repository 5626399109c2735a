//! The functions that this library stands before: the C library's own.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use ecalls_preload::next;
use libc::{DIR, FILE, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

next! {
    fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t)
        -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *const timespec, mask: *const sigset_t) -> c_int;

    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fclose(file: *mut FILE) -> c_int;
    fn pclose(file: *mut FILE) -> c_int;
    fn fcloseall() -> c_int;
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE;
    fn closedir(folder: *mut DIR) -> c_int;
    fn daemon(stay: c_int, keep: c_int) -> c_int;
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize)
        -> c_long;
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
    fn pthread_setspecific(key: libc::pthread_key_t, value: *const c_void) -> c_int;
}
