//! Shared by the commands `ecalls` and `ecalls-bench`: output, exit codes, and parsing of users'
//! values. Applications use the crate `ecalls` instead.
//!
//! - [`arguments`]: those of `ecalls bench` and `ecalls demo`;
//! - [`preload`]: the library that is loaded before a program's C library;
//! - [`exit`]: exit codes and failures; [`stop`]: ending at SIGINT and SIGTERM;
//! - [`output`]: tables for people, JSON for programs; [`duration`]: `250us`, `5ms`.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod duration;
pub mod exit;
pub mod output;
pub mod preload;
pub mod stop;
