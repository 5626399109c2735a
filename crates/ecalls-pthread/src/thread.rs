//! Creating threads, waiting for them, ending, and what else is asked of one by its `pthread_t`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ecalls_threads::{
    Current, JoinHandle, blocking, can_switch, is_thread, kernel_thread, note_signal_mask,
    yield_now,
};
use libc::{
    CLOCK_REALTIME, EAGAIN, EBUSY, EDEADLK, EINVAL, ENOTSUP, ESRCH, ETIMEDOUT, pthread_attr_t,
    pthread_t, size_t, timespec,
};

use crate::name::Name;
use crate::next::{self, Start};
use crate::runtime::{self, park, unpark};
use crate::signals::{self, Signals};
use crate::{cancel, cpus, key, time};

const CANCELED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// In the place of the record of a thread that has been joined, or has ended detached. Its control
/// block stays: the next thread has it.
const GONE: *mut c_void = ptr::without_provenance_mut(1);

const ENDED: u32 = 1;
const DETACHED: u32 = 2;

unsafe extern "C-unwind" {
    fn ecalls_record_get() -> *mut c_void;
    fn ecalls_record_set(now: *mut c_void);
    fn ecalls_record_of(thread: pthread_t) -> *mut c_void;
    fn ecalls_record_set_of(thread: pthread_t, now: *mut c_void);
    fn ecalls_start(start: Start, argument: *mut c_void, result: *mut *mut c_void) -> c_int;
}

/// A user-level thread. Its control block has a pointer to this, which counts as a reference until
/// the thread has been joined, or has ended detached.
#[derive(Debug)]
pub(crate) struct Record {
    thread: OnceLock<Current>,
    handle: Mutex<Option<JoinHandle<()>>>,
    /// `ENDED`, `DETACHED`.
    state: AtomicU32,
    result: AtomicPtr<c_void>,
    /// The kernel thread that is in a system call for it; 0: none.
    call: AtomicU32,
    pub(crate) signals: Signals,
    pub(crate) name: Name,
}

/// Whose thread a `pthread_t` is.
enum Owner {
    Runtime(Arc<Record>),
    /// It is a kernel thread.
    Kernel,
    /// It was the runtime's, and has been joined or has ended detached.
    Nobody,
}

/// Answers what is asked of a thread: `ours` of one of the runtime's, `real` of a kernel thread.
///
/// # Safety
/// The thread exists, or has been one of the runtime's.
pub(crate) unsafe fn ask(
    thread: pthread_t,
    real: impl FnOnce() -> c_int,
    ours: impl FnOnce(&Arc<Record>) -> c_int,
) -> c_int {
    // SAFETY: as the caller says.
    match unsafe { Record::of(thread) } {
        Owner::Runtime(record) => ours(&record),
        Owner::Kernel => real(),
        Owner::Nobody => ESRCH,
    }
}

/// User-level threads that have not ended.
static LIVE: AtomicUsize = AtomicUsize::new(0);

