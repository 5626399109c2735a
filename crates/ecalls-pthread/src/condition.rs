//! Condition variables. Nothing of one changes while its process alone uses it: who waits is in
//! the runtime's table.

use std::ffi::c_int;

use ecalls_threads::blocking;
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, ETIMEDOUT, clockid_t, pthread_cond_t, pthread_mutex_t,
    timespec,
};

use crate::cancel;
use crate::lock::{pthread_mutex_lock, unlock};
use crate::runtime::{can_park, park, unpark};
use crate::shared::{MONOTONIC_CONDITION, SHARED_CONDITION};
use crate::{next, time};

unsafe fn is_foreign(cond: *const pthread_cond_t) -> bool {
    // SAFETY: the caller's condition.
    !can_park() || unsafe { SHARED_CONDITION.is_in(cond) }
}

/// Gives up the mutex, waits, and takes the mutex again.
///
/// # Safety
/// The caller has the mutex.
unsafe fn wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until_ns: Option<u64>,
) -> c_int {
    cancel::point();
    let mut unlocked = 0;
    let in_time = park(cond.addr(), until_ns, || {
        // SAFETY: as the caller says.
        unlocked = unsafe { unlock(mutex, || false) };
        unlocked != 0
    });
    if unlocked != 0 {
        return unlocked;
    }
    // SAFETY: the caller's mutex.
    let locked = unsafe { pthread_mutex_lock(mutex) };
    // A thread that is cancelled here executes its handlers with the mutex locked.
    cancel::point();
    match locked {
        0 if !in_time => ETIMEDOUT,
        result => result,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if is_foreign(cond) {
            return blocking(|| next::pthread_cond_wait(cond, mutex));
        }
        wait(cond, mutex, None)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if is_foreign(cond) {
            return blocking(|| next::pthread_cond_timedwait(cond, mutex, until));
        }
        let clock = if MONOTONIC_CONDITION.is_in(cond) {
            CLOCK_MONOTONIC
        } else {
            CLOCK_REALTIME
        };
        match time::until_ns(clock, &*until) {
            Ok(until_ns) => wait(cond, mutex, Some(until_ns)),
            Err(errno) => errno,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if is_foreign(cond) {
            return blocking(|| next::pthread_cond_clockwait(cond, mutex, clock, until));
        }
        match time::until_ns(clock, &*until) {
            Ok(until_ns) => wait(cond, mutex, Some(until_ns)),
            Err(errno) => errno,
        }
    }
}

unsafe fn wake(cond: *mut pthread_cond_t, most: usize, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's.
    if unsafe { is_foreign(cond) } {
        return real();
    }
    // What the caller has changed is seen by whoever has not begun to wait.
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    unpark(cond.addr(), most);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { wake(cond, 1, || next::pthread_cond_signal(cond)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { wake(cond, usize::MAX, || next::pthread_cond_broadcast(cond)) }
}
