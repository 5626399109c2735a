//! `ecalls services`: the services of the machine, built-in ones and those of applications.
//!
//! Without a core it lists the built-in services, which every core has; it never loads a core.

use ecalls::{Ecalls, Error};
use ecalls_abi::message::OWNER_UNTOLD;
use ecalls_kernel::builtin::{self, BUILTINS};
use ecalls_kernel::stat::ServiceStat;
use serde::Serialize;

use crate::duration::show_ns;
use crate::exit::Outcome;
use crate::output::{Dropped, Output, Table, note};
use crate::process;

/// List the services, their counters and their owners
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Keys with --json: name, index, loaded, owner (process id; null: built in, or not shown), untold
(true: the service belongs to another user, and only its name is shown), format, kinds, parameter_ns
(threshold or period; null: none), subscriptions, raised, dispatched, late, dropped (an object:
count by reason), refused, latency_ns_mean and latency_ns_max (from the raise or the release time to
the dispatch), failed (runs of the service's own E-code program that ended in a fault). Without a
core, loaded is false and the counts are 0.";

/// One service, as printed with `--json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    name: String,
    index: u32,
    loaded: bool,
    owner: Option<u32>,
    untold: bool,
    format: String,
    kinds: Vec<String>,
    parameter_ns: Option<u64>,
    subscriptions: usize,
    raised: u64,
    dispatched: u64,
    late: u64,
    dropped: Dropped,
    refused: u64,
    latency_ns_mean: u64,
    latency_ns_max: u64,
    failed: u64,
}

impl Row {
    /// The row of a service of the running core.
    pub(crate) fn new(stat: &ServiceStat) -> Row {
        let count = &stat.count;
        Row {
            name: stat.info.name().to_owned(),
            index: stat.index,
            loaded: true,
            owner: (![0, OWNER_UNTOLD].contains(&stat.owner)).then_some(stat.owner),
            untold: stat.owner == OWNER_UNTOLD,
            format: stat.info.format().to_owned(),
            kinds: stat.info.kinds().map(str::to_owned).collect(),
            parameter_ns: stat.parameter_ns,
            subscriptions: stat.subscriptions,
            raised: count.raised,
            dispatched: count.dispatched,
            late: count.late,
            dropped: Dropped(count.dropped),
            refused: count.refused,
            latency_ns_mean: count.latency_ns.checked_div(count.dispatched).unwrap_or(0),
            latency_ns_max: count.latency_ns_max,
            failed: count.failed,
        }
    }
}

/// The services of a running core with their counters, or the built-in ones without.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut out = Output::new(args.json);
    let rows = match Ecalls::join() {
        Ok(Some(ecalls)) => ecalls.services()?.iter().map(Row::new).collect(),
        Ok(None) => {
            note("nothing is loaded: these are the built-in services that every core has");
            built_in()
        }
        Err(Error::Denied { .. }) => {
            note("no daemon runs, and only root finds a core without: the built-in services");
            built_in()
        }
        Err(error) => return Err(error.into()),
    };
    print(&mut out, &rows)?;
    out.flush()
}

/// The built-in services, with all counters 0.
fn built_in() -> Vec<Row> {
    let row = |builtin: &builtin::Builtin| Row {
        name: builtin.name.to_owned(),
        index: builtin.index,
        format: builtin.format.to_owned(),
        kinds: builtin.kinds.split(' ').map(str::to_owned).collect(),
        parameter_ns: builtin.parameter.map(|parameter| parameter.default_ns),
        ..Row::default()
    };
    BUILTINS.iter().map(row).collect()
}

/// Prints services as objects or as a table.
pub(crate) fn print(out: &mut Output, rows: &[Row]) -> Outcome {
    if out.is_json() {
        return rows.iter().try_for_each(|row| out.object(row));
    }
    let mut table = Table::new(&[
        "SERVICE",
        "OWNER",
        ">SUBSCRIPTIONS",
        ">RAISED",
        ">DISPATCHED",
        ">LATE",
        ">LATENCY",
        ">MAX",
        ">REFUSED",
        "DROPPED",
    ]);
    for row in rows {
        // Without dispatched events there is no latency.
        let latency = |ns| match row.dispatched {
            0 => "-".to_owned(),
            _ => show_ns(ns),
        };
        table.row([
            row.name.clone(),
            match row.owner {
                Some(owner) => process::show(owner),
                None if row.untold => "another user".to_owned(),
                None => "built in".to_owned(),
            },
            row.subscriptions.to_string(),
            row.raised.to_string(),
            row.dispatched.to_string(),
            row.late.to_string(),
            latency(row.latency_ns_mean),
            latency(row.latency_ns_max),
            row.refused.to_string(),
            row.dropped.to_string(),
        ]);
        table.note(format!("kinds: {}", row.kinds.join(" ")));
        table.note(format!("format: {}", row.format));
        if row.failed > 0 {
            table.note(format!("failed runs: {}", row.failed));
        }
        if let (Some(ns), Ok(parameter)) = (row.parameter_ns, builtin::parameter(row.index)) {
            table.note(format!("{}: {}", parameter.what, show_ns(ns)));
        }
    }
    out.table(&table)
}
