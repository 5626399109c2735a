//! `ecalls completions`: a shell's completions, on standard output.

use clap::CommandFactory;

use crate::exit::Outcome;
use crate::{Cli, workshop};

/// Print completions for a shell
///
/// For bash: ecalls completions bash > /usr/share/bash-completion/completions/ecalls
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the completions.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut text = Vec::new();
    let mut command = workshop::with_arguments(Cli::command());
    clap_complete::generate(args.shell, &mut command, "ecalls", &mut text);
    crate::output::write_all(&text)
}
