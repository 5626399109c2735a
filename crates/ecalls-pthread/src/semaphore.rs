//! Unnamed semaphores of one process. The value is the C library's; who waits is in the runtime's
//! table. A semaphore that processes share, as every named one, is waited for in the kernel.

use std::ffi::c_int;

use ecalls_threads::park::{Waited, is_parked};
use ecalls_threads::{blocking, in_scheduler};
use libc::{CLOCK_REALTIME, EAGAIN, EINTR, ETIMEDOUT, clockid_t, sem_t, timespec};

use crate::runtime::{can_park, is_started, park_for_signals, unpark};
use crate::shared::SHARED_SEMAPHORE;
use crate::{cancel, handlers, next, runtime, time};
use ecalls_preload::errno;

/// # Safety
/// It is a semaphore.
unsafe fn take(
    sem: *mut sem_t,
    until_ns: Result<Option<u64>, c_int>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let attempt = || unsafe { next::sem_trywait(sem) };
    if !can_park() {
        return real();
    }
    cancel::point();
    if attempt() == 0 {
        return 0;
    }
    if errno::get() != EAGAIN {
        return -1;
    }
    // SAFETY: as above.
    if unsafe { SHARED_SEMAPHORE.is_in(sem) } {
        return blocking(real);
    }
    let until_ns = match until_ns {
        Ok(until_ns) => until_ns,
        Err(error) => {
            errno::set(error);
            return -1;
        }
    };
    loop {
        let mut taken = false;
        let waited = park_for_signals(sem.addr(), until_ns, || {
            taken = attempt() == 0;
            taken
        });
        if taken || attempt() == 0 {
            return 0;
        }
        match waited {
            Waited::Woken => cancel::point(),
            Waited::TimedOut => {
                errno::set(ETIMEDOUT);
                return -1;
            }
            Waited::Interrupted => {
                errno::set(EINTR);
                return -1;
            }
        }
    }
}

unsafe fn until_ns(clock: clockid_t, until: *const timespec) -> Result<Option<u64>, c_int> {
    // SAFETY: the caller's time.
    time::until_ns(clock, unsafe { &*until }).map(Some)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_wait(sem: *mut sem_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { take(sem, Ok(None), || next::sem_wait(sem)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_timedwait(sem: *mut sem_t, until: *const timespec) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let until_ns = until_ns(CLOCK_REALTIME, until);
        take(sem, until_ns, || next::sem_timedwait(sem, until))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_clockwait(
    sem: *mut sem_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let until_ns = until_ns(clock, until);
        take(sem, until_ns, || next::sem_clockwait(sem, clock, until))
    }
}

/// It may be called by the handler of a signal, which may have interrupted the holder of a lock of
/// the runtime's, or of the allocator's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_post(sem: *mut sem_t) -> c_int {
    let address = sem.addr();
    // SAFETY: the caller's.
    let result = unsafe { next::sem_post(sem) };
    if result == 0 && is_started() && is_parked(address) {
        if in_scheduler() || runtime::is_inside() || handlers::is_in_one() {
            runtime::unpark_later(address);
        } else {
            unpark(address, 1);
        }
    }
    result
}
