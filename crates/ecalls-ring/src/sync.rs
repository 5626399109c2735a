//! The atomics of this crate: the processor's, or loom's for a model (`--cfg loom`).
//!
//! loom explores every value that every load may see, so a model's event has [`EVENT_WORDS`] = 3
//! words: the sequence and two more, enough to detect a torn copy.

#[cfg(not(loom))]
pub use core::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};

/// Largest number of an event's words that are copied.
pub(crate) const EVENT_WORDS: usize = if cfg!(loom) {
    3
} else {
    ecalls_abi::event::EVENT_WORDS
};
