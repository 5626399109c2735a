//! `ecalls bench threads`: user-level threads on activations beside kernel threads, Tokio and Go.
//!
//! All systems run on one CPU, so that what is compared is who hands a processor on, and how; with
//! `--processors` the rows `rounds_*` have more, of which each system knows. The rows follow the
//! tables of SA §5; of several runs the best counts, because other work on the machine only worsens
//! a value.
//!
//! - [`ours`]: the same workloads with `ecalls-threads`;
//! - [`peers`]: with kernel threads and Tokio, and with a program in Go if there is a compiler; and
//!   those with kernel threads once more, in a process whose POSIX threads are user-level threads;
//! - [`mechanisms`]: what an upcall and a restart cost;
//! - [`http`]: a web server with a thread for each connection, on all systems.

mod http;
mod mechanisms;
mod ours;
mod peers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ecalls_cli::arguments::BenchArguments as Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use super::is_wanted;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table};

/// What a row measures: its name, its unit, whether more is better, and what it is.
struct Row {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    what: &'static str,
}

const fn row(name: &'static str, unit: &'static str, what: &'static str) -> Row {
    Row {
        name,
        unit,
        more_is_better: false,
        what,
    }
}

const fn rate(name: &'static str, unit: &'static str, what: &'static str) -> Row {
    Row {
        name,
        unit,
        more_is_better: true,
        what,
    }
}

const ROWS: &[Row] = &[
    row(
        "table1_regular",
        "us",
        "SA Table 1: what a thread that computes loses to a timer's interrupt, median",
    ),
    row(
        "table1_signal",
        "us",
        "the same to a timer's signal, with a handler",
    ),
    row(
        "table1_unblock",
        "us",
        "the same to a thread that blocked and comes back: it waits for its turn; as a kernel \
         thread it runs and sleeps again",
    ),
    row("table2_getppid", "us", "SA Table 2: a system call"),
    row(
        "table2_restart",
        "us",
        "SA Table 2: from the scheduler's call until a thread that came back runs, median",
    ),
    row(
        "table3_yield",
        "ns",
        "SA Table 3: a switch to another thread of ten, by a yield",
    ),
    row(
        "table3_sumtime_first",
        "ms",
        "SA Table 3: sumtime(2000), 2,000 threads that create and join two each, the first time",
    ),
    row(
        "table3_sumtime",
        "ms",
        "the same, the best of ten further times",
    ),
    row("create_join", "ns", "a thread is created and joined"),
    row(
        "block_no",
        "ns",
        "a call that might block and does not, said to the runtime",
    ),
    row(
        "block_next",
        "us",
        "from before a blocking call to the next thread, median",
    ),
    rate(
        "rounds_100_200",
        "rounds/s",
        "eight threads for each CPU compute 100 us and sleep 200 us, again and again",
    ),
    rate(
        "rounds_20_100",
        "rounds/s",
        "the same with 20 us and 100 us",
    ),
    row(
        "stranger_yield",
        "ns",
        "a context switch between two kernel threads that no runtime has, by a yield; told: while \
         one has the kernel side",
    ),
    row(
        "stranger_wake",
        "ns",
        "the same by a byte through a pipe, asleep before",
    ),
    rate(
        "http_64",
        "requests/s",
        "a web server with a thread for each connection, which reads a file for each request; 64 \
         busy connections",
    ),
    rate("http_10000", "requests/s", "the same with 10,000"),
    row(
        "http_10000_bytes",
        "bytes",
        "the server's memory for each that it has accepted, with what its kernel threads have in \
         the kernel",
    ),
    row("scale_1000", "ns", "a switch in turn among so many threads"),
    row("scale_100000", "ns", "the same"),
    row("scale_1000000", "ns", "the same"),
    row(
        "scale_1000000_bytes",
        "bytes",
        "resident memory of each of a million threads that have run",
    ),
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Runs of which the best counts.
    runs: usize,
    /// Rounds are divided by this.
    divisor: u64,
    /// CPUs.
    processors: usize,
}

impl Effort {
    /// Threads of the rows `rounds_*`.
    fn round_threads(self) -> u64 {
        8 * self.processors as u64
    }
}

/// A value of one system.
#[derive(Debug, Serialize)]
struct Value {
    row: &'static str,
    system: String,
    value: f64,
    unit: &'static str,
    /// To the value of kernel threads; of rates and of times alike, less than 1 is better.
    ratio: Option<f64>,
    what: &'static str,
}

