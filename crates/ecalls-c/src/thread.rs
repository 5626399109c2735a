//! User-level threads. Man page: ecalls_thread(3).
//!
//! A function here may return on another kernel thread than the one on which it was called. Where
//! threads have no storage of their own, an address of thread-local storage from before is wrong
//! then; so `errno` is asked for anew after each switch, and `error` stores its text in a function
//! that is never inlined.
//!
//! There is no pair of functions around a call that may block, but [`ecalls_thread_blocking`] with
//! a callback: a pair could be left open across a lock or by an early return, and the thread would
//! then run beside the one that has its processor until its next scheduling point.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ecalls::now_ns;
use ecalls_threads::{self as threads, Current, Interest, JoinHandle};

use crate::error::{Failure, Outcome, guard};
use crate::local::{CANCELLED, Joint, Start, count_call, execute, is_due, is_due_at_wait, obey};
use crate::pointer::{
    Options, give, options, output, reference, take, take_back, text, write_optional,
};
use crate::runtime::RuntimeHandle;

/// Where a wait ends at a time: it never does.
pub const ECALLS_NEVER: u64 = u64::MAX;

/// What stands for a wait without an end: 146 years, which can still be added to the time.
const FOREVER_NS: u64 = u64::MAX / 4;

/// What ecalls_thread_wait_ready() waits for: a read would not block.
pub const ECALLS_THREAD_READABLE: u32 = 1;
/// What ecalls_thread_wait_ready() waits for: a write would not block.
pub const ECALLS_THREAD_WRITABLE: u32 = 2;

/// What a thread executes. Its result is that of ecalls_thread_join().
pub type ThreadStart = Option<unsafe extern "C" fn(argument: *mut c_void) -> *mut c_void>;

/// A call that may block.
pub type ThreadCall = Option<unsafe extern "C" fn(argument: *mut c_void)>;

/// How a thread begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadOptions {
    /// Size of this struct.
    pub size: u32,
    /// Its priority: more is more important.
    pub priority: u32,
    /// Its deadline, ns of CLOCK_MONOTONIC. 0: none.
    pub deadline_ns: u64,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for ThreadOptions {
    const LEAST: usize = size_of::<ThreadOptions>();
}

/// `ecalls_thread_t`.
#[derive(Debug)]
pub struct ThreadHandle {
    pub(crate) handle: JoinHandle<Pointer>,
    pub(crate) joint: Arc<Joint>,
}

/// A pointer of the caller, an argument or a result, on its way between threads.
#[derive(Debug)]
pub(crate) struct Pointer(*mut c_void);

// SAFETY: the library does not dereference it; the caller passes it for this purpose.
unsafe impl Send for Pointer {}

impl Pointer {
    /// The result of a thread that executes `start` with this argument.
    fn call(self, start: Start, joint: Arc<Joint>) -> Pointer {
        Pointer(execute(joint, start, self.0))
    }
}

/// A thread that may be named by NULL: the calling one.
///
/// # Safety
/// As [`reference`].
unsafe fn named(thread: *const ThreadHandle) -> Outcome<Current> {
    if thread.is_null() {
        return threads::current().ok_or_else(|| {
            Failure::new(
                libc::ESRCH,
                "the caller is no thread of a runtime: name one",
            )
        });
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { reference(thread, "the thread") }?.handle.thread())
}

/// Executes `body`, and leaves `errno` as `body` has it although a switch may follow.
fn keeping_errno(body: impl FnOnce(&mut c_int)) {
    let mut errno = read_errno();
    body(&mut errno);
    // SAFETY: it has no requirements; the place is asked for after the switch.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's.
    unsafe { place.write(errno) };
}

fn read_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Creates a thread, which executes `start(argument)`; any thread may call this. `options` NULL:
/// priority 0, no deadline. `thread` NULL: detached. Otherwise the handle must be ended by
/// ecalls_thread_join() or ecalls_thread_detach(). -ENOSPC: the runtime has as many threads as it
/// may.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_create(
    runtime: *const RuntimeHandle,
    start: ThreadStart,
    argument: *mut c_void,
    options: *const ThreadOptions,
    thread: *mut *mut ThreadHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let runtime = unsafe { reference(runtime, "the runtime") }?;
        let Some(start) = start else {
            return Err(Failure::invalid("the thread's start is NULL"));
        };
        let (priority, deadline_ns) = if options.is_null() {
            (0, 0)
        } else {
            // SAFETY: options (the root's Safety).
            let given = unsafe { self::options(options, "the thread's options") }?;
            (given.priority, given.deadline_ns)
        };
        let argument = Pointer(argument);
        let joint = Arc::<Joint>::default();
        let its = Arc::clone(&joint);
        let handle = runtime.0.spawn_after(
            move || argument.call(start, its),
            |current| {
                current.set_priority(priority);
                current.set_deadline_ns(deadline_ns);
            },
        )?;
        if let Ok(place) = output(thread, "") {
            // SAFETY: an output (the root's Safety).
            unsafe { give(place, ThreadHandle { handle, joint }) };
        }
        Ok(0)
    })
}

