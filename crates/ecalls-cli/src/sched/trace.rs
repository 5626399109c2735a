//! `ecalls sched trace`: records the scheduler's decisions in a file for Perfetto.
//!
//! Records are collected in memory and written at the end, so that writing does not disturb the
//! traced threads.

mod perfetto;
mod timeline;
mod user;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecalls::{Ecalls, Error, now_ns};
use ecalls_abi::sched::{SchedNote, TRACE_EVENT, TRACE_SWITCH};
use ecalls_kernel::scheduler::{self, Trace};
use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::count;
use crate::duration;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, note};
use crate::stop::Stop;
use crate::threads::turns::Turns;
use timeline::{Gap, Names, Times};

/// The interval at which the kernel's buffer is read; it has room for much more.
const LOOK: Duration = Duration::from_millis(10);
/// Records that are kept: 256 MB.
const NOTES_MAX: usize = 4 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Duration of the trace; SIGINT ends it earlier
    #[arg(short, long = "for", value_name = "TIME", default_value = "5s",
          value_parser = parse_time)]
    duration: Duration,
    /// File to write the trace to
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print a summary as one JSON object at the end
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A number without a unit after -d is in seconds. Open the file with ui.perfetto.dev or
trace_processor. The trace shows which thread ran on each CPU and which threads waited. Threads that
poll or have a window also show their release times (late: from the release to the CPU), ends of
periods, demotions, and the reason for which they were chosen. Services show their events, with an
arrow from the raise to the delivery. User-level threads (crate ecalls-threads, ecalls run
--threads) have tracks of their own, by their names, which show when each ran, and on which CPU;
what their runtimes tell is their processes' word. The trace needs root and covers our scheduler
only. If the buffer is full, records are lost: their number is printed and shown on a track of
their own ('lost notes'); the rest of the trace stays correct.

Keys with --json: file, seconds, notes (records), switches, events,
user_threads, lost (records).";

/// The summary.
#[derive(Debug, Serialize)]
struct Summary {
    file: PathBuf,
    seconds: f64,
    notes: usize,
    switches: usize,
    events: usize,
    user_threads: usize,
    lost: u64,
}

/// Parses a duration, or a number of seconds without a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => duration::parse_positive(&format!("{seconds}s")),
        Err(_) => duration::parse_positive(text),
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    if scheduler::state().is_none() {
        return Err(super::no_sched_ext());
    }
    let trace = Trace::start().map_err(no_trace)?;
    let file = File::create(&args.output).map_err(|error| not_written(&args.output, &error))?;
    let begin_ns = now_ns();
    let mut losses = Losses::begin(begin_ns);
    let mut user = Turns::default();
    let until = Instant::now() + args.duration;
    let mut notes = Vec::new();
    let mut beyond = 0;
    let followed = trace.follow(
        |note| match notes.len() < NOTES_MAX {
            _ if note.at_ns < begin_ns => {}
            true => notes.push(note),
            false => beyond += 1,
        },
        || {
            losses.look(&mut user);
            let left = until.saturating_duration_since(Instant::now());
            !left.is_zero() && !stop.sleep(left.min(LOOK))
        },
    );
    let end_ns = now_ns();
    drop(trace);
    if let Err(error) = followed {
        note(format_args!("the trace ended early: {error}"));
    }
    losses.look(&mut user);
    user.end();
    losses.had_no_memory(
        beyond,
        notes.last().map_or(begin_ns, |note| note.at_ns),
        end_ns,
    );
    notes.sort_by_key(|note| note.at_ns);
    notes.retain(|note| note.at_ns <= end_ns);
    let times = Times {
        begin_ns,
        end_ns,
        sleep_ns: sleep_ns(),
    };
    let names = names(&notes, user);
    write(file, &notes, &losses.gaps, &names, times)
        .map_err(|error| not_written(&args.output, &error))?;
    let count = |what: u32| notes.iter().filter(|note| note.what == what).count();
    tell(
        args.json,
        &Summary {
            file: args.output.clone(),
            seconds: (end_ns - begin_ns) as f64 / 1e9,
            notes: notes.len(),
            switches: count(TRACE_SWITCH),
            events: count(TRACE_EVENT),
            user_threads: names.user.threads.len(),
            lost: losses.sum(),
        },
    )
}

