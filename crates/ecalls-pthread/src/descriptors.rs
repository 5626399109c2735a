//! The runtime's own descriptors. A program that closes all it does not know, as daemons do, must
//! not close these: the number would soon be another file's, into which the runtime then wrote.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicI32, Ordering};

use ecalls_preload::descriptors::close_around;
use ecalls_preload::errno;
use libc::EBADF;

use crate::next;

/// Their numbers; -1: none.
static OWN: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

fn is_own(fd: c_int) -> bool {
    fd >= 0 && OWN.iter().any(|own| own.load(Ordering::Relaxed) == fd)
}

/// The open descriptors of the process.
fn open_now() -> Vec<c_int> {
    let folder = std::fs::read_dir("/proc/self/fd");
    let names = folder.into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Notes what `open` opens and leaves open.
pub(crate) fn note<R>(open: impl FnOnce() -> R) -> R {
    let before = open_now();
    let result = open();
    // SAFETY: asks; the folder's own descriptor is closed by now.
    let is_open = |fd: &c_int| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    let new = open_now()
        .into_iter()
        .filter(|fd| !before.contains(fd))
        .filter(is_open);
    for (place, fd) in OWN.iter().zip(new) {
        place.store(fd, Ordering::Relaxed);
    }
    result
}

/// In the child of a fork: they are open, but nobody's.
pub(crate) fn forget_all() {
    for place in &OWN {
        let fd = place.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: its own.
            unsafe { next::close(fd) };
        }
    }
}

fn refused() -> c_int {
    errno::set(EBADF);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if is_own(fd) && !ecalls_threads::in_scheduler() {
        return refused();
    }
    // SAFETY: the caller's.
    unsafe { next::close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut own = OWN.each_ref().map(|own| own.load(Ordering::Relaxed));
    own.sort_unstable();
    let own = own.into_iter().filter_map(|own| c_uint::try_from(own).ok());
    // SAFETY: the caller's.
    close_around((first, last), own, |first, last| unsafe {
        next::close_range(first, last, flags)
    })
    .unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: the caller's.
    unsafe { close_range(first, c_uint::MAX, 0) };
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    if is_own(to) {
        return refused();
    }
    // SAFETY: the caller's.
    unsafe { next::dup2(fd, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if is_own(to) {
        return refused();
    }
    // SAFETY: the caller's.
    unsafe { next::dup3(fd, to, flags) }
}
