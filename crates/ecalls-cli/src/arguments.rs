//! The arguments of `ecalls bench` and `ecalls demo`: the program `ecalls-bench` parses them, and
//! the command `ecalls` completes them.

use std::path::PathBuf;

use crate::exit::{Failure, Outcome};

/// Measure events, handlers and schedulers on this machine
#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    /// What to measure
    #[arg(value_enum)]
    pub what: What,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Only the row of this name, or all rows whose names contain this text; several with commas
    #[arg(long, value_name = "FILTER")]
    pub row: Option<String>,
    /// Fail with exit code 1 if a ratio misses its goal by more than the margin
    #[arg(long)]
    pub check: bool,
    /// Run few rounds, only to test that everything works
    #[arg(long, conflicts_with = "check")]
    pub quick: bool,
    /// Of `threads`: only the rows `rounds_*`, on so many CPUs
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub processors: u8,
    /// Internal: of `threads`, only the rows of kernel threads, or a server of its rows
    #[arg(long, hide = true)]
    pub part: Option<String>,
    #[command(flatten)]
    pub sched: Sched,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Delivery of events: latency, cost, throughput
    Events,
    /// Handlers in E-code: from a text to the kernel, and cost per event
    Ecode,
    /// A web server under load: what it costs to observe it
    Server,
    /// Channels among hosts: what it costs to send an event to other hosts
    Channel,
    /// User-level threads that block, beside kernel threads, Tokio and Go
    Threads,
    /// A web server under overload: how it waits for sockets, and the guard
    Web,
    /// Servers that wait by poll or select beside idle connections, bare and under `run --io`
    Io,
    /// Schedulers: the workloads of the Cooperative Polling paper under ours, the kernel's and
    /// others
    Sched,
}

/// The options of `bench sched` only.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of sched")]
pub struct Sched {
    /// Duration of each run in seconds (default 5)
    #[arg(long, value_name = "N", conflicts_with = "quick",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Measure only this scheduler; may be repeated
    #[arg(long, value_enum, value_name = "NAME")]
    pub scheduler: Vec<Own>,
    /// Also measure this program, which schedules while it runs (scx_bpfland); may be repeated
    #[arg(long, value_name = "PATH")]
    pub peer: Vec<PathBuf>,
    /// With --json: also print one object per run with its course over time
    #[arg(long, requires = "json")]
    pub series: bool,
    /// Also write drawings: a page in HTML with lateness of timers, CPU shares and frame rates over
    /// time; of `web` and `channel` one in SVG with the papers' figures
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Measure nothing: read what `--json --series` printed before; of `channel` what `--json` did
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["seconds", "scheduler", "peer", "series"])]
    pub from: Option<PathBuf>,
}

/// The schedulers that need no further program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Own {
    /// ECalls' scheduler, with players that poll cooperatively
    Ecalls,
    /// The kernel's own scheduler
    Eevdf,
    /// Players in SCHED_RR, hogs in the kernel's own class
    Rr,
}

impl Sched {
    /// Fails if one of these options is given for another measurement.
    pub fn refuse(&self) -> Outcome {
        match self.report {
            None => self.refuse_all_but_report(),
            Some(_) => Err(Failure::usage(
                "--report is for `ecalls bench sched`, `web` and `channel`",
            )),
        }
    }

    /// The same for one that draws a report, too.
    pub fn refuse_all_but_report(&self) -> Outcome {
        if self.from.is_some() {
            return Err(Failure::usage(
                "--from is for `ecalls bench sched` and `channel`",
            ));
        }
        self.refuse_all_but_drawing()
    }

    /// The same for one that draws a report of what was measured before, too.
    pub fn refuse_all_but_drawing(&self) -> Outcome {
        if self.seconds.is_some()
            || !self.scheduler.is_empty()
            || !self.peer.is_empty()
            || self.series
        {
            return Err(Failure::usage(
                "--seconds, --scheduler, --peer and --series are for `ecalls bench sched`",
            ));
        }
        Ok(())
    }
}

/// Demonstrate events with a web server under load, in about a minute
#[derive(Debug, clap::Args)]
pub struct DemoArguments {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Approximate duration of the whole demonstration in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Command line of another server to use instead of the built-in one; {port} is replaced by a
    /// port of 127.0.0.1, {root} by the folder that it must serve
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
}
