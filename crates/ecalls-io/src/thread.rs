//! What the library has of each thread: a set, and whether the thread is using it.
//!
//! A handler of a signal may poll or close while the thread that it has interrupted is in this
//! library. Then the handler's poll goes to the kernel, and its close is only counted. While the
//! thread sleeps the set is free for handlers; the thread notices by the number of uses.
//!
//! A child of fork has a copy of all this, whose descriptors are the parent's sets: a page that the
//! kernel clears in children tells, however the child was made. The child closes its copies of the
//! descriptors, and begins anew. A child of vfork shares the parent's memory, so its process id
//! tells.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use libc::{pollfd, pthread_key_t};

use crate::region::{Region, map};
use crate::set::{EAGER, Set};
use crate::{descriptor, next};

const PAGE: usize = 4096;

/// States of the page's word, which is 0 in a child that does not know yet that it is one.
const CHILD: u32 = 0;
const RENEWS: u32 = 1;
const KNOWN: u32 = 2;

static ORIGIN: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The key of each thread's [`Thread`], plus one.
static KEY: AtomicU32 = AtomicU32::new(0);
/// How many forks lie between this process and the one that loaded the library.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Not 0: the library no longer stands before anything.
static STOPPED: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Thread {
    is_busy: bool,
    pub(crate) uses: u64,
    forks: u64,
    process: c_int,
    pub(crate) set: Set,
    /// An array in place of select's sets.
    pub(crate) asked: Region<pollfd>,
}

/// The program restricts its own system calls: from now on it makes only those it knows of.
pub(crate) fn stop() {
    STOPPED.store(1, Ordering::SeqCst);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let mut key: pthread_key_t = 0;
    // SAFETY: makes a key, whose destructor takes what `Thread::enter` stores; and a page, of which
    // zeros are a word.
    unsafe {
        let Some(page) = map(ptr::null_mut(), 0, PAGE) else {
            return;
        };
        if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0
            || libc::pthread_key_create(&raw mut key, Some(end)) != 0
        {
            return;
        }
        let word: *mut AtomicU32 = page.cast();
        (*word).store(KNOWN, Ordering::SeqCst);
        ORIGIN.store(word, Ordering::SeqCst);
        libc::pthread_atfork(None, None, Some(in_child));
    }
    // SAFETY: nobody changes the environment yet.
    let is_eager = unsafe { !libc::getenv(c"ECALLS_IO_EAGER".as_ptr()).is_null() };
    EAGER.store(is_eager, Ordering::SeqCst);
    KEY.store(key + 1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    is_known();
}

/// Whether this is a process that this library knows; a child becomes one.
fn is_known() -> bool {
    // SAFETY: set once, and never unmapped.
    let Some(word) = (unsafe { ORIGIN.load(Ordering::Relaxed).as_ref() }) else {
        return false;
    };
    if word.load(Ordering::Acquire) == KNOWN {
        return true;
    }
    let first = word.compare_exchange(CHILD, RENEWS, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_err() {
        return false;
    }
    FORKS.fetch_add(1, Ordering::SeqCst);
    for fd in descriptor::own() {
        close_own(c_int::try_from(fd).unwrap_or(-1));
    }
    word.store(KNOWN, Ordering::SeqCst);
    true
}

/// Closes a descriptor of the library's own.
pub(crate) fn close_own(fd: c_int) {
    descriptor::give(fd);
    // SAFETY: its own.
    unsafe { next::close(fd) };
}

/// A thread ends.
unsafe extern "C" fn end(thread: *mut c_void) {
    let thread: *mut Thread = thread.cast();
    // SAFETY: what `enter` has stored, of the thread that ends, which no handler finds any more.
    unsafe {
        if (*thread).forks == FORKS.load(Ordering::SeqCst) {
            (*thread).set.discard();
        }
        (*thread).set.free();
        (*thread).asked.free();
        libc::munmap(thread.cast(), size_of::<Thread>());
    }
}

impl Thread {
    fn find() -> *mut Thread {
        let key = KEY.load(Ordering::Relaxed);
        if key == 0 {
            return ptr::null_mut();
        }
        // SAFETY: a key of this library.
        unsafe { libc::pthread_getspecific(key - 1) }.cast()
    }

    fn create() -> *mut Thread {
        let Some(memory) = map(ptr::null_mut(), 0, size_of::<Thread>()) else {
            return ptr::null_mut();
        };
        let thread: *mut Thread = memory.cast();
        let new = Thread {
            is_busy: false,
            uses: 0,
            forks: FORKS.load(Ordering::SeqCst),
            process: process(),
            set: Set::new(),
            asked: Region::new(),
        };
        // SAFETY: new memory, as long.
        unsafe { thread.write(new) };
        let key = KEY.load(Ordering::Relaxed) - 1;
        // SAFETY: a key of this library, which is not 0 once a thread was looked for.
        if unsafe { next::pthread_setspecific(key, memory) } != 0 {
            // SAFETY: mapped above.
            unsafe { libc::munmap(memory, size_of::<Thread>()) };
            return ptr::null_mut();
        }
        thread
    }

    /// The calling thread's, which is then busy with it until [`Thread::leave`]; `None`: the kernel
    /// has to answer.
    pub(crate) fn enter() -> Option<*mut Thread> {
        if STOPPED.load(Ordering::Relaxed) != 0 || !is_known() {
            return None;
        }
        let mut thread = Self::find();
        if thread.is_null() {
            if KEY.load(Ordering::Relaxed) == 0 {
                return None;
            }
            thread = Self::create();
        }
        // SAFETY: the thread's own; a handler that comes amid this ends before it goes on.
        unsafe {
            let thread = thread.as_mut()?;
            if thread.is_busy {
                return None;
            }
            thread.is_busy = true;
            thread.uses += 1;
            let forks = FORKS.load(Ordering::SeqCst);
            if thread.forks != forks {
                thread.forks = forks;
                thread.process = process();
                thread.set.forget();
            }
        }
        Some(thread)
    }

    /// The set is free.
    pub(crate) fn leave(thread: *mut Thread) {
        // SAFETY: what `enter` gave.
        unsafe { (*thread).is_busy = false };
    }

    /// Takes a number out of the calling thread's set that is about to be closed. Without this a
    /// file that lives on elsewhere, in a child or as a duplicate, would go on telling the set.
    pub(crate) fn take_out(fd: c_int) {
        if fd < 0 {
            return;
        }
        // SAFETY: the thread's own, and no other use of it is going on.
        let Some(thread) = (unsafe { Self::find().as_mut() }) else {
            return;
        };
        let is_current = !thread.is_busy && thread.forks == FORKS.load(Ordering::SeqCst);
        if is_current && thread.set.has(fd) && is_known() && thread.process == process() {
            thread.set.take_out(fd);
        }
    }
}

fn process() -> c_int {
    // SAFETY: asks.
    unsafe { libc::getpid() }
}
