//! `ecalls stat`: counters.

use crate::exit::Outcome;

/// Show what the core counts
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
