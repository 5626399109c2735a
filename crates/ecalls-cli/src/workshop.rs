//! `ecalls bench` and `ecalls demo` are another program, `ecalls-bench`.
//!
//! This process executes it, so exit status and signals need no forwarding. All arguments are
//! passed on unchanged, `--help` included.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args as _;
use ecalls_cli::arguments::{BenchArguments, DemoArguments};

use crate::exit::{Code, Failure, Outcome};

/// Its subcommands.
pub(crate) const NAMES: [&str; 2] = ["bench", "demo"];

const PROGRAM: &str = "ecalls-bench";

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments of the program ecalls-bench; with --help it lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// The command with the arguments of these subcommands, for completions.
pub(crate) fn with_arguments(command: clap::Command) -> clap::Command {
    let [bench, demo] = NAMES;
    command
        .mut_subcommand(bench, |_| {
            BenchArguments::augment_args(clap::Command::new(bench))
        })
        .mut_subcommand(demo, |_| {
            DemoArguments::augment_args(clap::Command::new(demo))
        })
}

/// Executes the program: the one in the folder of this one, else the first in PATH. Returns on
/// failure.
pub(crate) fn run(subcommand: &str, args: &Args) -> Outcome {
    let beside = std::env::current_exe().map(|own| own.with_file_name(PROGRAM));
    let program = beside.ok().filter(|file| file.exists());
    let program = program.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let mut command = Command::new(&program);
    let error = command.arg(subcommand).args(&args.arguments).exec();
    let message = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "`ecalls {subcommand}` needs the program {PROGRAM}, which is neither beside this one \
             nor in PATH: install the Debian package {PROGRAM}, or run `make install` again"
        ),
        _ => format!("starting {}: {error}", program.display()),
    };
    Err(Failure::new(Code::Failed, message))
}
