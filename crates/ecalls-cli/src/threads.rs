//! `ecalls threads [PID]`: the runtimes of user-level threads of a process, or of all processes
//! that the caller may inspect.
//!
//! It needs neither a core nor privileges: a runtime shows its counts itself (abi/runtime.h), and
//! what each activation does in the kernel is in /proc ([`look`]).

mod look;
pub(crate) mod turns;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::look::{Activation, Counts, Look, State};
use crate::duration;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{CLEAR, Output, Table};
use crate::process;
use crate::stop::Stop;
use crate::tables::Tables;

/// Show user-level threads: processors, activations, and where threads block
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The process; without it, all those that you may inspect
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    /// Interval between two tables
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    every: Duration,
    /// Largest number of activations to show
    #[arg(long, value_name = "N", default_value_t = 20, requires = "pid")]
    rows: usize,
    #[command(flatten)]
    tables: Tables,
    /// Print one JSON object per runtime
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A runtime (a program with the crate ecalls-threads) has virtual processors, and activations: kernel
threads. An activation is running; blocked in the kernel; or a spare, which takes the processor of
one that blocks. The table has their numbers, the user-level THREADS, those of them that came back
from the kernel and wait for their turn (UNBLOCKED), and per second: SWITCHES, blocks that the
program announced (LEFT), that the kernel side told (TOLD), and that kept their processor (UNTOLD);
threads that came back and found a processor free (RECLAIMED) or were chosen later (RESTARTS).
REFUSED counts activations that a limit refused, in total. KERNEL: whether the kernel side tells of
blocks.

With PID, a second table has its activations: which THREAD each executes or, if it has blocked,
waits with (by its name, or number), in which kernel function it sleeps (WHERE), and how often it
has slept, as a spare included (SLEEPS). All that a runtime shows is its process's own
word.

Keys with --json: pid, name, runtime (its descriptor), kernel_side, own_storage, processors,
running, blocked, unblocked, spares, threads; in total: switches, left, told, untold, reclaimed,
restarts, refused; per second: switches_per_s, blocks_per_s (left and told); and with PID
activations, each with tid, processor, state, thread (its number; null for a spare), thread_name
(null: it has none), where (null: not known), sleeps.";

/// A runtime, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    look: &'a Look,
    #[serde(flatten)]
    states: States,
    switches_per_s: f64,
    blocks_per_s: f64,
    #[serde(skip)]
    rate: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activations: Option<&'a [Activation]>,
}

/// How many activations are in which state, and threads that came back and wait.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct States {
    running: usize,
    blocked: usize,
    unblocked: u64,
    spares: usize,
}

/// Shows.
pub(crate) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let mut out = Output::new(args.json);
    let is_live = args.tables.is_live(args.json);
    let (mut before, mut since) = (look_at(args.pid)?, Instant::now());
    let mut tables = 0;
    while args.tables.go_on_after(tables) && !stop.sleep(args.every) {
        let Ok(now) = look_at(args.pid) else {
            // The process has ended.
            break;
        };
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        let lines: Vec<Line<'_>> = now
            .iter()
            .map(|look| line(look, &before, seconds, args.pid.is_some()))
            .collect();
        if args.json {
            lines.iter().try_for_each(|line| out.object(line))?;
        } else {
            if is_live {
                out.line(CLEAR)?;
            }
            out.table(&table(&lines))?;
            if args.pid.is_some() {
                out.line("")?;
                out.table(&activation_table(&now, args.rows))?;
            }
        }
        out.flush()?;
        before = now;
        tables += 1;
    }
    out.flush()
}

/// The runtimes of that process, of which there must be one, or of all.
fn look_at(pid: Option<u32>) -> Result<Vec<Look>, Failure> {
    let Some(pid) = pid else {
        return Ok(look::all());
    };
    process::check(pid)?;
    match look::of_process(pid) {
        Ok(found) if found.is_empty() => {
            let process = process::show(pid);
            let message = format!("process {process} has no runtime of user-level threads");
            Err(Failure::new(Code::Unknown, message))
        }
        Ok(found) => Ok(found),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let process = process::show(pid);
            let message = format!("process {process} is not yours to inspect: try it as root");
            Err(Failure::new(Code::Denied, message))
        }
        Err(error) => {
            let message = format!("looking at process {pid}: {error}");
            Err(Failure::new(Code::Failed, message))
        }
    }
}

fn line<'a>(look: &'a Look, before: &[Look], seconds: f64, with_activations: bool) -> Line<'a> {
    let is_same = |other: &&Look| (other.pid, other.runtime) == (look.pid, look.runtime);
    let former = before.iter().find(is_same);
    let former = former.map_or_else(Counts::default, |former| former.counts);
    let per_s = |was: u64, is: u64| is.saturating_sub(was) as f64 / seconds.max(1e-9);
    let named = former.named().into_iter().zip(look.counts.named());
    let rate: BTreeMap<_, _> = named
        .map(|((name, was), (_, is))| (name, per_s(was, is)))
        .collect();
    let mut states = States {
        unblocked: look.counts.waiting(),
        ..States::default()
    };
    for activation in &look.activations {
        match activation.state {
            State::Running => states.running += 1,
            State::Blocked => states.blocked += 1,
            State::Spare => states.spares += 1,
            State::Stopped | State::Unknown => {}
        }
    }
    Line {
        look,
        states,
        switches_per_s: rate["switches"],
        blocks_per_s: rate["left"] + rate["told"],
        rate,
        activations: with_activations.then_some(&look.activations),
    }
}

fn table(lines: &[Line<'_>]) -> Table {
    let mut table = Table::new(&[
        ">PID",
        "NAME",
        "KERNEL",
        ">PROCESSORS",
        ">RUNNING",
        ">BLOCKED",
        ">UNBLOCKED",
        ">SPARES",
        ">THREADS",
        ">SWITCHES/s",
        ">LEFT/s",
        ">TOLD/s",
        ">UNTOLD/s",
        ">RECLAIMED/s",
        ">RESTARTS/s",
        ">REFUSED",
    ]);
    for line in lines {
        let (look, states) = (line.look, line.states);
        let rate = |name: &str| format!("{:.0}", line.rate[name]);
        table.row([
            look.pid.to_string(),
            look.name.clone(),
            if look.kernel_side { "yes" } else { "no" }.to_owned(),
            look.processors.to_string(),
            states.running.to_string(),
            states.blocked.to_string(),
            states.unblocked.to_string(),
            states.spares.to_string(),
            look.threads.to_string(),
            rate("switches"),
            rate("left"),
            rate("told"),
            rate("untold"),
            rate("reclaimed"),
            rate("restarts"),
            look.refused.to_string(),
        ]);
    }
    table
}

/// Activations that run or block first.
fn activation_table(looks: &[Look], rows: usize) -> Table {
    let mut table = Table::new(&[">TID", ">PROCESSOR", "STATE", "THREAD", "WHERE", ">SLEEPS"]);
    let mut all: Vec<_> = looks.iter().flat_map(|look| &look.activations).collect();
    all.sort_by_key(|activation| (activation.state, activation.processor, activation.tid));
    for activation in all.iter().take(rows) {
        table.row([
            activation.tid.to_string(),
            activation.processor.to_string(),
            activation.state.name().to_owned(),
            activation.shown_thread(),
            activation.place.clone().unwrap_or_default(),
            activation.sleeps.to_string(),
        ]);
    }
    if all.len() > rows {
        table.note(format!("and {} more", all.len() - rows));
    }
    table
}
