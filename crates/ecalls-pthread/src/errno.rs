//! The caller's `errno`.

use std::ffi::c_int;

pub(crate) fn get() -> c_int {
    // SAFETY: the address of the caller's.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
