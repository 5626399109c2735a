//! `ecalls services`: the services there are.

use crate::exit::Outcome;

/// List the services, what was counted of them, and who owns them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(_args: &Args) -> Outcome {
    Ok(())
}
