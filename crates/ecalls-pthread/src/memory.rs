//! This library's own memory: the C library's, even where the program has a `malloc` of its own.
//!
//! Such a `malloc`, e.g. jemalloc's, locks POSIX mutexes, and so comes here. A thread that waits
//! for such a mutex is in the midst of the program's `malloc`; if that were called once more in
//! order to wait, it would come here again, without an end. The C library's allocator locks nothing
//! that this library stands before.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use libc::size_t;

/// What `__libc_malloc` aligns to.
const ALIGNED: usize = 16;

struct OfTheLibrary;

#[global_allocator]
static MEMORY: OfTheLibrary = OfTheLibrary;

unsafe extern "C" {
    fn __libc_malloc(bytes: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, bytes: size_t) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, bytes: size_t) -> *mut c_void;
    fn __libc_memalign(align: size_t, bytes: size_t) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

// SAFETY: the C library's allocator keeps to the contract.
unsafe impl GlobalAlloc for OfTheLibrary {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: neither has a requirement.
        unsafe {
            if layout.align() <= ALIGNED {
                __libc_malloc(layout.size()).cast()
            } else {
                __libc_memalign(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; what is written is new and so long.
        unsafe {
            if layout.align() <= ALIGNED {
                return __libc_calloc(1, layout.size()).cast();
            }
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller has it from here; the larger alignment is asked for anew.
        unsafe {
            if layout.align() <= ALIGNED {
                return __libc_realloc(memory.cast(), bytes).cast();
            }
            let new = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(memory, bytes.min(layout.size()));
                self.dealloc(memory, layout);
            }
            new
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the caller has it from here.
        unsafe { __libc_free(memory.cast()) };
    }
}
