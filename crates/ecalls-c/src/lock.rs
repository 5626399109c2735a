//! Mutexes, conditions, semaphores, and what is done once. Man pages: ecalls_mutex(3) and, for the
//! last, ecalls_thread_key(3).
//!
//! Each is one word in the caller's memory, and waiting is by its address (`ecalls_threads::park`):
//! nothing is allocated, and nothing has to be closed. Once a word has its new value, only its
//! address is used, so the thread that then owns the memory may free it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use ecalls_threads::park::{park, unpark};

use crate::cancel::{Cleanup, ecalls_thread_cleanup_pop, ecalls_thread_cleanup_push};
use crate::error::{Failure, Outcome, guard};
use crate::local::{CANCELLED, is_due, is_due_at_wait, obey};
use crate::pointer::word;
use crate::thread::ECALLS_NEVER;

/// Mutual exclusion; all bytes 0: nobody has it.
#[repr(C)]
#[derive(Debug)]
pub struct Mutex {
    /// 1: somebody has it.
    pub locked: u32,
}

/// A condition; all bytes 0: nobody has notified.
#[repr(C)]
#[derive(Debug)]
pub struct Condition {
    /// Grows with each notification.
    pub notified: u32,
}

/// A number of permits; all bytes 0: none.
#[repr(C)]
#[derive(Debug)]
pub struct Semaphore {
    /// Permits that are left. The program may set it before the first use.
    pub permits: u32,
}

/// Something that is done once; all bytes 0: it was not done.
#[repr(C)]
#[derive(Debug)]
pub struct Once {
    /// 1: a thread does it; 2: it is done.
    pub state: u32,
}

const ONCE_NEW: u32 = 0;
const ONCE_RUNS: u32 = 1;
const ONCE_DONE: u32 = 2;

/// What is done once.
pub type OnceCall = Option<unsafe extern "C" fn()>;

fn address(word: &AtomicU32) -> usize {
    word.as_ptr() as usize
}

fn take_mutex(word: &AtomicU32) -> bool {
    word.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok()
}

fn take_permit(word: &AtomicU32) -> bool {
    word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| {
        now.checked_sub(1)
    })
    .is_ok()
}

/// Waits for the mutex, no cancellation point. The code for the caller.
fn lock(word: &AtomicU32, until_ns: u64) -> c_int {
    let limit = (until_ns != ECALLS_NEVER).then_some(until_ns);
    let mut in_time = until_ns != 0;
    while !take_mutex(word) {
        if !in_time {
            return -libc::ETIMEDOUT;
        }
        // Whoever comes too late looks once more, because a wake-up may have been meant for it.
        in_time = park(address(word), limit, || word.load(Ordering::SeqCst) == 0);
    }
    0
}

/// Waits for a permit, a cancellation point.
fn acquire(word: &AtomicU32, until_ns: u64) -> c_int {
    let limit = (until_ns != ECALLS_NEVER).then_some(until_ns);
    let mut in_time = until_ns != 0;
    if is_due() {
        return CANCELLED;
    }
    while !take_permit(word) {
        if !in_time {
            return -libc::ETIMEDOUT;
        }
        in_time = park(address(word), limit, || {
            is_due_at_wait() || word.load(Ordering::SeqCst) != 0
        });
        if is_due() {
            // What may have woken this thread is for another one.
            unpark(address(word), 1);
            return CANCELLED;
        }
    }
    0
}

/// False: nobody had it.
fn unlock(word: &AtomicU32) -> bool {
    let was_locked = word.swap(0, Ordering::SeqCst) != 0;
    unpark(address(word), 1);
    was_locked
}

fn notify(condition: *mut Condition, most: usize) -> Outcome<c_int> {
    // SAFETY: an object of the caller (the root's Safety).
    let word = unsafe { word(condition.cast(), "the condition") }?;
    word.fetch_add(1, Ordering::SeqCst);
    unpark(address(word), most);
    Ok(0)
}

/// Waits for the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_mutex_lock(mutex: *mut Mutex) -> c_int {
    // SAFETY: as for this function.
    unsafe { ecalls_mutex_lock_until(mutex, ECALLS_NEVER) }
}

/// The same until `until_ns`; 0: without waiting. -ETIMEDOUT: another thread has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_mutex_lock_until(mutex: *mut Mutex, until_ns: u64) -> c_int {
    guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let word = unsafe { word(mutex.cast(), "the mutex") }?;
        Ok(lock(word, until_ns))
    })
}

/// Gives the mutex up. -EPERM: nobody has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_mutex_unlock(mutex: *mut Mutex) -> c_int {
    guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let word = unsafe { word(mutex.cast(), "the mutex") }?;
        if unlock(word) {
            return Ok(0);
        }
        Err(Failure::new(libc::EPERM, "the mutex is not locked"))
    })
}

/// Gives the mutex up, waits to be notified, and takes the mutex again. It may return without a
/// notification: ask again. A cancellation point: handlers are called with the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_condition_wait(
    condition: *mut Condition,
    mutex: *mut Mutex,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { ecalls_condition_wait_until(condition, mutex, ECALLS_NEVER) }
}

