//! What the commands `ecalls` and `ecalls-bench` have in common: how they print, end, and read what
//! people write. It is no library for others; that is the crate `ecalls`.
//!
//! - [`exit`]: exit codes, and failures as one line; [`stop`]: ending at SIGINT and SIGTERM;
//! - [`output`]: tables for people, JSON for programs; [`duration`]: `250us`, `5ms`.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "it is not published, and names say enough")]

pub mod duration;
pub mod exit;
pub mod output;
pub mod stop;
