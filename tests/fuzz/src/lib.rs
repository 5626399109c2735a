//! What reads bytes that somebody else wrote, as targets of a fuzzer: each takes any bytes, and
//! panics if what it says of them at its top does not hold.
//!
//! Two things run them: `tests/mutated.rs`, with what is kept in corpus/ and changes of it, in each
//! run of the tests; and libFuzzer, guided by coverage and with a sanitizer (libfuzzer/ and the
//! script `run`), which takes a nightly Rust and minutes, by `make nightly`.

#![forbid(unsafe_code)]

mod configuration;
mod ecode_program;
mod ecode_text;
mod format;
mod message;
mod segment;
mod service;
mod upload;

/// A target's name, which its folder in corpus/ has, too, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 8] = [
    ("configuration", configuration::run),
    ("ecode_program", ecode_program::run),
    ("ecode_text", ecode_text::run),
    ("format", format::run),
    ("message", message::run),
    ("segment", segment::run),
    ("service", service::run),
    ("upload", upload::run),
];

/// The bytes up to the first that is no UTF-8: for targets that read text.
fn text(bytes: &[u8]) -> &str {
    let valid = bytes.utf8_chunks().next();
    valid.map_or("", |chunk| chunk.valid())
}
