//! Mutexes, conditions and semaphores. Man page: ecalls_mutex(3).
//!
//! Each is one word in the caller's memory, and waiting is by its address (`ecalls_threads::park`):
//! nothing is allocated, and nothing has to be closed. Once a word has its new value, only its
//! address is used, so the thread that then owns the memory may free it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use ecalls_threads::park::{park, unpark};

use crate::error::{Failure, Outcome, guard};
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

/// Waits until `take` succeeds; `is_free`: it could. The code for the caller.
fn wait(
    word: &AtomicU32,
    until_ns: u64,
    take: fn(&AtomicU32) -> bool,
    is_free: fn(u32) -> bool,
) -> c_int {
    let limit = (until_ns != ECALLS_NEVER).then_some(until_ns);
    let mut in_time = until_ns != 0;
    while !take(word) {
        if !in_time {
            return -libc::ETIMEDOUT;
        }
        // Whoever comes too late looks once more, because a wake-up may have been meant for it.
        in_time = park(address(word), limit, || {
            is_free(word.load(Ordering::SeqCst))
        });
    }
    0
}

fn lock(word: &AtomicU32, until_ns: u64) -> c_int {
    wait(word, until_ns, take_mutex, |locked| locked == 0)
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
/// notification: ask again.
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
    guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let mutex = unsafe { word(mutex.cast(), "the mutex") }?;
        // SAFETY: as above.
        let word = unsafe { word(condition.cast(), "the condition") }?;
        if mutex.load(Ordering::Relaxed) == 0 {
            return Err(Failure::new(libc::EPERM, "the mutex is not locked"));
        }
        let limit = (until_ns != ECALLS_NEVER).then_some(until_ns);
        let in_time = park(address(word), limit, || {
            unlock(mutex);
            false
        });
        lock(mutex, ECALLS_NEVER);
        Ok(if in_time { 0 } else { -libc::ETIMEDOUT })
    })
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

/// Waits for a permit, and takes it.
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
    guard(|| {
        // SAFETY: an object of the caller (the root's Safety).
        let word = unsafe { word(semaphore.cast(), "the semaphore") }?;
        Ok(wait(word, until_ns, take_permit, |permits| permits != 0))
    })
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
