//! Thread-local storage of a thread's own: a control block of the C library for each user-level
//! thread, to which the register FS points while the thread runs.
//!
//! Compilers keep the addresses of thread-local variables, `errno` among them, across calls. A
//! thread that continues on another kernel thread would then use the first one's variables, at the
//! same time as whatever runs there. With a block of its own, everything that is thread-local
//! (variables in Rust, C and C++, `errno`, malloc's caches, keys, the owner of a mutex, exceptions
//! in flight) belongs to the user-level thread.
//!
//! This relies on glibc on x86-64, in ways that debuggers and its own dynamic linker rely on: the
//! head of its control block, unchanged since the ABI was defined; `_dl_allocate_tls`; the offset
//! of the thread's id, which `_thread_db_pthread_tid` tells debuggers. [`find`] checks all of it
//! with the calling thread's block. Elsewhere threads use their kernel threads' storage.
//!
//! A block that a thread has left is renewed for the next one: every variable has its initial value
//! again, but the C library's own, which are malloc's cache of the block; they would be lost.

use std::ptr::NonNull;

/// The control block of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block(NonNull<u8>);

// SAFETY: a block belongs to the thread that has taken it.
unsafe impl Send for Block {}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "what is done to one block, or taken from one library, has one argument"
)]
mod of_glibc {
    use core::arch::asm;
    use std::ffi::{CStr, c_int, c_void};
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;

    use rustix::thread::gettid;

    use super::Block;
    use crate::spin::Spin;
    use crate::sync::{AtomicU32, Ordering};

    /// The head of glibc's `struct pthread`.
    #[repr(C)]
    struct Head {
        tcb: *mut Head,
        dtv: *mut c_void,
        this: *mut Head,
        multiple_threads: c_int,
        gscope_flag: c_int,
        sysinfo: usize,
        stack_guard: usize,
        pointer_guard: usize,
    }

    /// `cpu_id` of `struct rseq`, whose registration has failed.
    const RSEQ_CPU_ID: isize = 4;
    const RSEQ_FAILED: u32 = (-2_i32).cast_unsigned();
    /// Beyond any kernel thread's: a mutex knows its owner by this number.
    const TIDS: u32 = 1 << 24;

    const LC_GLOBAL_LOCALE: libc::locale_t = ptr::without_provenance_mut(usize::MAX);

    type Allocate = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    type Initialize = unsafe extern "C" fn(*mut c_void, bool) -> *mut c_void;
    type Call = unsafe extern "C" fn();

    #[derive(Debug)]
    pub(crate) struct Library {
        allocate: Allocate,
        initialize: Initialize,
        ctype_init: Call,
        call_destructors: Call,
        /// Bytes of `struct pthread`, and where in it the thread's id is.
        bytes: usize,
        tid_at: usize,
        /// Where the block's link in the C library's list of its threads is.
        list_at: usize,
        /// From the block, where the C library's own variables are, and how many bytes.
        own_at: isize,
        own_bytes: usize,
        rseq_at: Option<isize>,
        idle: Spin<Vec<Block>>,
        tids: AtomicU32,
    }

