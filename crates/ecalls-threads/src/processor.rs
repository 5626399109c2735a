//! A virtual processor's words: which activation has it, and how it changes hands.
//!
//! Pure algorithm on atomics, for the runtime and for a model.
//!
//! - `active`: the number of the activation that has the processor, 0: none. Its holder writes 0
//!   (it
//!   blocks knowingly, or has nothing to do) or another one's number (`restart`); the kernel side
//!   writes 0 when the holder blocks; from 0, whoever exchanges it first has the processor.
//! - `spares`: how many activations wait for this processor. Each counts itself.
//! - `unblocked`: those that came back from blocking and found the processor taken: a list that
//!   grows at its head, and that a scheduler takes whole.
//!
//! A processor is given up knowingly only if a spare waits: otherwise nobody would take it.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Links of the unblocked activations, by number.
pub(crate) trait Links {
    /// The link of activation `number`.
    fn next(&self, number: u32) -> &AtomicU32;
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

    /// The holder becomes a spare, and the processor goes to `to`; 0: to whoever takes it.
    pub(crate) fn retire(&self, to: u32) {
        self.spares.fetch_add(1, Ordering::SeqCst);
        self.active.store(to, Ordering::SeqCst);
    }
}

/// The activations that came back and wait to be restarted.
#[derive(Debug)]
pub(crate) struct Unblocked(AtomicU32);

impl Unblocked {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn push(&self, links: &impl Links, number: u32) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            links.next(number).store(head, Ordering::Relaxed);
            match self
                .0
                .compare_exchange_weak(head, number, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all, in the order in which they came back.
    pub(crate) fn take_all(&self, links: &impl Links, mut each: impl FnMut(u32)) {
        if self.is_empty() {
            return;
        }
        let mut newest = self.0.swap(0, Ordering::SeqCst);
        let mut oldest = 0;
        while newest != 0 {
            let next = links.next(newest).load(Ordering::Relaxed);
            links.next(newest).store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
        }
        while oldest != 0 {
            // Once it is ready it can be restarted, block, and be linked again.
            let next = links.next(oldest).load(Ordering::Relaxed);
            each(oldest);
            oldest = next;
        }
    }
}
