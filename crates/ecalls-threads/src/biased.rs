//! A value that has one owner at a time, which uses it at each switch, and rare guests.
//!
//! The owner's way has no atomic instruction: it says that it is `busy`, and looks whether a guest
//! is there. A guest says so, makes every CPU execute a fence, and waits until the owner is not
//! busy. Of both at the same time, at least one sees the other ([`light_fence`]); the owner then
//! waits for the guest, and the guest gives up if the owner stays busy, since the kernel may have
//! stopped it.

use std::cell::UnsafeCell;
use std::fmt;

use crate::sync::{AtomicBool, Ordering, Patience, heavy_fence, light_fence};

pub(crate) struct Biased<T> {
    /// Written by the owner alone.
    busy: AtomicBool,
    /// Taken by one guest.
    guest: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: of the owner and a guest one has the value at a time.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            busy: AtomicBool::new(false),
            guest: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// # Safety
    /// The caller is the only owner, and became it after the last one's call had returned.
    #[inline]
    pub(crate) unsafe fn own<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        let mut patience = Patience::new();
        loop {
            self.busy.store(true, Ordering::Relaxed);
            light_fence();
            if !self.guest.load(Ordering::Acquire) {
                break;
            }
            self.busy.store(false, Ordering::Release);
            while self.guest.load(Ordering::Acquire) {
                patience.wait();
            }
        }
        // SAFETY: no guest is there, and none begins before `busy` is false.
        let result = use_it(unsafe { &mut *self.value.get() });
        self.busy.store(false, Ordering::Release);
        result
    }

    /// For everybody else; `None` if the owner or another guest has the value.
    pub(crate) fn visit<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.guest
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        heavy_fence();
        let mut patience = Patience::new();
        while self.busy.load(Ordering::Acquire) {
            if patience.is_over() {
                self.guest.store(false, Ordering::Release);
                return None;
            }
            patience.wait();
        }
        // SAFETY: the owner is not busy, and sees the guest before it is again.
        let result = use_it(unsafe { &mut *self.value.get() });
        self.guest.store(false, Ordering::Release);
        Some(result)
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").finish_non_exhaustive()
    }
}
