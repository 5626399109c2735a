//! The C library: the crate `ecalls` behind a C ABI, with the same nouns.
//!
//! There is one file per group of functions and man page. The documentation of the functions is
//! written for C programmers: it is copied into `include/ecalls.h`, whose opening comment holds the
//! conventions. All files rely on two of them: [`pointer`] is the only place that dereferences
//! callers' pointers, and [`error`] turns panics into codes and stores the texts.
//!
//! # Safety
//!
//! Every function here relies on the same promises of its caller (the header states them): a handle
//! is null or was opened by this library and is not closed yet; a text is null or ends with 0;
//! options are null or at least as long as their `size` says; an output is null or can be written;
//! memory that is passed is not changed by others during the call.

#![warn(missing_docs)]
#![allow(
    unsafe_code,
    reason = "pointers of C callers are this crate's work; see the root's Safety"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the promises are the same for all functions: the root's Safety"
)]

mod local;
mod pointer;

// The order of the header: blank lines keep the formatter from sorting it.

pub mod error;

pub mod host;

pub mod channel;

pub mod action;

pub mod subscription;

pub mod service;

pub mod call;

pub mod timer;

pub mod socket;

pub mod ready;

pub mod answer;

pub mod signal;

pub mod net_channel;

pub mod publisher;

pub mod event_loop;

pub mod event_source;

pub mod coop;

pub mod window;

pub mod runtime;

pub mod thread;

pub mod cancel;

pub mod key;

pub mod lock;
