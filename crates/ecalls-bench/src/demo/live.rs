//! The output while the demonstration runs: on a terminal a table that is updated in place, else a
//! table every few seconds, or objects.

use std::io::IsTerminal;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;
use serde::Serialize;

use super::DEADLINE;
use super::attach::{Attached, DELAY_NS, PACE, Watched};
use super::seen::Seen;
use super::summary::Cost;
use crate::duration::show_ns;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Dropped, Output, Table};
use crate::web::Load;
use crate::web::Server;

/// Seconds between two tables: on a terminal; otherwise; and in a short run.
const FAST: f64 = 1.0;
const SLOW: f64 = 5.0;
const TABLES_MIN: f64 = 4.0;
/// The interval between two helper processes.
const HELPER: Duration = Duration::from_millis(100);

/// Prints an introduction.
pub(super) fn open(out: &mut Output, server: &Server, load: &Load, sockets: usize) -> Outcome {
    #[derive(Serialize)]
    struct Opening<'a> {
        what: &'static str,
        server: &'a str,
        pid: u32,
        port: u16,
        load: &'a str,
        sockets: usize,
    }
    let opening = Opening {
        what: "start",
        server: &server.name,
        pid: server.pid(),
        port: server.port,
        load: load.name(),
        sockets,
    };
    if out.is_json() {
        out.object(&opening)?;
    } else {
        out.line(format_args!(
            "{} (pid {}) on 127.0.0.1:{}, load by {}. Registered: {sockets} listening socket(s), \
             and so every connection made to them.",
            opening.server, opening.pid, opening.port, opening.load
        ))?;
        out.line("First, what it costs the server: requests per second without us, and with.")?;
    }
    out.flush()
}

/// Prints the cost for the server.
pub(super) fn cost(out: &mut Output, cost: &Cost) -> Outcome {
    if !out.is_json() {
        for (without, with) in &cost.turns {
            out.line(format_args!(
                "  without {without:>7.0}/s   with {with:>7.0}/s   ratio {:.3}",
                with / without
            ))?;
        }
        out.line(format_args!(
            "Now its events. They are read every {}; those older than {} are discarded.",
            show_ns(PACE.as_nanos() as u64),
            show_ns(DEADLINE.as_nanos() as u64),
        ))?;
    }
    out.flush()
}

/// Prints the E-code handlers whose rows follow.
pub(super) fn filters(out: &mut Output, attached: &Attached) -> Outcome {
    #[derive(Serialize)]
    struct Filter<'a> {
        what: &'static str,
        row: &'a str,
        text: &'a str,
    }
    for watched in &attached.services {
        let Some(text) = &watched.text else { continue };
        let row = watched.name;
        if out.is_json() {
            let what = "filter";
            out.object(&Filter { what, row, text })?;
            continue;
        }
        out.line(format_args!(
            "Row {row}: the same sockets through this E-code, compiled now, run in the kernel for \
             each event:\n  {text}"
        ))?;
    }
    out.flush()
}

/// One line of JSON: the events of a service since the last line.
#[derive(Debug, Serialize)]
struct Tick {
    what: &'static str,
    service: &'static str,
    seconds: f64,
    events_per_s: f64,
    of_server_per_s: f64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    late: u64,
    dropped: Dropped,
}

/// The state of the live part.
#[derive(Debug)]
pub(super) struct Live {
    begin: Instant,
    seconds: f64,
    period: Duration,
    in_place: bool,
    /// Lines of the last table, which the next one overwrites.
    lines: usize,
    shown: Instant,
    before: Vec<Seen>,
    helped: Instant,
}

