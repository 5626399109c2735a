//! `ecalls doctor`: what this kernel offers.

use crate::exit::Outcome;

/// Show what this kernel offers and which mechanism is used for what
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
