//! The program; the library has everything.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use ecalls_answer::Cache;

/// A key/value cache that speaks memcached's protocol for UDP
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Command {
    /// Address and UDP port
    at: SocketAddr,
    /// Have the kernel answer what is asked again on this interface (as root)
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// The most replies of the kernel in a second
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    per_second: u64,
}

fn run(command: &Command) -> Result<(), Box<dyn std::error::Error>> {
    let interface = command.interface.as_deref();
    let mut cache = Cache::open(command.at, interface, command.per_second)?;
    println!("ready at {}", cache.address()?);
    loop {
        cache.serve()?;
    }
}

fn main() -> ExitCode {
    match run(&Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("answer: {error}");
            ExitCode::FAILURE
        }
    }
}
