//! `ecalls answer`: UDP ports at which the kernel answers.

mod hold;
mod list;

use crate::exit::Outcome;

/// See which UDP ports the kernel answers, and let a program without privileges have one answered
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
A UDP service can have the kernel give its replies where requests arrive, without being woken. As
root it does so by itself (ecalls_answers(3)). For the service of another user root decides where,
how much, and by which text in E-code, e.g.
  ecalls answer hold --interface eth0 --at 0.0.0.0:7000 --user www-data cells.ec";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Hold(hold::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Hold(args) => hold::run(args),
    }
}
