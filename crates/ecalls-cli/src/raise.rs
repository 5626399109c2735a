//! `ecalls raise`: raises an event.

use crate::exit::Outcome;

/// Raise an event of an application service
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
