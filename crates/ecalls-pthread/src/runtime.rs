//! The one runtime of the process, which the first `pthread_create` starts, and its monitor: a
//! kernel thread that does what cannot be done where it arises.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use ecalls_threads::park::Waited;
use ecalls_threads::{ACTIVATIONS_MAX, KernelSide, Runtime, in_scheduler};

use crate::signals::{self, Handled};
use crate::{cancel, cpus, deferred, descriptors, next, say, say_once, slice};

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());
static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const STARTS: u32 = 1;
const STARTED: u32 = 2;
const FAILED: u32 = 3;

/// The stacks of so many threads, and if there is no room, of so many, are reserved.
const THREADS: [usize; 3] = [1 << 16, 1 << 14, 1 << 10];
/// ns between two looks of the monitor: while threads run, and while all wait.
const LOOK_NS: i64 = 10_000_000;
const LOOK_AGAIN_NS: i64 = 1_000_000;
const IDLE_NS: i64 = 100_000_000;

unsafe extern "C" {
    fn ecalls_inside_get() -> c_int;
    fn ecalls_inside_set(now: c_int);
}

/// The runtime, if it has been started.
#[inline]
pub(crate) fn get() -> Option<&'static Runtime> {
    // SAFETY: once published it lives as long as the process.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }
}

#[inline]
pub(crate) fn is_started() -> bool {
    !RUNTIME.load(Ordering::Relaxed).is_null()
}

/// Whether the caller may wait in the runtime: it is a user-level thread, or a kernel thread
/// beside them.
#[inline]
pub(crate) fn can_park() -> bool {
    is_started() && !in_scheduler()
}

/// Whether the calling thread was in the runtime before the handler of a signal that now asks.
pub(crate) fn is_inside() -> bool {
    // SAFETY: reads a variable of the thread.
    unsafe { ecalls_inside_get() != 0 }
}

/// While it lives, the thread is in the runtime; what was before comes back, as these nest.
struct Inside(c_int);

impl Inside {
    #[inline]
    fn new() -> Self {
        // SAFETY: reads and writes a variable of the thread.
        let before = unsafe {
            let before = ecalls_inside_get();
            ecalls_inside_set(1);
            before
        };
        Self(before)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { ecalls_inside_set(self.0) };
    }
}

/// `ecalls_threads::park::park`.
pub(crate) fn park(
    address: usize,
    until_ns: Option<u64>,
    is_needless: impl FnOnce() -> bool,
) -> bool {
    let inside = Inside::new();
    let in_time = ecalls_threads::park::park(address, until_ns, is_needless);
    drop(inside);
    signals::take();
    in_time
}

/// `ecalls_threads::park::park_for_signals`.
pub(crate) fn park_for_signals(
    address: usize,
    until_ns: Option<u64>,
    is_needless: impl FnOnce() -> bool,
) -> Waited {
    let inside = Inside::new();
    let waited = ecalls_threads::park::park_for_signals(address, until_ns, is_needless);
    drop(inside);
    match signals::take() {
        Handled::Interrupts => Waited::Interrupted,
        _ => waited,
    }
}

/// `ecalls_threads::park::unpark`.
pub(crate) fn unpark(address: usize, most: usize) -> usize {
    if !ecalls_threads::park::is_parked(address) {
        return 0;
    }
    let _inside = Inside::new();
    ecalls_threads::park::unpark(address, most)
}

// --- start ---

/// The runtime; the first call starts it. `None`: it cannot start, and threads are kernel threads.
pub(crate) fn start() -> Option<&'static Runtime> {
    loop {
        match STATE.compare_exchange(NONE, STARTS, Ordering::AcqRel, Ordering::Acquire) {
            Err(STARTED) => return get(),
            Err(FAILED) => return None,
            // SAFETY: gives up the CPU.
            Err(_) => {
                // SAFETY: as above.
                unsafe { next::sched_yield() };
            }
            Ok(_) => {
                let runtime = begin();
                STATE.store(
                    if runtime.is_some() { STARTED } else { FAILED },
                    Ordering::Release,
                );
                return runtime;
            }
        }
    }
}

fn begin() -> Option<&'static Runtime> {
    let processors = std::env::var("ECALLS_THREADS_PROCESSORS").ok();
    let processors = processors.and_then(|number| number.parse().ok());
    let stack_bytes = default_stack_bytes();
    STACK_BYTES.store(stack_bytes, Ordering::Relaxed);
    let mut failure = String::new();
    for threads in THREADS {
        let mut builder = Runtime::builder()
            .stack_bytes(stack_bytes)
            .threads_max(threads)
            .activations_max(ACTIVATIONS_MAX - 1);
        if let Some(processors) = processors {
            builder = builder.processors(processors);
        }
        if std::env::var_os("ECALLS_THREADS_NO_KERNEL").is_some() {
            builder = builder.kernel(KernelSide::Never);
        }
        match descriptors::note(|| builder.start()) {
            Ok(runtime) if runtime.has_own_storage() => return Some(publish(runtime)),
            Ok(_) => {
                failure =
                    "this C library lets no thread have a control block of its own".to_owned();
                break;
            }
            Err(error) => failure = error.to_string(),
        }
    }
    say_once(&format!("threads remain kernel threads: {failure}"));
    None
}

