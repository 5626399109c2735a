//! `ecalls answer list`: what on this machine has the kernel answer datagrams where they arrive.
//!
//! It needs neither a core nor the daemon: whatever answers is seen among its process's
//! descriptors ([`ecalls_kernel::answer::running`]).

use std::time::{Duration, Instant};

use ecalls_abi::answer::AnswerCount;
use ecalls_kernel::answer::{Running, running};
use serde::Serialize;

use crate::duration;
use crate::exit::Outcome;
use crate::output::{CLEAR, Output, Table, note};
use crate::process;
use crate::stop::Stop;
use crate::tables::Tables;

/// Show which UDP ports the kernel answers: replies, and what became of other datagrams
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Interval between two tables
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    every: Duration,
    #[command(flatten)]
    tables: Tables,
    /// Print one JSON object for each port
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A program may have the kernel give its replies to UDP requests where these arrive
(ecalls_answers(3), doc/answers.md). The table has one line for each that does so now, in any
network namespace: its INTERFACE, the address and port AT which it answers, the number of CELLS for
replies, and per second: datagrams for the port that were ANSWERED; those that went UP to the
socket because the program said so, or has no reply to them; those that it DROPPED; those that went
up as more were answered than its LIMIT of replies in a second (LIMITED); and those that could not
be answered, by their checksum, by a fault of the program or for want of memory (FAILED). It needs
root.

Keys with --json: pid, name, interface, address, port, cells, limit_per_s; in total since it began:
answered, dropped, passed (packets of the interface that are not for the port), unproven (wrong
checksum, or not verified), failed, up, empty (the cell has no reply), torn (it was being written),
other (it has the reply to another request), too_long (more than three times the request), limited,
unsent (no memory); per second: answered_per_s, up_per_s (up, empty, torn, other, too_long),
dropped_per_s, limited_per_s, failed_per_s (failed, unproven, unsent). A rate is null if it began
in this interval.";

/// What answers, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Line {
    pid: u32,
    name: String,
    interface: String,
    address: String,
    port: u16,
    cells: u32,
    limit_per_s: u64,
    #[serde(flatten)]
    counts: Counts,
    answered_per_s: Option<f64>,
    up_per_s: Option<f64>,
    dropped_per_s: Option<f64>,
    limited_per_s: Option<f64>,
    failed_per_s: Option<f64>,
}

/// `AnswerCount` by name.
#[derive(Debug, Serialize)]
struct Counts {
    answered: u64,
    dropped: u64,
    passed: u64,
    unproven: u64,
    failed: u64,
    up: u64,
    empty: u64,
    torn: u64,
    other: u64,
    too_long: u64,
    limited: u64,
    unsent: u64,
}

impl From<&AnswerCount> for Counts {
    fn from(n: &AnswerCount) -> Counts {
        Counts {
            answered: n.answered,
            dropped: n.dropped,
            passed: n.passed,
            unproven: n.unproven,
            failed: n.failed,
            up: n.up,
            empty: n.empty,
            torn: n.torn,
            other: n.other,
            too_long: n.too_long,
            limited: n.limited,
            unsent: n.unsent,
        }
    }
}

/// Shows.
pub(crate) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let mut out = Output::new(args.json);
    let is_live = args.tables.is_live(args.json);
    // Of one table the rates are those of the first interval.
    let mut before = running()?;
    let mut since = Instant::now();
    let mut tables = 0;
    while args.tables.go_on_after(tables) && !stop.sleep(args.every) {
        let (now, seconds) = (running()?, since.elapsed().as_secs_f64());
        since = Instant::now();
        let lines: Vec<Line> = now.iter().map(|one| line(one, &before, seconds)).collect();
        if args.json {
            lines.iter().try_for_each(|line| out.object(line))?;
        } else {
            if is_live {
                out.line(CLEAR)?;
            }
            out.table(&table(&lines))?;
            if lines.is_empty() {
                note("nothing on this machine has the kernel answer datagrams");
            }
        }
        out.flush()?;
        before = now;
        tables += 1;
    }
    out.flush()
}

fn line(one: &Running, before: &[Running], seconds: f64) -> Line {
    let key = |one: &Running| (one.pid, one.interface.clone(), one.at);
    let former = before.iter().find(|other| key(other) == key(one));
    let per_s = |of: fn(&AnswerCount) -> u64| {
        let before = former.map(|former| of(&former.counts))?;
        Some(of(&one.counts).saturating_sub(before) as f64 / seconds.max(1e-9))
    };
    Line {
        pid: one.pid,
        name: process::name(one.pid).unwrap_or_default(),
        interface: one.interface.clone(),
        address: one.at.ip().to_string(),
        port: one.at.port(),
        cells: one.cells,
        limit_per_s: one.per_second,
        counts: Counts::from(&one.counts),
        answered_per_s: per_s(|n| n.answered),
        up_per_s: per_s(|n| n.up + n.empty + n.torn + n.other + n.too_long),
        dropped_per_s: per_s(|n| n.dropped),
        limited_per_s: per_s(|n| n.limited),
        failed_per_s: per_s(|n| n.failed + n.unproven + n.unsent),
    }
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        ">PID",
        "NAME",
        "INTERFACE",
        "AT",
        ">CELLS",
        ">LIMIT/s",
        ">ANSWERED/s",
        ">UP/s",
        ">DROPPED/s",
        ">LIMITED/s",
        ">FAILED/s",
    ]);
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    for line in lines {
        let at = match line.address.contains(':') {
            true => format!("[{}]:{}", line.address, line.port),
            false => format!("{}:{}", line.address, line.port),
        };
        table.row([
            line.pid.to_string(),
            line.name.clone(),
            line.interface.clone(),
            at,
            line.cells.to_string(),
            line.limit_per_s.to_string(),
            rate(line.answered_per_s),
            rate(line.up_per_s),
            rate(line.dropped_per_s),
            rate(line.limited_per_s),
            rate(line.failed_per_s),
        ]);
    }
    table
}
