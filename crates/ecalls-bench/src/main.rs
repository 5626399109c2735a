//! The program `ecalls-bench`: benchmarks and demonstrations, which the command `ecalls` starts for
//! `ecalls bench` and `ecalls demo`. It takes the same arguments, so its help and its manual pages
//! carry those names.
//!
//! - [`mod@bench`]: events, handlers and schedulers, beside what the kernel offers without ECalls;
//! - [`demo`]: the events of a web server under load;
//! - [`web`]: that server and that load.

#![forbid(unsafe_code)]

mod bench;
mod demo;
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ecalls_cli::arguments::{BenchArguments, DemoArguments};
use ecalls_cli::exit::{Code, Failure, Outcome};
use ecalls_cli::{duration, exit, output, stop};

/// Measures and demonstrates ECalls; `ecalls` starts it
#[derive(Debug, Parser)]
#[command(name = "ecalls", bin_name = "ecalls", version)]
#[command(after_help = exit::HELP, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_value_name = "COMMAND")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(BenchArguments),
    Demo(DemoArguments),
    /// Load the core and end at the first event
    #[command(hide = true, name = bench::FIRST_EVENT)]
    FirstEvent,
    /// Send messages from one time to another, or receive them
    #[command(hide = true, name = bench::MESSAGE_PART)]
    MessagePart {
        from_ns: u64,
        end_ns: u64,
        #[arg(long)]
        receives: bool,
    },
    /// Send requests to a server at a fixed rate
    #[command(hide = true, name = bench::LOAD_PART)]
    LoadPart {
        port: u16,
        per_s: u64,
        seconds: u64,
    },
    /// Be the clients of a web server
    #[command(hide = true, name = bench::CLIENTS_PART)]
    ClientsPart(bench::Clients),
    /// Be the web server of the examples
    #[command(hide = true, name = bench::SERVER_PART)]
    WebPart(ecalls_web::Arguments),
    /// Stop, and then be a program
    #[command(hide = true, name = bench::TIMED_PART)]
    TimedPart {
        #[arg(trailing_var_arg = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Be one of the hosts of a measurement
    #[command(hide = true, name = bench::CHANNEL_PART)]
    ChannelPart {
        words: Vec<String>,
    },
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Folder for the pages; created if it does not exist
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    exit::report(match &Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo::run(args),
        Command::FirstEvent => bench::first_event(),
        Command::MessagePart {
            from_ns,
            end_ns,
            receives,
        } => bench::message_part(*from_ns, *end_ns, *receives),
        Command::LoadPart {
            port,
            per_s,
            seconds,
        } => bench::generate(*port, *per_s, *seconds),
        Command::ClientsPart(what) => bench::clients_part(what),
        Command::WebPart(what) => {
            ecalls_web::serve(what).map_err(|error| Failure::new(Code::Failed, error))
        }
        Command::TimedPart { words } => bench::timed_part(words),
        Command::ChannelPart { words } => bench::channel_part(words),
        Command::Man { folder } => write_man_pages(folder),
    })
}

/// One page per command. The page of `ecalls` itself comes with the program `ecalls`.
fn write_man_pages(folder: &Path) -> Outcome {
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let mut pages = whole.get_subcommands().filter(|page| !page.is_hide_set());
    std::fs::create_dir_all(folder)
        .and_then(|()| pages.try_for_each(|page| clap_mangen::generate_to(page.clone(), folder)))
        .map_err(|error| {
            let folder = folder.display();
            Failure::new(
                Code::Failed,
                format!("writing man pages into {folder}: {error}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn options_of_every_subcommand_go_together() {
        super::Cli::command().debug_assert();
    }
}
