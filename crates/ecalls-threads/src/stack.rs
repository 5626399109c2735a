//! Stacks of one size in one mapping, each with a guard below, recycled last in, first out.
//!
//! A mapping per stack would reach the kernel's limit of mappings (vm.max_map_count, 65,530) at
//! 32,000 threads. Guards by `MADV_GUARD_INSTALL` (Linux 6.13) split no mapping; before, a guard is
//! a page without access, with that limit. Memory is used when it is first touched, a page at a
//! time, and stays with its stack, as the next thread needs it at once.

use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;

use corosensei::stack::StackPointer;
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};

use crate::error::{Error, Result};
use crate::spin::Spin;

pub(crate) const PAGE: usize = 4096;
const MADV_GUARD_INSTALL: u32 = 102;

/// Tops of stacks differ by so many lines of the cache, so that threads do not all use the same
/// ones: 22 to 10 ns for a switch among 10,000 threads.
const COLOURS: usize = 16;
const COLOUR_BYTES: usize = 192;

/// Bytes that a process must have left for another thread or activation, and for each thread that
/// there is: what a runtime allocates ends the process if it is refused. glibc takes a page for
/// each allocation of a thread that has no room for an arena, and threads allocate when they run.
const ROOM_BYTES: usize = 1 << 20;
const THREAD_ROOM_BYTES: usize = 32 << 10;
/// It is asked for them, and a core dump has these, at the first of so many stacks that no thread
/// has had.
const ROOM_PERIOD: u32 = 16;

/// Whether the process may have `bytes` more of address space, and what so many threads allocate.
/// Without access, so that mlockall(2) locks nothing.
fn find_room(bytes: usize, threads: usize) -> Result<()> {
    let bytes = bytes + ROOM_BYTES + threads * THREAD_ROOM_BYTES;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping, wherever the kernel puts it.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags) }
        .map_err(Error::os("find memory for a thread (RLIMIT_AS)"))?;
    // SAFETY: that mapping, which nobody uses.
    unsafe { munmap(start, bytes) }.map_err(Error::os("return memory"))
}

/// The stacks of a runtime.
#[derive(Debug)]
pub(crate) struct Stacks {
    start: NonZeroUsize,
    /// Bytes of one stack with its guard.
    size: usize,
    /// How many there may be.
    most: usize,
    idle: Spin<Idle>,
}

#[derive(Debug)]
struct Idle {
    /// Numbers of the stacks that a thread had.
    recycled: Vec<u32>,
    /// The first one that no thread has had.
    fresh: u32,
}

impl Stacks {
    pub(crate) fn new(size: usize, most: usize) -> Result<Arc<Self>> {
        let size = size.next_multiple_of(PAGE) + PAGE;
        let bytes = size.checked_mul(most).ok_or(Error::LimitReached {
            which: "bytes of address space",
            limit: usize::MAX,
        })?;
        // SAFETY: a new mapping, wherever the kernel puts it.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(Error::os(
            "reserve the threads' stacks (fewer, or smaller?)",
        ))?;
        // A huge page would give 16 threads memory for 2 MB. The kernel may not know them.
        // SAFETY: the mapping made above.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
        // A core dump of a process would have all stacks that there may be.
        // SAFETY: as above.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
        Ok(Arc::new(Self {
            start: NonZeroUsize::new(start.expose_provenance()).ok_or(Error::Invalid {
                what: "the address of the stacks",
                value: 0,
                allowed: "above 0",
            })?,
            size,
            most,
            idle: Spin::new(Idle {
                recycled: Vec::new(),
                fresh: 0,
            }),
        }))
    }

    /// A stack for a new thread.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Stack> {
        let mut idle = self.idle.lock();
        if let Some(number) = idle.recycled.pop() {
            return Ok(self.stack(number));
        }
        let number = idle.fresh;
        if usize::try_from(number).unwrap_or(usize::MAX) >= self.most {
            return Err(Error::LimitReached {
                which: "threads of this runtime (Builder::threads_max)",
                limit: self.most,
            });
        }
        if number.is_multiple_of(ROOM_PERIOD) {
            find_room(0, usize::try_from(number).unwrap_or(0))?;
            self.dump(number);
        }
        let stack = self.stack(number);
        stack.guard()?;
        idle.fresh += 1;
        Ok(stack)
    }

    /// Has a core dump the stacks from that number on, as many as are looked after at once.
    fn dump(&self, first: u32) {
        let first = usize::try_from(first).unwrap_or(0);
        let count = (self.most - first).min(ROOM_PERIOD as usize);
        let start = ptr::with_exposed_provenance_mut(self.start.get() + first * self.size);
        // SAFETY: stacks of the mapping that no thread has had.
        let _ = unsafe { madvise(start, count * self.size, Advice::LinuxDoDump) };
    }

    /// Whether there is room for a kernel thread with a stack of `bytes`, beside the threads.
    pub(crate) fn has_room_beside(&self, bytes: usize) -> bool {
        let threads = usize::try_from(self.idle.lock().fresh).unwrap_or(0);
        find_room(bytes, threads).is_ok()
    }

    fn stack(self: &Arc<Self>, number: u32) -> Stack {
        Stack {
            stacks: Arc::clone(self),
            number,
        }
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.start.get());
        // SAFETY: the mapping of `new`; no stack is in use, because each holds an `Arc` of this.
        let _ = unsafe { munmap(start, self.size * self.most) };
    }
}