/// The same until `until_ns`. -ETIMEDOUT: the time has come; the caller has the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_condition_wait_until(
    condition: *mut Condition,
    mutex: *mut Mutex,
    until_ns: u64,
) -> c_int {
    let code = guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let mutex = unsafe { word(mutex.cast(), "the mutex") }?;
        // SAFETY: as above.
        let word = unsafe { word(condition.cast(), "the condition") }?;
        if mutex.load(Ordering::Relaxed) == 0 {
            return Err(Failure::new(libc::EPERM, "the mutex is not locked"));
        }
        let limit = (until_ns != ECALLS_NEVER).then_some(until_ns);
        if is_due() {
            return Ok(CANCELLED);
        }
        let in_time = park(address(word), limit, || {
            unlock(mutex);
            is_due_at_wait()
        });
        lock(mutex, ECALLS_NEVER);
        if is_due() {
            // A notification that this thread has got is for another one.
            unpark(address(word), 1);
            return Ok(CANCELLED);
        }
        Ok(if in_time { 0 } else { -libc::ETIMEDOUT })
    });
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}

/// Wakes the thread that has waited longest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_condition_notify_one(condition: *mut Condition) -> c_int {
    guard(|| notify(condition, 1))
}

/// Wakes all that wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_condition_notify_all(condition: *mut Condition) -> c_int {
    guard(|| notify(condition, usize::MAX))
}

/// Waits for a permit, and takes it. A cancellation point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_semaphore_acquire(semaphore: *mut Semaphore) -> c_int {
    // SAFETY: as for this function.
    unsafe { ecalls_semaphore_acquire_until(semaphore, ECALLS_NEVER) }
}

/// The same until `until_ns`; 0: without waiting. -ETIMEDOUT: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_semaphore_acquire_until(
    semaphore: *mut Semaphore,
    until_ns: u64,
) -> c_int {
    let code = guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let word = unsafe { word(semaphore.cast(), "the semaphore") }?;
        Ok(acquire(word, until_ns))
    });
    // SAFETY: nothing here is to be dropped.
    unsafe { obey(code) }
}

/// Gives a permit. -EOVERFLOW: there are 4294967295.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_semaphore_release(semaphore: *mut Semaphore) -> c_int {
    guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let word = unsafe { word(semaphore.cast(), "the semaphore") }?;
        let more = |now: u32| now.checked_add(1);
        if word
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, more)
            .is_err()
        {
            return Err(Failure::new(
                libc::EOVERFLOW,
                "the semaphore has as many permits as it can",
            ));
        }
        unpark(address(word), 1);
        Ok(0)
    })
}

/// Calls `call` if nobody has with this object, and otherwise waits until that call has returned.
/// If the thread ends in the call, the next caller's is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_once(once: *mut Once, call: OnceCall) -> c_int {
    let state = once.cast();
    let code = guard(|| {
        if call.is_none() {
            return Err(Failure::invalid("the call is NULL"));
        }
        // SAFETY: an object of the caller (the root's Safety).
        Ok(begin(unsafe { word(state, "the object") }?))
    });
    let Some(call) = call.filter(|_| code == MUST_CALL) else {
        return code;
    };
    let mut cleanup = Cleanup {
        call: None,
        argument: null_mut(),
        before: null_mut(),
    };
    // SAFETY: the handler is removed below, or called when the thread leaves this function.
    unsafe { ecalls_thread_cleanup_push(&raw mut cleanup, Some(give_up), state.cast()) };
    // SAFETY: the caller gave the call, and nothing here is to be dropped.
    unsafe { call() };
    // SAFETY: it was added above.
    unsafe { ecalls_thread_cleanup_pop(0) };
    // SAFETY: an object of the caller (the root's Safety).
    unsafe { end(state, ONCE_DONE) };
    0
}

/// For `ecalls_thread_once`: the caller is who calls.
const MUST_CALL: c_int = 1;

fn begin(state: &AtomicU32) -> c_int {
    let (runs, acquire) = (ONCE_RUNS, Ordering::Acquire);
    loop {
        match state.compare_exchange(ONCE_NEW, runs, acquire, acquire) {
            Ok(_) => return MUST_CALL,
            Err(ONCE_RUNS) => {
                let is_over = || state.load(Ordering::SeqCst) != ONCE_RUNS;
                park(address(state), None, is_over);
            }
            Err(_) => return 0,
        }
    }
}

/// The handler for a thread that ends in the call.
unsafe extern "C" fn give_up(state: *mut c_void) {
    // SAFETY: `ecalls_thread_once` has passed it.
    unsafe { end(state.cast(), ONCE_NEW) };
}

/// # Safety
/// An object of the caller of `ecalls_thread_once`.
unsafe fn end(state: *mut u32, now: u32) {
    // SAFETY: as for this function.
    if let Ok(state) = unsafe { word(state, "the object") } {
        state.swap(now, Ordering::SeqCst);
        unpark(address(state), usize::MAX);
    }
}
