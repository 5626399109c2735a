//! The rows of `ecalls bench ecode`.
//!
//! - [`start`]: the time from a text to a handler that runs in the kernel;
//! - [`cost`]: the cost per event, beside the same handler in C;
//! - [`native`]: a call in user space as machine code, beside the same handler in C.

pub(super) mod cost;
pub(super) mod native;
pub(super) mod start;

use super::rows::Section;

/// All sections. The names are a contract: other programs use them.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        rows: start::ROWS,
        slow: true,
        measure: start::measure,
    },
    Section {
        rows: &["bpftrace_start"],
        slow: true,
        measure: start::bpftrace,
    },
    Section {
        rows: &["true_start"],
        slow: true,
        measure: start::nothing,
    },
    Section {
        rows: cost::ROWS,
        slow: false,
        measure: cost::measure,
    },
    Section {
        rows: native::ROWS,
        slow: false,
        measure: native::measure,
    },
];
