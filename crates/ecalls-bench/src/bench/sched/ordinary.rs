//! Rows of programs that do not know the scheduler: each is measured beside the kernel's own in the
//! same boot, in turns ours, EEVDF, ours, on all CPUs.
//!
//! A row is one figure of one program beside so many hogs; its `ratio` is our value by EEVDF's. The
//! goal is the same for all: at least [`GOAL_MORE`] of a rate, at most [`GOAL_LESS`] of a time.
//! `--check` names each row that misses it. It fails where a row is beyond what was reached before
//! ([`REACHED`]); a row that is not in that table has to meet the goal.
//!
//! - [`programs`]: what the programs do, as threads;
//! - [`load`]: runs a program's threads beside hogs.

mod load;
mod programs;

use serde::{Deserialize, Serialize};

use super::under::{Under, Which};
use super::work::Work;
use super::{ECALLS, EEVDF};
use crate::exit::Failure;
use crate::output::{Output, Table, note};
use load::{Make, Seen};
pub(crate) use programs::{SUBCOMMAND, message_part};

/// What every row's name begins with.
pub(super) const PREFIX: &str = "ordinary_";

const GOAL_MORE: f64 = 0.9;
const GOAL_LESS: f64 = 1.1;

/// Rows that do not meet their goal yet, or not surely, and the ratio that `--check` holds them to:
/// what was measured in the test machine's steady mode, and some more, since a run is short. A row
/// that meets its goal leaves this table.
const REACHED: &[(&str, f64)] = &[
    // On two CPUs.
    ("ordinary_server_4_hogs_p99", 1.3),
    ("ordinary_futex", 0.85),
    ("ordinary_switch", 0.8),
    ("ordinary_futex_timed", 0.2),
    ("ordinary_yield", 0.75),
    // On four, or not in each run.
    ("ordinary_wake_max", 1.6),
    ("ordinary_wake_8_hogs_max", 1.5),
    ("ordinary_server_4_hogs", 0.85),
    ("ordinary_messages_thread_pipe", 0.85),
    ("ordinary_pipe", 0.85),
    ("ordinary_semaphore_4_hogs", 0.7),
    ("ordinary_hogs_spread", 1.4),
    ("ordinary_fork_4_hogs", 0.75),
    ("ordinary_thread", 0.85),
    // They meet their goal, by less than a run may differ.
    ("ordinary_messages_thread_socket", 0.85),
    // EEVDF's value is twice as high in some turns as in others.
    ("ordinary_store_4_hogs", 0.6),
    ("ordinary_store_4_hogs_p99", 2.1),
    ("ordinary_pipe_4_hogs", 0.3),
    ("ordinary_futex_4_hogs", 0.2),
];

/// One figure of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// What it did per second.
    Rate,
    /// How long it waited: 99 of 100 times at most, and always.
    P99,
    Max,
    /// What the thread did that did most, by what the one did that did least.
    Spread,
}
use Figure::{Max, P99, Rate, Spread};

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Better {
    More,
    Less,
}

/// A program, and its figures beside each number of hogs.
struct Program {
    name: &'static str,
    what: &'static str,
    /// What its rate counts.
    unit: &'static str,
    make: Make,
    beside: &'static [(usize, &'static [Figure])],
}

const LATE: &[Figure] = &[P99, Max];
const BOTH: &[Figure] = &[Rate, P99];
const RATE: &[Figure] = &[Rate];

