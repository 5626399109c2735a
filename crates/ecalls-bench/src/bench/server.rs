//! `ecalls bench server`: what it costs a busy web server to be observed.
//!
//! The server and the load generator have a processor each. Turns alternate: the bare server, then
//! the server with one observer, and so on through all observers, several times. In a turn, wrk
//! requests for a second as fast as the server answers, then an open loop for a second at half of
//! that rate. The value of a row is the time per
//! request; its ratio to `server_bare` is the median of the ratios of its turns to the bare turns
//! before and after, so a machine that becomes slower in the course of the run does not count.
//!
//! - [`turn`]: one turn, its requests and their processor time;
//! - [`open_loop`]: the generator that does not wait for the server;
//! - [`observer`]: the observers, ours, bpftrace's and perf's.

mod observer;
mod open_loop;
mod turn;

use super::goals::clock_counts;
use super::rows::Section;
use super::timing::{OpenLoop, RequestCpu, Value};
use super::{Bench, timing};
use crate::exit::Failure;
use crate::stop::Stop;
use crate::web::{Load, Server};
use observer::{OBSERVERS, Observer};
pub(crate) use open_loop::{SUBCOMMAND as LOAD_PART, generate};
use turn::{Generators, Turn};

/// The row without an observer.
pub(crate) const BARE: &str = "server_bare";
/// Rounds through all observers; where the clock counts instructions, two are as good.
const ROUNDS: u32 = 7;
const ROUNDS_COUNTED: u32 = 2;
/// The open loop's rate is this part of what the server answers.
const OPEN_PART: f64 = 2.0;
const STATISTIC: &str = "median of turns";

/// The sections of this measurement.
pub(crate) const SECTIONS: &[Section] = &[Section {
    rows: &[
        BARE,
        "server_memory",
        "server_coalesced",
        "server_filter",
        "server_readiness",
        "server_sched",
        "server_ringbuf",
        "server_bpftrace",
        "server_perf",
    ],
    slow: true,
    measure,
}];

/// The server and its load.
struct Stage<'a> {
    bench: &'a Bench,
    server: Server,
    load: Load,
    /// The generators' processor.
    far: usize,
    /// Requests per second of the open loop.
    open_per_s: u64,
    stop: Stop,
}

/// The turns of one observer.
struct Row {
    observer: &'static Observer,
    turns: Vec<Turn>,
    /// Time per request, divided by that of the bare server around it.
    ratios: Vec<f64>,
    /// Why it cannot be measured here.
    missing: Option<&'static str>,
}

fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let (near, far) = timing::two_cpus()?;
    let stop = Stop::on_signals()?;
    let server = Server::start(None, &stop)?;
    server.pin(near);
    let mut stage = Stage {
        load: Load::find(server.port, Some(far))?,
        bench,
        server,
        far,
        open_per_s: 0,
        stop,
    };
    let needed = |observer: &&Observer| bench.needed.contains(&observer.row);
    let mut rows: Vec<Row> = OBSERVERS.iter().filter(needed).map(Row::new).collect();
    // The first turn only warms up, and tells the rate.
    stage.open_per_s = (1e9 / stage.turn(None)?.request_ns / OPEN_PART) as u64;
    let mut bare = vec![stage.turn(None)?];
    let rounds = match clock_counts() {
        true => ROUNDS_COUNTED,
        false => bench.effort.rounds(ROUNDS),
    };
    for _ in 0..rounds {
        for row in &mut rows {
            let turn = row.turn(&stage)?;
            let before = bare.last().map_or(f64::NAN, |turn| turn.request_ns);
            let after = stage.turn(None)?;
            if let Some(turn) = turn {
                let around = f64::midpoint(before, after.request_ns);
                row.ratios.push(turn.request_ns / around);
                row.turns.push(turn);
            }
            bare.push(after);
        }
    }
    let bare_ns = median(bare.iter().map(|turn| turn.request_ns));
    let mut values = vec![Value {
        cpu: Some(cpu(&bare)),
        open: open_loop_of(&bare),
        ..Value::ns(BARE, bare_ns, STATISTIC, "a request, nobody observes")
    }];
    values.extend(rows.iter().map(|row| row.value(bare_ns)));
    Ok(values)
}

impl Stage<'_> {
    /// A turn with `observer`, or with none.
    fn turn(&self, observer: Option<&observer::Running>) -> Result<Turn, Failure> {
        let generators = Generators {
            load: &self.load,
            open_per_s: self.open_per_s,
            cpu: self.far,
        };
        turn::take(&self.server, generators, &self.stop, observer)
    }
}

impl Row {
    fn new(observer: &'static Observer) -> Row {
        Row {
            observer,
            turns: Vec::new(),
            ratios: Vec::new(),
            missing: None,
        }
    }

    /// `None`: this observer is not available here.
    fn turn(&mut self, stage: &Stage<'_>) -> Result<Option<Turn>, Failure> {
        if self.missing.is_some() {
            return Ok(None);
        }
        match (self.observer.start)(&stage.bench.ecalls, &stage.server)? {
            Ok(running) => stage.turn(Some(&running)).map(Some),
            Err(why) => {
                self.missing = Some(why);
                Ok(None)
            }
        }
    }

    fn value(&self, bare_ns: f64) -> Value {
        let name = self.observer.row;
        if let Some(why) = self.missing {
            return Value::missing(name, why);
        }
        let ns = bare_ns * median(self.ratios.iter().copied());
        Value {
            cpu: Some(cpu(&self.turns)),
            open: open_loop_of(&self.turns),
            ..Value::ns(name, ns, STATISTIC, self.observer.what)
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => f64::NAN,
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

fn cpu(turns: &[Turn]) -> RequestCpu {
    let of = |part: fn(&RequestCpu) -> f64| median(turns.iter().map(|turn| part(&turn.cpu)));
    RequestCpu {
        server_us: of(|cpu| cpu.server_us),
        generator_us: of(|cpu| cpu.generator_us),
        reader_us: of(|cpu| cpu.reader_us),
    }
}

/// `None`: these turns had no open loop.
fn open_loop_of(turns: &[Turn]) -> Option<OpenLoop> {
    let open: Vec<OpenLoop> = turns.iter().filter_map(|turn| turn.open).collect();
    let of = |part: fn(&OpenLoop) -> f64| median(open.iter().map(part));
    (!open.is_empty()).then(|| OpenLoop {
        open_p50_us: of(|open| open.open_p50_us),
        open_p99_us: of(|open| open.open_p99_us),
        open_server_us: of(|open| open.open_server_us),
        open_generator_us: of(|open| open.open_generator_us),
        open_reader_us: of(|open| open.open_reader_us),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn every_observer_has_a_row_and_every_row_an_observer() {
        let rows: Vec<&str> = OBSERVERS.iter().map(|observer| observer.row).collect();
        assert_eq!(SECTIONS[0].rows[1..], rows);
        assert_eq!(SECTIONS[0].rows[0], BARE);
    }
}
