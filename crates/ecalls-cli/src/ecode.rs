//! `ecalls ecode`: everything that needs a text in E-code but no core: check it, run it on a given
//! event, show the compiler's output, format it, run its tests.
//!
//! One file per subcommand; [`text`] reads the file and determines the environment for which it is
//! compiled, [`value`] converts between JSON and the bytes of an event, [`trial`] holds the memory
//! of one run.

mod check;
mod dump;
mod format;
mod given;
mod repl;
mod run;
mod test;
pub(crate) mod text;
mod trial;
pub(crate) mod value;

use crate::exit::Outcome;

/// Work with handlers and filters written in E-code (see ecode(7))
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(check::Args),
    Run(run::Args),
    Test(test::Args),
    Dump(dump::Args),
    Fmt(format::Args),
    Repl(repl::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Check(args) => check::run(args),
        Command::Run(args) => run::run(args),
        Command::Test(args) => test::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Fmt(args) => format::run(args),
        Command::Repl(args) => repl::run(args),
    }
}
