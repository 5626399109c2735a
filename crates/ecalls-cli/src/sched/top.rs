//! `ecalls sched top`: the threads with the greatest demand for CPU time, their share, their waits.
//!
//! The figures are the kernel's own, so the command works under any scheduler; while ours runs, the
//! lateness of polling threads is shown above the table.

use std::collections::HashMap;
use std::fs;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ecalls_kernel::scheduler;
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use super::count;
use super::seen::{self, Seen};
use super::thread::{Had, look_at_all};
use crate::duration::{self, show_ns};
use crate::exit::Outcome;
use crate::output::{CLEAR, Output, Table, safe};
use crate::stop::Stop;

/// Lines of the terminal for the header and the cursor.
const LINES_KEPT: usize = 5;

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Interval between samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    every: Duration,
    /// Largest number of threads to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// End after this number of samples
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Also show the greatest delays, and the threads that ran during each
    #[arg(long, conflicts_with = "json")]
    worst: bool,
    /// Print one JSON object per thread
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Threads are sorted by demand: the time that they ran plus the time that they were runnable without a
CPU. Under our scheduler, threads that poll or have a window also show their kind (cooperative,
window or fair), their group, their tardiness after release times, and how often they broke each
rule (overran/slept/ahead) since their first poll; `ecalls sched status` shows more.

Keys with --json: scheduler, pid, tid, name, share (of one CPU), wait (part of the time that the
thread was runnable without a CPU), got (CPU time as a part of the demand; 1: it never waited),
turns_per_s, wait_per_turn_ns; and kind, group, tardy_p99_us, tardy_max_us, overran, slept, ahead
(null for threads that neither poll nor have a window).";

#[derive(Debug, Serialize)]
struct Line {
    scheduler: String,
    pid: u32,
    tid: u32,
    name: String,
    share: f64,
    wait: f64,
    got: f64,
    turns_per_s: f64,
    wait_per_turn_ns: u64,
    kind: Option<&'static str>,
    group: Option<u32>,
    tardy_p99_us: Option<u64>,
    tardy_max_us: Option<u64>,
    overran: Option<u64>,
    slept: Option<u64>,
    ahead: Option<u64>,
}

/// All threads at one moment, each with its process.
type All = HashMap<u32, (u32, Had)>;

pub(super) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let mut out = Output::new(args.json);
    let is_live = !args.json && std::io::stdout().is_terminal();
    let (mut before, mut counted) = (look_at_all(), count::all());
    let mut since = Instant::now();
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) && !stop.sleep(args.every) {
        let now = look_at_all();
        let counts = count::all();
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        let scheduler = scheduler::state().and_then(|state| state.running);
        let scheduler = scheduler.unwrap_or_else(|| "kernel".to_owned());
        let mut lines = lines(&before, &now, seconds, &scheduler, rows(args, is_live));
        add_seen(&mut lines, &seen::by_thread());
        if args.json {
            for line in &lines {
                out.object(line)?;
            }
        } else {
            if is_live {
                out.line(CLEAR)?;
            }
            out.line(format_args!("{scheduler}, {seconds:.1} s"))?;
            if let Some(tardiness) = count::since(counted, counts) {
                out.line(format_args!("released {tardiness}"))?;
            }
            out.table(&table(&lines))?;
            out.line("")?;
            if args.worst {
                // There are no records without our scheduler, or without the right to read them.
                out.table(&seen::worst_table(&seen::worst().unwrap_or_default()))?;
            }
        }
        out.flush()?;
        (before, counted) = (now, counts);
        looks += 1;
    }
    out.flush()
}

/// The number of rows: as requested, but at most as many as fit on the terminal.
fn rows(args: &Args, is_live: bool) -> usize {
    let height = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    match is_live && height > LINES_KEPT {
        true => args.rows.min(height - LINES_KEPT),
        false => args.rows,
    }
}

