//! What a runtime shows of itself: `struct ecalls_runtime` (abi/runtime.h), in a file in memory
//! that the process keeps open, so that `ecalls threads` finds it in /proc.
//!
//! Other processes of the same user can write there, too. So the runtime counts and notes here, and
//! acts upon nothing of it but `left`, which is a hint.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::runtime::{NAME, RUNTIME_STORAGE, RUNTIME_TOLD};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::processor::Words;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{ACTIVATIONS_MAX, PROCESSORS_MAX};

/// A virtual processor's counts.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Counts {
    /// Written by the processor's holder, as the next three.
    pub(crate) switches: AtomicU64,
    pub(crate) left: AtomicU64,
    /// Copies of the kernel side's, of the last switch or the last return of a blocked thread.
    told: AtomicU64,
    untold: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) restarts: AtomicU64,
}

impl Counts {
    /// A thread begins or continues to run. The caller has the processor.
    #[inline]
    pub(crate) fn note_switch(&self) {
        let count = self.switches.load(Ordering::Relaxed);
        self.switches.store(count + 1, Ordering::Relaxed);
    }

    /// Shows what the kernel side has counted.
    #[inline]
    pub(crate) fn copy(&self, kernel: &Words) {
        let (told, untold) = kernel.counts();
        self.told.store(told, Ordering::Relaxed);
        self.untold.store(untold, Ordering::Relaxed);
    }
}

/// An activation's words.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) tid: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) processor: AtomicU32,
    pad: u32,
}

/// The whole file.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Status {
    version: AtomicU32,
    processors: AtomicU32,
    activations_max: AtomicU32,
    flags: AtomicU32,
    pub(crate) begun: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) refused: AtomicU64,
    pad: [u64; 11],
    processor: [Counts; PROCESSORS_MAX],
    activation: [Shown; ACTIVATIONS_MAX],
}

impl Status {
    pub(crate) fn processor(&self, index: usize) -> &Counts {
        &self.processor[index]
    }

    pub(crate) fn activation(&self, number: u32) -> &Shown {
        &self.activation[usize::try_from(number).unwrap_or(0) % ACTIVATIONS_MAX]
    }
}

/// The mapping of it.
#[derive(Debug)]
pub(crate) struct StatusFile {
    start: NonNull<Status>,
    /// `None`: the system gave no such file, and nobody sees what the mapping holds.
    _file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to the process, and is accessed only through atomics.
unsafe impl Send for StatusFile {}
// SAFETY: as above.
unsafe impl Sync for StatusFile {}

impl StatusFile {
    pub(crate) fn new(
        processors: usize,
        activations_max: usize,
        is_told: bool,
        has_storage: bool,
    ) -> Result<Self> {
        let file = create().ok();
        let (length, access) = (size_of::<Status>(), ProtFlags::READ | ProtFlags::WRITE);
        let start = match &file {
            // SAFETY: a new mapping, wherever the kernel puts it.
            Some(file) => unsafe { mmap(null_mut(), length, access, MapFlags::SHARED, file, 0) },
            // SAFETY: the same.
            None => unsafe { mmap_anonymous(null_mut(), length, access, MapFlags::PRIVATE) },
        };
        let start = start.map_err(Error::os("map what `ecalls threads` shows"))?;
        let status = Self {
            start: NonNull::new(start.cast()).ok_or(Error::Invalid {
                what: "the address of a mapping",
                value: 0,
                allowed: "above 0",
            })?,
            _file: file,
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(is_told, RUNTIME_TOLD) | flag(has_storage, RUNTIME_STORAGE);
        status
            .processors
            .store(number(processors), Ordering::Relaxed);
        status
            .activations_max
            .store(number(activations_max), Ordering::Relaxed);
        status.flags.store(flags, Ordering::Relaxed);
        // From here on a reader believes the rest.
        status.version.store(ABI_VERSION, Ordering::Release);
        Ok(status)
    }
}

impl std::ops::Deref for StatusFile {
    type Target = Status;

    #[inline]
    fn deref(&self) -> &Status {
        // SAFETY: `new` has mapped it, zero is a value of each word, and it has only atomics and
        // padding, which nobody reads. The file cannot shrink.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; whoever uses it borrows `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), size_of::<Status>()) };
    }
}

/// The file: of its size for ever, so that nobody who opens it can take pages away.
fn create() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(NAME, flags)?,
        other => other?,
    };
    ftruncate(&file, size_of::<Status>() as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use ecalls_abi::runtime::{Runtime, RuntimeActivation, RuntimeProcessor};

    use super::{Counts, Shown, Status};

    #[test]
    fn the_words_are_where_the_contract_has_them() {
        assert_eq!(size_of::<Status>(), size_of::<Runtime>());
        assert_eq!(size_of::<Counts>(), size_of::<RuntimeProcessor>());
        assert_eq!(size_of::<Shown>(), size_of::<RuntimeActivation>());
        macro_rules! at {
            ($ours:ident, $theirs:ident: $($field:ident)*) => {
                $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $field));)*
            };
        }
        at!(Status, Runtime: version processors activations_max flags begun ended refused);
        at!(Status, Runtime: processor activation);
        at!(Counts, RuntimeProcessor: switches left told untold reclaimed restarts);
        at!(Shown, RuntimeActivation: tid state processor);
    }
}
