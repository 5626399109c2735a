//! The signal mask. The kernel knows that of a kernel thread; here it belongs to the user-level
//! thread that an activation executes.
//!
//! Each thread has a word with its mask, and each activation one with what the kernel has for it.
//! An activation that is about to execute a thread compares the two, and calls the kernel only if
//! they differ: so threads that all have the mask of the process pay for no system call.

use std::ptr::null;

/// What an activation notes if the kernel may have any mask for it: no thread's is this one, since
/// SIGKILL is never blocked.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The C library's signals, of cancellation and of `setuid`.
const OF_GLIBC: u64 = 3 << 31;

fn change(how: libc::c_int, new: *const u64, old: *mut u64) {
    // SAFETY: both are null, or a set of the kernel's size. The kernel refuses no set.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, size_of::<u64>()) };
}

/// The calling kernel thread's.
pub(crate) fn read() -> u64 {
    let mut mask = 0;
    change(libc::SIG_BLOCK, null(), &raw mut mask);
    mask
}

pub(crate) fn write(mask: u64) {
    change(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
}

/// Creates a kernel thread that has signals blocked until it says otherwise: at its beginning
/// it is nobody who could handle one.
pub(crate) fn blocked<R>(create: impl FnOnce() -> R) -> R {
    let most = !OF_GLIBC;
    let mut before = 0;
    change(libc::SIG_BLOCK, &raw const most, &raw mut before);
    let result = create();
    write(before);
    result
}
