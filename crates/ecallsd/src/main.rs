//! The command `ecallsd`. Its work is in the library, because `ecalls daemon` does the same.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Hosts the event core and lets programs without privileges use it.
#[derive(Debug, Parser)]
#[command(name = "ecallsd", version, max_term_width = 100)]
struct Command {
    #[command(flatten)]
    args: ecallsd::Args,
}

fn main() -> ExitCode {
    match ecallsd::run(&Command::parse().args, &[]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ecallsd: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
