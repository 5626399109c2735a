//! `ecalls service`: registers a service and holds it, so that others can raise and watch its
//! events. A service lives as long as the process that registered it.

use std::time::Duration;

use ecalls::Ecalls;

use crate::duration;
use crate::exit::Outcome;
use crate::output::{Output, note};
use crate::services::{self, Row};
use crate::stop::Stop;

/// Register a service and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Its unique name, at most 31 bytes without blanks
    name: String,
    /// Its data, as fields of a C struct
    #[arg(long, default_value = "u64 value")]
    format: String,
    /// Names of its kinds of events
    #[arg(long, default_value = "event")]
    kinds: String,
    /// Ends after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
    /// Print what was counted as one JSON object, at the end
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A format has fields of the types u8 u16 u32 u64, s8 s16 s32 s64 and char, or arrays of them, at most
168 bytes in total: 'u64 load; u32 threads; char host[16]'.

At its end (SIGINT, SIGTERM or --for) the command prints what was counted of the service, with
--json by the keys of `ecalls services --json`.";

/// Registers the service, waits, and prints what was counted.
pub(crate) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let service = ecalls.register_service(&args.name, &args.format, &args.kinds)?;
    note(format!(
        "registered {0}; watch it with `ecalls watch {0}`, raise it with `ecalls raise {0} ...`",
        args.name
    ));
    stop.sleep(args.time.unwrap_or(Duration::MAX));
    let mut out = Output::new(args.json);
    let stat = ecalls.access().service_stat(service.index())?;
    services::print(&mut out, &[Row::new(&stat)])?;
    out.flush()
}
