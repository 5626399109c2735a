//! Mutexes, read-write locks, spin locks, barriers and once. The state of each is the C library's,
//! in the object itself; only who waits is in the runtime's table (`ecalls_threads::park`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use ecalls_threads::park::is_parked;
use ecalls_threads::{blocking, can_switch, in_scheduler, yield_now};
use libc::{
    CLOCK_REALTIME, EBUSY, EDEADLK, ETIMEDOUT, clockid_t, pthread_barrier_t, pthread_mutex_t,
    pthread_once_t, pthread_rwlock_t, pthread_spinlock_t, timespec,
};

use crate::runtime::{can_park, is_started, park, unpark, unpark_later};
use crate::shared::{
    BARRIER_COUNT, CHECKED_MUTEX, ROBUST_MUTEX, SHARED_BARRIER, SHARED_MUTEX, SHARED_RWLOCK,
};
use crate::{next, signals, time};

/// Tries until it succeeds, parked at `address` in between; ETIMEDOUT: the time has come.
fn take(address: usize, until_ns: Option<u64>, mut attempt: impl FnMut() -> c_int) -> c_int {
    loop {
        let mut result = EBUSY;
        let in_time = park(address, until_ns, || {
            result = attempt();
            result != EBUSY
        });
        if result != EBUSY {
            return result;
        }
        if !in_time {
            result = attempt();
            return if result == EBUSY { ETIMEDOUT } else { result };
        }
    }
}

/// The clock and the time of a wait, if it has an end.
type Until = Option<(clockid_t, *const timespec)>;

/// That time, ns.
///
/// # Safety
/// The pointer is to a time, or null.
unsafe fn until_ns(until: Until) -> Result<Option<u64>, c_int> {
    let Some((clock, time)) = until else {
        return Ok(None);
    };
    // SAFETY: as the caller says.
    let time = unsafe { time.as_ref() }.ok_or(libc::EINVAL)?;
    time::until_ns(clock, time).map(Some)
}

/// Locks what an attempt has found locked.
///
/// # Safety
/// `until` is as for `until_ns`.
unsafe fn wait(address: usize, until: Until, attempt: impl FnMut() -> c_int) -> c_int {
    // SAFETY: as the caller says.
    match unsafe { until_ns(until) } {
        Ok(until_ns) => take(address, until_ns, attempt),
        Err(errno) => errno,
    }
}

// --- mutexes ---

/// What another process, or the kernel, may unlock is waited for in the kernel.
unsafe fn is_foreign(mutex: *const pthread_mutex_t) -> bool {
    // SAFETY: it is a mutex.
    unsafe { SHARED_MUTEX.is_in(mutex) || ROBUST_MUTEX.is_in(mutex) }
}

