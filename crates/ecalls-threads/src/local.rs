//! Which activation the calling kernel thread is.
//!
//! Thread-local storage does not answer that: it may belong to the user-level thread, and its
//! address may be kept across a switch that continues on another kernel thread. On x86-64 the
//! answer is in the base of the segment GS, which no program uses there and which stays with the
//! kernel thread. Elsewhere it is a thread-local variable behind a function that is not inlined.

use std::ptr::NonNull;

use crate::activation::Activation;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod word {
    use core::arch::asm;

    const ARCH_SET_GS: i32 = 0x1001;
    /// Auxiliary vector: the kernel lets programs use `rdgsbase`.
    const HWCAP2_FSGSBASE: usize = 2;

    /// Whether this processor and kernel have what `get` needs.
    pub(super) fn works() -> bool {
        rustix::param::linux_hwcap().1 & HWCAP2_FSGSBASE != 0
    }

    pub(super) fn set(to: *const ()) {
        // It refuses only addresses that are not a program's.
        // SAFETY: it sets the calling thread's GS base, which nothing else uses.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, to) };
    }

    #[inline]
    pub(super) fn get() -> *const () {
        let base: *const ();
        // SAFETY: `works` was true before any runtime started; the instruction reads one register.
        // It is not `pure`: a thread can move to another activation.
        unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        base
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod word {
    use std::cell::Cell;
    use std::ptr::null;

    thread_local! {
        static ACTIVATION: Cell<*const ()> = const { Cell::new(null()) };
    }

    pub(super) fn works() -> bool {
        true
    }

    #[inline(never)]
    pub(super) fn set(to: *const ()) {
        ACTIVATION.with(|activation| activation.set(to));
    }

    #[inline(never)]
    pub(super) fn get() -> *const () {
        ACTIVATION.with(Cell::get)
    }
}

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether any runtime has started in this process; before, `get` might not be possible.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Called before a runtime's first activation starts; false if this machine lacks what it needs.
pub(crate) fn prepare() -> bool {
    let works = word::works();
    if works {
        STARTED.store(true, Ordering::Release);
    }
    works
}

/// The calling kernel thread is that activation from now on; `None`: none.
pub(crate) fn set(activation: Option<NonNull<Activation>>) {
    word::set(activation.map_or(std::ptr::null(), |at| at.as_ptr().cast_const().cast()));
}

/// The activation that the calling kernel thread is; `None` if it is none.
#[inline]
pub(crate) fn get() -> Option<NonNull<Activation>> {
    if !STARTED.load(Ordering::Relaxed) {
        return None;
    }
    NonNull::new(word::get().cast_mut().cast())
}