const PROGRAMS: &[Program] = &[
    Program {
        name: "wake",
        what: "1 thread that sleeps 1 ms again and again: from its time until it runs",
        unit: "wake-ups/s",
        make: |_| programs::sleepers(1),
        beside: &[(0, LATE), (4, LATE), (8, LATE)],
    },
    Program {
        name: "wake_of_4",
        what: "4 such threads",
        unit: "wake-ups/s",
        make: |_| programs::sleepers(4),
        beside: &[(4, LATE)],
    },
    Program {
        name: "server",
        what: "a thread that wakes 4 workers, 0.5 ms of work and 0.1 ms of sleep a request: \
               from the wake-up until the worker runs",
        unit: "requests/s",
        make: |work| programs::server(work, 4),
        beside: &[(0, BOTH), (4, BOTH)],
    },
    Program {
        name: "messages_process_pipe",
        what: "10 processes send to 10, in groups of 4, by pipes",
        unit: "messages/s",
        make: |_| programs::messages(programs::process, programs::a_pipe),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "messages_process_socket",
        what: "10 processes send to 10, in groups of 4, by Unix sockets",
        unit: "messages/s",
        make: |_| programs::messages(programs::process, programs::a_socket),
        beside: &[(0, RATE)],
    },
    Program {
        name: "messages_thread_pipe",
        what: "10 threads send to 10, in groups of 4, by pipes",
        unit: "messages/s",
        make: |_| programs::messages(programs::thread, programs::a_pipe),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "messages_thread_socket",
        what: "10 threads send to 10, in groups of 4, by Unix sockets",
        unit: "messages/s",
        make: |_| programs::messages(programs::thread, programs::a_socket),
        beside: &[(0, RATE)],
    },
    Program {
        name: "pipe",
        what: "2 threads that pass a byte to and fro by pipes",
        unit: "rounds/s",
        make: |_| programs::pipes(),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "switch",
        what: "2 threads for each CPU, one of which sends to the other by a pipe that holds one \
               message",
        unit: "messages/s",
        make: |_| programs::switches(),
        beside: &[(0, RATE)],
    },
    Program {
        name: "futex",
        what: "2 threads that wake each other by futexes",
        unit: "rounds/s",
        make: |_| programs::futexes(),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "futex_timed",
        what: "2 times a thread that waits 5 us again and again, and one that tries to wake it",
        unit: "wake-ups/s",
        make: |_| programs::timed_futexes(2),
        beside: &[(0, RATE)],
    },
    Program {
        name: "semaphore",
        what: "4 threads that share a semaphore: 20 us with it, 20 us without",
        unit: "turns/s",
        make: |work| programs::semaphore(work, 4),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "hogs",
        what: "threads that compute, one more than there are CPUs; the spread is what the one did \
               that did most, by what the one did that did least",
        unit: "pieces/s",
        make: programs::hogs,
        beside: &[(0, &[Rate, Spread])],
    },
    Program {
        name: "yield",
        what: "2 threads for each CPU that yield",
        unit: "yields/s",
        make: |_| programs::yields(),
        beside: &[(0, RATE)],
    },
    Program {
        name: "fork",
        what: "a thread that starts a program and waits for its end, again and again",
        unit: "programs/s",
        make: |_| programs::forks(),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "thread",
        what: "a thread that starts another one and waits for its end, again and again",
        unit: "threads/s",
        make: |_| programs::threads(),
        beside: &[(0, RATE)],
    },
    Program {
        name: "compress",
        what: "a reader, 4 workers of 2 ms a block, a writer that keeps the order",
        unit: "blocks/s",
        make: |work| programs::compress(work, 4),
        beside: &[(0, RATE), (4, RATE)],
    },
    Program {
        name: "store",
        what: "16 clients of a key-value server by TCP, 20 us of work a request: from the \
               request until the answer",
        unit: "requests/s",
        make: programs::store,
        beside: &[(0, BOTH), (4, BOTH)],
    },
];

/// A program beside so many hogs, and the rows that it gives.
pub(super) struct Run {
    program: &'static Program,
    hogs: usize,
    rows: Vec<(String, Figure)>,
}

/// All of them.
pub(super) fn all() -> Vec<Run> {
    let run = |program: &'static Program, &(hogs, figures): &(usize, &'static [Figure])| {
        let row = |figure: &Figure| (name(program.name, hogs, *figure), *figure);
        Run {
            program,
            hogs,
            rows: figures.iter().map(row).collect(),
        }
    };
    let runs = |program: &'static Program| program.beside.iter().map(move |at| run(program, at));
    PROGRAMS.iter().flat_map(runs).collect()
}

fn name(program: &str, hogs: usize, figure: Figure) -> String {
    let beside = match hogs {
        0 => String::new(),
        hogs => format!("_{hogs}_hogs"),
    };
    let suffix = match figure {
        Rate => "",
        P99 => "_p99",
        Max => "_max",
        Spread => "_spread",
    };
    format!("{PREFIX}{program}{beside}{suffix}")
}

