//! What a runtime shows of itself: `struct ecalls_runtime` (abi/runtime.h), in a file in memory
//! that the process keeps open, so that `ecalls threads` finds it in /proc.
//!
//! Other processes of the same user can write there, too. So the runtime counts and notes here, and
//! acts upon nothing of it but `left`, which is a hint, and `trace_until_ns`, a wish to have turns
//! noted.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::runtime::{NAME, RUNTIME_NAMES_MAX, RUNTIME_STORAGE, RUNTIME_TOLD, RUNTIME_TURNS};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::processor::Words;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wait::now_ns;
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
    /// Written by whoever traces, and by the holder.
    trace_until_ns: AtomicU64,
    turns: AtomicU64,
    /// Written by whoever came back.
    pub(crate) unblocked: AtomicU64,
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
    /// The thread that it executes, or has executed last.
    pub(crate) thread: AtomicU32,
}

/// A thread's name.
#[repr(C)]
#[derive(Debug)]
struct Name {
    thread: AtomicU64,
    name: [AtomicU64; 2],
}

const NAMES_MAX: usize = RUNTIME_NAMES_MAX as usize;
/// A thread's name has fewer bytes.
const NAME_BYTES: usize = 16;

/// An activation executes a thread from then on.
#[repr(C)]
#[derive(Debug)]
struct Turn {
    at_ns: AtomicU64,
    tid: AtomicU32,
    thread: AtomicU32,
}

const TURNS: usize = RUNTIME_TURNS as usize;

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
    name: [Name; NAMES_MAX],
    turn: [[Turn; TURNS]; PROCESSORS_MAX],
}

impl Status {
    /// An activation executes a thread from now on, or 0: none; noted if somebody traces. The
    /// caller has the processor.
    #[inline]
    pub(crate) fn note_turn(&self, processor: usize, tid: &AtomicU32, thread: u64) {
        let until_ns = self.processor[processor]
            .trace_until_ns
            .load(Ordering::Relaxed);
        if until_ns != 0 {
            self.add_turn(processor, until_ns, tid, thread);
        }
    }

    #[cold]
    fn add_turn(&self, processor: usize, until_ns: u64, tid: &AtomicU32, thread: u64) {
        let (counts, now_ns) = (&self.processor[processor], now_ns());
        if now_ns >= until_ns {
            // Who wanted it has ended without a word.
            counts.trace_until_ns.store(0, Ordering::Relaxed);
            return;
        }
        let count = counts.turns.load(Ordering::Relaxed);
        let turn = &self.turn[processor][usize::try_from(count).unwrap_or(0) % TURNS];
        turn.at_ns.store(now_ns, Ordering::Relaxed);
        turn.tid
            .store(tid.load(Ordering::Relaxed), Ordering::Relaxed);
        turn.thread.store(shown(thread), Ordering::Relaxed);
        counts.turns.store(count.wrapping_add(1), Ordering::Release);
    }

    pub(crate) fn processor(&self, index: usize) -> &Counts {
        &self.processor[index]
    }

    pub(crate) fn activation(&self, number: u32) -> &Shown {
        &self.activation[usize::try_from(number).unwrap_or(0) % ACTIVATIONS_MAX]
    }
}

/// A thread's number as others see it.
#[inline]
pub(crate) fn shown(thread: u64) -> u32 {
    u32::try_from(thread & u64::from(u32::MAX)).unwrap_or(0)
}

/// The mapping of it.
#[derive(Debug)]
pub(crate) struct StatusFile {
    start: NonNull<Status>,
    /// `None`: the system gave no such file, and nobody sees what the mapping holds.
    _file: Option<OwnedFd>,
    /// Bits of the places of names that threads have.
    taken: [AtomicU64; NAMES_MAX / 64],
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
            taken: [const { AtomicU64::new(0) }; NAMES_MAX / 64],
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

    /// A place for a thread's name; `None`: too many have one.
    pub(crate) fn take_name(&self) -> Option<usize> {
        for (index, word) in self.taken.iter().enumerate() {
            loop {
                let free = (!word.load(Ordering::Relaxed)).trailing_zeros();
                if free == u64::BITS {
                    break;
                }
                let bit = 1 << free;
                if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                    return Some(index * 64 + free as usize);
                }
            }
        }
        None
    }

    /// Shows the name of a thread, of its first 15 bytes.
    pub(crate) fn show_name(&self, place: usize, thread: u64, name: &str) {
        let mut bytes = [0; NAME_BYTES];
        let mut lengths = (0..NAME_BYTES).rev();
        let length = lengths.find(|length| name.is_char_boundary(*length));
        let length = length.unwrap_or(0);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        let shown = &self.name[place];
        for (word, bytes) in shown.name.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        shown.thread.store(thread, Ordering::Relaxed);
    }

    /// The thread has ended.
    pub(crate) fn free_name(&self, place: usize) {
        self.name[place].thread.store(0, Ordering::Relaxed);
        self.taken[place / 64].fetch_and(!(1 << (place % 64)), Ordering::AcqRel);
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

    use ecalls_abi::runtime::{
        Runtime, RuntimeActivation, RuntimeName, RuntimeProcessor, RuntimeTurn, RuntimeTurns,
    };

    use super::{Counts, NAMES_MAX, Name, Shown, Status, StatusFile, Turn};

    #[test]
    fn the_words_are_where_the_contract_has_them() {
        let (begin, rest) = (size_of::<Runtime>(), size_of::<RuntimeTurns>());
        assert_eq!(size_of::<Status>(), begin + rest);
        assert_eq!(offset_of!(Status, turn), begin);
        assert_eq!(size_of::<Turn>(), size_of::<RuntimeTurn>());
        assert_eq!(size_of::<Counts>(), size_of::<RuntimeProcessor>());
        assert_eq!(size_of::<Shown>(), size_of::<RuntimeActivation>());
        macro_rules! at {
            ($ours:ident, $theirs:ident: $($field:ident)*) => {
                $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $field));)*
            };
        }
        at!(Status, Runtime: version processors activations_max flags begun ended refused);
        at!(Status, Runtime: processor activation name);
        at!(Counts, RuntimeProcessor: switches left told untold reclaimed restarts);
        at!(Counts, RuntimeProcessor: trace_until_ns turns unblocked);
        at!(Turn, RuntimeTurn: at_ns tid thread);
        at!(Shown, RuntimeActivation: tid state processor thread);
        at!(Name, RuntimeName: thread name);
    }

    #[test]
    fn each_name_has_a_place_of_its_own_as_far_as_there_are_some() {
        let status = StatusFile::new(1, 1, false, false).expect("a file");
        let places = (0..NAMES_MAX).map(|_| status.take_name().expect("a place"));
        assert!(places.eq(0..NAMES_MAX));
        assert_eq!(status.take_name(), None);
        status.free_name(70);
        assert_eq!(status.take_name(), Some(70));
    }
}
