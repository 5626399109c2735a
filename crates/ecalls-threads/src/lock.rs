//! Locks between user-level threads: one that waits gives up its processor, not its kernel thread.
//!
//! Kernel threads from outside of the runtime may use them too; they sleep on a futex.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::wait::{Waiters, now_ns};

/// Mutual exclusion. A panic does not poison it. A thread that asks at the right moment can have it
/// before one that waits.
pub struct Mutex<T> {
    locked: AtomicBool,
    /// 1 or more: somebody waits, or is about to.
    waiting: AtomicU64,
    waiters: Waiters,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A mutex that holds `value`.
    pub fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            waiters: Waiters::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        while !self.take() {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.waiters
                .wait_unless(|| !self.locked.load(Ordering::SeqCst));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        MutexGuard(self)
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.take().then(|| MutexGuard(self))
    }

    #[inline]
    fn take(&self) -> bool {
        self.locked
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    fn give(&self) {
        self.locked.store(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.waiters.wake_one();
        }
    }

    /// The value of a mutex that nobody uses any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// The lock, held.
#[must_use = "the lock is held for as long as this lives"]
#[derive(Debug)]
pub struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// A condition that threads wait for, with a mutex. A wait may end without cause: ask again.
#[derive(Debug)]
pub struct Condvar {
    waiters: Waiters,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    /// A condition that nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            waiters: Waiters::new(),
        }
    }

    /// Gives up the mutex, waits to be notified, and takes the mutex again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.0;
        self.waiters.wait_unless(|| {
            drop(guard);
            false
        });
        mutex.lock()
    }

    /// The same for at most `limit`; the second result is false if that has passed.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.0;
        let until_ns = now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let in_time = self.waiters.wait_until(Some(until_ns), || {
            drop(guard);
            false
        });
        (mutex.lock(), in_time)
    }

    /// Wakes the thread that has waited longest.
    pub fn notify_one(&self) {
        self.waiters.wake_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.waiters.wake_all();
    }
}

/// A number of permits.
#[derive(Debug)]
pub struct Semaphore {
    permits: AtomicU64,
    waiting: AtomicU64,
    waiters: Waiters,
}

impl Semaphore {
    /// A semaphore with so many permits.
    #[must_use]
    pub fn new(permits: u64) -> Self {
        Self {
            permits: AtomicU64::new(permits),
            waiting: AtomicU64::new(0),
            waiters: Waiters::new(),
        }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> bool {
        self.permits
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| {
                now.checked_sub(1)
            })
            .is_ok()
    }

    /// Waits for a permit.
    pub fn acquire(&self) {
        while !self.try_acquire() {
            self.wait(None);
        }
    }

    /// Waits for a permit for at most `limit`; false: that has passed.
    pub fn acquire_for(&self, limit: Duration) -> bool {
        let until_ns = now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        loop {
            if self.try_acquire() {
                return true;
            }
            if !self.wait(Some(until_ns)) {
                return self.try_acquire();
            }
        }
    }

    fn wait(&self, until_ns: Option<u64>) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let in_time = self
            .waiters
            .wait_until(until_ns, || self.permits.load(Ordering::SeqCst) > 0);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        in_time
    }

    /// Gives a permit.
    pub fn release(&self) {
        self.permits.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.waiters.wake_one();
        }
    }

    /// Permits that are left.
    pub fn permits(&self) -> u64 {
        self.permits.load(Ordering::Relaxed)
    }
}