impl Run {
    /// The names of its rows.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|(name, _)| name.as_str())
    }

    /// Keeps the rows that are wanted. False: there is none.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) -> bool {
        self.rows.retain(|(name, _)| is_wanted(name));
        !self.rows.is_empty()
    }
}

/// One line of JSON: a row under a scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Value {
    row: String,
    scheduler: String,
    value: f64,
    unit: String,
    better: Better,
    /// By EEVDF's value, if that was measured.
    ratio: Option<f64>,
    /// The value of each turn; `value` is their mean.
    turns: Vec<f64>,
    hogs: usize,
    cpus: usize,
    seconds: u64,
    what: String,
}

/// Measures the runs under these schedulers in turns: each in their order, then the first again.
/// `start` starts one, unless it is to be left out.
pub(super) fn measure(
    runs: &[Run],
    schedulers: &[Which],
    seconds: u64,
    start: impl Fn(&Which) -> Result<Option<Under>, Failure>,
) -> Result<Vec<Value>, Failure> {
    let mut values: Vec<Value> = Vec::new();
    // None of these programs is for SCHED_RR.
    let of_class = |which: &&Which| !matches!(which, Which::RoundRobin) && !runs.is_empty();
    let schedulers: Vec<&Which> = schedulers.iter().filter(of_class).collect();
    let again = schedulers.first().filter(|_| schedulers.len() > 1);
    // A piece of work has the same steps under each of them. Measured in each turn, it had 0.6 of
    // them in some: other processors of the test machine were still busy then.
    let work = Work::measure();
    for which in schedulers.iter().chain(again) {
        let Some(mut under) = start(which)? else {
            continue;
        };
        note(format_args!(
            "{} programs, {seconds} s each, under {which}",
            runs.len()
        ));
        for run in runs {
            let seen = load::run(run.program.make, run.hogs, work, seconds)?;
            under.check()?;
            for (row, figure) in &run.rows {
                let value = figure.of(&seen, seconds);
                let scheduler = which.to_string();
                let mut all = values.iter_mut();
                match all.find(|one| one.row == *row && one.scheduler == scheduler) {
                    Some(one) => one.turns.push(value),
                    None => values.push(run.value(row, *figure, scheduler, value, seconds)),
                }
            }
        }
    }
    Ok(compared(values))
}

/// With means and ratios.
fn compared(mut values: Vec<Value>) -> Vec<Value> {
    for value in &mut values {
        value.value = value.turns.iter().sum::<f64>() / value.turns.len() as f64;
    }
    let eevdf = values.iter().filter(|value| value.scheduler == EEVDF);
    let eevdf: Vec<(String, f64)> = eevdf.map(|one| (one.row.clone(), one.value)).collect();
    for value in &mut values {
        let base = eevdf.iter().find(|(row, _)| *row == value.row);
        value.ratio = base.map(|(_, base)| value.value / base);
    }
    values
}

impl Run {
    fn value(
        &self,
        row: &str,
        figure: Figure,
        scheduler: String,
        value: f64,
        seconds: u64,
    ) -> Value {
        let (unit, better) = match figure {
            Rate => (self.program.unit, Better::More),
            P99 | Max => ("us", Better::Less),
            Spread => ("times", Better::Less),
        };
        Value {
            row: row.to_owned(),
            scheduler,
            value: 0.0,
            unit: unit.to_owned(),
            better,
            ratio: None,
            turns: vec![value],
            hogs: self.hogs,
            cpus: load::cpus(),
            seconds,
            what: self.program.what.to_owned(),
        }
    }
}

impl Figure {
    fn of(self, seen: &Seen, seconds: u64) -> f64 {
        match self {
            Rate => seen.done as f64 / seconds as f64,
            P99 => seen.waits.value_at_quantile(0.99) as f64 / 1000.0,
            Max => seen.waits.max() as f64 / 1000.0,
            Spread => {
                let most = seen.each.iter().max().map_or(0, |&done| done);
                let least = seen.each.iter().min().map_or(0, |&done| done);
                most as f64 / least.max(1) as f64
            }
        }
    }
}

impl Better {
    /// The goal of all rows.
    fn goal(self) -> f64 {
        match self {
            Better::More => GOAL_MORE,
            Better::Less => GOAL_LESS,
        }
    }

