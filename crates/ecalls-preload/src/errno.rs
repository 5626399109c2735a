//! The caller's `errno`.

use std::ffi::c_int;

/// What it is.
#[must_use]
pub fn get() -> c_int {
    // SAFETY: the address of the caller's.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
