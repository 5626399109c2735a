//! The kernel side of ECalls in user space: loading it, joining it, and the shared tables and
//! segments by which programs control and use it.
//!
//! This is the only crate that touches libbpf, bpf(2) and mmap of kernel memory. Applications use
//! the crate `ecalls` on top of it.
//!
//! One folder per layer, each of which uses those above it in this list only:
//!
//! - `kernel`: the interface of the kernel; [`signal`]: real-time signals, in the papers' order;
//!   [`confined`]: processes that do one piece of work;
//! - [`probe`]: the features of this kernel;
//! - [`ecode`]: E-code programs in the kernel; [`environment`]: the names that they may use;
//! - [`core`]: the core, one per machine, or per instance: loading and joining it; [`channel`],
//!   [`subscription`], [`service`], [`socket`], [`lane`]: the objects of an [`owner`]; [`handler`]:
//!   E-code as actions of subscriptions; [`stat`]: its counters; [`measure`]: its costs;
//! - [`access`]: the interface of the core for a program that hosts it, or for a client of the
//!   daemon; [`handle`]: the program's objects; [`downcall`]: its calls; [`upload`]: texts that are
//!   sent to the daemon; [`refusal`]: errors that the daemon returns;
//! - [`provider`]: services that a program adds while the core runs;
//! - [`scheduler`]: the scheduler;
//! - [`activation`]: what sees a process's threads block;
//! - [`answer`]: datagrams that are answered where they arrive;
//! - [`guard`]: what guards a port against overload;
//! - [`ready`]: what tells a thread which of its sockets may be ready.

#![allow(
    unsafe_code,
    reason = "system calls and mapped kernel memory are this crate's work"
)]

pub mod access;
pub mod activation;
pub mod answer;
pub mod core;
pub mod ecode;
pub mod error;
pub mod guard;
mod kernel;
pub mod probe;
pub mod provider;
pub mod ready;
mod residue;
pub mod scheduler;

pub use access::{downcall, handle, raise, refusal, upload};
pub use core::{
    builtin, channel, handler, lane, look, measure, owner, service, socket, stat, subscription,
    user,
};
pub use ecode::{environment, handwritten};
pub use error::{Error, Result};
pub use kernel::instance::{lock_path, relay_socket_path, socket_path};
pub use kernel::interface::{ip4_of, sender};
pub use kernel::peer::{has_read_all, peer_process, take_descriptors};
pub use kernel::sys::{
    descriptor_of, enable_statistics, is_root, map_ids, may_host, now_ns, pidfd, thread_ns,
    wait_readable,
};
pub use kernel::worker::Worker;
pub use kernel::{baseline, confined, objects, segment, signal};
pub use provider::tracepoint;
pub use residue::residue;