/// Records that are missing in the file, by the time of their loss.
struct Losses {
    gaps: Vec<Gap>,
    /// The kernel's count of records that found its buffer full, when it was last read.
    counted: u64,
    looked_ns: u64,
}

impl Losses {
    fn begin(now_ns: u64) -> Losses {
        Losses {
            gaps: Vec::new(),
            counted: count::all().map_or(0, |counts| counts.untraced),
            looked_ns: now_ns,
        }
    }

    /// Of the scheduler's records, and of the runtimes' turns, which this reads.
    fn look(&mut self, user: &mut Turns) {
        let counted = count::all().map_or(self.counted, |counts| counts.untraced);
        let now_ns = now_ns();
        let lost = counted.saturating_sub(self.counted) + user.look(now_ns);
        if lost > 0 {
            self.gaps.push(Gap {
                from_ns: self.looked_ns,
                to_ns: now_ns,
                notes: lost,
            });
        }
        (self.counted, self.looked_ns) = (counted, now_ns);
    }

    /// Records the loss of those for which this process had no memory.
    fn had_no_memory(&mut self, notes: u64, from_ns: u64, to_ns: u64) {
        if notes > 0 {
            self.gaps.push(Gap {
                from_ns,
                to_ns,
                notes,
            });
        }
    }

    fn sum(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.notes).sum()
    }
}

fn tell(json: bool, summary: &Summary) -> Outcome {
    if summary.lost > 0 {
        note(format_args!(
            "{} notes found no place: the time line has gaps",
            summary.lost
        ));
    }
    let mut out = Output::new(json);
    if json {
        out.object(summary)?;
    } else {
        out.line(format_args!(
            "{}: {:.1} s, {} thread switches, {} events, {} user-level threads \
             (open it with ui.perfetto.dev)",
            summary.file.display(),
            summary.seconds,
            summary.switches,
            summary.events,
            summary.user_threads
        ))?;
    }
    out.flush()
}

fn no_trace(error: Error) -> Failure {
    match error {
        Error::Closed(_) => super::not_started(),
        error => error.into(),
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Code::Failed,
        format_args!("writing {}: {error}", path.display()),
    )
}

/// The difference between CLOCK_BOOTTIME and CLOCK_MONOTONIC.
fn sleep_ns() -> u64 {
    let of = |clock| {
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    let monotonic_ns = of(ClockId::Monotonic);
    let later_ns = of(ClockId::Boottime).saturating_sub(monotonic_ns);
    // The two clocks are read one after the other: a small difference means that the machine never
    // slept.
    if later_ns < 1_000_000 { 0 } else { later_ns }
}

fn write(
    file: File,
    notes: &[SchedNote],
    gaps: &[Gap],
    names: &Names,
    times: Times,
) -> std::io::Result<()> {
    let mut out = BufWriter::new(file);
    for packet in timeline::packets(notes, gaps, names, times) {
        // Encoded messages of one packet each, one after the other, are the encoding of one trace.
        let trace = perfetto::Trace {
            packet: vec![packet],
        };
        out.write_all(&trace.encode_to_vec())?;
    }
    out.flush()
}

/// Names that the records lack, as far as they can still be determined.
fn names(notes: &[SchedNote], user: Turns) -> Names {
    let known = Ecalls::open().and_then(|ecalls| ecalls.services());
    let services = known.unwrap_or_default().into_iter();
    let mut processes = BTreeMap::new();
    for note in notes.iter().filter(|note| note.pid != 0) {
        processes.entry(note.pid).or_insert_with(|| {
            let name = fs::read_to_string(format!("/proc/{}/comm", note.pid));
            name.unwrap_or_default().trim_end().to_owned()
        });
    }
    processes.retain(|_, name| !name.is_empty());
    Names {
        services: services
            .map(|service| (service.index, service.info.name().to_owned()))
            .collect(),
        processes,
        user,
    }
}
