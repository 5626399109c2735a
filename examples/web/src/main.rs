//! The program; the library has everything.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// A web server of one thread
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Command {
    #[command(flatten)]
    arguments: ecalls_web::Arguments,
}

fn main() -> ExitCode {
    match ecalls_web::serve(&Command::parse().arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("web: {error}");
            ExitCode::FAILURE
        }
    }
}
