//! Programs that were compiled with `_FORTIFY_SOURCE` call the C library's functions whose names
//! end in `_chk`, which are given the size of the buffer, too.

use libc::{nfds_t, pollfd, size_t};

unsafe extern "C-unwind" {
    /// Says that there is an overflow of a buffer, and ends the program.
    fn __chk_fail() -> !;
}

/// Ends the program, as the C library does, if a call may write beyond its buffer of `size` bytes.
pub fn check(bytes: size_t, size: size_t) {
    if bytes > size {
        // SAFETY: it has no condition.
        unsafe { __chk_fail() }
    }
}

/// The same for an array of poll(2).
pub fn check_polls(count: nfds_t, size: size_t) {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    check(count, size / size_of::<pollfd>());
}
