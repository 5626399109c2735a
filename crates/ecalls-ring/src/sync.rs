//! The atomics of this crate: the processor's, or loom's for a model (`--cfg loom`).
//!
//! loom explores every value that every load may see, so a model's event has few words: the
//! sequence, `id`, and the word of `size` and `subscription`; and of a further entry one word. That
//! is enough to detect a torn copy.

#[cfg(not(loom))]
pub use core::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};

/// Whether a word of an event's first entry is copied.
pub(crate) const fn is_copied(word: usize) -> bool {
    !cfg!(loom) || word == 1 || word == 10
}

/// Number of words of a further entry that are copied.
pub(crate) const FURTHER_WORDS: usize = if cfg!(loom) {
    1
} else {
    ecalls_abi::event::ENTRY_DATA / 8
};