/// The stack of one thread.
#[derive(Debug)]
pub(crate) struct Stack {
    stacks: Arc<Stacks>,
    number: u32,
}

impl Stack {
    fn index(&self) -> usize {
        usize::try_from(self.number).unwrap_or(usize::MAX)
    }

    fn lowest(&self) -> usize {
        self.stacks.start.get() + self.index() * self.stacks.size
    }

    /// The lowest address above the guard, and the bytes that the thread may use.
    pub(crate) fn range(&self) -> (usize, usize) {
        let top = corosensei::stack::Stack::base(self).get();
        let low = self.lowest() + PAGE;
        (low, top - low)
    }

    fn guard(&self) -> Result<()> {
        let page = ptr::with_exposed_provenance_mut(self.lowest());
        // SAFETY: the lowest page of a stack that no thread has had.
        if unsafe { libc::madvise(page, PAGE, MADV_GUARD_INSTALL.cast_signed()) } == 0 {
            return Ok(());
        }
        // SAFETY: the same page.
        match unsafe { mprotect(page, PAGE, MprotectFlags::empty()) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(Error::LimitReached {
                which: "stacks before the kernel's limit of mappings \
                        (vm.max_map_count; Linux 6.13 needs no mapping for each)",
                limit: self.index(),
            }),
            Err(errno) => Err(Error::os("guard a stack")(errno)),
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.stacks.idle.lock().recycled.push(self.number);
    }
}

// SAFETY: the memory is the thread's alone until `drop`, and its lowest page is a guard.
unsafe impl corosensei::stack::Stack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        let colour = self.index() % COLOURS * COLOUR_BYTES;
        let top = self.lowest() + self.stacks.size - colour;
        NonZeroUsize::new(top).unwrap_or(self.stacks.start)
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.lowest()).unwrap_or(self.stacks.start)
    }
}

#[cfg(test)]
mod tests {
    use corosensei::stack::Stack as _;

    use super::{ROOM_PERIOD, Stacks};

    /// Whether a core dump of this process leaves out what is at an address.
    fn is_left_out(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_in_it = false;
        for line in maps.lines() {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let parse = |text| usize::from_str_radix(text, 16);
            if let Some((Ok(from), Ok(to))) = range.map(|(from, to)| (parse(from), parse(to))) {
                is_in_it = (from..to).contains(&address);
            } else if is_in_it && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split(' ').any(|flag| flag == "dd");
            }
        }
        panic!("nothing is mapped there");
    }

    /// A runtime of four million threads would else be 512 GB of a core dump.
    #[test]
    fn a_core_dump_has_the_stacks_that_threads_had() {
        let stacks = Stacks::new(64 << 10, 64).unwrap();
        let taken: Vec<_> = (0..=ROOM_PERIOD).map(|_| stacks.take().unwrap()).collect();
        for stack in &taken {
            assert!(!is_left_out(stack.range().0), "{stack:?}");
        }
        assert!(is_left_out(stacks.stack(3 * ROOM_PERIOD).range().0));
    }

    #[test]
    fn a_stack_is_recycled_last_in_first_out() {
        let stacks = Stacks::new(64 << 10, 4).unwrap();
        let first = stacks.take().unwrap();
        let second = stacks.take().unwrap();
        let (low, high) = (first.limit(), second.limit());
        assert!(low < high, "they do not overlap");
        drop(first);
        drop(second);
        assert_eq!(stacks.take().unwrap().limit(), high);
    }

    #[test]
    fn the_limit_is_named() {
        let stacks = Stacks::new(64 << 10, 1).unwrap();
        let _first = stacks.take().unwrap();
        let error = stacks.take().unwrap_err().to_string();
        assert!(error.contains("limit of 1 threads"), "{error}");
    }
}
