//! The daemon of ECalls: hosts the machine's core, and lets programs without privileges use it in
//! such a way that none can harm others.
//!
//! It consists of three processes. The *door* accepts clients, receives their messages and checks
//! their form; it has no capability and no other rights. The *broker* has CAP_BPF and CAP_PERFMON,
//! decides and acts, and answers each client on a copy of its connection. Only checked messages
//! pass between them. The *compiler* compiles the texts in E-code that clients upload. Events and
//! calls do not pass through the daemon: clients share memory with the kernel.
//!
//! - [`config`]: the administrator's settings; [`policy`]: the rights of clients; [`quota`] and
//!   [`rate`]: their limits; [`subordinate`]: the user that is charged; [`share`], [`turn`]:
//!   fairness among users;
//! - [`door`], [`relay`], [`broker`]: the way of a message; [`request`]: the requests; [`client`],
//!   [`users`], [`retired`]: what clients hold; [`compiler`]: the way of a text;
//! - [`listen`], [`sandbox`]: the resources and restrictions of the processes;
//! - [`log`], [`notify`], [`metrics`]: output for people, systemd and Prometheus.

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
