//! `ecalls bench`: measures events and handlers on this machine, beside what the kernel offers
//! without ECalls.
//!
//! Both are measured in one run, because only the ratios are independent of the machine. The table
//! [`goals`] holds the ratio that each row must reach; `--check` fails when one is missed by more
//! than its margin.
//!
//! - [`rows`]: the names of the rows, and the sections that measure them;
//! - [`timing`]: batches, and which statistic of them is reported;
//! - [`start`]: a program that loads the core itself;
//! - [`calls`], [`kernel`], [`signals`], [`readers`], [`sockets`], [`arrivals`], [`ecode`]: the
//!   sections;
//! - [`server`]: what it costs a web server to be observed;
//! - [`channel`]: events that go to other hosts;
//! - [`threads`]: user-level threads, [`web`]: web servers under overload,
//!   [`io`]: servers that poll, and [`sched`]: schedulers, each a measurement with rows and
//!   options of its own;
//! - [`baselines`]: eventfd, epoll and pipes, by rustix;
//! - [`report`]: the table, or objects; [`chart`]: drawings; [`network`]: a network of its own.

mod arrivals;
pub(crate) mod baselines;
mod calls;
mod channel;
mod chart;
mod ecode;
mod goals;
mod io;
mod kernel;
mod network;
pub(crate) mod readers;
mod report;
mod rows;
mod sched;
mod server;
pub(crate) mod signals;
mod sizes;
mod sockets;
mod start;
mod threads;
pub(crate) mod timing;
mod web;

use std::path::Path;

use ecalls::Ecalls;
use ecalls_cli::arguments::{BenchArguments, What};
use serde_json::Value as Json;

use crate::exit::{Code, Failure, Outcome};
use crate::output::Output;
pub(crate) use channel::{PART as CHANNEL_PART, part as channel_part};
use report::Report;
pub(crate) use sched::{MESSAGE_PART, TIMED_PART, message_part, timed_part};
pub(crate) use server::{LOAD_PART, generate};
pub(crate) use start::{SUBCOMMAND as FIRST_EVENT, first_event};
use timing::Effort;
pub(crate) use web::{CLIENTS_PART, Clients, SERVER_PART, clients_part};

/// The shared state of all sections.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) ecalls: Ecalls,
    pub(crate) effort: Effort,
    /// The rows that are measured, for sections that can leave out single ones.
    pub(crate) needed: Vec<&'static str>,
}

/// Whether a row is selected by its name or a part of it. A text that is the whole name of a row
/// selects only that row: otherwise the first row of a series could not be selected alone.
fn is_wanted(filter: &str, row: &str, names: &[&str]) -> bool {
    filter.split(',').any(|text| match names.contains(&text) {
        true => row == text,
        false => row.contains(text),
    })
}

