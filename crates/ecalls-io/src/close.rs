//! The calls that close descriptors of the program: each is counted (descriptor.rs), and what the
//! calling thread's set has of the number is taken out before.
//!
//! The C library closes descriptors by functions of its own, which no library can stand before; so
//! each of its functions that closes one the program knows is here.

use std::ffi::{c_char, c_int, c_long, c_uint};

use ecalls_preload::descriptors::close_around;
use ecalls_preload::errno;
use libc::{DIR, EBADF, FILE};

use crate::thread::{self, Thread};
use crate::{descriptor, next};

/// Executes a call that closes a number of the program.
fn closing<R>(fd: c_int, call: impl FnOnce() -> R) -> R {
    Thread::take_out(fd);
    descriptor::closing(fd, call)
}

fn refused() -> c_int {
    errno::set(EBADF);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if descriptor::is_own(fd) {
        return refused();
    }
    // SAFETY: the caller's.
    closing(fd, || unsafe { next::close(fd) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    let real = |first, last| unsafe { next::close_range(first, last, flags) };
    if c_uint::try_from(flags).unwrap_or(0) & libc::CLOSE_RANGE_CLOEXEC != 0 {
        return real(first, last);
    }
    descriptor::closing_range(first, last, || {
        close_around((first, last), descriptor::own(), real).unwrap_or(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: the caller's.
    unsafe { close_range(first, c_uint::MAX, 0) };
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    if descriptor::is_own(to) {
        return refused();
    }
    // SAFETY: the caller's.
    let real = || unsafe { next::dup2(fd, to) };
    if fd == to { real() } else { closing(to, real) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { dup2(fd, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if descriptor::is_own(to) {
        return refused();
    }
    // SAFETY: the caller's.
    closing(to, || unsafe { next::dup3(fd, to, flags) })
}

/// The descriptor of a stream that has one.
fn of_stream(file: *mut FILE) -> c_int {
    if file.is_null() {
        return -1;
    }
    let before = errno::get();
    // SAFETY: the caller's stream.
    let fd = unsafe { libc::fileno(file) };
    errno::set(before);
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    closing(of_stream(file), || unsafe { next::fclose(file) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    closing(of_stream(file), || unsafe { next::pclose(file) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcloseall() -> c_int {
    // SAFETY: the caller's.
    descriptor::closing_range(0, c_uint::MAX, || unsafe { next::fcloseall() })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's.
    closing(of_stream(file), || unsafe {
        next::freopen(path, mode, file)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's.
    closing(of_stream(file), || unsafe {
        next::freopen64(path, mode, file)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closedir(folder: *mut DIR) -> c_int {
    if folder.is_null() {
        // SAFETY: it refuses.
        return unsafe { next::closedir(folder) };
    }
    // SAFETY: the caller's folder.
    let fd = unsafe { libc::dirfd(folder) };
    // SAFETY: as above.
    closing(fd, || unsafe { next::closedir(folder) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn daemon(stay: c_int, keep: c_int) -> c_int {
    // SAFETY: the caller's.
    descriptor::closing_range(0, 2, || unsafe { next::daemon(stay, keep) })
}

/// System calls that programs make themselves: those that close are the same.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // As the kernel takes them.
    let (first, second, third) = (a as c_int, b as c_int, c as c_int);
    // SAFETY: the caller's.
    unsafe {
        match number {
            libc::SYS_close => c_long::from(close(first)),
            libc::SYS_dup2 => c_long::from(dup2(first, second)),
            libc::SYS_dup3 => c_long::from(dup3(first, second, third)),
            libc::SYS_close_range => c_long::from(close_range(a as c_uint, b as c_uint, third)),
            _ => {
                if number == libc::SYS_seccomp {
                    thread::stop();
                }
                next::syscall(number, a, b, c, d, e, f)
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        thread::stop();
    }
    // SAFETY: the caller's.
    unsafe { next::prctl(option, a, b, c, d) }
}
