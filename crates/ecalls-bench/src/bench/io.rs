//! `ecalls bench io`: what a request costs servers that wait by poll, beside idle connections, bare
//! and under `ecalls run --io`.
//!
//! Each server runs in the modes that it has itself: its own epoll mode is what the library is to
//! reach, and under the library it is to be as before. All modes take turns, several times; values
//! are medians, and ratios are medians of the ratios of one round, so that a machine that becomes
//! slower in the course of the run does not count. Any user can run it.
//!
//! [`site`]: the servers; [`load`]: the connections, busy and idle.

mod load;
mod site;

use ecalls_cli::arguments::BenchArguments;
use serde::Serialize;

use super::{is_wanted, timing};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table, note};
use crate::stop::Stop;
use site::{SITES, Site};

const BARE: &str = "bare";
const LIBRARY: &str = "io";

/// How much is measured.
struct Effort {
    rounds: usize,
    idle: &'static [usize],
    seconds: f64,
}

const FULL: Effort = Effort {
    rounds: 5,
    idle: &[0, 1000, 4000],
    seconds: 0.5,
};
const QUICK: Effort = Effort {
    rounds: 1,
    idle: &[50],
    seconds: 0.1,
};

/// A value, as printed with `--json`.
#[derive(Clone, Debug, Serialize)]
struct Line {
    row: String,
    server: &'static str,
    /// How it waits for sockets.
    mode: &'static str,
    /// `bare`, or `io`: under the library.
    library: &'static str,
    idle: usize,
    cpu_us_per_request: f64,
    replies_per_s: f64,
    /// Processor time of a request, to that of the bare server in the same mode,
    of_bare: f64,
    /// and to that of its own epoll mode.
    of_epoll: f64,
}

/// Measures and prints.
pub(super) fn run(args: &BenchArguments) -> Outcome {
    args.sched.refuse()?;
    let filter = args.row.as_deref().unwrap_or("");
    let names: Vec<String> = SITES.iter().map(row).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut wanted = SITES
        .iter()
        .filter(|site| is_wanted(filter, &row(site), &names));
    let wanted: Vec<&Site> = wanted.by_ref().collect();
    if wanted.is_empty() {
        let known = names.join(", ");
        return Err(Failure::usage(format!(
            "no row contains {filter:?}: there are {known}"
        )));
    }
    let effort = if args.quick { &QUICK } else { &FULL };
    let (server_cpu, clients_cpu) = timing::two_cpus()?;
    timing::pin(clients_cpu);
    let stop = Stop::on_signals()?;
    load::allow_descriptors();
    let mut out = Output::new(args.json);
    let mut lines = Vec::new();
    for site in wanted {
        for idle in effort.idle {
            let Some(found) = measure(site, *idle, effort, server_cpu, &stop)? else {
                break;
            };
            for line in found {
                if out.is_json() {
                    out.object(&line)?;
                    out.flush()?;
                }
                lines.push(line);
            }
        }
    }
    if !out.is_json() {
        print(&mut out, &lines)?;
    }
    let missed = missed(&lines);
    if args.check && !missed.is_empty() {
        return Err(Failure::new(Code::Failed, missed.join("; ")));
    }
    out.flush()
}

fn row(site: &Site) -> String {
    format!("io_{}", site.server)
}

