//! The kernel side of ECalls in user space: loading it, joining it, and the shared tables and
//! segments by which programs control and use it.
//!
//! This is the only crate that touches libbpf, bpf(2) and mmap of kernel memory. Applications use
//! the crate `ecalls` on top of it.
//!
//! One folder per layer, each of which uses those above it in this list only:
//!
//! - `kernel`: what touches the kernel; [`signal`]: real-time signals, in the papers' order;
//!   [`confined`]: processes that do one piece of work;
//! - [`probe`]: what this kernel offers;
//! - [`ecode`]: E-code programs in the kernel; [`environment`]: what they may name;
//! - [`core`]: the core, one per machine: load it or join it; [`channel`], [`subscription`],
//!   [`service`], [`socket`]: what an [`owner`] has in it; [`handler`]: E-code as actions of
//!   subscriptions; [`stat`]: what it counts; [`measure`]: what it costs;
//! - [`access`]: how a program reaches the core: it hosts it, or the daemon does; [`handle`]: what
//!   it then has there; [`downcall`]: how it calls; [`upload`]: how texts come to the daemon;
//!   [`refusal`]: errors on their way from the daemon;
//! - [`provider`]: services that a program adds while the core runs;
//! - [`scheduler`]: the scheduler.

#![allow(
    unsafe_code,
    reason = "system calls and mapped kernel memory are this crate's work"
)]
#![allow(
    missing_docs,
    reason = "it is not published: only what a name does not say is written down"
)]

pub mod access;
pub mod core;
pub mod ecode;
pub mod error;
mod kernel;
pub mod probe;
pub mod provider;
mod residue;
pub mod scheduler;

pub use access::{downcall, handle, raise, refusal, upload};
pub use core::{
    builtin, channel, handler, look, measure, owner, service, socket, stat, subscription, user,
};
pub use ecode::{environment, handwritten};
pub use error::{Error, Result};
pub use kernel::lock::LOCK_PATH;
pub use kernel::peer::{has_read_all, peer_process, take_descriptors};
pub use kernel::sys::{
    descriptor_of, enable_statistics, is_root, map_ids, may_host, now_ns, pidfd, wait_readable,
};
pub use kernel::{baseline, confined, objects, segment, signal};
pub use provider::tracepoint;
pub use residue::residue;