impl Live {
    pub(super) fn new(attached: &Attached, seconds: f64, json: bool) -> Live {
        let in_place = !json && std::io::stdout().is_terminal();
        let period = if in_place {
            FAST
        } else {
            (seconds / TABLES_MIN).clamp(FAST, SLOW)
        };
        let now = Instant::now();
        Live {
            begin: now,
            seconds,
            period: Duration::from_secs_f64(period),
            in_place,
            lines: 0,
            shown: now,
            before: attached.services.iter().map(Watched::seen).collect(),
            helped: now,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.begin.elapsed().as_secs_f64() >= self.seconds
    }

    /// Starts a short-lived process from time to time, as a server's workers would, and waits a
    /// moment.
    pub(super) fn help(&mut self) -> Outcome {
        std::thread::sleep(HELPER.saturating_sub(self.helped.elapsed()));
        self.helped = Instant::now();
        Command::new("true")
            .stdin(Stdio::null())
            .status()
            .map(|_| ())
            .map_err(|error| Failure::new(Code::Failed, format!("starting a helper: {error}")))
    }

    /// Prints the events since the last table, if the interval is over.
    pub(super) fn tick(&mut self, attached: &Attached, out: &mut Output) -> Outcome {
        if self.shown.elapsed() < self.period {
            return Ok(());
        }
        self.show(attached, out)
    }

    /// Prints the events since the last table, unless that was just printed.
    pub(super) fn last(&mut self, attached: &Attached, out: &mut Output) -> Outcome {
        if self.shown.elapsed() < self.period / 2 {
            return Ok(());
        }
        self.show(attached, out)
    }

    fn show(&mut self, attached: &Attached, out: &mut Output) -> Outcome {
        let seconds = self.shown.elapsed().as_secs_f64();
        self.shown = Instant::now();
        let now: Vec<Seen> = attached.services.iter().map(Watched::seen).collect();
        if out.is_json() {
            for ((watched, seen), before) in attached.services.iter().zip(&now).zip(&self.before) {
                out.object(&tick(watched.name, seen, before, seconds))?;
            }
        } else {
            self.table(attached, &now, seconds, out)?;
        }
        self.before = now;
        out.flush()
    }

    fn table(
        &mut self,
        attached: &Attached,
        now: &[Seen],
        seconds: f64,
        out: &mut Output,
    ) -> Outcome {
        let mut table = Table::new(&[
            "SERVICE",
            ">EVENTS/S",
            ">SERVER'S",
            ">P50",
            ">P99",
            ">MAX",
            ">LATE",
            ">DROPPED",
            "KINDS/S",
        ]);
        for ((watched, seen), before) in attached.services.iter().zip(now).zip(&self.before) {
            let tick = tick(watched.name, seen, before, seconds);
            table.row([
                tick.service.to_owned(),
                format!("{:.0}", tick.events_per_s),
                format!("{:.0}", tick.of_server_per_s),
                show_ns(tick.p50_ns),
                show_ns(tick.p99_ns),
                show_ns(tick.max_ns),
                tick.late.to_string(),
                tick.dropped.to_string(),
                kinds(watched, seen, before, seconds),
            ]);
        }
        for (name, why) in &attached.absent {
            table.note(format!("{name}: absent, {why}"));
        }
        let text = format!(
            "after {:.0} s of {:.0} (task and sched: the whole machine; sched: waits above \
             {})\n{table}",
            self.begin.elapsed().as_secs_f64(),
            self.seconds,
            show_ns(DELAY_NS),
        );
        if self.in_place {
            return self.print_in_place(&text, out);
        }
        out.line(text.trim_end())
    }

    /// Prints over the last table. No line may be longer than the terminal is wide, because it
    /// would occupy two.
    fn print_in_place(&mut self, text: &str, out: &mut Output) -> Outcome {
        if self.lines > 0 {
            // Moves to the table's first line and clears everything below.
            out.line(format_args!("\x1b[{}A\x1b[J\x1b[A", self.lines))?;
        }
        let width = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { usize::MAX } else { width };
        self.lines = 0;
        for line in text.lines() {
            let visible: String = line.chars().take(width).collect();
            out.line(visible)?;
            self.lines += 1;
        }
        Ok(())
    }
}

/// The counts between two samples.
fn tick(name: &'static str, seen: &Seen, before: &Seen, seconds: f64) -> Tick {
    let mut latency = seen.latency.clone();
    // Both histograms come from one reader, one later than the other.
    let _ = latency.subtract(&before.latency);
    let rate = |now: u64, before: u64| (now - before) as f64 / seconds;
    let mut dropped = Dropped::default();
    for (at, count) in dropped.0.iter_mut().enumerate() {
        *count = seen.lost.dropped[at].wrapping_sub(before.lost.dropped[at]);
    }
    Tick {
        what: "tick",
        service: name,
        seconds,
        events_per_s: rate(seen.events, before.events),
        of_server_per_s: rate(seen.ours, before.ours),
        p50_ns: latency.value_at_quantile(0.5),
        p99_ns: latency.value_at_quantile(0.99),
        max_ns: latency.max(),
        late: seen.late_in_all() - before.late_in_all(),
        dropped,
    }
}

fn kinds(watched: &Watched, seen: &Seen, before: &Seen, seconds: f64) -> String {
    let counts = seen.kinds.iter().zip(&before.kinds);
    let texts: Vec<String> = watched
        .kinds
        .iter()
        .zip(counts)
        .map(|(kind, (now, before))| format!("{kind} {:.0}", (now - before) as f64 / seconds))
        .collect();
    texts.join(", ")
}
