//! `ecalls watch`: events as lines.

use crate::exit::Outcome;

/// Print the events of a service as they arrive
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
