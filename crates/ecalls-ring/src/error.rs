//! Errors: an invalid segment, and no room.

use core::fmt;

/// A slice of words is not a valid segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadSegment {
    /// It ends before the last element that its header announces.
    TooShort {
        /// Its length in words.
        words: usize,
        /// The length that it needs, in words.
        needed: usize,
    },
    /// Its header is of another version of the contract.
    Version {
        /// The version in the header.
        found: u32,
    },
    /// Its layout is not that of this reader or writer.
    Layout {
        /// The number in the header.
        found: u32,
    },
    /// Its capacity is not a power of two, or above the layout's limit.
    Capacity {
        /// The capacity in the header.
        found: u32,
    },
    /// Its slot use is not a valid number.
    SlotUse {
        /// The number in the header.
        found: u32,
    },
    /// Its slots have no entry, or more than an event in a slot takes.
    Width {
        /// The entries of a slot in the header.
        found: u32,
    },
}

impl fmt::Display for BadSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSegment::TooShort { words, needed } => {
                write!(
                    f,
                    "segment has {words} words of the {needed} that its header promises"
                )
            }
            BadSegment::Version { found } => write!(f, "segment has ABI version {found}"),
            BadSegment::Layout { found } => write!(f, "segment has layout {found}"),
            BadSegment::Capacity { found } => write!(f, "segment has a capacity of {found}"),
            BadSegment::SlotUse { found } => write!(f, "segment has slot use {found}"),
            BadSegment::Width { found } => write!(f, "segment has slots of {found} entries"),
        }
    }
}

impl core::error::Error for BadSegment {}

/// There is no room: the other side has not kept up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room: the other side has not kept up")
    }
}

impl core::error::Error for Full {}
