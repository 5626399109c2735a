//! How a runtime is made: its parameters, and their limits.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

use ecalls_kernel::activation::Activations;
use rustix::thread::{sched_getaffinity, sched_getcpu};

use crate::error::{Error, Result};
use crate::page::{KernelSide, Page};
use crate::policy::Policy;
use crate::runtime::{Places, Runtime, Shared};
use crate::stack::Stacks;
use crate::storage;
use crate::sync::{self, AtomicBool, Ordering};
use crate::{ACTIVATIONS_MAX, PROCESSORS_MAX, local};

/// How a runtime is made.
#[derive(Debug)]
pub struct Builder {
    processors: Option<usize>,
    is_pinned: bool,
    stack_bytes: usize,
    threads_max: usize,
    activations_max: usize,
    policy: Option<Box<dyn Policy>>,
    kernel: KernelSide,
    has_own_storage: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            processors: None,
            is_pinned: true,
            stack_bytes: 128 << 10,
            threads_max: 1 << 16,
            activations_max: 1024,
            policy: None,
            kernel: KernelSide::default(),
            has_own_storage: true,
        }
    }
}

impl Builder {
    /// Number of virtual processors, 1 to 64 (default: the CPUs that the process may use).
    #[must_use]
    pub fn processors(mut self, processors: usize) -> Self {
        self.processors = Some(processors);
        self
    }

    /// Whether each virtual processor has a CPU of its own (default), so that a spare takes over on
    /// the CPU on which a thread has blocked.
    #[must_use]
    pub fn pinned(mut self, is_pinned: bool) -> Self {
        self.is_pinned = is_pinned;
        self
    }

    /// Bytes of a thread's stack, at least 16 KiB (default: 128 KiB). Memory is used from the first
    /// touch on, 4 KiB at a time.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// The most threads at a time (default: 65,536).
    #[must_use]
    pub fn threads_max(mut self, threads: usize) -> Self {
        self.threads_max = threads;
        self
    }

    /// The most activations, and so the most threads that block in the kernel at a time without
    /// blocking a processor (default: 1,024; at most [`ACTIVATIONS_MAX`]).
    #[must_use]
    pub fn activations_max(mut self, activations: usize) -> Self {
        self.activations_max = activations;
        self
    }

    /// Whether each thread has thread-local storage of its own (default, with glibc on x86-64). It
    /// takes some 5 KB. Without, thread-local variables are those of the kernel thread that happens
    /// to execute a thread, and no reference to one may be kept across a switch.
    #[must_use]
    pub fn own_storage(mut self, has_own_storage: bool) -> Self {
        self.has_own_storage = has_own_storage;
        self
    }

    /// Whether the kernel side tells of blocks (default: if possible).
    #[must_use]
    pub fn kernel(mut self, kernel: KernelSide) -> Self {
        self.kernel = kernel;
        self
    }

