//! Arrays that grow, for code that a signal may interrupt anywhere and that a handler may call:
//! they are mapped, as malloc may be what was interrupted. Their memory begins as zeros.

use std::ptr;

/// Types of which zeros are a value.
///
/// # Safety
/// They are.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: numbers.
unsafe impl Plain for u32 {}
// SAFETY: a structure of numbers.
unsafe impl Plain for libc::pollfd {}
// SAFETY: a structure of numbers.
unsafe impl Plain for libc::epoll_event {}

pub(crate) struct Region<T> {
    start: *mut T,
    count: usize,
}

impl<T: Plain> Region<T> {
    pub(crate) const fn new() -> Self {
        Self {
            start: ptr::null_mut(),
            count: 0,
        }
    }

    /// Makes room for at least `count` of them; false: there is no memory.
    pub(crate) fn hold(&mut self, count: usize) -> bool {
        if count <= self.count {
            return true;
        }
        let Some(new) = count.checked_next_power_of_two() else {
            return false;
        };
        let new = new.max(4096 / size_of::<T>());
        let Some(start) = map(
            self.start.cast(),
            self.count * size_of::<T>(),
            new * size_of::<T>(),
        ) else {
            return false;
        };
        self.start = start.cast();
        self.count = new;
        true
    }

    pub(crate) fn all(&mut self) -> &mut [T] {
        if self.start.is_null() {
            return &mut [];
        }
        // SAFETY: mapped, as many, and zeros are a value.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.count) }
    }

    /// The one at a place that exists.
    #[inline]
    pub(crate) fn at(&mut self, index: usize) -> &mut T {
        &mut self.all()[index]
    }

    pub(crate) fn free(&mut self) {
        if !self.start.is_null() {
            // SAFETY: its own mapping.
            unsafe { libc::munmap(self.start.cast(), self.count * size_of::<T>()) };
        }
        *self = Self::new();
    }
}

/// Maps so many bytes, of which the first are those of a mapping that there is.
pub(crate) fn map(
    old: *mut libc::c_void,
    old_bytes: usize,
    bytes: usize,
) -> Option<*mut libc::c_void> {
    const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const OWN: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let start = if old.is_null() {
        // SAFETY: new memory.
        unsafe { libc::mmap(ptr::null_mut(), bytes, READ_WRITE, OWN, -1, 0) }
    } else {
        // SAFETY: the caller's mapping, which nobody points into.
        unsafe { libc::mremap(old, old_bytes, bytes, libc::MREMAP_MAYMOVE) }
    };
    (start != libc::MAP_FAILED).then_some(start)
}
