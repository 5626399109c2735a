//! Keys. The C library keeps the values in the thread's control block; what it does at a kernel
//! thread's end, calling the destructors, is done here at a user-level thread's.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::pthread_key_t;

use crate::next;

type Destructor = unsafe extern "C-unwind" fn(*mut c_void);

/// PTHREAD_KEYS_MAX of glibc.
const KEYS: usize = 1024;
/// PTHREAD_DESTRUCTOR_ITERATIONS.
const ROUNDS: usize = 4;

static DESTRUCTORS: [AtomicPtr<c_void>; KEYS] = [const { AtomicPtr::new(ptr::null_mut()) }; KEYS];
/// Keys beyond the highest one that had a destructor.
static END: AtomicUsize = AtomicUsize::new(0);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_key_create(
    key: *mut pthread_key_t,
    destructor: Option<Destructor>,
) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { next::pthread_key_create(key, destructor) };
    if result == 0 {
        // SAFETY: it was written.
        let index = unsafe { *key } as usize;
        let address = destructor.map_or(ptr::null_mut(), |call| call as *mut c_void);
        if let Some(place) = DESTRUCTORS.get(index) {
            place.store(address, Ordering::Release);
            if !address.is_null() {
                END.fetch_max(index + 1, Ordering::AcqRel);
            }
        }
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_key_delete(key: pthread_key_t) -> c_int {
    if let Some(place) = DESTRUCTORS.get(key as usize) {
        place.store(ptr::null_mut(), Ordering::Release);
    }
    // SAFETY: the caller's.
    unsafe { next::pthread_key_delete(key) }
}

/// Calls the destructors of the calling thread's values, which end.
pub(crate) fn destroy() {
    for _ in 0..ROUNDS {
        let mut found = false;
        let end = END.load(Ordering::Acquire);
        for (key, destructor) in DESTRUCTORS.iter().take(end).enumerate() {
            let destructor = destructor.load(Ordering::Acquire);
            if destructor.is_null() {
                continue;
            }
            let key = pthread_key_t::try_from(key).unwrap_or(pthread_key_t::MAX);
            // SAFETY: reads the caller's value.
            let value = unsafe { libc::pthread_getspecific(key) };
            if value.is_null() {
                continue;
            }
            found = true;
            // SAFETY: what `pthread_key_create` was given, with a value of this key; POSIX has it
            // called with the value already gone.
            unsafe {
                libc::pthread_setspecific(key, ptr::null());
                std::mem::transmute::<*mut c_void, Destructor>(destructor)(value);
            }
        }
        if !found {
            return;
        }
    }
}