/// By row and system.
#[derive(Debug, Default)]
struct Values(BTreeMap<(&'static str, String), f64>);

impl Values {
    /// Keeps the best.
    fn add(&mut self, name: &'static str, system: &str, value: f64) {
        let more_is_better = ROWS
            .iter()
            .any(|row| row.name == name && row.more_is_better);
        let best = self.0.entry((name, system.to_owned())).or_insert(value);
        if (value > *best) == more_is_better {
            *best = value;
        }
    }

    fn value(&self, row: &'static Row, system: &str) -> Option<Value> {
        let get = |system: &str| self.0.get(&(row.name, system.to_owned())).copied();
        let value = get(system)?;
        let ratio = get(PTHREADS).map(|base| match row.more_is_better {
            true => base / value,
            false => value / base,
        });
        Some(Value {
            row: row.name,
            system: system.to_owned(),
            value,
            unit: row.unit,
            ratio,
            what: row.what,
        })
    }
}

const ECALLS: &str = "ecalls";
/// Without thread-local storage of each thread's own.
const ECALLS_BARE: &str = "ecalls_bare";
/// The kernel side tells of blocks, which the program does not announce.
const ECALLS_TOLD: &str = "ecalls_told";
const PTHREADS: &str = "pthreads";
/// The workloads of kernel threads, with the library that makes them user-level threads.
const POSIX: &str = "ecalls_posix";
const TOKIO: &str = "tokio";
const GO: &str = "go";
const SYSTEMS: [&str; 7] = [ECALLS, ECALLS_BARE, ECALLS_TOLD, POSIX, PTHREADS, TOKIO, GO];

/// Bounds of [`Value::ratio`] that `--check` applies: of a row under a system.
const BOUNDS: &[(&str, &str, f64)] = &[
    ("table1_unblock", ECALLS, 0.95),
    ("table1_unblock", ECALLS_TOLD, 1.05),
    ("table3_yield", ECALLS, 0.5),
    ("table3_sumtime", ECALLS, 0.1),
    ("rounds_100_200", ECALLS, 1.1),
    ("rounds_100_200", ECALLS_TOLD, 1.1),
    ("table3_yield", POSIX, 0.5),
    ("table3_sumtime", POSIX, 0.3),
    ("rounds_100_200", POSIX, 1.3),
    ("http_64", ECALLS, 1.2),
    ("http_10000_bytes", ECALLS, 0.9),
];

/// Measures and prints.
pub(super) fn run(args: &Args) -> Outcome {
    args.sched.refuse()?;
    if let Some(served) = args.part.as_deref().and_then(http::serve) {
        return served;
    }
    let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    let filter = args.row.as_deref().unwrap_or("");
    let processors = usize::from(args.processors);
    let wanted = |name: &str| {
        is_wanted(filter, name, &names) && (processors == 1 || name.starts_with("rounds_"))
    };
    if !names.iter().any(|name| wanted(name)) {
        let known = names.join(", ");
        return Err(Failure::usage(format!(
            "no row contains {filter:?}: there are {known}"
        )));
    }
    let effort = match args.quick {
        true => Effort {
            runs: 1,
            divisor: 50,
            processors,
        },
        false => Effort {
            runs: 3,
            divisor: 1,
            processors,
        },
    };
    let clients = match args.part {
        None if http::is_wanted(wanted) => http::Clients::find()?,
        _ => None,
    };
    bind(processors)?;
    let mut values = Values::default();
    if args.part.is_some() {
        for _ in 0..effort.runs {
            peers::kernel_threads(&mut values, effort, &wanted)?;
        }
        return print(args, &values, wanted);
    }
    let go = if peers::GO_ROWS.into_iter().any(&wanted) {
        peers::Go::build()?
    } else {
        None
    };
    for _ in 0..effort.runs {
        ours::measure(&mut values, effort, &wanted)?;
        peers::measure(&mut values, effort, &wanted, go.as_ref())?;
        if let Some(clients) = &clients {
            let go = go.as_ref().map(peers::Go::program);
            http::measure(&mut values, effort, &wanted, clients, go.as_deref())?;
        }
    }
    peers::posix(&mut values, args)?;
    print(args, &values, wanted)
}

fn print(args: &Args, values: &Values, wanted: impl Fn(&str) -> bool) -> Outcome {
    let mut out = Output::new(args.json);
    let mut table = Table::new(&["row", "system", ">value", "unit", ">of pthreads"]);
    let mut missed = Vec::new();
    for row in ROWS.iter().filter(|row| wanted(row.name)) {
        for value in SYSTEMS
            .iter()
            .filter_map(|system| values.value(row, system))
        {
            let bound = BOUNDS
                .iter()
                .find(|b| b.0 == row.name && b.1 == value.system);
            if let (Some((.., bound)), Some(ratio)) = (bound, value.ratio)
                && ratio > *bound
            {
                let (name, system) = (row.name, &value.system);
                missed.push(format!("{name} of {system}: {ratio:.2}, at most {bound}"));
            }
            if out.is_json() {
                out.object(&value)?;
                continue;
            }
            let ratio = value
                .ratio
                .map_or(String::new(), |ratio| format!("{ratio:.3}"));
            table.row([
                row.name.to_owned(),
                value.system,
                format!(
                    "{:.*}",
                    if value.value < 100.0 { 2 } else { 0 },
                    value.value
                ),
                row.unit.to_owned(),
                ratio,
            ]);
        }
        table.note(row.what);
    }
    if !out.is_json() {
        out.table(&table)?;
    }
    out.flush()?;
    if args.check && !missed.is_empty() {
        return Err(Failure::new(Code::Failed, missed.join("; ")));
    }
    Ok(())
}

/// From here on this program runs on so many CPUs, and so does all that it starts.
fn bind(processors: usize) -> Outcome {
    let system = |errno: rustix::io::Errno| {
        Failure::new(
            Code::Failed,
            format!("binding to {processors} CPUs: {errno}"),
        )
    };
    let allowed = sched_getaffinity(None).map_err(system)?;
    let last = (0..CpuSet::MAX_CPU)
        .rev()
        .filter(|cpu| allowed.is_set(*cpu));
    let mut chosen = CpuSet::new();
    last.take(processors).for_each(|cpu| chosen.set(cpu));
    let found = chosen.count() as usize;
    if found < processors {
        return Err(Failure::usage(format!(
            "--processors {processors}: this process may use {found}"
        )));
    }
    sched_setaffinity(None, &chosen).map_err(system)
}

/// Iterations of [`compute`] in a microsecond.
fn iterations_per_us() -> u64 {
    const ITERATIONS: u64 = 2_000_000;
    let best = (0..5).map(|_| {
        let start = Instant::now();
        compute(ITERATIONS);
        start.elapsed().as_nanos()
    });
    let best_ns = best.min().unwrap_or(1).max(1);
    u64::try_from(u128::from(ITERATIONS) * 1000 / best_ns).unwrap_or(1)
}

fn compute(iterations: u64) -> u64 {
    (0..iterations).fold(1, |x: u64, _| {
        std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005) + 1)
    })
}

