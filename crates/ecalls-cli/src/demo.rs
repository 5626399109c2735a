//! `ecalls demo`: a tour of what events do, on this machine, in about a minute.

use crate::exit::Outcome;

/// Show, in about a minute, what events do on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// How long the whole demonstration takes, about, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) seconds: u64,
    /// Command line of the server that is shown, instead of the built-in one
    #[arg(long, value_name = "COMMAND")]
    pub(crate) server: Option<String>,
}

/// Runs the demonstration.
pub(crate) fn run(args: &Args) -> Outcome {
    let _ = (args.json, args.seconds, &args.server);
    Ok(())
}
