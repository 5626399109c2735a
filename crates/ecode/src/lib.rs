//! E-code: a small C-like language for kernel handlers and filters (ECalls-05 §3.3, KECho §2.3),
//! compiled from text to verified BPF bytecode, or executed in user space with the same results.
//!
//! The way of a text: [`lexer`] → [`parser`] → [`mod@check`] (a [`tree`] in which nothing is wrong
//! any more) → [`lower`] (the [`ir`]) → [`bpf`] for the kernel, [`run`] for user space. [`check()`]
//! goes it as far as the [`ir`], [`Checked::emit`] from there to the kernel, [`compile()`] both.
//! This crate is pure: it needs no kernel and touches no file.

#![forbid(unsafe_code)]

pub mod ast;
pub mod bpf;
pub mod check;
mod compile;
pub mod data_format;
pub mod diagnostic;
pub mod environment;
pub mod format;
pub mod frame;
pub mod ir;
pub mod lexer;
pub mod limits;
pub mod lower;
pub mod parser;
pub mod range;
pub mod run;
pub mod source;
pub mod suggest;
pub mod tree;
pub mod trial;
pub mod types;
mod unproven;
mod walk;

pub use compile::{Checked, Compiled, Cost, check, compile, compile_with};