/// Rounds, and the times of `rounds_*` rows in us.
const ROUNDS: u64 = 1000;
const ROUND_ROWS: [(&str, u64, u64); 2] =
    [("rounds_100_200", 100, 200), ("rounds_20_100", 20, 100)];

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, error.to_string())
}

/// How long it takes from when one thread is about to block until another one runs.
#[derive(Debug, Default)]
struct Blocks {
    /// When the first thread was about to block, ns after the first time; 0: seen.
    at_ns: AtomicU64,
    has_ended: AtomicBool,
    seen_ns: Mutex<Vec<u64>>,
    start: OnceLock<Instant>,
}

impl Blocks {
    fn now_ns(&self) -> u64 {
        let start = self.start.get_or_init(Instant::now);
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) + 1
    }

    fn begin(&self) {
        self.at_ns.store(self.now_ns(), Ordering::SeqCst);
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Called by the other thread, which runs only while the first one is blocked; false: no more.
    fn look(&self) -> bool {
        let at_ns = self.at_ns.swap(0, Ordering::SeqCst);
        if at_ns != 0 {
            let mut seen = self.seen_ns.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(self.now_ns() - at_ns);
        }
        !self.has_ended.load(Ordering::SeqCst)
    }

    fn median_us(&self) -> Result<f64, Failure> {
        median_us(&mut self.seen_ns.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn median_us(times_ns: &mut [u64]) -> Result<f64, Failure> {
    times_ns.sort_unstable();
    let median = times_ns.get(times_ns.len() / 2).copied();
    let median = median.ok_or_else(|| failed("what is measured has not happened once"))?;
    Ok(median as f64 / 1e3)
}

fn per_s(rounds: u64, start: Instant) -> f64 {
    rounds as f64 / start.elapsed().as_secs_f64()
}

fn ns_each(count: u64, start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}
