//! What this library keeps of each thread: the request to end, handlers for that case, values of
//! keys, and how its start routine is left.
//!
//! Of a user-level thread it lies at the bottom of the thread's stack, attached to the thread; a
//! kernel thread outside of a runtime has its own as a thread-local variable, and cannot be asked
//! to end. [`Joint`] is the part that others use, too, through the thread's handle.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ecalls_threads::park::{park, unpark};
use ecalls_threads::{self as threads, Request};

use crate::cancel::Cleanup;
use crate::key::{self, Value};

/// The code of a wait that has ended because the thread should. No caller gets it: see [`obey`].
pub(crate) const CANCELLED: c_int = c_int::MIN;

/// The result of a thread that obeyed, ECALLS_THREAD_CANCELLED.
const CANCELLED_RESULT: *mut c_void = usize::MAX as *mut c_void;

pub(crate) type Start = unsafe extern "C" fn(argument: *mut c_void) -> *mut c_void;

// start.c
unsafe extern "C" {
    fn ecalls_start_enter(
        start: Start,
        argument: *mut c_void,
        frame: *mut *mut c_void,
    ) -> *mut c_void;
    fn ecalls_start_leave(frame: *mut c_void, result: *mut c_void) -> !;
}

/// What a thread and those who have its handle share.
#[derive(Debug, Default)]
pub(crate) struct Joint {
    pub(crate) request: Request,
    /// 1: the thread's start routine and all that follows it have ended.
    ended: AtomicU32,
}

impl Joint {
    fn address(&self) -> usize {
        self.ended.as_ptr() as usize
    }

    fn end(&self) {
        self.ended.swap(1, Ordering::SeqCst);
        unpark(self.address(), usize::MAX);
    }

    /// Waits for the thread's end, a cancellation point of the caller.
    pub(crate) fn await_end(&self) -> c_int {
        let has_ended = || self.ended.load(Ordering::SeqCst) != 0;
        loop {
            if is_due() {
                return CANCELLED;
            }
            if has_ended() {
                return 0;
            }
            park(self.address(), None, || is_due_at_wait() || has_ended());
        }
    }
}

/// See above. Used by its thread alone.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) joint: Arc<Joint>,
    /// The handler that was added last.
    pub(crate) cleanup: Cell<*mut Cleanup>,
    /// By key.
    pub(crate) values: RefCell<Vec<Value>>,
    /// By what the start routine is left; null: it cannot be left.
    frame: Cell<*mut c_void>,
    /// Calls of ecalls_thread_blocking() in which the thread is.
    calls: Cell<u32>,
}

impl Local {
    fn new(joint: Arc<Joint>) -> Self {
        Self {
            joint,
            cleanup: Cell::new(null_mut()),
            values: RefCell::new(Vec::new()),
            frame: Cell::new(null_mut()),
            calls: Cell::new(0),
        }
    }

    pub(crate) fn is_in_call(&self) -> bool {
        self.calls.get() > 0
    }

    /// The handler that was added last, which is no more.
    pub(crate) fn take_cleanup(&self) -> Option<Cleanup> {
        let last = self.cleanup.get();
        if last.is_null() {
            return None;
        }
        // SAFETY: memory that was passed with it, and is the library's until now.
        let cleanup = unsafe { last.read() };
        self.cleanup.set(cleanup.before);
        Some(cleanup)
    }

    fn may_leave(&self) -> bool {
        !self.frame.get().is_null() && !self.is_in_call()
    }
}

/// A kernel thread's, outside of a runtime.
struct Outside(Local);

impl Drop for Outside {
    fn drop(&mut self) {
        // SAFETY: it has no requirements.
        let tid = unsafe { libc::gettid() };
        let is_first = u32::try_from(tid) == Ok(std::process::id());
        // The process ends with its first thread, and no destructor is called, as of POSIX's keys.
        if !is_first {
            key::destroy(&self.0);
        }
    }
}

thread_local! {
    static OUTSIDE: Outside = Outside(Local::new(Arc::default()));
}

/// Calls `body` with what is kept of the calling thread; `None`: a kernel thread that has ended but
/// for its thread-local variables.
pub(crate) fn with<R>(body: impl FnOnce(&Local) -> R) -> Option<R> {
    let attached = threads::attached().cast::<Local>();
    if attached.is_null() {
        return OUTSIDE.try_with(|outside| body(&outside.0)).ok();
    }
    // SAFETY: `execute` has attached it, and detaches it before it goes.
    Some(body(unsafe { &*attached }))
}

/// Executes a thread of this library.
pub(crate) fn execute(joint: Arc<Joint>, start: Start, argument: *mut c_void) -> *mut c_void {
    let local = Local::new(joint);
    threads::attach((&raw const local).cast_mut().cast());
    // SAFETY: the caller of the library gave the function with its argument.
    let result = unsafe { ecalls_start_enter(start, argument, local.frame.as_ptr()) };
    local.frame.set(null_mut());
    local.joint.request.set_ends();
    key::destroy(&local);
    threads::attach(null_mut());
    local.joint.end();
    result
}

/// Whether the calling thread should end now. In a call of ecalls_thread_blocking() it cannot.
pub(crate) fn is_due() -> bool {
    with(|local| local.joint.request.is_due() && local.may_leave()).unwrap_or(false)
}

/// The same before a wait.
pub(crate) fn is_due_at_wait() -> bool {
    with(|local| local.joint.request.is_due_at_wait() && local.may_leave()).unwrap_or(false)
}

/// Counts a call of ecalls_thread_blocking() that begins (1) or ends (-1).
pub(crate) fn count_call(change: i32) {
    with(|local| {
        let calls = local.calls.get();
        local.calls.set(calls.wrapping_add_signed(change));
    });
}

/// Whether the calling thread can leave its start routine.
pub(crate) fn may_leave() -> bool {
    with(Local::may_leave).unwrap_or(false)
}

/// The end of a function that is a cancellation point: the code that its caller gets, or the
/// thread's end.
///
/// # Safety
/// Between here and the start routine is nothing that should be dropped.
pub(crate) unsafe fn obey(code: c_int) -> c_int {
    if code == CANCELLED {
        // SAFETY: as for this function; who has the code has asked `is_due`.
        unsafe { leave(CANCELLED_RESULT) };
    }
    code
}

/// Calls the handlers and ends the thread.
///
/// # Safety
/// As for [`obey`], and the thread [`may_leave`].
pub(crate) unsafe fn leave(result: *mut c_void) -> ! {
    let begin = |local: &Local| {
        local.joint.request.set_ends();
        local.frame.get()
    };
    let frame = with(begin).unwrap_or(null_mut());
    while let Some(Cleanup { call, argument, .. }) = with(Local::take_cleanup).flatten() {
        if let Some(call) = call {
            // SAFETY: the caller gave the function with its argument.
            unsafe { call(argument) };
        }
    }
    // SAFETY: as for this function.
    unsafe { ecalls_start_leave(frame, result) }
}
