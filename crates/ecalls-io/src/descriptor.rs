//! What the process's threads know of its descriptors in common: how often each number was closed.
//!
//! A set (set.rs) knows a file by the number under which the program polls it. Once the number was
//! closed it may stand for another file, of which the set knows nothing. So each call that closes a
//! number counts up the number's word, before the kernel closes it, and a set that has noted
//! another count registers the number anew.
//!
//! - CLOSING, 16 bits: calls that close the number at this moment. What a set registers now may be
//!   the file before or the one after: it notes no count, so it registers again.
//! - The generation, 46 bits: calls that have begun to close it.
//! - WATCHED: a set may have it. Whoever closes such a number also counts up [`changes`], which
//!   tells all sets to look.
//! - OWN: it is this library's.
//!
//! A thread sets WATCHED and learns the count in one step, and closes by one step that learns
//! WATCHED: so of two threads that do both at once, one sees the other. A thread that dies while it
//! closes leaves CLOSING behind: the number is then registered for each call, which is slow but
//! right. The child of a vfork closes numbers of its own table and counts them here, with the same
//! effect.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Higher numbers are left to the kernel. The kernel's own limit is as high, unless somebody has
/// raised it.
pub(crate) const MOST: usize = 1 << 20;

const CLOSING: u64 = 1;
const ALL_CLOSING: u64 = (1 << 16) - 1;
const GENERATION: u64 = 1 << 16;
const WATCHED: u64 = 1 << 62;
const OWN: u64 = 1 << 63;

/// A count that no word ever has.
pub(crate) const NEVER: u64 = u64::MAX;

static WORDS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// Above all numbers that were ever watched.
static WATCHED_END: AtomicUsize = AtomicUsize::new(0);
/// The lowest of this library's own, and above the highest.
static OWN_FIRST: AtomicUsize = AtomicUsize::new(MOST);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

fn word(fd: c_int) -> Option<&'static AtomicU64> {
    WORDS.get(usize::try_from(fd).ok()?)
}

/// How often watched numbers were closed.
#[inline]
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::SeqCst)
}

fn count_of(state: u64) -> u64 {
    if state & ALL_CLOSING != 0 {
        NEVER
    } else {
        state & !(WATCHED | OWN)
    }
}

/// The number's count now.
#[inline]
pub(crate) fn count(fd: c_int) -> u64 {
    word(fd).map_or(NEVER, |word| count_of(word.load(Ordering::SeqCst)))
}

/// A set is about to register the number; its count.
pub(crate) fn watch(fd: c_int) -> u64 {
    let Some(word) = word(fd) else { return NEVER };
    let end = usize::try_from(fd).unwrap_or(0) + 1;
    WATCHED_END.fetch_max(end, Ordering::SeqCst);
    count_of(word.fetch_or(WATCHED, Ordering::SeqCst))
}

fn begin(word: &AtomicU64) {
    if word.fetch_add(GENERATION + CLOSING, Ordering::SeqCst) & WATCHED != 0 {
        CHANGES.fetch_add(1, Ordering::SeqCst);
    }
}

fn end(word: &AtomicU64) {
    word.fetch_and(!WATCHED, Ordering::SeqCst);
    word.fetch_sub(CLOSING, Ordering::SeqCst);
}

/// Executes a call that closes a number.
pub(crate) fn closing<R>(fd: c_int, call: impl FnOnce() -> R) -> R {
    let Some(word) = word(fd) else { return call() };
    begin(word);
    let result = call();
    end(word);
    result
}

/// Executes a call that closes all numbers from `first` to `last`.
pub(crate) fn closing_range<R>(first: c_uint, last: c_uint, call: impl FnOnce() -> R) -> R {
    let watched_end = WATCHED_END.load(Ordering::SeqCst);
    let first = first as usize;
    let stop = (last as usize).saturating_add(1).min(watched_end);
    let words = WORDS.get(first..stop).unwrap_or(&[]);
    words.iter().for_each(begin);
    let result = call();
    words.iter().for_each(end);
    result
}

/// The number is this library's.
pub(crate) fn keep(fd: c_int) {
    let Some(word) = word(fd) else { return };
    word.fetch_or(OWN, Ordering::SeqCst);
    let number = usize::try_from(fd).unwrap_or(0);
    OWN_FIRST.fetch_min(number, Ordering::SeqCst);
    OWN_END.fetch_max(number + 1, Ordering::SeqCst);
}

/// It is not any more.
pub(crate) fn give(fd: c_int) {
    if let Some(word) = word(fd) {
        word.fetch_and(!OWN, Ordering::SeqCst);
    }
}

pub(crate) fn is_own(fd: c_int) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::SeqCst) & OWN != 0)
}

/// This library's own, in ascending order.
pub(crate) fn own() -> impl Iterator<Item = c_uint> {
    let (first, end) = (
        OWN_FIRST.load(Ordering::SeqCst),
        OWN_END.load(Ordering::SeqCst),
    );
    let numbers = (first..end).filter(|number| WORDS[*number].load(Ordering::SeqCst) & OWN != 0);
    numbers.filter_map(|number| c_uint::try_from(number).ok())
}
