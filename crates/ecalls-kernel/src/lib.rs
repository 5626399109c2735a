//! The kernel side of ECalls as seen from user space: loading it, joining it, and the shared tables
//! and segments by which programs steer and use it.
//!
//! This is the only crate that touches libbpf, bpf(2) and mmap of kernel memory. Applications use
//! the crate `ecalls` on top of it.
//!
//! - [`core`]: the core, one per machine: load it or join it;
//! - [`channel`], [`subscription`], [`service`], [`socket`]: what a program sets up in it;
//! - [`downcall`]: how a program calls it;
//! - [`stat`]: what it counts; [`measure`], [`baseline`]: what it costs;
//! - [`probe`]: what this kernel offers;
//! - [`signal`]: real-time signals, in the papers' order.

#![allow(
    unsafe_code,
    reason = "system calls and mapped kernel memory are this crate's work"
)]

pub mod baseline;
pub mod builtin;
pub mod channel;
pub mod core;
pub mod downcall;
pub mod error;
mod load;
mod lock;
pub mod measure;
pub mod objects;
mod owner;
pub mod probe;
mod residue;
pub mod segment;
pub mod service;
pub mod signal;
pub mod socket;
pub mod stat;
pub mod subscription;
mod sys;
mod table;
pub mod user;

pub use error::{Error, Result};
pub use lock::LOCK_PATH;
pub use residue::residue;
pub use sys::{descriptor_of, enable_statistics, is_root, now_ns, pidfd, wait_readable};
