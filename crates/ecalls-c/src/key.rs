//! Values that each thread has of its own. Man page: ecalls_thread_key(3).
//!
//! A key is an index in a table of this library; its sequence number, odd while the key exists, is
//! beside each value, so that a value outlives its key without effect.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::error::{Failure, guard};
use crate::local::{Local, with};
use crate::pointer::output;
use crate::thread::ThreadCall;

/// The most keys of a process.
pub const ECALLS_THREAD_KEYS_MAX: u32 = 1024;

/// Rounds in which the values that destructors leave are destroyed, as with POSIX threads.
const ROUNDS: usize = 4;

/// Which value, by ecalls_thread_key_create().
pub type ThreadKey = u32;

struct Key {
    /// Odd: it exists.
    sequence: AtomicU32,
    /// A `ThreadCall`.
    destructor: AtomicPtr<c_void>,
}

static KEYS: [Key; ECALLS_THREAD_KEYS_MAX as usize] = [const {
    Key {
        sequence: AtomicU32::new(0),
        destructor: AtomicPtr::new(null_mut()),
    }
}; ECALLS_THREAD_KEYS_MAX as usize];

/// A thread's value, and the sequence number of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    sequence: u32,
    value: *mut c_void,
}

const NONE: Value = Value {
    sequence: 0,
    value: null_mut(),
};

/// The key's index and sequence number; `None`: it does not exist.
fn find(key: ThreadKey) -> Option<(usize, u32)> {
    let index = usize::try_from(key).ok()?;
    let sequence = KEYS.get(index)?.sequence.load(Ordering::Acquire);
    (sequence % 2 == 1).then_some((index, sequence))
}

fn unknown(key: ThreadKey) -> Failure {
    Failure::invalid(format!("{key} is no key of ecalls_thread_key_create()"))
}

/// Calls the destructors of a thread's values.
pub(crate) fn destroy(local: &Local) {
    for _ in 0..ROUNDS {
        let mut found = false;
        let mut index = 0;
        // A destructor may set further values.
        while let Some(Value { sequence, value }) = at(local, index) {
            put(local, index, NONE);
            let key = &KEYS[index];
            let destructor = key.destructor.load(Ordering::Acquire);
            let exists = key.sequence.load(Ordering::Acquire) == sequence;
            if exists && !value.is_null() && !destructor.is_null() {
                found = true;
                // SAFETY: `ecalls_thread_key_create` has stored it.
                let call = unsafe { transmute::<*mut c_void, ThreadCall>(destructor) };
                if let Some(call) = call {
                    // SAFETY: the caller gave the function for such values.
                    unsafe { call(value) };
                }
            }
            index += 1;
        }
        if !found {
            return;
        }
    }
}

fn at(local: &Local, index: usize) -> Option<Value> {
    local.values.borrow().get(index).copied()
}

fn put(local: &Local, index: usize, value: Value) {
    let mut values = local.values.borrow_mut();
    if values.len() <= index {
        values.resize(index + 1, NONE);
    }
    values[index] = value;
}

/// Makes a key, whose value is NULL in each thread. When a thread ends that has another value, that
/// becomes NULL, and `destructor`, which may be NULL, is called with it. -ENOSPC: there are
/// ECALLS_THREAD_KEYS_MAX keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_thread_key_create(
    key: *mut ThreadKey,
    destructor: ThreadCall,
) -> c_int {
    guard(|| {
        let place = output(key, "the place for the key")?;
        for (number, key) in (0..).zip(&KEYS) {
            let sequence = key.sequence.load(Ordering::Relaxed);
            let next = sequence.wrapping_add(1);
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if sequence % 2 == 0
                && key
                    .sequence
                    .compare_exchange(sequence, next, acquire, relaxed)
                    .is_ok()
            {
                let call = destructor.map_or(null_mut(), |call| call as *mut c_void);
                key.destructor.store(call, Ordering::Release);
                // SAFETY: an output (the root's Safety).
                unsafe { place.write(number) };
                return Ok(0);
            }
        }
        Err(Failure::new(
            libc::ENOSPC,
            format!("there are {ECALLS_THREAD_KEYS_MAX} keys: delete some"),
        ))
    })
}

/// Ends a key; no destructor is called.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_thread_key_delete(key: ThreadKey) -> c_int {
    guard(|| {
        let (index, sequence) = find(key).ok_or_else(|| unknown(key))?;
        let next = sequence.wrapping_add(1);
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        KEYS[index]
            .sequence
            .compare_exchange(sequence, next, release, relaxed)
            .map_err(|_| unknown(key))?;
        Ok(0)
    })
}

/// Sets the calling thread's value.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_thread_set_specific(key: ThreadKey, value: *mut c_void) -> c_int {
    guard(|| {
        let (index, sequence) = find(key).ok_or_else(|| unknown(key))?;
        with(|local| put(local, index, Value { sequence, value }))
            .ok_or_else(|| Failure::new(libc::ESRCH, "the thread has ended"))?;
        Ok(0)
    })
}

/// Returns the calling thread's value; NULL: it has none, or the key does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_thread_get_specific(key: ThreadKey) -> *mut c_void {
    let Some((index, sequence)) = find(key) else {
        return null_mut();
    };
    match with(|local| at(local, index)).flatten() {
        Some(found) if found.sequence == sequence => found.value,
        _ => null_mut(),
    }
}