/// The threads with the greatest demand between two samples.
fn lines(before: &All, now: &All, seconds: f64, scheduler: &str, rows: usize) -> Vec<Line> {
    let mut wanted: Vec<(u32, u32, Had)> = now
        .iter()
        .map(|(&tid, &(pid, had))| {
            let before = before.get(&tid).map(|(_, had)| *had).unwrap_or_default();
            (pid, tid, had.since(before))
        })
        .filter(|(.., had)| had.run_ns + had.wait_ns > 0)
        .collect();
    wanted.sort_unstable_by_key(|(_, tid, had)| (u64::MAX - had.run_ns - had.wait_ns, *tid));
    wanted.truncate(rows);
    let part = |ns: u64| ns as f64 / 1e9 / seconds.max(1e-9);
    let line = |(pid, tid, had): (u32, u32, Had)| Line {
        scheduler: scheduler.to_owned(),
        pid,
        tid,
        name: name(pid, tid),
        share: part(had.run_ns),
        wait: part(had.wait_ns),
        got: had.got(),
        turns_per_s: had.turns as f64 / seconds.max(1e-9),
        wait_per_turn_ns: had.wait_per_turn_ns(),
        kind: None,
        group: None,
        tardy_p99_us: None,
        tardy_max_us: None,
        overran: None,
        slept: None,
        ahead: None,
    };
    wanted.into_iter().map(line).collect()
}

/// Adds our scheduler's records.
fn add_seen(lines: &mut [Line], all: &HashMap<u32, Seen>) {
    for line in lines {
        let Some(seen) = all.get(&line.tid) else {
            continue;
        };
        line.kind = Some(seen.kind);
        line.group = seen.group;
        line.tardy_p99_us = Some(seen.tardiness.p99_us);
        line.tardy_max_us = Some(seen.tardiness.max_us);
        (line.overran, line.slept) = (Some(seen.overran), Some(seen.slept));
        line.ahead = Some(seen.ahead);
    }
}

fn name(pid: u32, tid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    let name = name.unwrap_or_default();
    safe(name.trim_end())
}

/// A safe text from a name as the kernel stores it.
pub(super) fn printable(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|byte| *byte == 0);
    safe(&String::from_utf8_lossy(&comm[..end.unwrap_or(comm.len())]))
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        ">PID",
        ">TID",
        "NAME",
        "KIND",
        ">GROUP",
        ">CPU %",
        ">WAIT %",
        ">GOT %",
        ">TURNS/s",
        ">WAIT PER TURN",
        ">LATE P99",
        ">MAX us",
        ">DEMOTED",
    ]);
    let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
    for line in lines {
        let broken = [line.overran, line.slept, line.ahead].map(number);
        table.row([
            line.pid.to_string(),
            line.tid.to_string(),
            line.name.clone(),
            line.kind.unwrap_or_default().to_owned(),
            number(line.group.map(u64::from)),
            format!("{:.1}", line.share * 100.0),
            format!("{:.1}", line.wait * 100.0),
            format!("{:.0}", line.got * 100.0),
            format!("{:.0}", line.turns_per_s),
            show_ns(line.wait_per_turn_ns),
            number(line.tardy_p99_us),
            number(line.tardy_max_us),
            match line.kind {
                Some(_) => broken.join("/"),
                None => String::new(),
            },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wanted_most_comes_first_and_who_wanted_nothing_is_left_out() {
        let had = |run_ns, wait_ns| Had {
            run_ns,
            wait_ns,
            turns: 2,
        };
        let before = All::from([(1, (1, had(50, 0))), (2, (1, had(0, 0)))]);
        let now = All::from([
            (1, (1, had(60, 0))),
            (2, (1, had(100, 300))),
            (3, (3, had(0, 0))),
        ]);
        let lines = lines(&before, &now, 1.0, "x", 9);
        let tids: Vec<u32> = lines.iter().map(|line| line.tid).collect();
        assert_eq!(tids, [2, 1]);
        assert!((lines[0].got - 0.25).abs() < 1e-9);
    }
}
