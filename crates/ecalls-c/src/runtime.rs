//! Runtimes of user-level threads: start, end, figures. Man page: ecalls_threads(3).

use std::ffi::c_int;

use ecalls_threads::{Builder, Error, KernelSide, Ranked, Runtime, is_thread};

use crate::error::{Failure, Outcome, guard, number_of};
use crate::pointer::{Options, give, options, output, reference, take};

/// `kernel` of a runtime: the kernel side tells which threads block if the process may load it, or
/// the daemon runs; else only ecalls_thread_blocking() does.
pub const ECALLS_THREADS_KERNEL_IF_POSSIBLE: u32 = 0;
/// `kernel` of a runtime: it does not start without the kernel side.
pub const ECALLS_THREADS_KERNEL_REQUIRED: u32 = 1;
/// `kernel` of a runtime: without the kernel side.
pub const ECALLS_THREADS_KERNEL_NEVER: u32 = 2;

/// `policy` of a runtime: threads in turn, a queue for each processor.
pub const ECALLS_THREADS_ROUND_ROBIN: u32 = 0;
/// `policy` of a runtime: the earliest deadline first, then the highest priority.
pub const ECALLS_THREADS_RANKED: u32 = 1;

/// In `flags` of a runtime: threads have no thread-local storage of their own.
pub const ECALLS_THREADS_NO_STORAGE: u32 = 1;

/// How a runtime is made. 0 in a field stands for its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadsOptions {
    /// Size of this struct.
    pub size: u32,
    /// Virtual processors, 1 to 64. Default: the CPUs that the process may use.
    pub processors: u32,
    /// Bytes of a thread's stack, at least 16384. Default: 131072.
    pub stack_bytes: u32,
    /// The most threads at a time. Default: 65536.
    pub threads_max: u32,
    /// The most threads that block at a time without blocking a processor: each is a kernel
    /// thread. Default: 1024.
    pub activations_max: u32,
    /// ECALLS_THREADS_KERNEL_IF_POSSIBLE, _REQUIRED or _NEVER.
    pub kernel: u32,
    /// ECALLS_THREADS_ROUND_ROBIN or ECALLS_THREADS_RANKED.
    pub policy: u32,
    /// ECALLS_THREADS_NO_STORAGE or 0.
    pub flags: u32,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for ThreadsOptions {
    const LEAST: usize = size_of::<ThreadsOptions>();
}

/// What a runtime is, and what it has done.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadsStats {
    /// Virtual processors.
    pub processors: u32,
    /// 1: the kernel side tells which threads block; 0: only ecalls_thread_blocking() does.
    pub is_told: u32,
    /// 1: each thread has thread-local storage of its own, errno included; 0: none has.
    pub has_own_storage: u32,
    /// Activations, i.e. kernel threads.
    pub activations: u32,
    /// Threads that have not ended.
    pub threads: u64,
    /// Times that a thread began or continued to run.
    pub switches: u64,
    /// Times that a thread gave up its processor in ecalls_thread_blocking().
    pub left: u64,
    /// Blocks that the kernel side told,
    pub told: u64,
    /// and those that it did not tell: in the runtime itself, or while a limit was reached.
    pub untold: u64,
    /// Times that a thread came back and found its processor free,
    pub reclaimed: u64,
    /// and that it waited until the policy chose it.
    pub restarts: u64,
    /// Activations that were wanted and that a limit refused.
    pub refused: u64,
}

/// `ecalls_threads_t`.
#[derive(Debug)]
pub struct RuntimeHandle(pub(crate) Runtime);

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let number = match &error {
            Error::LimitReached { .. } => libc::ENOSPC,
            Error::Invalid { .. } => libc::EINVAL,
            Error::Os { source, .. } => number_of(source),
            _ => libc::EIO,
        };
        match error {
            Error::Kernel(why) => Failure::from(why).at("the kernel side of threads"),
            other => Failure::new(number, other.to_string()),
        }
    }
}

impl ThreadsOptions {
    fn builder(&self) -> Outcome<Builder> {
        let mut builder = Runtime::builder();
        for (value, set) in [
            (self.processors, Builder::processors as fn(_, _) -> _),
            (self.stack_bytes, Builder::stack_bytes),
            (self.threads_max, Builder::threads_max),
            (self.activations_max, Builder::activations_max),
        ] {
            if value != 0 {
                builder = set(builder, usize::try_from(value).unwrap_or(usize::MAX));
            }
        }
        builder = builder.kernel(match self.kernel {
            ECALLS_THREADS_KERNEL_IF_POSSIBLE => KernelSide::IfPossible,
            ECALLS_THREADS_KERNEL_REQUIRED => KernelSide::Required,
            ECALLS_THREADS_KERNEL_NEVER => KernelSide::Never,
            other => return Err(unknown("kernel", other, "ECALLS_THREADS_KERNEL_...")),
        });
        builder = match self.policy {
            ECALLS_THREADS_ROUND_ROBIN => builder,
            ECALLS_THREADS_RANKED => builder.policy(Ranked::default()),
            other => return Err(unknown("policy", other, "_ROUND_ROBIN or _RANKED")),
        };
        match self.flags {
            0 => Ok(builder),
            ECALLS_THREADS_NO_STORAGE => Ok(builder.own_storage(false)),
            other => Err(unknown("flags", other, "0 or ECALLS_THREADS_NO_STORAGE")),
        }
    }
}

fn unknown(field: &str, value: u32, allowed: &str) -> Failure {
    Failure::invalid(format!(
        "{field} of the runtime is {value}: it is {allowed}"
    ))
}

/// Starts a runtime of user-level threads. `options` NULL: the defaults. -ENOSPC: the system gives
/// no further kernel threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_threads_start(
    options: *const ThreadsOptions,
    runtime: *mut *mut RuntimeHandle,
) -> c_int {
    guard(|| {
        let place = output(runtime, "the place for the runtime")?;
        let builder = if options.is_null() {
            Runtime::builder()
        } else {
            // SAFETY: options (the root's Safety).
            unsafe { self::options(options, "the runtime's options") }?.builder()?
        };
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, RuntimeHandle(builder.start()?)) };
        Ok(0)
    })
}

/// Waits until all threads of a runtime have ended, and closes it. Handles of its threads stay
/// valid. NULL: nothing is done. -EDEADLK: the caller is a user-level thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_threads_end(runtime: *mut RuntimeHandle) -> c_int {
    guard(|| {
        if runtime.is_null() {
            return Ok(0);
        }
        if is_thread() {
            return Err(Failure::new(
                libc::EDEADLK,
                "a runtime's end waits for its threads, so none of them can end it",
            ));
        }
        // SAFETY: a handle (the root's Safety).
        drop(unsafe { take(runtime, "the runtime") }?);
        Ok(0)
    })
}

/// Writes what a runtime is, and what it has done so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_threads_stats(
    runtime: *const RuntimeHandle,
    stats: *mut ThreadsStats,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let runtime = &unsafe { reference(runtime, "the runtime") }?.0;
        let place = output(stats, "the place for the figures")?;
        let now = runtime.stats();
        let figures = ThreadsStats {
            processors: u32::try_from(runtime.processors()).unwrap_or(u32::MAX),
            is_told: runtime.is_told().into(),
            has_own_storage: runtime.has_own_storage().into(),
            activations: u32::try_from(now.activations).unwrap_or(u32::MAX),
            threads: now.threads,
            switches: now.switches,
            left: now.left,
            told: now.told,
            untold: now.untold,
            reclaimed: now.reclaimed,
            restarts: now.restarts,
            refused: now.refused,
        };
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(figures) };
        Ok(0)
    })
}
