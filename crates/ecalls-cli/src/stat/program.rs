//! Programs of services for `ecalls stat`: the cost of a run, and the runs that the kernel skipped.
//!
//! The kernel counts runs and their time only while these statistics are enabled, and then for all
//! programs of the machine; so costs are the differences over an interval in which they were
//! enabled.

use std::time::Duration;

use ecalls::Ecalls;
use ecalls_kernel::core::Cost;
use ecalls_kernel::stat::ServiceStat;
use serde::Serialize;

use super::section;
use crate::duration;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, Table};
use crate::stop::Stop;

/// The cost of each program in `time`.
pub(super) fn measure(ecalls: &Ecalls, stop: &Stop, time: Duration) -> Result<Vec<Cost>, Failure> {
    let _statistics = ecalls_kernel::enable_statistics()?;
    let before = all_costs(&ecalls.services()?);
    stop.sleep(time);
    let mut costs = all_costs(&ecalls.services()?);
    for cost in &mut costs {
        if let Some(old) = before.iter().find(|old| old.program == cost.program) {
            cost.runs = cost.runs.saturating_sub(old.runs);
            cost.total_ns = cost.total_ns.saturating_sub(old.total_ns);
        }
    }
    Ok(costs)
}

fn all_costs(services: &[ServiceStat]) -> Vec<Cost> {
    services
        .iter()
        .flat_map(|service| service.costs.iter().copied())
        .collect()
}

#[derive(Debug, Serialize)]
struct ProgramRow<'a> {
    what: &'static str,
    service: &'a str,
    program: &'static str,
    runs: u64,
    total_ns: u64,
    mean_ns: u64,
    skipped: u64,
}

/// Prints programs; without `costs` only the counters that are always available.
pub(super) fn print(out: &mut Output, services: &[ServiceStat], costs: &[Cost]) -> Outcome {
    let mut table = Table::new(&["PROGRAM", "SERVICE", ">RUNS", ">TIME", ">PER RUN", ">LOST"]);
    let mut count = 0;
    for service in services {
        for cost in &service.costs {
            let measured = costs.iter().find(|one| one.program == cost.program);
            let (runs, total_ns) = measured.map_or((0, 0), |one| (one.runs, one.total_ns));
            let row = ProgramRow {
                what: "program",
                service: service.info.name(),
                program: cost.program,
                runs,
                total_ns,
                mean_ns: total_ns.checked_div(runs).unwrap_or(0),
                skipped: cost.skipped,
            };
            if out.is_json() {
                out.object(&row)?;
                continue;
            }
            if service.subscriptions == 0 && runs == 0 && row.skipped == 0 {
                continue;
            }
            let shown = |text: String| measured.map_or("-".to_owned(), |_| text);
            table.row([
                row.program.to_owned(),
                row.service.to_owned(),
                shown(row.runs.to_string()),
                shown(duration::show_ns(row.total_ns)),
                shown(duration::show_ns(row.mean_ns)),
                row.skipped.to_string(),
            ]);
            count += 1;
        }
    }
    section(out, &table, count)
}
