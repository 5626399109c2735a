//! `ecalls bench sched`: the workloads of Coop §5 and ECalls-05 §3 and §5.4 under several
//! schedulers, side by side.
//!
//! All threads of a workload run on one CPU. The players are event loops; under our scheduler they
//! poll cooperatively. The threads, the loops and the schedulers are real; decoders, screens and
//! compilers are replaced by known amounts of computation. The first half second of each run is not
//! counted.
//!
//! - [`mod@rows`]: the rows, their workloads, the figures of each;
//! - [`player`], [`viewer`], [`work`]: what the threads do;
//! - [`stage`]: runs one workload; [`under`]: starts and ends the schedulers;
//! - [`switching`]: a workload without players, for the cost of a context switch;
//! - [`ordinary`]: programs on all CPUs that do not know the scheduler, whose rows differ in form;
//! - [`coop`]: unmodified programs that wait for time, as with `ecalls run --coop`;
//! - [`figures`]: the reported values; [`goals`]: the bounds that `--check` applies;
//! - [`track`], [`series`]: a run over time; [`measured`], [`page`]: the results as a page.

mod coop;
mod figures;
mod goals;
mod measured;
mod ordinary;
mod page;
mod player;
mod rows;
mod series;
mod stage;
pub(super) mod switching;
mod track;
mod under;
mod viewer;
mod work;

use std::path::Path;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table, note};
pub(crate) use coop::{SUBCOMMAND as TIMED_PART, part as timed_part};
use ecalls_cli::arguments::{BenchArguments as Args, Own, Sched as Options};
use figures::{Figures, Keys};
use measured::{Measured, by_row};
pub(crate) use ordinary::{SUBCOMMAND as MESSAGE_PART, message_part};
use rows::{Polling, Row, Run};
use series::Series;
use under::{Under, Which};
use work::Work;

/// The schedulers' names in the output.
const ECALLS: &str = "ecalls";
/// Of unmodified programs: without `ecalls run --coop`.
const ECALLS_PLAIN: &str = "ecalls_plain";
const EEVDF: &str = "eevdf";
const RR: &str = "rr";

/// Default duration of a run in seconds.
const SECONDS: u64 = 5;
const SECONDS_QUICK: u64 = 1;
/// Longer tardiness is recorded as this value.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The selected schedulers, by default all; those that cannot run here are left out.
fn schedulers(options: &Options) -> Vec<Which> {
    let all = [Own::Ecalls, Own::Eevdf, Own::Rr];
    let own = all.into_iter().filter(|own| {
        options.scheduler.contains(own) || (options.scheduler.is_empty() && options.peer.is_empty())
    });
    let own = own.map(|own| match own {
        Own::Ecalls => Which::Ecalls,
        Own::Eevdf => Which::Eevdf,
        Own::Rr => Which::RoundRobin,
    });
    own.chain(options.peer.iter().cloned().map(Which::Peer))
        .collect()
}

