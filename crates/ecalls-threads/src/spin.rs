//! A lock for a few instructions, held by whoever has a virtual processor.
//!
//! It touches no thread-local storage (as std's does), since the scheduler of an activation runs
//! with that of some thread, and it never gives up a processor.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicBool, Ordering, Patience};

pub(crate) struct Spin<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        let mut patience = Patience::new();
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            patience.wait();
        }
        Held(self)
    }
}

impl<T: Default> Spin<T> {
    /// In the child of a fork, where whoever held the lock does not exist: unlocks it, and forgets
    /// the value, which might be half changed.
    pub(crate) fn forget(&self) {
        // SAFETY: the caller's is the only thread.
        unsafe { self.value.get().write(T::default()) };
        self.locked.store(false, Ordering::Release);
    }
}

impl<T: Default> Default for Spin<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Spin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spin").finish_non_exhaustive()
    }
}

pub(crate) struct Held<'a, T>(&'a Spin<T>);

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}