/// The rows, and those that their ratios need.
fn with_baselines(mut rows: Vec<&'static str>) -> Vec<&'static str> {
    let baselines = rows.iter().filter_map(|row| goals::baseline_of(row));
    rows.extend(baselines.collect::<Vec<_>>());
    rows
}

/// Runs the measurement.
pub(crate) fn run(args: &BenchArguments) -> Outcome {
    if args.what == What::Threads {
        return threads::run(args);
    }
    if args.processors != 1 {
        return Err(Failure::usage("--processors is for `ecalls bench threads`"));
    }
    if args.what == What::Sched {
        return sched::run(args);
    }
    if args.what == What::Io {
        return io::run(args);
    }
    if args.what == What::Web {
        return web::run(args);
    }
    refuse(args)?;
    if let Some(former) = &args.sched.from {
        return draw(args, &former_values(former)?);
    }
    let filter = args.row.as_deref().unwrap_or("");
    let names: Vec<&str> = rows::of(args.what).collect();
    let mut wanted = names.clone();
    wanted.retain(|row| is_wanted(filter, row, &names));
    if wanted.is_empty() {
        let known = names.join(", ");
        return Err(Failure::usage(format!(
            "no row contains {filter:?}: there are {known}"
        )));
    }
    let effort = match (args.quick, args.check) {
        (true, _) => Effort::QUICK,
        (_, true) => Effort::CHECK,
        _ => Effort::FULL,
    };
    // The baselines of the selected rows are measured too, but not printed.
    let needed = with_baselines(wanted.clone());
    if args.what == What::Channel {
        channel::enter_network()?;
    }
    let mut report = Report::new(Output::new(args.json), wanted);
    let without_core = rows::without_core(args.what);
    if without_core.iter().any(|row| needed.contains(row)) {
        for _ in 0..effort.passes {
            report.add(start::measure(effort)?);
            if !args.check || report.missed_rows().is_empty() {
                break;
            }
        }
    }
    let mut bench = Bench {
        ecalls: Ecalls::host()?,
        effort,
        needed,
    };
    measure(args, &mut bench, &mut report)?;
    report.print()?;
    draw(args, &|row| report.value(row).map(|value| value.value))?;
    let missed = report.missed();
    if args.check && !missed.is_empty() {
        let message = format!(
            "ratios beyond their goals by more than the margin: {}",
            missed.join(", ")
        );
        return Err(Failure::new(Code::Failed, message));
    }
    Ok(())
}

/// Options that this measurement has not.
fn refuse(args: &BenchArguments) -> Outcome {
    match args.what {
        What::Channel => args.sched.refuse_all_but_drawing(),
        _ => args.sched.refuse(),
    }
}

/// Writes the papers' figures, which only channels have of the measurements that come here.
fn draw(args: &BenchArguments, ns: &dyn Fn(&str) -> Option<f64>) -> Outcome {
    let Some(path) = &args.sched.report else {
        return match args.sched.from {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--from draws: say where, with --report FILE",
            )),
        };
    };
    std::fs::write(path, channel::plot::drawing(ns))
        .map_err(|error| timing::os(&format!("writing {}", path.display()), error))
}

/// The values of rows that `--json` printed before.
fn former_values(path: &Path) -> Result<impl Fn(&str) -> Option<f64> + use<>, Failure> {
    let failed = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let row: Json = serde_json::from_str(line)
            .map_err(|_| failed(format!("line {number} is none that --json prints")))?;
        rows.push(row);
    }
    Ok(move |row: &str| {
        let found = rows.iter().find(|one| one["row"] == row);
        found.and_then(|one| one["value"].as_f64())
    })
}

/// Measures the sections that are needed.
fn measure(args: &BenchArguments, bench: &mut Bench, report: &mut Report) -> Outcome {
    // There are several passes, seconds apart: other work rarely disturbs a section in all of them.
    // A check measures again only what was missed so far.
    for pass in 0..bench.effort.passes {
        for section in rows::sections(args.what) {
            let is_needed = section.rows.iter().any(|row| bench.needed.contains(row));
            if is_needed && (pass == 0 || args.check || !section.slow) {
                report.add((section.measure)(bench)?);
            }
        }
        if args.check {
            bench.needed = with_baselines(report.missed_rows());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_means_that_row_alone_and_a_part_all_that_contain_it() {
        let names = ["fig6", "fig13_1", "fig13_10", "fig13_14", "periodic"];
        let wanted = |filter: &str| {
            let mut wanted = names.to_vec();
            wanted.retain(|row| is_wanted(filter, row, &names));
            wanted
        };
        assert_eq!(wanted("fig13_1"), ["fig13_1"]);
        assert_eq!(wanted("fig13_1,peri"), ["fig13_1", "periodic"]);
        assert_eq!(wanted("fig13"), ["fig13_1", "fig13_10", "fig13_14"]);
        assert_eq!(wanted("fig13,fig13_1").len(), 3);
        assert_eq!(wanted("").len(), names.len());
        assert!(wanted("fig13_2").is_empty());
    }
}
