//! What the libraries share that stand before the C library (`ecalls run --threads`, `--io`): how
//! they call the functions that they stand before, how they keep descriptors of their own, and what
//! functions check that are given the size of a buffer.

#![allow(
    unsafe_code,
    reason = "it calls functions of the C library by their names"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one function or another, for one reason"
)]

pub mod descriptors;
pub mod errno;
pub mod fortify;
pub mod next;