/// Bytes of each user-level thread's stack.
static STACK_BYTES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn stack_bytes() -> usize {
    STACK_BYTES.load(Ordering::Relaxed)
}

fn publish(runtime: Runtime) -> &'static Runtime {
    let sees = if runtime.is_told() {
        "whatever they block in"
    } else {
        "calls of the C library that block"
    };
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    cpus::begin();
    RUNTIME.store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
    slice::prepare();
    signals::prepare();
    // SAFETY: the function stays.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    // Signals are for the program's threads.
    let before = signals::block_all();
    let monitor = std::thread::Builder::new()
        .name("ecalls-monitor".to_owned())
        .spawn(move || monitor(runtime));
    signals::restore(before);
    if monitor.is_err() {
        say("no kernel thread for a monitor (RLIMIT_NPROC, pids.max): threads have no time slices");
    }
    if crate::is_talkative() {
        say(&format!(
            "threads are user-level threads on {} processors, which see {sees}; {}",
            runtime.processors(),
            slice::describe()
        ));
    }
    runtime
}

/// What glibc gives a thread that asks for nothing else: `ulimit -s`, or what the program has set.
fn default_stack_bytes() -> usize {
    const LEAST: usize = 128 << 10;
    const MOST: usize = 1 << 30;
    let mut attr = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    let mut bytes = 0;
    // SAFETY: the attributes are initialized by the first call.
    unsafe {
        if pthread_getattr_default_np(attr.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstacksize(attr.as_ptr(), &raw mut bytes);
            libc::pthread_attr_destroy(attr.as_mut_ptr());
        }
    }
    bytes.clamp(LEAST, MOST)
}

unsafe extern "C" {
    fn pthread_getattr_default_np(attr: *mut libc::pthread_attr_t) -> c_int;
}

/// How often this process is the child of a fork that had a runtime: threads of before are gone.
static FORKS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn forks() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// In the child of a fork only the calling thread exists: it is a kernel thread now, and the first
/// that it creates starts a new runtime.
unsafe extern "C" fn forked() {
    cpus::forked();
    // From here on nothing waits in the runtime.
    RUNTIME.store(ptr::null_mut(), Ordering::Release);
    ecalls_threads::forget_runtimes();
    FORKS.fetch_add(1, Ordering::Relaxed);
    STATE.store(NONE, Ordering::Release);
    crate::thread::forget_all();
    descriptors::forget_all();
    deferred::forget_all();
    LATER
        .iter()
        .for_each(|place| place.store(0, Ordering::Relaxed));
}

// --- the monitor ---

/// Addresses to unpark, from handlers of signals; 0: none.
static LATER: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
/// Futex of the monitor.
static BELL: AtomicU32 = AtomicU32::new(0);

/// Has the monitor unpark all at an address. A handler of a signal may call it.
pub(crate) fn unpark_later(address: usize) {
    let note = |place: &AtomicUsize| {
        let noted = place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
        noted.is_ok() || noted == Err(address)
    };
    while !LATER.iter().any(note) {
        // SAFETY: gives up the CPU, until the monitor has made room.
        unsafe { next::sched_yield() };
    }
    ring();
}

/// Has the monitor look at once. A handler of a signal may call it.
pub(crate) fn ring() {
    BELL.fetch_add(1, Ordering::SeqCst);
    futex(libc::FUTEX_WAKE, 1, ptr::null());
}

fn futex(operation: c_int, value: u32, limit: *const libc::timespec) {
    let operation = usize::try_from(operation | libc::FUTEX_PRIVATE_FLAG).unwrap_or(0);
    let value = usize::try_from(value).unwrap_or(0);
    // SAFETY: the word is static, and the time the caller's.
    unsafe {
        next::syscall(
            libc::SYS_futex,
            BELL.as_ptr().addr(),
            operation,
            value,
            limit.addr(),
            0,
            0,
        )
    };
}

fn monitor(runtime: &'static Runtime) {
    let mut seen = Vec::new();
    loop {
        let rung = BELL.load(Ordering::SeqCst);
        for place in &LATER {
            let address = place.swap(0, Ordering::AcqRel);
            if address != 0 {
                ecalls_threads::park::unpark(address, usize::MAX);
            }
        }
        cancel::repeat();
        signals::repeat();
        let are_deferred = deferred::repeat(runtime);
        let overdue = runtime.overdue(&mut seen);
        overdue
            .iter()
            .for_each(|tid| slice::send(slice::signal(), *tid));
        let ns = if slice::take_missed() || are_deferred {
            LOOK_AGAIN_NS
        } else if runtime.is_busy() {
            LOOK_NS
        } else {
            IDLE_NS
        };
        let limit = libc::timespec {
            tv_sec: 0,
            tv_nsec: ns,
        };
        futex(libc::FUTEX_WAIT, rung, &raw const limit);
    }
}

/// Whether a function is in this library: a thread that it starts is the runtime's.
pub(crate) fn is_ours(function: *const c_void) -> bool {
    slice::is_here(function.addr())
}