/// Starts a scheduler. `None`: it cannot run here, and the options name none.
fn start(options: &Options, which: &Which) -> Result<Option<Under>, Failure> {
    let is_named = !options.scheduler.is_empty() || !options.peer.is_empty();
    match Under::start(which) {
        Ok(under) => Ok(Some(under)),
        Err(Failure::Message(Code::Denied | Code::Unsupported, why)) if !is_named => {
            note(format_args!("without the rows of {which}: {why}"));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// One line of JSON.
#[derive(Serialize)]
struct Object<'a> {
    row: &'a str,
    scheduler: &'a str,
    #[serde(flatten)]
    figures: Keys<'a>,
    seconds: u64,
    source: &'a str,
    what: &'a str,
}

/// A row under one scheduler.
struct Line {
    row: Row,
    scheduler: String,
    figures: Figures,
}

/// All results, measured or read.
#[derive(Default)]
struct Results {
    measured: Vec<Measured>,
    ordinary: Vec<ordinary::Value>,
    series: Vec<Series>,
    /// The figures that `--check` compares.
    figures: Vec<(String, String, Figures)>,
}

/// Measures and prints, or prints earlier results.
pub(super) fn run(args: &Args) -> Outcome {
    if args.sched.from.is_some() && (args.json || args.check || args.quick || args.row.is_some()) {
        return Err(Failure::usage(
            "--from measures nothing: leave out --json, --check, --quick and --row",
        ));
    }
    let mut out = Output::new(args.json);
    let results = match &args.sched.from {
        Some(path) => read(path)?,
        None => measure_all(args, &mut out)?,
    };
    if !out.is_json() {
        print(&mut out, &results.measured)?;
        ordinary::print(&mut out, &results.ordinary)?;
    }
    out.flush()?;
    if let Some(path) = &args.sched.report {
        let page = page::page(&results.measured, &results.series);
        std::fs::write(path, page).map_err(|error| of_file(path, error))?;
        note(format_args!("the page is {}", path.display()));
    }
    let mut missed = goals::missed(&results.figures);
    missed.extend(ordinary::missed(&results.ordinary));
    if args.check && !missed.is_empty() {
        return Err(Failure::new(Code::Failed, missed.join("; ")));
    }
    Ok(())
}

fn of_file(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, format!("{}: {error}", path.display()))
}

/// Reads the output of `--json --series`.
fn read(path: &Path) -> Result<Results, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| of_file(path, error))?;
    let mut results = Results::default();
    for (line, number) in text.lines().zip(1..) {
        // This is not an untagged enum, because serde buffers the numbers of those, and
        // serde_json's feature arbitrary_precision (of ecalls-cli) makes them maps, so no series
        // could be read.
        let series = serde_json::from_str(line).map(|series| results.series.push(series));
        let read = series.or_else(|_| {
            let value = serde_json::from_str(line);
            value.map(|value| results.ordinary.push(value))
        });
        let read = read.or_else(|_| {
            let row = serde_json::from_str(line);
            row.map(|row| results.measured.push(row))
        });
        if read.is_err() {
            let why = format_args!("line {number} is none of `ecalls bench sched --json`");
            return Err(of_file(path, why));
        }
    }
    Ok(results)
}

fn measure_all(args: &Args, out: &mut Output) -> Result<Results, Failure> {
    let (runs, ordinary) = wanted(args.row.as_deref().unwrap_or(""))?;
    let seconds = match args.quick {
        true => SECONDS_QUICK,
        false => args.sched.seconds.unwrap_or(SECONDS),
    };
    let mut results = Results::default();
    let chosen = schedulers(&args.sched);
    for which in chosen.iter().filter(|_| !runs.is_empty()) {
        let Some(mut under) = start(&args.sched, which)? else {
            continue;
        };
        note(format_args!(
            "{} runs of {seconds} s under {which}",
            runs.len()
        ));
        let work = Work::measure();
        for run in &runs {
            let (lines, series) = measure(run, which, &mut under, work, seconds)?;
            for line in lines {
                let object = line.object(seconds);
                if out.is_json() {
                    out.object(&object)?;
                }
                // Output that was printed can be read again.
                results
                    .measured
                    .push(serde_json::from_value(serde_json::to_value(&object)?)?);
                let Line {
                    row,
                    scheduler,
                    figures,
                } = line;
                results.figures.push((row.name, scheduler, figures));
            }
            if let Some(series) = series {
                if args.sched.series {
                    out.object(&series)?;
                }
                results.series.push(series);
            }
            out.flush()?;
        }
    }
    let start = |which: &Which| start(&args.sched, which);
    results.ordinary = ordinary::measure(&ordinary, &chosen, seconds, start)?;
    if out.is_json() {
        results
            .ordinary
            .iter()
            .try_for_each(|value| out.object(value))?;
    }
    Ok(results)
}

/// The runs that give the selected rows, reduced to these rows.
fn wanted(text: &str) -> Result<(Vec<Run>, Vec<ordinary::Run>), Failure> {
    let (mut runs, mut ordinary) = (rows::all(), ordinary::all());
    let known = rows(&runs).map(|row| row.name.clone());
    let others = ordinary.iter().flat_map(ordinary::Run::names);
    let known: Vec<String> = known.chain(others.map(str::to_owned)).collect();
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let is_wanted = |row: &str| super::is_wanted(text, row, &names);
    for run in &mut runs {
        run.rows.retain(|row| is_wanted(&row.name));
    }
    runs.retain(|run| !run.rows.is_empty());
    ordinary.retain_mut(|run| run.retain(is_wanted));
    if runs.is_empty() && ordinary.is_empty() {
        let known = names.join(", ");
        return Err(Failure::usage(format!(
            "no row contains {text:?}: there are {known}"
        )));
    }
    Ok((runs, ordinary))
}

