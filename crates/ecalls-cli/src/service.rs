//! `ecalls service`: holds a service.

use crate::exit::Outcome;

/// Register a service and hold it until interrupted
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