impl Record {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: OnceLock::new(),
            handle: Mutex::new(None),
            state: AtomicU32::new(0),
            result: AtomicPtr::new(CANCELED),
            call: AtomicU32::new(0),
            signals: Signals::default(),
            name: Name::new(),
        })
    }

    /// Whose thread that is.
    ///
    /// # Safety
    /// The thread exists, or has been one of the runtime's.
    unsafe fn of(thread: pthread_t) -> Owner {
        if !runtime::is_started() {
            return Owner::Kernel;
        }
        // SAFETY: as the caller says, it is a control block.
        let record = unsafe { ecalls_record_of(thread) };
        if record.is_null() {
            return Owner::Kernel;
        }
        if record == GONE {
            return Owner::Nobody;
        }
        let record: *const Self = record.cast_const().cast();
        // SAFETY: the reference of the control block keeps it.
        Owner::Runtime(unsafe {
            Arc::increment_strong_count(record);
            Arc::from_raw(record)
        })
    }

    /// The calling thread's.
    pub(crate) fn mine<'a>() -> Option<&'a Self> {
        // SAFETY: reads a variable of the thread.
        let record = unsafe { ecalls_record_get() };
        if record.addr() <= GONE.addr() {
            return None;
        }
        // SAFETY: it is kept until the thread has ended.
        unsafe { record.cast_const().cast::<Self>().as_ref() }
    }

    /// Gives up the reference of the control block, which another thread can get from here on.
    ///
    /// # Safety
    /// It is given up once, and the block is still the thread's.
    unsafe fn release(self: &Arc<Self>) {
        let block = self.thread.get().and_then(Current::control_block);
        // SAFETY: as the caller says.
        unsafe {
            if let Some(block) = block {
                ecalls_record_set_of(block as pthread_t, GONE);
            }
            Arc::decrement_strong_count(Arc::as_ptr(self));
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(Ordering::SeqCst) & ENDED != 0
    }

    /// The runtime's thread, once it has been created.
    pub(crate) fn thread(&self) -> Option<&Current> {
        self.thread.get()
    }

    /// The kernel thread that is in a system call for it; 0: none.
    pub(crate) fn in_call(&self) -> u32 {
        self.call.load(Ordering::SeqCst)
    }

    /// The kernel thread that executes it, or has last; 0: none yet.
    pub(crate) fn kernel_thread(&self) -> u32 {
        self.thread.get().map_or(0, Current::kernel_thread)
    }

    /// Ends its wait in the runtime.
    pub(crate) fn interrupt(&self) {
        if let Some(thread) = self.thread.get() {
            thread.interrupt();
        }
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// While it lives, a kernel thread is in a system call for a thread.
struct Call<'a> {
    record: &'a Record,
    /// The thread is in the handler of a signal that has interrupted another call, perhaps.
    before: u32,
}

impl<'a> Call<'a> {
    fn begin(record: &'a Record) -> Self {
        let tid = kernel_thread().unwrap_or(0);
        let before = record.call.swap(tid, Ordering::SeqCst);
        Self { record, before }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.record.call.store(self.before, Ordering::SeqCst);
    }
}

/// The calling thread goes on outside of the calls in which it was.
pub(crate) fn leave_call() {
    if let Some(record) = Record::mine() {
        record.call.store(0, Ordering::SeqCst);
    }
}

/// Executes a call that may block its kernel thread, for the calling thread.
pub(crate) fn in_call<R>(call: impl FnOnce() -> R) -> R {
    let Some(record) = Record::mine().filter(|_| is_thread()) else {
        return call();
    };
    let result = blocking(|| {
        let _call = Call::begin(record);
        // Who sends one from here on ends the call.
        signals::take();
        call()
    });
    cancel::point();
    signals::take();
    result
}

/// In the child of a fork: no user-level thread exists.
pub(crate) fn forget_all() {
    LIVE.store(0, Ordering::SeqCst);
    // SAFETY: the calling thread is a kernel thread now.
    unsafe { ecalls_record_set(ptr::null_mut()) };
}

// --- creation ---

/// What a user-level thread can have of the attributes: whether it is detached; `None`: only a
/// kernel thread has them.
///
/// # Safety
/// The attributes are initialized, or null.
unsafe fn suits(attr: *const pthread_attr_t) -> Option<bool> {
    if attr.is_null() {
        return Some(false);
    }
    let (mut detached, mut inherits, mut policy) = (0, 0, 0);
    let (mut low, mut bytes) = (ptr::null_mut(), 0);
    let mut cpus = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: as the caller says; each writes what it is given.
    let got_cpus = unsafe {
        pthread_attr_getdetachstate(attr, &raw mut detached);
        libc::pthread_attr_getinheritsched(attr, &raw mut inherits);
        libc::pthread_attr_getschedpolicy(attr, &raw mut policy);
        libc::pthread_attr_getstack(attr, &raw mut low, &raw mut bytes);
        pthread_attr_getaffinity_np(attr, size_of::<libc::cpu_set_t>(), cpus.as_mut_ptr())
    };
    // Without CPUs of its own the set is full.
    // SAFETY: it was zeroed.
    let cpus = unsafe { cpus.assume_init() };
    // SAFETY: counts bits.
    let has_cpus = got_cpus == 0 && unsafe { libc::CPU_COUNT(&cpus) } < 1024;
    let has_policy = inherits == libc::PTHREAD_EXPLICIT_SCHED && policy != libc::SCHED_OTHER;
    let has_stack = low.addr().wrapping_add(bytes) != 0;
    if has_cpus || has_policy || has_stack || !has_default_stack(attr) {
        return None;
    }
    Some(detached == libc::PTHREAD_CREATE_DETACHED)
}

/// Whether a thread asks for no larger stack than all have.
fn has_default_stack(attr: *const pthread_attr_t) -> bool {
    let mut bytes = 0;
    // SAFETY: the caller's attributes.
    unsafe { libc::pthread_attr_getstacksize(attr, &raw mut bytes) };
    bytes <= runtime::stack_bytes()
}

unsafe extern "C" {
    fn pthread_attr_getaffinity_np(
        attr: *const pthread_attr_t,
        bytes: size_t,
        cpus: *mut libc::cpu_set_t,
    ) -> c_int;
    fn pthread_attr_getdetachstate(attr: *const pthread_attr_t, detached: *mut c_int) -> c_int;
    fn pthread_attr_setstack(attr: *mut pthread_attr_t, low: *mut c_void, bytes: size_t) -> c_int;
}

/// What the thread executes.
struct Body {
    record: *const Record,
    start: Start,
    argument: *mut c_void,
    forks: usize,
}

// SAFETY: the argument is the program's, which passes it on to the thread.
unsafe impl Send for Body {}

impl Body {
    fn run(self) {
        let mut result = ptr::null_mut();
        // SAFETY: the thread's own variable; the program's function and argument.
        let has_returned = unsafe {
            ecalls_record_set(self.record.cast_mut().cast());
            signals::take();
            ecalls_start(self.start, self.argument, &raw mut result) != 0
        };
        if self.forks != runtime::forks() {
            // The child of a fork, whose last thread ends.
            // SAFETY: as the C library does.
            unsafe { libc::exit(0) };
        }
        // SAFETY: the control block's reference, which `end` may give up.
        let record = unsafe {
            Arc::increment_strong_count(self.record);
            Arc::from_raw(self.record)
        };
        if has_returned {
            record.result.store(result, Ordering::Release);
        } else {
            // It may have left the handler of a signal, with the mask of that.
            cancel::unblock();
            note_signal_mask(None);
        }
        // SAFETY: destroys the thread's variables; a second time is nothing.
        unsafe { next::__call_tls_dtors() };
        key::destroy();
        // SAFETY: nothing asks for the calling thread's record from here on.
        unsafe { ecalls_record_set(self.record.cast_mut().cast()) };
        let before = record.state.fetch_or(ENDED, Ordering::SeqCst);
        unpark(record.address(), usize::MAX);
        if before & DETACHED != 0 {
            // SAFETY: once, as it is detached.
            unsafe { record.release() };
        }
        if LIVE.fetch_sub(1, Ordering::SeqCst) == 1 {
            unpark((&raw const LIVE).addr(), usize::MAX);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    let real = || cpus::unbound(|| unsafe { next::pthread_create(thread, attr, start, argument) });
    if runtime::is_ours(start as *const c_void) {
        return real();
    }
    let Some(runtime) = runtime::start() else {
        return real();
    };
    // SAFETY: the caller's attributes.
    let Some(is_detached) = (unsafe { suits(attr) }) else {
        return real();
    };
    let record = Record::new();
    if is_detached {
        record.state.store(DETACHED, Ordering::Relaxed);
    }
    // The control block's reference.
    let pointer = Arc::into_raw(Arc::clone(&record));
    let body = Body {
        record: pointer,
        start,
        argument,
        forks: runtime::forks(),
    };
    let mask = signals::mask();
    LIVE.fetch_add(1, Ordering::SeqCst);
    let mut handle = match record.handle.lock() {
        Ok(handle) => handle,
        Err(poisoned) => poisoned.into_inner(),
    };
    let spawned = runtime.spawn_after(
        move || body.run(),
        |current| {
            let block = current.control_block().unwrap_or(0) as pthread_t;
            // Nobody else sets it.
            let _ = record.thread.set(current.clone());
            current.set_signal_mask(mask);
            // SAFETY: the new thread's control block, and the caller's variable.
            unsafe {
                ecalls_record_set_of(block, pointer.cast_mut().cast());
                *thread = block;
            }
        },
    );
    match spawned {
        Ok(joined) => {
            if !is_detached {
                *handle = Some(joined);
            }
            0
        }
        Err(_) => {
            drop(handle);
            LIVE.fetch_sub(1, Ordering::SeqCst);
            // SAFETY: no thread has it.
            unsafe { record.release() };
            EAGAIN
        }
    }
}

// --- the end ---

/// Waits for a thread until a time; `None`: for ever.
fn join(
    thread: pthread_t,
    record: &Arc<Record>,
    result: *mut *mut c_void,
    until_ns: Option<u64>,
) -> c_int {
    // SAFETY: the caller's own.
    if thread == unsafe { libc::pthread_self() } {
        return EDEADLK;
    }
    if record.state.load(Ordering::SeqCst) & DETACHED != 0 {
        return EINVAL;
    }
    cancel::point();
    while !record.has_ended() {
        if !park(record.address(), until_ns, || record.has_ended()) && !record.has_ended() {
            return if until_ns == Some(0) {
                EBUSY
            } else {
                ETIMEDOUT
            };
        }
        cancel::point();
    }
    let handle = record
        .handle
        .lock()
        .ok()
        .and_then(|mut handle| handle.take());
    let Some(handle) = handle else {
        return EINVAL;
    };
    // A thread's panic ends in its own stack, before this.
    let _ = handle.join();
    if !result.is_null() {
        // Old programs pass the address of an `int`.
        // SAFETY: the caller's variable.
        unsafe { result.write_unaligned(record.result.load(Ordering::Acquire)) };
    }
    // SAFETY: once, as the handle was there.
    unsafe { record.release() };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's thread and variable.
    unsafe {
        let real = || in_call(|| next::pthread_join(thread, result));
        ask(thread, real, |record| join(thread, record, result, None))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_tryjoin_np(
    thread: pthread_t,
    result: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's thread and variable.
    unsafe {
        let real = || next::pthread_tryjoin_np(thread, result);
        ask(thread, real, |record| join(thread, record, result, Some(0)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_timedjoin_np(
    thread: pthread_t,
    result: *mut *mut c_void,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's thread, variable and time.
    unsafe {
        let real = || in_call(|| next::pthread_timedjoin_np(thread, result, until));
        ask(thread, real, |record| {
            let until = until.as_ref();
            match until.map(|until| time::until_ns(CLOCK_REALTIME, until)) {
                Some(Ok(until_ns)) => join(thread, record, result, Some(until_ns.max(1))),
                Some(Err(errno)) => errno,
                None => join(thread, record, result, None),
            }
        })
    }
}

/// Lets a thread of the runtime run on without one that joins it.
fn detach(record: &Arc<Record>) -> c_int {
    let handle = record
        .handle
        .lock()
        .ok()
        .and_then(|mut handle| handle.take());
    if handle.is_none() {
        return EINVAL;
    }
    if record.state.fetch_or(DETACHED, Ordering::SeqCst) & ENDED != 0 {
        // SAFETY: once, as the thread has ended without. `record` keeps the block.
        unsafe { record.release() };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_detach(thread: pthread_t) -> c_int {
    // SAFETY: the caller's thread.
    unsafe { ask(thread, || next::pthread_detach(thread), detach) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_exit(result: *mut c_void) -> ! {
    if let Some(record) = Record::mine() {
        record.result.store(result, Ordering::Release);
    } else if runtime::is_started() && is_main() {
        // The process ends with its last thread.
        while LIVE.load(Ordering::SeqCst) > 0 {
            let live = (&raw const LIVE).addr();
            park(live, None, || LIVE.load(Ordering::SeqCst) == 0);
        }
        // SAFETY: the caller ends.
        unsafe { libc::exit(0) };
    }
    // SAFETY: as above; a user-level thread's stack is unwound to `ecalls_start`.
    unsafe { next::pthread_exit(result) }
}

/// Whether the caller is the first kernel thread of the process.
fn is_main() -> bool {
    // SAFETY: both ask.
    unsafe { libc::gettid() == libc::getpid() }
}

// --- what is asked of a thread ---

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sched_yield() -> c_int {
    if can_switch() {
        yield_now();
        signals::take();
        return 0;
    }
    // SAFETY: gives up the CPU.
    in_call(|| unsafe { next::sched_yield() })
}

/// The attributes that a thread of the runtime has.
fn attributes_of(record: &Record, attr: *mut pthread_attr_t) -> c_int {
    let Some(current) = record.thread.get() else {
        return ESRCH;
    };
    let (low, bytes) = current.stack();
    let detached = record.state.load(Ordering::Relaxed) & DETACHED != 0;
    // SAFETY: the caller's attributes.
    unsafe {
        let result = libc::pthread_attr_init(attr);
        if result != 0 {
            return result;
        }
        libc::pthread_attr_setdetachstate(attr, c_int::from(detached));
        pthread_attr_setstack(attr, low as *mut c_void, bytes)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_getattr_np(
    thread: pthread_t,
    attr: *mut pthread_attr_t,
) -> c_int {
    // SAFETY: the caller's thread and attributes.
    unsafe {
        let real = || next::pthread_getattr_np(thread, attr);
        ask(thread, real, |record| attributes_of(record, attr))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_getschedparam(
    thread: pthread_t,
    policy: *mut c_int,
    param: *mut libc::sched_param,
) -> c_int {
    // SAFETY: the caller's thread and variables.
    unsafe {
        let real = || next::pthread_getschedparam(thread, policy, param);
        ask(thread, real, |_| {
            *policy = libc::SCHED_OTHER;
            (*param).sched_priority = 0;
            0
        })
    }
}

/// 0 for what a user-level thread has.
fn refused_unless(is_so: bool, error: c_int) -> c_int {
    if is_so { 0 } else { error }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_setschedparam(
    thread: pthread_t,
    policy: c_int,
    param: *const libc::sched_param,
) -> c_int {
    // SAFETY: the caller's thread and parameters.
    unsafe {
        let real = || next::pthread_setschedparam(thread, policy, param);
        ask(thread, real, |_| {
            refused_unless(policy == libc::SCHED_OTHER, ENOTSUP)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int {
    // SAFETY: the caller's thread.
    unsafe {
        let real = || next::pthread_setschedprio(thread, priority);
        ask(thread, real, |_| refused_unless(priority == 0, EINVAL))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_getcpuclockid(
    thread: pthread_t,
    clock: *mut libc::clockid_t,
) -> c_int {
    // SAFETY: the caller's thread and variable.
    unsafe {
        let real = || next::pthread_getcpuclockid(thread, clock);
        // The time of the kernel threads that execute it is not only its own.
        ask(thread, real, |_| libc::ENOENT)
    }
}

/// A user-level thread has the CPUs of its process: a wish for fewer cannot be met.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_setaffinity_np(
    thread: pthread_t,
    bytes: size_t,
    cpus: *const libc::cpu_set_t,
) -> c_int {
    // SAFETY: the caller's thread and set.
    unsafe {
        let real = || next::pthread_setaffinity_np(thread, bytes, cpus);
        ask(thread, real, |_| EINVAL)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_getaffinity_np(
    thread: pthread_t,
    bytes: size_t,
    cpus: *mut libc::cpu_set_t,
) -> c_int {
    // SAFETY: the caller's thread and set.
    unsafe {
        let real = || next::pthread_getaffinity_np(thread, bytes, cpus);
        ask(thread, real, |_| {
            // The first kernel thread's.
            let got = libc::sched_getaffinity(libc::getpid(), bytes, cpus);
            refused_unless(got >= 0, EINVAL)
        })
    }
}