fn rows(runs: &[Run]) -> impl Iterator<Item = &Row> {
    runs.iter().flat_map(|run| &run.rows)
}

/// The lines of a run, one per row, and its course over time, if it has players.
type Ran = (Vec<Line>, Option<Series>);

/// Measures one run under one scheduler; nothing if the two do not apply to each other.
fn measure(
    run: &Run,
    which: &Which,
    under: &mut Under,
    work: Work,
    seconds: u64,
) -> Result<Ran, Failure> {
    let is_short = run.polling == Polling::ShortPeriod;
    if is_short && !matches!(which, Which::Ecalls) {
        return Ok((Vec::new(), None));
    }
    under.prepare(run.polling)?;
    if let Polling::Unmodified(subject) = run.polling {
        let seen = coop::measure(subject, which, under, work, seconds)?;
        let of = |(name, figures): (String, Figures)| lines(run, &name, &figures);
        return Ok((seen.into_iter().flat_map(of).collect(), None));
    }
    let class = under.class(run.polling);
    if run.polling == Polling::Handing {
        let figures = switching::measure(class, seconds)?;
        under.check()?;
        return Ok((lines(run, &which.to_string(), &figures), None));
    }
    let is_cooperative = matches!(class, stage::Class::Cooperative(_));
    let seen = stage::run(&run.workload, class, work, seconds, || under.demotions())?;
    under.check()?;
    if is_cooperative && !seen.players.iter().all(|player| player.was_answered) {
        return Err(Failure::new(
            Code::Failed,
            "the scheduler does not answer polls",
        ));
    }
    let figures = rows::figures(run, &seen);
    let scheduler = match is_short {
        true => format!("{which}_period_1ms"),
        false => which.to_string(),
    };
    let (name, what) = run
        .rows
        .first()
        .map_or(("", ""), |row| (&row.name, row.what));
    let series = Series::of(name, &scheduler, what, &seen);
    Ok((lines(run, &scheduler, &figures), Some(series)))
}

fn lines(run: &Run, scheduler: &str, figures: &Figures) -> Vec<Line> {
    let line = |row: &Row| Line {
        row: row.clone(),
        scheduler: scheduler.to_owned(),
        figures: figures.clone(),
    };
    run.rows.iter().map(line).collect()
}

impl Line {
    fn object(&self, seconds: u64) -> Object<'_> {
        Object {
            row: &self.row.name,
            scheduler: &self.scheduler,
            figures: Keys(&self.figures, self.row.figures),
            seconds,
            source: self.row.source,
            what: self.row.what,
        }
    }
}

/// Prints a table per row, with a line per scheduler.
fn print(out: &mut Output, measured: &[Measured]) -> Outcome {
    for (at, (lines, figures)) in by_row(measured).iter().enumerate() {
        let first = lines[0];
        if at > 0 {
            out.line("")?;
        }
        let (row, source, what) = (&first.row, &first.source, &first.what);
        out.line(format_args!("{row} ({source}): {what}"))?;
        let mut columns = vec![""];
        columns.extend(figures.iter().map(|figure| figure.column()));
        let mut table = Table::new(&columns);
        for line in lines {
            let figures = figures.iter().map(|figure| line.show(*figure));
            table.row(std::iter::once(line.scheduler.clone()).chain(figures));
        }
        out.table(&table)?;
    }
    Ok(())
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds that hdrhistogram allows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_whose_name_begins_others_can_be_had_alone() {
        for name in ["fig13_1", "ecalls_fig3", "fig7"] {
            let (runs, others) = wanted(name).expect("a row");
            assert!(others.is_empty());
            let names: Vec<&str> = rows(&runs).map(|row| row.name.as_str()).collect();
            assert_eq!(names, [name]);
        }
        let (series, _) = wanted("ecalls_fig3_").expect("rows");
        assert_eq!(rows(&series).count(), 3);
        let (runs, others) = wanted("ordinary_pipe").expect("a row");
        let names: Vec<&str> = others.iter().flat_map(ordinary::Run::names).collect();
        assert!(runs.is_empty());
        assert_eq!(names, ["ordinary_pipe"]);
        assert!(wanted("fig99").is_err());
    }
}
