//! A virtual processor's words: which activation has it, and how it changes hands.
//!
//! Pure algorithm on atomics, for the runtime and for a model.
//!
//! - `active`: the number of the activation that has the processor, 0: none. Its holder writes 0
//!   (it blocks knowingly, or has nothing to do); the kernel side writes 0 when the holder blocks;
//!   from 0, whoever exchanges it first has the processor.
//! - `spares`: how many activations wait for this processor. Each counts itself.
//! - `unblocked`: the threads that came back from blocking and found the processor taken: a list
//!   that grows at its head, and that a scheduler takes whole.
//!
//! A processor is given up knowingly only if a spare waits: otherwise nobody would take it.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What can be in the list of the unblocked.
pub(crate) trait Linked: Sized {
    /// Its link, which only the list uses.
    fn next(&self) -> &AtomicPtr<Self>;
}

/// The words that the kernel side of one virtual processor uses, too.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) active: AtomicU32,
    pub(crate) spares: AtomicU32,
    /// Written by the kernel side: blocks that it has told, and those it has not.
    pub(crate) told: AtomicU64,
    pub(crate) untold: AtomicU64,
}

impl Words {
    pub(crate) fn active(&self) -> u32 {
        self.active.load(Ordering::Acquire)
    }

    /// Blocks that the kernel side has told, and those it has not.
    #[inline]
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.told), count(&self.untold))
    }

    /// Activation `number`, which is no spare, takes the processor if nobody has it.
    pub(crate) fn take(&self, number: u32) -> bool {
        self.active() == 0
            && self
                .active
                .compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// The same for a spare, which is none afterwards.
    pub(crate) fn take_as_spare(&self, number: u32) -> bool {
        let taken = self.take(number);
        if taken {
            self.spares.fetch_sub(1, Ordering::SeqCst);
        }
        taken
    }

    /// The holder is about to block: the processor is free, if a spare could take it.
    pub(crate) fn leave(&self) -> bool {
        let possible = self.spares.load(Ordering::SeqCst) > 0;
        if possible {
            self.active.store(0, Ordering::SeqCst);
        }
        possible
    }

    /// The holder becomes a spare, and the processor goes to whoever takes it.
    pub(crate) fn retire(&self) {
        self.add_spare();
        self.active.store(0, Ordering::SeqCst);
    }

    /// An activation that does not have the processor waits for it from now on.
    pub(crate) fn add_spare(&self) {
        self.spares.fetch_add(1, Ordering::SeqCst);
    }
}

/// The threads that came back and wait to be chosen. The list has a reference of each.
#[derive(Debug)]
pub(crate) struct Unblocked<T>(AtomicPtr<T>);

impl<T: Linked> Unblocked<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    pub(crate) fn push(&self, thread: Arc<T>) {
        let new = Arc::into_raw(thread).cast_mut();
        // SAFETY: the list's reference, from above, is taken out once it is in the list.
        let link = unsafe { &*new }.next();
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            link.store(head, Ordering::Relaxed);
            match self
                .0
                .compare_exchange_weak(head, new, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all, in the order in which they came back.
    pub(crate) fn take_all(&self, mut each: impl FnMut(Arc<T>)) {
        if self.is_empty() {
            return;
        }
        let mut newest = self.0.swap(null_mut(), Ordering::SeqCst);
        let mut oldest = null_mut();
        // SAFETY: the references of those taken are this function's now.
        while let Some(thread) = unsafe { newest.as_ref() } {
            let next = thread.next().load(Ordering::Relaxed);
            thread.next().store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
        }
        // SAFETY: as above.
        while let Some(thread) = unsafe { oldest.as_ref() } {
            // Once it is ready it can run, block, and be linked again.
            let next = thread.next().load(Ordering::Relaxed);
            // SAFETY: what `push` has made of it, once.
            each(unsafe { Arc::from_raw(oldest) });
            oldest = next;
        }
    }
}
