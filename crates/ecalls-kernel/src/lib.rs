//! The kernel side of ECalls as seen from user space: loading it, joining it, and the shared tables
//! and segments by which programs steer and use it.
//!
//! This is the only crate that touches libbpf, bpf(2) and mmap of kernel memory. Applications use
//! the crate `ecalls` on top of it.
//!
//! - [`access`]: how a program reaches the core: it hosts it, or the daemon does;
//! - [`core`]: the core, one per machine: load it or join it;
//! - [`channel`], [`subscription`], [`service`], [`socket`]: what an [`owner`] has in it;
//! - [`handle`]: the same as the program has it that uses it, however it reaches the core;
//! - [`downcall`]: how a program calls it;
//! - [`refusal`]: errors on their way from the daemon;
//! - [`ecode`]: E-code programs in the kernel; [`handler`]: as actions of subscriptions;
//!   [`environment`]: what they may name; [`upload`]: how texts come to the daemon; [`confined`]:
//!   processes that do one piece of work;
//! - [`stat`]: what it counts; [`measure`], [`baseline`]: what it costs;
//! - [`probe`]: what this kernel offers;
//! - [`signal`]: real-time signals, in the papers' order.

#![allow(
    unsafe_code,
    reason = "system calls and mapped kernel memory are this crate's work"
)]

pub mod access;
mod audience;
pub mod baseline;
pub mod builtin;
pub mod channel;
mod client;
pub mod confined;
pub mod core;
pub mod downcall;
pub mod ecode;
pub mod environment;
pub mod error;
mod fate;
mod generic;
pub mod handle;
pub mod handler;
pub mod handwritten;
mod link;
mod load;
mod lock;
pub mod look;
pub mod measure;
mod meeting;
mod memory;
pub mod objects;
pub mod owner;
mod peer;
pub mod probe;
pub mod provider;
pub mod refusal;
mod residue;
mod sampler;
pub mod scheduler;
pub mod segment;
pub mod service;
pub mod signal;
pub mod socket;
pub mod stat;
pub mod subscription;
mod sys;
mod table;
pub mod tracepoint;
pub mod upload;
pub mod user;
mod verdict;

pub use error::{Error, Result};
pub use lock::LOCK_PATH;
pub use peer::{has_read_all, peer_process, take_descriptors};
pub use residue::residue;
pub use sys::{
    descriptor_of, enable_statistics, is_root, map_ids, may_host, now_ns, pidfd, wait_readable,
};
