//! Cancellation. The C library notes it in the thread's control block, and acts on it in its own
//! cancellation points. What this library adds: a thread that waits in the runtime is woken, and
//! one that is in a system call is interrupted by a signal. One that may be cancelled anywhere gets
//! the C library's own signal ([`signals`]).

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{ESRCH, pthread_t};

use crate::thread::{Record, ask};
use crate::{next, signals, slice};

/// Some thread has been cancelled in this process.
static EVER: AtomicBool = AtomicBool::new(false);
/// Cancelled threads that have not ended: a signal that comes before a system call begins is lost,
/// so the monitor repeats it.
static CANCELLED: Mutex<Vec<Arc<Record>>> = Mutex::new(Vec::new());

/// The signal by which glibc cancels.
const SIGCANCEL: c_int = 32;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// A cancellation point of the calling thread.
#[inline]
pub(crate) fn point() {
    if EVER.load(Ordering::Relaxed) {
        // SAFETY: unwinds the stack of a thread that is cancelled, like any cancellation point.
        unsafe { pthread_testcancel() };
    }
}

/// Cancels a thread of the runtime.
fn cancel(thread: pthread_t, record: &Arc<Record>) -> c_int {
    EVER.store(true, Ordering::SeqCst);
    // SAFETY: it is a control block.
    let noted = unsafe { next::pthread_cancel(thread) };
    if noted == ESRCH {
        // The thread may be cancelled at once (asynchronously, or in a system call): the library
        // has noted that it will, did not find the kernel thread of its number, and lets the thread
        // do nothing until it has this signal, whose handler ends it.
        signals::send(record, SIGCANCEL);
    }
    if let Ok(mut cancelled) = CANCELLED.lock() {
        cancelled.push(Arc::clone(record));
    }
    record.interrupt();
    interrupt_call(record);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    let ours = |record: &Arc<Record>| cancel(thread, record);
    // SAFETY: the caller's thread.
    unsafe { ask(thread, || next::pthread_cancel(thread), ours) }
}

/// The handler of a cancellation did not return, and so did not unblock its signal.
pub(crate) fn unblock() {
    slice::unblock(SIGCANCEL);
}

/// The same before that signal is sent to the calling kernel thread: another thread may have been
/// cancelled in it, and have waited elsewhere in its cleanup handlers.
pub(crate) fn unblock_if(signal: c_int) {
    if signal == SIGCANCEL {
        unblock();
    }
}

fn interrupt_call(record: &Record) {
    let tid = record.in_call();
    if tid != 0 {
        slice::send(slice::interrupt_signal(), tid);
    }
}

/// Interrupts the cancelled threads that are in system calls once more.
pub(crate) fn repeat() {
    if !EVER.load(Ordering::Relaxed) {
        return;
    }
    if let Ok(mut cancelled) = CANCELLED.try_lock() {
        cancelled.retain(|record| !record.has_ended());
        cancelled.iter().for_each(|record| interrupt_call(record));
    }
}