/// All modes of a server beside idle connections; `None`: it is not installed, or the user wants
/// the end.
fn measure(
    site: &'static Site,
    idle: usize,
    effort: &Effort,
    cpu: usize,
    stop: &Stop,
) -> Result<Option<Vec<Line>>, Failure> {
    let runs: Vec<(&site::Mode, &str)> = site
        .modes
        .iter()
        .filter(|mode| idle <= mode.idle_max)
        .flat_map(|mode| [(mode, BARE), (mode, LIBRARY)])
        .collect();
    let mut rounds: Vec<Vec<load::Found>> = Vec::new();
    for _ in 0..effort.rounds {
        let mut round = Vec::new();
        for (mode, library) in &runs {
            let Some(server) = site.start(mode, *library == LIBRARY, cpu, stop)? else {
                note(format_args!(
                    "not measured: {} is not installed",
                    site.server
                ));
                return Ok(None);
            };
            round.push(load::measure(&server, site.request, idle, effort.seconds)?);
            if stop.is_set() {
                return Ok(None);
            }
        }
        rounds.push(round);
    }
    let place = |mode, library| {
        runs.iter()
            .position(|run| (run.0.name, run.1) == (mode, library))
    };
    let lines = runs.iter().enumerate().map(|(run, (mode, library))| {
        let of = |other: Option<usize>| {
            let ratios = rounds.iter().filter_map(|round| {
                other.map(|other| round[run].cpu_us_per_request / round[other].cpu_us_per_request)
            });
            median(ratios)
        };
        Line {
            row: row(site),
            server: site.server,
            mode: mode.name,
            library,
            idle,
            cpu_us_per_request: median(rounds.iter().map(|round| round[run].cpu_us_per_request)),
            replies_per_s: median(rounds.iter().map(|round| round[run].replies_per_s)),
            of_bare: of(place(mode.name, BARE)),
            of_epoll: of(place("epoll", BARE)),
        }
    });
    Ok(Some(lines.collect()))
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(out: &mut Output, lines: &[Line]) -> Outcome {
    let mut table = Table::new(&[
        "row",
        "mode",
        "library",
        ">idle",
        ">cpu us",
        ">of bare",
        ">of epoll",
        ">replies/s",
    ]);
    for line in lines {
        table.row([
            line.row.clone(),
            line.mode.to_owned(),
            line.library.to_owned(),
            line.idle.to_string(),
            format!("{:.1}", line.cpu_us_per_request),
            format!("{:.2}", line.of_bare),
            format!("{:.2}", line.of_epoll),
            format!("{:.0}", line.replies_per_s),
        ]);
    }
    out.table(&table)
}

/// The bounds of `--check` that these lines do not keep, with a margin for other work.
fn missed(lines: &[Line]) -> Vec<String> {
    let mut missed = Vec::new();
    for line in lines.iter().filter(|line| line.library == LIBRARY) {
        let mut bound = |what, ratio: f64, most: f64| {
            if ratio.is_nan() || ratio > most {
                let Line {
                    row, mode, idle, ..
                } = line;
                missed.push(format!(
                    "{row}, {mode} beside {idle} idle, {what}: {ratio:.2}, at most {most}"
                ));
            }
        };
        if line.mode == "epoll" {
            bound("to bare", line.of_bare, 1.1);
            continue;
        }
        bound("to epoll", line.of_epoll, 1.3);
        match line.idle {
            1000.. if line.idle < 4000 => bound("to bare", line.of_bare, 0.75),
            4000.. => bound("to bare", line.of_bare, 0.35),
            _ => {}
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_or_named() {
        let line = |mode, idle, of_bare, of_epoll| Line {
            row: "io_x".to_owned(),
            server: "x",
            mode,
            library: LIBRARY,
            idle,
            cpu_us_per_request: 1.0,
            replies_per_s: 1.0,
            of_bare,
            of_epoll,
        };
        let good = [
            line("epoll", 0, 1.0, 1.0),
            line("poll", 0, 1.0, 1.1),
            line("poll", 1000, 0.5, 1.1),
            line("poll", 4000, 0.2, 1.1),
        ];
        assert_eq!(missed(&good).len(), 0);
        let bad = [
            line("epoll", 0, 1.2, 1.2),
            line("poll", 1000, 0.9, 1.4),
            line("poll", 4000, f64::NAN, 1.0),
        ];
        assert_eq!(missed(&bad).len(), 4);
        let bare = Line {
            library: BARE,
            ..line("poll", 4000, 1.0, 6.0)
        };
        assert_eq!(missed(&[bare]).len(), 0);
    }
}