/// Waits until a thread has ended, and ends its handle. Its result is written to `result`, which
/// may be NULL. Any thread may call this. A cancellation point: if the caller ends so, the handle
/// stays. -EDEADLK: it is the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_join(
    thread: *mut ThreadHandle,
    result: *mut *mut c_void,
) -> c_int {
    let code = guard(|| {
        // SAFETY: a handle (the root's Safety).
        let known = unsafe { reference(thread, "the thread") }?;
        if threads::current().is_some_and(|current| current == known.handle.thread()) {
            return Err(Failure::new(libc::EDEADLK, "a thread cannot join itself"));
        }
        if known.joint.await_end() == CANCELLED {
            return Ok(CANCELLED);
        }
        // SAFETY: a handle (the root's Safety).
        let handle = unsafe { take(thread, "the thread") }?;
        let ended = handle.handle.join().map_err(|_| {
            Failure::new(
                libc::ENOTRECOVERABLE,
                "a bug in libecalls: a thread panicked",
            )
        })?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(result, ended.0) };
        Ok(0)
    });
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}

/// Ends the handle of a thread, which runs on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_detach(thread: *mut ThreadHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(thread) };
}

/// Returns whether the caller is a user-level thread: 1, and its number, unique in its runtime, is
/// written to `number`, which may be NULL; or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_self(number: *mut u64) -> c_int {
    guard(|| {
        let Some(current) = threads::current() else {
            return Ok(0);
        };
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(number, current.id()) };
        Ok(1)
    })
}

/// Gives a thread a name, for `ecalls threads`, which shows its first 15 bytes. `thread` NULL: the
/// calling one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_set_name(
    thread: *const ThreadHandle,
    name: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a text (the root's Safety).
        let name = unsafe { text(name, "the name") }?;
        // SAFETY: a handle (the root's Safety).
        unsafe { named(thread) }?.set_name(name);
        Ok(0)
    })
}

/// Sets a thread's priority, from the next time on that it becomes ready: more is more important,
/// with ECALLS_THREADS_RANKED. `thread` NULL: the calling one; -ESRCH: it is none of a runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_set_priority(
    thread: *const ThreadHandle,
    priority: u32,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        unsafe { named(thread) }?.set_priority(priority);
        Ok(0)
    })
}

/// Sets a thread's deadline in the same way, ns of CLOCK_MONOTONIC; 0: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_set_deadline(
    thread: *const ThreadHandle,
    deadline_ns: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        unsafe { named(thread) }?.set_deadline_ns(deadline_ns);
        Ok(0)
    })
}

/// Gives other ready threads the processor. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_thread_yield() -> c_int {
    guard(|| {
        threads::yield_now();
        Ok(0)
    })
}

/// Sleeps; the processor executes other threads. A cancellation point. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_sleep(time_us: u64) -> c_int {
    let until_ns = now_ns().saturating_add(time_us.saturating_mul(1000));
    // SAFETY: as for this function.
    unsafe { ecalls_thread_sleep_until(until_ns) }
}

/// Sleeps until `until_ns`. A cancellation point. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_sleep_until(until_ns: u64) -> c_int {
    let code = guard(|| {
        loop {
            if is_due_at_wait() {
                return Ok(CANCELLED);
            }
            threads::sleep_until(until_ns);
            // A request to end may have interrupted it.
            if !is_due() && now_ns() >= until_ns {
                return Ok(0);
            }
        }
    });
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}

/// Executes `call(argument)`, which may block in the kernel: the processor executes other threads
/// meanwhile. A cancellation point before the call, and not within it: a request to end neither
/// interrupts the call nor loses what it has done. Returns 0; `errno` is as the call left it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_blocking(call: ThreadCall, argument: *mut c_void) -> c_int {
    let code = guard(|| {
        let Some(call) = call else {
            return Err(Failure::invalid("the call is NULL"));
        };
        if is_due() {
            return Ok(CANCELLED);
        }
        count_call(1);
        keeping_errno(|errno| {
            threads::blocking(|| {
                // SAFETY: the caller gave the function with its argument.
                unsafe { call(argument) };
                *errno = read_errno();
            });
        });
        count_call(-1);
        Ok(0)
    });
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}

/// A scheduling point, and nothing else, for use after a call that may have blocked and was not in
/// ecalls_thread_blocking(). Returns 0; `errno` stays.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_thread_scheduling_point() -> c_int {
    guard(|| {
        keeping_errno(|_| threads::scheduling_point());
        Ok(0)
    })
}

/// Waits until a descriptor is ready (ECALLS_THREAD_READABLE or _WRITABLE), until `until_ns` or
/// ECALLS_NEVER: without a kernel thread, which a thread that blocks in read() has. A cancellation
/// point. 0: it is ready. -ETIMEDOUT: the time has come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_wait_ready(
    fd: c_int,
    interest: u32,
    until_ns: u64,
) -> c_int {
    let code = guard(|| {
        let interest = match interest {
            ECALLS_THREAD_READABLE => Interest::Read,
            ECALLS_THREAD_WRITABLE => Interest::Write,
            other => {
                return Err(Failure::invalid(format!(
                    "the interest is {other}: it is ECALLS_THREAD_READABLE or _WRITABLE"
                )));
            }
        };
        if fd < 0 {
            return Err(Failure::new(libc::EBADF, format!("{fd} is no descriptor")));
        }
        // SAFETY: not -1; the caller keeps it open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        loop {
            if is_due_at_wait() {
                return Ok(CANCELLED);
            }
            let left_ns = until_ns.saturating_sub(now_ns()).min(FOREVER_NS);
            let waited = threads::wait_ready_for(fd, interest, Duration::from_nanos(left_ns));
            let is_ready =
                waited.map_err(|error| Failure::system("wait for a descriptor", &error))?;
            // A request to end may have interrupted it.
            if is_ready {
                return Ok(0);
            }
            if !is_due() && now_ns() >= until_ns {
                return Ok(-libc::ETIMEDOUT);
            }
        }
    });
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}