    /// What decides which thread is next (default: [`RoundRobin`](crate::RoundRobin)).
    #[must_use]
    pub fn policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(Box::new(policy));
        self
    }

    /// Checks the parameters: the number of processors, and their CPUs; none: they have none.
    fn place(&self) -> Result<Places> {
        let allowed = sched_getaffinity(None).map_err(Error::os("read the CPU affinity"))?;
        let cpus: Vec<usize> = (0..CPUS_MAX).filter(|cpu| allowed.is_set(*cpu)).collect();
        let processors = self.processors.unwrap_or(cpus.len().min(PROCESSORS_MAX));
        check("processors", processors, 1, PROCESSORS_MAX, "1 to 64")?;
        let least = 2 * processors;
        check(
            "activations_max",
            self.activations_max,
            least,
            ACTIVATIONS_MAX - 1,
            "two for each processor to 16,383",
        )?;
        check(
            "stack_bytes",
            self.stack_bytes,
            16 << 10,
            1 << 30,
            "16 KiB to 1 GiB",
        )?;
        check(
            "threads_max",
            self.threads_max,
            1,
            1 << 24,
            "1 to 16,777,216",
        )?;
        let cpus = if self.is_pinned && processors <= cpus.len() {
            // Several small runtimes do not all use the first CPU.
            let here = cpus.iter().position(|cpu| *cpu == sched_getcpu());
            let from_here = cpus.iter().cycle().skip(here.unwrap_or(0));
            from_here.copied().take(processors).collect()
        } else {
            Vec::new()
        };
        Ok(Places { processors, cpus })
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a parameter outside its range; [`Error::Os`] if the system refuses
    /// memory or kernel threads, or the program runs under `ecalls run --threads`.
    pub fn start(self) -> Result<Runtime> {
        let places = self.place()?;
        if !local::prepare() {
            return Err(Error::Os {
                action: "read the GS base in user mode (FSGSBASE; Linux 5.9, x86-64 of 2012)",
                source: std::io::ErrorKind::Unsupported.into(),
            });
        }
        if is_within_another() {
            return Err(Error::Os {
                action: "start a runtime under `ecalls run --threads`, where no thread that is \
                         created is a kernel thread",
                source: std::io::Error::from_raw_os_error(libc::EBUSY),
            });
        }
        sync::register();
        let shared = Shared::new(
            places,
            Stacks::new(self.stack_bytes, self.threads_max)?,
            Page::new(open_kernel(self.kernel)?),
            storage::find().filter(|_| self.has_own_storage),
            self.activations_max,
            self.policy,
        )?;
        Runtime::start(shared)
    }

    /// Starts a runtime, executes `first` as its first thread, and returns what that returns, once
    /// all threads have ended.
    ///
    /// # Errors
    /// As [`start`](Self::start); [`Error::Panicked`].
    pub fn run<T: Send + 'static>(self, first: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let runtime = self.start()?;
        let first = runtime.spawn(first)?;
        drop(runtime);
        first.join().map_err(|_| Error::Panicked)
    }
}

const CPUS_MAX: usize = 1024;

/// The kernel side, or `None` if the runtime goes without it, which is said once.
fn open_kernel(wish: KernelSide) -> Result<Option<Activations>> {
    static SAID: AtomicBool = AtomicBool::new(false);
    if wish == KernelSide::Never {
        return Ok(None);
    }
    match Activations::open() {
        Ok(kernel) => Ok(Some(kernel)),
        Err(error) if wish == KernelSide::Required => Err(Error::Kernel(error)),
        Err(error) => {
            if !SAID.swap(true, Ordering::Relaxed) {
                tracing::info!(
                    "threads that block are seen only around ecalls_threads::blocking: {error}"
                );
            }
            Ok(None)
        }
    }
}

/// Whether the process's POSIX threads are user-level threads of another runtime, as under `ecalls
/// run --threads`: activations would be no kernel threads, and the runtime would stand still.
fn is_within_another() -> bool {
    // SAFETY: looks up a name.
    let create = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_create".as_ptr()) };
    let (theirs, name) = object_of(create);
    // The library that does so has a runtime, too.
    let (ours, _) = object_of((is_within_another as fn() -> bool) as *const c_void);
    theirs != ours && name.ends_with("/libecalls_pthread.so")
}

/// The loaded object in which an address is: where it begins, and its path; 0 if there is none.
fn object_of(address: *const c_void) -> (usize, String) {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` has room for the answer.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    // SAFETY: zeros are a value of it.
    let info = unsafe { info.assume_init() };
    if !found || info.dli_fname.is_null() {
        return (0, String::new());
    }
    // SAFETY: the path of an object that stays loaded: its functions are used.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    (info.dli_fbase.addr(), name.to_string_lossy().into_owned())
}

fn check(
    what: &'static str,
    value: usize,
    least: usize,
    most: usize,
    allowed: &'static str,
) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Invalid {
        what,
        value,
        allowed,
    })
}
