//! The end of a thread before its start routine returns. Man page: ecalls_thread_cancel(3).
//!
//! A thread that ends so calls its handlers, and then leaves the start routine as by longjmp(3).
//! Nothing unwinds the frames in between, which are of C and of functions here that have nothing to
//! drop: each cancellation point obeys as the last thing that it does.

use std::ffi::{c_int, c_void};

use crate::error::{Failure, guard};
use crate::local::{CANCELLED, Local, is_due, leave, may_leave, obey, with};
use crate::pointer::{reference, write_optional};
use crate::thread::{ThreadCall, ThreadHandle};

/// The calling thread ends when it was cancelled, at the next cancellation point.
pub const ECALLS_THREAD_CANCEL_ENABLE: c_int = 0;
/// It does not, until it enables that again.
pub const ECALLS_THREAD_CANCEL_DISABLE: c_int = 1;

/// A handler for the case that the thread ends: memory of the caller until it is removed.
#[repr(C)]
#[derive(Debug)]
pub struct Cleanup {
    /// What is called,
    pub call: ThreadCall,
    /// and its argument.
    pub argument: *mut c_void,
    /// The handler that was added before.
    pub before: *mut Cleanup,
}

/// Adds a handler: `call(argument)` is called if the calling thread ends by ecalls_thread_exit() or
/// because it was cancelled, before the handlers that were added earlier. In the same function
/// ecalls_thread_cleanup_pop() must follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_cleanup_push(
    cleanup: *mut Cleanup,
    call: ThreadCall,
    argument: *mut c_void,
) -> c_int {
    guard(|| {
        if cleanup.is_null() {
            return Err(Failure::invalid("the place for the handler is NULL"));
        }
        with(|local| {
            let before = local.cleanup.replace(cleanup);
            let new = Cleanup {
                call,
                argument,
                before,
            };
            // SAFETY: memory of the caller (the root's Safety).
            unsafe { cleanup.write(new) };
        });
        Ok(0)
    })
}

/// Removes the handler that was added last, and calls it if `execute` is not 0. -EINVAL: there is
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_cleanup_pop(execute: c_int) -> c_int {
    let Some(last) = with(Local::take_cleanup).flatten() else {
        return guard(|| Err(Failure::invalid("the thread has no handler")));
    };
    if let Some(call) = last.call.filter(|_| execute != 0) {
        // SAFETY: the caller gave the function with its argument.
        unsafe { call(last.argument) };
    }
    0
}

/// Ends the calling thread, whose result is `result`; handlers are called first. It returns only if
/// that is not possible. -ESRCH: the thread is not of ecalls_thread_create(), or ends already.
/// -EPERM: it is in a call of ecalls_thread_blocking().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_exit(result: *mut c_void) -> c_int {
    if may_leave() {
        // SAFETY: nothing here is to be dropped.
        unsafe { leave(result) };
    }
    guard(|| {
        if with(Local::is_in_call).unwrap_or(false) {
            return Err(Failure::new(
                libc::EPERM,
                "a thread cannot end in a call of ecalls_thread_blocking()",
            ));
        }
        Err(Failure::new(
            libc::ESRCH,
            "the caller is no thread of ecalls_thread_create(), or ends already",
        ))
    })
}

/// Asks a thread to end: it does so at its next cancellation point, with the result
/// ECALLS_THREAD_CANCELLED, and a wait in which it is ends. Any thread may call this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_cancel(thread: *const ThreadHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let thread = unsafe { reference(thread, "the thread") }?;
        if thread.joint.request.request() {
            thread.handle.thread().interrupt();
        }
        Ok(0)
    })
}

/// Sets whether the calling thread ends when it was cancelled: ECALLS_THREAD_CANCEL_ENABLE, as it
/// begins, or _DISABLE. What held before is written to `before`, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_set_cancel_state(state: c_int, before: *mut c_int) -> c_int {
    guard(|| {
        let is_deferred = match state {
            ECALLS_THREAD_CANCEL_ENABLE => false,
            ECALLS_THREAD_CANCEL_DISABLE => true,
            other => {
                return Err(Failure::invalid(format!(
                    "the state is {other}: it is ECALLS_THREAD_CANCEL_ENABLE or _DISABLE"
                )));
            }
        };
        let was_deferred = with(|local| local.joint.request.set_deferred(is_deferred));
        let state = if was_deferred.unwrap_or(false) {
            ECALLS_THREAD_CANCEL_DISABLE
        } else {
            ECALLS_THREAD_CANCEL_ENABLE
        };
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(before, state) };
        Ok(0)
    })
}

/// A cancellation point, and nothing else. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_test_cancel() -> c_int {
    let code = guard(|| Ok(if is_due() { CANCELLED } else { 0 }));
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}