    /// What this C library offers; `None`: not what is needed.
    pub(crate) fn find() -> Option<&'static Library> {
        static FOUND: OnceLock<Option<Library>> = OnceLock::new();
        FOUND.get_or_init(Library::find).as_ref()
    }

    /// In the child of a fork: blocks of the parent's threads are not used again.
    pub(crate) fn forget_all() {
        if let Some(library) = find() {
            library.idle.forget();
        }
    }

    fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: looks up a name.
        NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
    }

    #[inline]
    pub(crate) fn read() -> usize {
        let base: usize;
        // SAFETY: user mode may use the instruction, as local.rs has checked.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        base
    }

    /// # Safety
    /// It is the calling thread's block, and nobody else's at this time.
    #[inline]
    pub(crate) unsafe fn write(base: usize) {
        // SAFETY: as the caller says. It changes what thread-local variables are, hence no `nomem`.
        unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
    }

    impl Library {
        fn find() -> Option<Self> {
            let function = |name| symbol(name).map(NonNull::as_ptr);
            // What tells debuggers where a field is: its bits, its count, and its offset.
            let field: *const [u32; 3] = function(c"_thread_db_pthread_tid")?.cast();
            let list: *const [u32; 3] = function(c"_thread_db_pthread_list")?.cast();
            let size: *const u32 = function(c"_thread_db_sizeof_pthread")?.cast();
            // SAFETY: glibc has had these since 2.3, for thread debuggers.
            let (tid_at, list_at, bytes) = unsafe { ((*field)[2], (*list)[2], *size) };
            let rseq: Option<*mut isize> = function(c"__rseq_offset").map(<*mut c_void>::cast);
            // SAFETY: glibc has this as a ptrdiff_t.
            let rseq_at = rseq.map(|at| unsafe { *at });
            let (own_at, own_bytes) = own_variables().unwrap_or((0, 0));
            // SAFETY: glibc's functions of these names have these types.
            let library = unsafe {
                Self {
                    allocate: std::mem::transmute::<*mut c_void, Allocate>(function(
                        c"_dl_allocate_tls",
                    )?),
                    initialize: std::mem::transmute::<*mut c_void, Initialize>(function(
                        c"_dl_allocate_tls_init",
                    )?),
                    ctype_init: std::mem::transmute::<*mut c_void, Call>(function(
                        c"__ctype_init",
                    )?),
                    call_destructors: std::mem::transmute::<*mut c_void, Call>(function(
                        c"__call_tls_dtors",
                    )?),
                    bytes: usize::try_from(bytes).ok()?,
                    tid_at: usize::try_from(tid_at).ok()?,
                    list_at: usize::try_from(list_at).ok()?,
                    own_at,
                    own_bytes,
                    rseq_at,
                    idle: Spin::new(Vec::new()),
                    tids: AtomicU32::new(TIDS),
                }
            };
            library.is_as_said().then_some(library)
        }

        /// Whether the calling thread's block is as the code here believes.
        fn is_as_said(&self) -> bool {
            let me = ptr::with_exposed_provenance_mut::<Head>(read());
            // SAFETY: FS points to the calling thread's block.
            let head = unsafe { &*me };
            // SAFETY: the offset is glibc's.
            let tid = unsafe { *me.byte_add(self.tid_at).cast::<i32>() };
            head.tcb == me && head.this == me && tid == gettid().as_raw_nonzero().get()
        }

        /// A block for a new thread, whose creator calls.
        pub(crate) fn take(&self) -> Option<Block> {
            let idle = self.idle.lock().pop();
            let block = match idle {
                Some(block) => {
                    // SAFETY: nobody uses the block.
                    unsafe { self.renew(block) };
                    block
                }
                // SAFETY: it allocates.
                None => Block(NonNull::new(unsafe { (self.allocate)(ptr::null_mut()) })?.cast()),
            };
            // SAFETY: as above.
            unsafe { self.prepare(block) };
            Some(block)
        }

        /// The block of a thread that has ended.
        pub(crate) fn give(&self, block: Block) {
            self.idle.lock().push(block);
        }

        /// Every variable gets its initial value, but the C library's.
        ///
        /// # Safety
        /// Nobody uses the block.
        unsafe fn renew(&self, block: Block) {
            let start = block.0.as_ptr();
            let head: *mut Head = start.cast();
            let own = start.wrapping_offset(self.own_at);
            let mut kept = [0_u8; 512];
            let bytes = self.own_bytes.min(kept.len());
            // SAFETY: the block is `bytes` long, and has the C library's variables where every
            // thread's has them.
            unsafe {
                ptr::copy_nonoverlapping(own, kept.as_mut_ptr(), bytes);
                let dtv = (*head).dtv;
                ptr::write_bytes(start, 0, self.bytes);
                (*head).dtv = dtv;
                (self.initialize)(start.cast(), true);
                ptr::copy_nonoverlapping(kept.as_ptr(), own, bytes);
            }
        }

        /// # Safety
        /// Nobody uses the block.
        unsafe fn prepare(&self, block: Block) {
            let mine = ptr::with_exposed_provenance::<Head>(read());
            let head: *mut Head = block.0.as_ptr().cast();
            let tid = self.tids.fetch_add(1, Ordering::Relaxed);
            // SAFETY: both are control blocks.
            unsafe {
                (*head).tcb = head;
                (*head).this = head;
                (*head).multiple_threads = 1;
                (*head).stack_guard = (*mine).stack_guard;
                (*head).pointer_guard = (*mine).pointer_guard;
                *head.byte_add(self.tid_at).cast::<u32>() = tid | TIDS;
                // A list of its own: in the child of a fork the library takes the thread out of it.
                let list: *mut [*mut c_void; 2] = head.byte_add(self.list_at).cast();
                *list = [list.cast(); 2];
                if let Some(at) = self.rseq_at {
                    *head.byte_offset(at + RSEQ_CPU_ID).cast::<u32>() = RSEQ_FAILED;
                }
            }
        }

        /// Called by a thread on its own block, first.
        pub(crate) fn begin(&self) {
            // SAFETY: the caller's tables of characters and locale, as each thread has them first.
            unsafe {
                libc::uselocale(LC_GLOBAL_LOCALE);
                (self.ctype_init)();
            }
        }

        /// Called by a thread on its own block, last: destroys its variables.
        pub(crate) fn end(&self) {
            // SAFETY: what was registered with __cxa_thread_atexit_impl, by this thread.
            unsafe { (self.call_destructors)() };
        }
    }

    impl Block {
        #[inline]
        pub(crate) fn base(self) -> usize {
            self.0.as_ptr().expose_provenance()
        }
    }

    /// Where the C library's thread-local variables are, from a block, and how many bytes.
    fn own_variables() -> Option<(isize, usize)> {
        unsafe extern "C" fn look(
            info: *mut libc::dl_phdr_info,
            _: usize,
            found: *mut c_void,
        ) -> c_int {
            // SAFETY: the linker passes a valid one, and what `own_variables` passes.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<(usize, usize)>>()) };
            // SAFETY: a name of the linker's.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
            if !name.ends_with(b"/libc.so.6") || info.dlpi_tls_data.is_null() {
                return 0;
            }
            let count = usize::from(info.dlpi_phnum);
            // SAFETY: as many as it says.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) };
            let tls = headers.iter().find(|header| header.p_type == libc::PT_TLS);
            *found = tls.map(|tls| {
                let bytes = usize::try_from(tls.p_memsz).unwrap_or(0);
                (info.dlpi_tls_data.expose_provenance(), bytes)
            });
            1
        }
        let mut found: Option<(usize, usize)> = None;
        // SAFETY: `look` uses `found` as what it is.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        let (start, bytes) = found?;
        Some((start.cast_signed() - read().cast_signed(), bytes))
    }
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
pub(crate) use of_glibc::{Library, find, forget_all, read, write};

/// Elsewhere there is no such storage.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(miri))))]
mod of_none {
    use super::Block;

    #[derive(Debug)]
    pub(crate) enum Library {}

    pub(crate) fn find() -> Option<&'static Library> {
        None
    }

    pub(crate) fn forget_all() {}

    pub(crate) fn read() -> usize {
        0
    }

    pub(crate) unsafe fn write(_: usize) {}

    impl Library {
        pub(crate) fn take(&self) -> Option<Block> {
            match *self {}
        }

        pub(crate) fn give(&self, _: Block) {
            match *self {}
        }

        pub(crate) fn begin(&self) {
            match *self {}
        }

        pub(crate) fn end(&self) {
            match *self {}
        }
    }

    impl Block {
        pub(crate) fn base(self) -> usize {
            self.0.as_ptr().addr()
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(miri))))]
pub(crate) use of_none::{Library, find, forget_all, read, write};
