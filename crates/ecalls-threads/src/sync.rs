//! The atomics of this crate, and its asymmetric fence. The models of tests/model.rs use loom's
//! instead.
//!
//! Of two threads that each write a word and then read the other's, one must see the other's write.
//! That takes a fence on both sides. Where one side is on the path of each switch and the other one
//! is about to sleep or to steal, the first has only a [`light_fence`], which costs nothing, and
//! the second one a [`heavy_fence`], by which the kernel has every CPU that executes this process
//! execute a fence (membarrier(2)).

pub(crate) use core::sync::atomic::AtomicUsize;
use core::sync::atomic::compiler_fence;
pub(crate) use core::sync::atomic::fence;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::thread::{MembarrierCommand, membarrier};

/// Whether the kernel lets this process use membarrier(2).
static MEMBARRIER: AtomicBool = AtomicBool::new(false);

/// Called before a runtime's first activation starts.
pub(crate) fn register() {
    let may = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    MEMBARRIER.store(may, Ordering::SeqCst);
}

/// The fence of the side that must be quick.
#[inline]
pub(crate) fn light_fence() {
    if MEMBARRIER.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The fence of the other side.
pub(crate) fn heavy_fence() {
    fence(Ordering::SeqCst);
    if MEMBARRIER.load(Ordering::Relaxed) {
        // It cannot fail after the registration.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
}

/// Waits for another thread that is within a few instructions, unless the kernel has stopped it: a
/// few rounds of waiting, and from then on it gives up the CPU.
pub(crate) struct Patience(u32);

impl Patience {
    const ROUNDS: u32 = 64;

    pub(crate) fn new() -> Self {
        Self(0)
    }

    /// Whether waiting has taken longer than a few instructions.
    pub(crate) fn is_over(&self) -> bool {
        self.0 >= Self::ROUNDS
    }

    pub(crate) fn wait(&mut self) {
        if self.is_over() {
            rustix::thread::sched_yield();
        } else {
            self.0 += 1;
            std::hint::spin_loop();
        }
    }
}
