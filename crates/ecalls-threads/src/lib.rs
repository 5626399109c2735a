//! User-level threads on scheduler activations (SA): a thread that blocks in a system call does not
//! block the processor it runs on.
//!
//! A [`Runtime`] has a fixed number of *virtual processors*, one for each CPU that it may use. An
//! *activation* is a kernel thread that has such a processor, or had it: it executes one user-level
//! thread after the other. When the thread that it executes blocks, the processor goes to another
//! activation, which executes the next thread; the first activation stays with its blocked thread.
//! When that can go on, it waits until the policy chooses it again. So at each moment one
//! activation for each processor runs, and which thread is next is the application's decision (SA
//! §3.1).
//!
//! ```
//! use ecalls_threads::{Runtime, blocking, spawn, yield_now};
//!
//! let sum = Runtime::builder().processors(2).run(|| {
//!     let file = spawn(|| blocking(|| std::fs::read("/proc/self/stat").unwrap_or_default()));
//!     let other = spawn(|| {
//!         yield_now();
//!         1
//!     });
//!     file.join().map_or(0, |bytes| bytes.len().min(1)) + other.join().unwrap_or(0)
//! })?;
//! assert_eq!(sum, 2);
//! # Ok::<(), ecalls_threads::Error>(())
//! ```
//!
//! The layers of SA §3.2, lowest first:
//!
//! - the core: stacks, threads, virtual processors and their hand-over (`stack.rs`, `thread.rs`,
//!   `processor.rs`), without knowledge of a policy;
//! - the upcall layer (`activation.rs`): what an activation does when it gets a processor (upcall
//!   `new`), learns that threads could go on (`unblock`), or continues one (`restart`); `calls.rs`
//!   has what threads call;
//! - the specialization layer: [`Policy`], with `find_next_to_run`; [`RoundRobin`] is the default.
//!
//! Two sources tell that a thread blocks: [`blocking`], which programs put around a call that may
//! block, and which needs nothing of the kernel; and the kernel side, which tells for every system
//! call and page fault.

#![allow(
    unsafe_code,
    reason = "stacks, and switching between them, are beyond what the compiler can check"
)]
#![warn(missing_docs)]

mod activation;
mod biased;
mod builder;
mod calls;
mod descriptors;
mod error;
mod local;
mod lock;
mod mask;
mod page;
pub mod park;
mod policy;
mod processor;
mod request;
mod runtime;
mod spin;
mod stack;
mod status;
mod storage;
mod sync;
mod thread;
mod timers;
mod wait;
mod word;

pub use builder::Builder;
pub use calls::{
    Interrupted, attach, attached, blocking, can_switch, forget_runtimes, in_scheduler,
    interrupted, is_on_own_stack, is_thread, kernel_thread, note_signal_mask, scheduling_point,
    set_stays, sleep, sleep_until, spawn, yield_from_signal, yield_now,
};
pub use descriptors::{Interest, wait_ready, wait_ready_for};
pub use error::{Error, Result};
pub use lock::{Condvar, Mutex, MutexGuard, Semaphore};
pub use page::KernelSide;
pub use policy::{Policy, Processor, Ranked, Ready, RoundRobin, Why};
pub use request::Request;
pub use runtime::{Runtime, Stats};
pub use thread::{Current, JoinHandle, current};

/// The most virtual processors of a runtime.
pub const PROCESSORS_MAX: usize = ecalls_abi::activation::PROCESSORS_MAX as usize;
/// Activations of a runtime, and so threads that block at the same time, are fewer than this.
pub const ACTIVATIONS_MAX: usize = ecalls_abi::activation::ACTIVATIONS_MAX as usize;
