//! Printing, shared by all subcommands.

use std::io::Write;

use crate::exit::Outcome;

/// Writes bytes to standard output.
pub(crate) fn write_all(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}
