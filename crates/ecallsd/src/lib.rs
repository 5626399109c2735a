//! The daemon of ECalls: hosts the machine's core, and lets programs without privileges use it, so
//! that each hurts nobody but itself.
//!
//! Three processes. The *door* accepts clients, reads what they send and checks its form; it has no
//! capability and can do nothing else. The *broker* has CAP_BPF and CAP_PERFMON, decides and acts,
//! and answers each client on a copy of its connection. Between them only checked messages pass.
//! The *compiler* makes programs of the texts in E-code that clients upload, and nothing else.
//! Events and calls never come here: clients share memory with the kernel.
//!
//! - [`config`]: what the administrator decides; [`policy`]: who may do what; [`quota`] and
//!   [`rate`]: how much of it; [`subordinate`]: for whom it counts; [`share`], [`turn`]: that
//!   nobody waits for others;
//! - [`door`], [`relay`], [`broker`]: the way of a message; [`request`]: what can be asked for;
//!   [`client`], [`users`], [`retired`]: what clients have; [`compiler`]: the way of a text;
//! - [`listen`], [`sandbox`]: what the processes are given and give up;
//! - [`log`], [`notify`], [`metrics`]: what is told to people, to systemd and to Prometheus.

#![forbid(unsafe_code)]

pub mod broker;
pub mod client;
pub mod compiler;
pub mod config;
pub mod door;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod policy;
pub mod quota;
pub mod rate;
pub mod relay;
pub mod request;
pub mod retired;
mod run;
pub mod sandbox;
pub mod share;
pub mod subordinate;
pub mod turn;
pub mod users;

pub use run::{Args, Error, keep_compiler, run};
