//! A mapped, page-locked segment of kernel memory, seen as 64-bit atomic words.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::error::{Error, Result};

/// Bytes of a page: the positions of a wake buffer are one page each.
pub(crate) const PAGE: usize = 4096;

/// A shared mapping of a BPF array. Everything in it may change at any time, so it is only ever
/// seen as atomic words.
#[derive(Debug)]
pub struct Segment {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through
// atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps the first `bytes` of a map read-write and locks them into memory (ECalls-01 §2.3).
    pub(crate) fn map(fd: impl AsFd, bytes: usize) -> Result<Segment> {
        Segment::map_at(fd, bytes, 0)
    }

    /// The same from byte `offset` (a multiple of the page size) on.
    pub(crate) fn map_at(fd: impl AsFd, bytes: usize, offset: i64) -> Result<Segment> {
        // SAFETY: a new mapping at an address the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os("mapping a channel"));
        }
        let start = NonNull::new(address.cast()).ok_or(Error::Closed("a mapping"))?;
        let segment = Segment {
            start,
            words: bytes / 8,
        };
        // SAFETY: exactly the range mapped above. BPF arrays are not paged out; the call makes the
        // page table complete now, so that no first access faults later. Its failure (a limit of
        // locked memory) leaves that cost, nothing else.
        if unsafe { libc::mlock(address, bytes) } < 0 {
            let error = io::Error::last_os_error();
            if !matches!(
                error.raw_os_error(),
                Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN)
            ) {
                return Err(Error::from_io("locking a channel into memory", error));
            }
        }
        Ok(segment)
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `words` words long, page aligned, and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the range mapped at construction; nobody holds a reference any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// One page mapped read-only: a word that the kernel writes.
#[derive(Debug)]
pub(crate) struct ReadOnlyPage(Segment);

impl ReadOnlyPage {
    /// Maps the page at byte `offset` of a map.
    pub(crate) fn map(fd: impl AsFd, offset: usize) -> Result<ReadOnlyPage> {
        const BYTES: usize = 4096;
        let offset = i64::try_from(offset).expect("a small offset");
        // SAFETY: a new mapping at an address the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os("mapping a wake descriptor"));
        }
        let start = NonNull::new(address.cast()).ok_or(Error::Closed("a mapping"))?;
        Ok(ReadOnlyPage(Segment {
            start,
            words: BYTES / 8,
        }))
    }

    /// Its first word, to be loaded only: a store would be a fault.
    pub(crate) fn first_word(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }
}