unsafe fn lock(mutex: *mut pthread_mutex_t, until: Until, real: impl FnOnce() -> c_int) -> c_int {
    if !is_started() {
        return real();
    }
    // SAFETY: the caller's mutex.
    let first = unsafe { next::pthread_mutex_trylock(mutex) };
    if first != EBUSY {
        return first;
    }
    if !can_park() {
        return real();
    }
    // SAFETY: as above.
    if unsafe { is_foreign(mutex) } {
        return blocking(real);
    }
    // SAFETY: as above.
    if unsafe { CHECKED_MUTEX.is_in(mutex) } {
        let past = timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // It tells an owner from others, which trylock does not.
        // SAFETY: as above.
        let owned = unsafe { next::pthread_mutex_timedlock(mutex, &raw const past) };
        if owned == 0 || owned == EDEADLK {
            return owned;
        }
    }
    // SAFETY: the mutex and the time are the caller's.
    unsafe { wait(mutex.addr(), until, || next::pthread_mutex_trylock(mutex)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe { lock(mutex, None, || next::pthread_mutex_lock(mutex)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    let real = || unsafe { next::pthread_mutex_timedlock(mutex, until) };
    // SAFETY: the caller's mutex and time.
    unsafe { lock(mutex, Some((CLOCK_REALTIME, until)), real) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    let real = || unsafe { next::pthread_mutex_clocklock(mutex, clock, until) };
    // SAFETY: the caller's mutex and time.
    unsafe { lock(mutex, Some((clock, until)), real) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe { unlock(mutex, in_scheduler) }
}

/// Unlocks a mutex, and wakes who waits for it: later, if the caller is an activation's scheduler,
/// e.g. in the program's own `malloc`, which is asked only if somebody waits.
///
/// # Safety
/// The caller has the mutex.
pub(crate) unsafe fn unlock(
    mutex: *mut pthread_mutex_t,
    in_scheduler: impl FnOnce() -> bool,
) -> c_int {
    let address = mutex.addr();
    // From here on the mutex might not exist: who locks it next may free it.
    // SAFETY: as the caller says.
    let result = unsafe { next::pthread_mutex_unlock(mutex) };
    wake(address, 1, in_scheduler);
    result
}

fn wake(address: usize, most: usize, in_scheduler: impl FnOnce() -> bool) {
    if !is_started() || !is_parked(address) {
        return;
    }
    if in_scheduler() {
        unpark_later(address);
    } else {
        unpark(address, most);
    }
}

// --- read-write locks ---

macro_rules! rwlock {
    ($try:ident: $plain:ident, $timed:ident, $clocked:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $plain(lock: *mut pthread_rwlock_t) -> c_int {
            // SAFETY: the caller's lock.
            unsafe { rwlock(lock, None, next::$try, || next::$plain(lock)) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $timed(
            lock: *mut pthread_rwlock_t,
            until: *const timespec,
        ) -> c_int {
            let times = Some((CLOCK_REALTIME, until));
            // SAFETY: the caller's lock and time.
            unsafe { rwlock(lock, times, next::$try, || next::$timed(lock, until)) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $clocked(
            lock: *mut pthread_rwlock_t,
            clock: clockid_t,
            until: *const timespec,
        ) -> c_int {
            let times = Some((clock, until));
            // SAFETY: the caller's lock and time.
            unsafe {
                rwlock(lock, times, next::$try, || {
                    next::$clocked(lock, clock, until)
                })
            }
        }
    };
}

rwlock!(pthread_rwlock_tryrdlock:
    pthread_rwlock_rdlock, pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock);
rwlock!(pthread_rwlock_trywrlock:
    pthread_rwlock_wrlock, pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock);

unsafe fn rwlock(
    lock: *mut pthread_rwlock_t,
    until: Until,
    attempt: unsafe fn(*mut pthread_rwlock_t) -> c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if !is_started() {
        return real();
    }
    // SAFETY: the caller's lock.
    let first = unsafe { attempt(lock) };
    if first != EBUSY {
        return first;
    }
    if !can_park() {
        return real();
    }
    // SAFETY: as above.
    if unsafe { SHARED_RWLOCK.is_in(lock) } {
        return blocking(real);
    }
    // SAFETY: the lock and the time are the caller's.
    unsafe { wait(lock.addr(), until, || attempt(lock)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    let address = lock.addr();
    // SAFETY: the caller's lock.
    let result = unsafe { next::pthread_rwlock_unlock(lock) };
    // Readers do not wait for each other, so all look.
    wake(address, usize::MAX, in_scheduler);
    result
}

// --- spin locks ---

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    if !can_switch() {
        // SAFETY: the caller's lock.
        return unsafe { next::pthread_spin_lock(lock) };
    }
    loop {
        // SAFETY: the caller's lock.
        let result = unsafe { next::pthread_spin_trylock(lock) };
        if result != EBUSY {
            return result;
        }
        // Whoever has it may wait for this processor.
        yield_now();
        signals::take();
    }
}

// --- barriers ---

/// A barrier's first words, which are 0 when it is initialized, count: below, threads that have
/// come; above, how often it has opened.
///
/// # Safety
/// It is a barrier that only this process uses, so nobody else reads these words.
unsafe fn arrivals<'a>(barrier: *mut pthread_barrier_t) -> &'a AtomicU64 {
    // SAFETY: it begins with two words, and is aligned as a long.
    unsafe { AtomicU64::from_ptr(barrier.cast()) }
}

/// Whether the count of a barrier that only this process uses is where that leaves room for them.
unsafe fn count_of(barrier: *const pthread_barrier_t) -> Option<u64> {
    // SAFETY: the caller's barrier.
    if !can_park() || unsafe { SHARED_BARRIER.is_in(barrier) } {
        return None;
    }
    let at = BARRIER_COUNT.place().filter(|at| *at >= size_of::<u64>())?;
    // SAFETY: the word is in the barrier, and does not change after the initialization.
    Some(unsafe { barrier.byte_add(at).cast::<u32>().read_volatile() }.into())
}

const ONE_OPENING: u64 = 1 << 32;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the caller's barrier.
    let Some(count) = (unsafe { count_of(barrier) }) else {
        // SAFETY: as above.
        return blocking(|| unsafe { next::pthread_barrier_wait(barrier) });
    };
    // SAFETY: as above.
    let arrivals = unsafe { arrivals(barrier) };
    let arrived = arrivals.fetch_add(1, Ordering::AcqRel) + 1;
    let opening = arrived / ONE_OPENING;
    if arrived % ONE_OPENING == count {
        arrivals.store((opening + 1) * ONE_OPENING, Ordering::SeqCst);
        unpark(barrier.addr(), usize::MAX);
        return libc::PTHREAD_BARRIER_SERIAL_THREAD;
    }
    let has_opened = || arrivals.load(Ordering::SeqCst) / ONE_OPENING != opening;
    while !has_opened() {
        park(barrier.addr(), None, has_opened);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the caller's barrier.
    unsafe {
        match count_of(barrier) {
            Some(_) => 0,
            None => next::pthread_barrier_destroy(barrier),
        }
    }
}

// --- once ---

/// What the C library's word is when the routine has been executed; only a short cut.
const DONE: c_int = 2;
/// Addresses of routines' words at which threads are parked are odd, those of locks even.
const ONCE: usize = 1;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_once(
    control: *mut pthread_once_t,
    first: unsafe extern "C-unwind" fn(),
) -> c_int {
    // SAFETY: the caller's word, which is an int.
    let word = unsafe { AtomicI32::from_ptr(control) };
    if word.load(Ordering::Acquire) == DONE {
        return 0;
    }
    if !can_park() {
        // SAFETY: the caller's.
        return unsafe { next::pthread_once(control, first) };
    }
    // Of several threads one executes the routine, in the C library's function; the others would
    // wait for it there, in the kernel. A word that is neither 0 nor done is in somebody's hands.
    let key = control.addr() | ONCE;
    let is_free = || matches!(word.load(Ordering::Acquire), 0 | DONE);
    while !is_free() {
        park(key, None, is_free);
    }
    // Also if the routine throws an exception, or its thread is cancelled.
    let _others = Unpark(key);
    // Two threads that have both found the word free meet in the C library's function.
    // SAFETY: the caller's word and routine.
    blocking(|| unsafe { next::pthread_once(control, first) })
}

/// Has all look that are parked at an address, at its end.
struct Unpark(usize);

impl Drop for Unpark {
    fn drop(&mut self) {
        unpark(self.0, usize::MAX);
    }
}