    fn is_met(self, ratio: f64, bound: f64) -> bool {
        match self {
            Better::More => ratio >= bound,
            Better::Less => ratio <= bound,
        }
    }

    fn words(self, bound: f64) -> String {
        match self {
            Better::More => format!("at least {bound}"),
            Better::Less => format!("at most {bound}"),
        }
    }
}

impl Value {
    /// What it misses of this bound, in words; nothing where it is another's.
    fn missed(&self, bound: f64) -> Option<String> {
        let ratio = self.ratio.filter(|_| self.scheduler == ECALLS)?;
        let words = || {
            let (row, bound) = (&self.row, self.better.words(bound));
            format!("{row} is {ratio:.2} of EEVDF's, not {bound}")
        };
        (!self.better.is_met(ratio, bound)).then(words)
    }

    /// What it was held to.
    fn gate(&self) -> f64 {
        let reached = REACHED.iter().find(|(row, _)| *row == self.row);
        reached.map_or(self.better.goal(), |(_, bound)| *bound)
    }
}

/// What is beyond its gate, in words. Says which rows are only beyond their goal.
pub(super) fn missed(values: &[Value]) -> Vec<String> {
    for value in values {
        if let Some(words) = value.missed(value.better.goal()) {
            note(format_args!("goal missed: {words}"));
        }
    }
    values
        .iter()
        .filter_map(|value| value.missed(value.gate()))
        .collect()
}

/// A table of all rows.
pub(super) fn print(out: &mut Output, values: &[Value]) -> Result<(), Failure> {
    let columns = ["", "scheduler", ">value", "unit", "better", ">ratio", ""];
    let mut table = Table::new(&columns);
    for value in values {
        let is_missed = value.missed(value.better.goal()).is_some();
        table.row([
            value.row.clone(),
            value.scheduler.clone(),
            match value.value {
                small if small < 10.0 => format!("{small:.2}"),
                large => format!("{large:.0}"),
            },
            value.unit.clone(),
            match value.better {
                Better::More => "more".to_owned(),
                Better::Less => "less".to_owned(),
            },
            value
                .ratio
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            if is_missed { "goal missed" } else { "" }.to_owned(),
        ]);
    }
    out.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row's values under both, as if it had been measured in turns.
    fn values(row: &str, better: Better, ours: [f64; 2], eevdf: f64) -> Vec<Value> {
        let value = |scheduler: &str, turns: &[f64]| Value {
            row: row.to_owned(),
            scheduler: scheduler.to_owned(),
            value: 0.0,
            unit: "us".to_owned(),
            better,
            ratio: None,
            turns: turns.to_vec(),
            hogs: 0,
            cpus: 2,
            seconds: 1,
            what: String::new(),
        };
        compared(vec![value(ECALLS, &ours), value(EEVDF, &[eevdf])])
    }

    #[test]
    fn a_ratio_is_of_the_mean_of_our_turns() {
        let [ours, eevdf] = &values("row", Better::Less, [10.0, 30.0], 40.0)[..] else {
            panic!("two values");
        };
        assert_eq!((ours.value, ours.ratio), (20.0, Some(0.5)));
        assert_eq!((eevdf.value, eevdf.ratio), (40.0, Some(1.0)));
    }

    #[test]
    fn a_row_that_is_not_excused_has_to_meet_the_goal() {
        let missed = |better, ours: f64| missed(&values("row", better, [ours, ours], 100.0));
        assert!(missed(Better::More, 91.0).is_empty());
        assert!(missed(Better::Less, 109.0).is_empty());
        assert_eq!(
            missed(Better::More, 89.0),
            ["row is 0.89 of EEVDF's, not at least 0.9"]
        );
        assert_eq!(
            missed(Better::Less, 111.0),
            ["row is 1.11 of EEVDF's, not at most 1.1"]
        );
    }

    #[test]
    fn excused_rows_exist_and_are_held_to_less_than_the_goal() {
        let runs = all();
        for (name, bound) in REACHED {
            let mut rows = runs.iter().flat_map(|run| &run.rows);
            let (_, figure) = rows.find(|(row, _)| row == name).expect("a row");
            let better = match figure {
                Rate => Better::More,
                P99 | Max | Spread => Better::Less,
            };
            assert!(!better.is_met(*bound, better.goal()), "{name}");
        }
    }
}
