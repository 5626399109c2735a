//! A mapped, page-locked segment of kernel memory, accessed as 64-bit atomic words.

use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};

use crate::error::{Error, Result};

/// Bytes of a page: the positions of a wake buffer are one page each.
pub(crate) const PAGE: usize = 4096;

/// A shared mapping of a BPF array. Its content may change at any time, so it is accessed only as
/// atomic words.
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
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let segment = Segment::map_as(fd, bytes, protection, 0, "mapping a channel")?;
        // SAFETY: exactly the range mapped above. BPF arrays are not paged out; the call makes the
        // page table complete now, so that no first access faults later. Its failure (a limit of
        // locked memory) leaves that cost, nothing else.
        match unsafe { mlock(segment.start.as_ptr().cast(), bytes) } {
            Ok(()) | Err(Errno::NOMEM | Errno::PERM | Errno::AGAIN) => Ok(segment),
            Err(errno) => Err(Error::from_io(
                "locking a channel into memory",
                errno.into(),
            )),
        }
    }

    fn map_as(
        fd: impl AsFd,
        bytes: usize,
        protection: ProtFlags,
        offset: u64,
        action: &'static str,
    ) -> Result<Segment> {
        // SAFETY: a new mapping at an address the kernel chooses.
        let address = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, fd, offset) };
        let address = address.map_err(|errno| Error::from_io(action, errno.into()))?;
        Ok(Segment {
            start: NonNull::new(address.cast()).ok_or(Error::Closed("a mapping"))?,
            words: bytes / 8,
        })
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `words` words long, page aligned, and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the range mapped at construction; nobody holds a reference any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// One page mapped read-only: a word that the kernel writes.
#[derive(Debug)]
pub(crate) struct ReadOnlyPage(Segment);

impl ReadOnlyPage {
    /// Maps the page at byte `offset` of a map.
    pub(crate) fn map(fd: impl AsFd, offset: usize) -> Result<ReadOnlyPage> {
        let action = "mapping a wake descriptor";
        Segment::map_as(fd, PAGE, ProtFlags::READ, offset as u64, action).map(ReadOnlyPage)
    }

    /// Its first word, which may only be loaded: a store would be a fault.
    pub(crate) fn first_word(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }
}
