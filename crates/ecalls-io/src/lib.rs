//! `libecalls_io.so`: loaded before the C library (`ecalls run --io`, or LD_PRELOAD), it answers
//! select and poll of an unmodified program from an epoll set that lasts from call to call. So a
//! call costs what is ready, and not what is asked.
//!
//! - [`calls`]: the functions that it stands before;
//! - [`wait`](mod@wait): one call, from its array to its answer; it sleeps here;
//! - [`set`]: the set of a thread, and how it is kept equal to the arrays of the calls;
//! - [`close`](mod@close), [`descriptor`]: numbers that are closed may be other files' next;
//! - [`thread`]: which set is whose; forks, and handlers of signals.
//!
//! A program that uses epoll itself is not touched. The library allocates by mapping memory only,
//! since poll and close may be called by handlers of signals.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#![allow(
    unsafe_code,
    reason = "it defines functions of the C library, with that library's types"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "what a caller has passed is passed on, for one reason"
)]

mod calls;
mod close;
mod descriptor;
mod next;
mod region;
mod set;
mod thread;
mod wait;
