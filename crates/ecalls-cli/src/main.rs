//! The command `ecalls`. This file is the map: which subcommands there are, and where each one is.
//!
//! Every subcommand is a file with its arguments (`Args`) and a `run`; they share the printing
//! ([`output`]), the exit codes ([`exit`]), and small things that users write or read: durations
//! ([`duration`]), kernel handlers ([`handler`]), processes ([`process`]). All that
//! they do with the kernel they do through the public library, so each is also an example of it.
//! `bench` and `demo` are another program, `ecalls-bench`, which [`workshop`] starts.

#![forbid(unsafe_code)]

mod answer;
mod chain;
mod channel;
mod cluster;
mod completions;
mod daemon;
mod doctor;
mod ecode;
mod explain;
mod guard;
mod handler;
mod held;
mod man;
mod process;
mod raise;
mod run;
mod sched;
mod service;
mod services;
mod stat;
mod tables;
mod threads;
mod watch;
mod workshop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ecalls_cli::{duration, exit, output, preload, stop};

/// Events between the Linux kernel and applications, with deadlines.
#[derive(Debug, Parser)]
#[command(name = "ecalls", version, after_help = exit::HELP, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_value_name = "COMMAND")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Args),
    Services(services::Args),
    Watch(watch::Args),
    Raise(raise::Args),
    Service(service::Args),
    Channel(channel::Args),
    Cluster(cluster::Args),
    Stat(stat::Args),
    Explain(explain::Args),
    Ecode(ecode::Args),
    /// Demonstrate events with a web server under load, in about a minute
    Demo(workshop::Args),
    /// Measure events, handlers and schedulers on this machine
    Bench(workshop::Args),
    Guard(guard::Args),
    Answer(answer::Args),
    Sched(sched::Args),
    Threads(threads::Args),
    Run(run::Args),
    Daemon(daemon::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Doctor(args) => doctor::run(args),
        Command::Services(args) => services::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Raise(args) => raise::run(args),
        Command::Service(args) => service::run(args),
        Command::Channel(args) => channel::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Ecode(args) => ecode::run(args),
        Command::Demo(args) => workshop::run("demo", args),
        Command::Bench(args) => workshop::run("bench", args),
        Command::Guard(args) => guard::run(args),
        Command::Answer(args) => answer::run(args),
        Command::Sched(args) => sched::run(args),
        Command::Threads(args) => threads::run(args),
        Command::Run(args) => run::run(args),
        Command::Daemon(args) => daemon::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    };
    exit::report(result)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn options_of_every_subcommand_go_together() {
        super::Cli::command().debug_assert();
    }
}
