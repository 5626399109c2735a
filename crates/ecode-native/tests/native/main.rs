//! Machine code does what the interpreter does, and what the judge says.
//!
//! - `same`: random programs, the texts of `tests/ecode/run`, the recipes, operators, `fixed`;
//! - `hostile`: texts that were written to get out, and programs that lie about their indices.
//!
//! In tests/denied.rs: a process that may not make code.

#![cfg(target_arch = "x86_64")]
#![forbid(unsafe_code)]

mod hostile;
mod same;
