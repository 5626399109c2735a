//! `abi/ready.h`: the memory by which a thread is told which of its sockets may be ready (ECalls-01
//! §3.2, ECalls-05 §5.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Words of 64 descriptors each.
pub const READY_WORDS: u32 = 1024;
/// Words of flags.
pub const READY_FLAGS: u32 = 16;
/// Maps to which one socket can be introduced.
pub const READY_SEATS: u32 = 8;
/// In place of a descriptor: the introduction ends.
pub const READY_REMOVE: u32 = u32::MAX;
/// The option name of an introduction.
pub const SETSOCKOPT_READY: i32 = 0x4544;

/// `struct ecalls_ready_word`: 64 descriptors.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReadyWord {
    /// Both sides: those that may be ready.
    pub fd_active: u64,
    /// Process: those whose hints are wanted.
    pub fd_list: u64,
}

/// `struct ecalls_readiness`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// Both sides: a bit for each word of `fd_active` that may have bits.
    pub flag: [u64; READY_FLAGS as usize],
    /// Both sides: 1: the process wants a wake-up.
    pub sleeping: u64,
    /// Kernel side: hints that were not coalesced.
    pub hints: u64,
    /// Kernel side: wake-ups.
    pub wakes: u64,
    /// Zero.
    pub pad: [u64; 13],
    /// By descriptor.
    pub word: [ReadyWord; READY_WORDS as usize],
}

/// `struct ecalls_ready_call`: what introduces a socket to a map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ReadyCall {
    /// Of the map.
    pub key: u64,
    /// Of the map.
    pub row: u32,
    /// The descriptor, or [`READY_REMOVE`].
    pub number: u32,
}
