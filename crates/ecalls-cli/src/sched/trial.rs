//! `ecalls sched try`: runs our scheduler for a while, and compares its figures with the kernel's
//! own.
//!
//! A probe sleeps 5 ms at a time, as any program might, and measures how late it wakes up; the
//! other figures are the kernel's statistics of all threads. This process holds the scheduler, so
//! nothing remains when it ends.

use std::fs;
use std::num::NonZeroU64;
use std::time::Duration;

use ecalls::{Ecalls, now_ns};
use ecalls_kernel::scheduler::{Options, Scheduler};
use hdrhistogram::Histogram;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use serde::Serialize;

use super::hold::ended_by_kernel;
use super::{Counts, count, policy};
use crate::duration;
use crate::exit::Outcome;
use crate::output::{Output, Table, note};
use crate::stop::Stop;

/// The interval of the probe.
const PROBE_NS: u64 = 5_000_000;
/// The longest time for which the kernel's own scheduler is measured.
const BEFORE_MAX: Duration = Duration::from_secs(10);
/// Longer delays are recorded as this value.
const LONGEST_NS: u64 = 3_600_000_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Time for which the scheduler runs
    #[arg(value_name = "TIME", default_value = "30s", value_parser = duration::parse_positive)]
    time: Duration,
    #[command(flatten)]
    policy: policy::Args,
    /// Print one JSON object for each scheduler
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
The command first measures the kernel's own scheduler, for the same time but at most 10 s, and then
ours. Our scheduler ends after TIME, on SIGINT or SIGTERM, or when this command ends for any other
reason. The two rows are comparable only if the machine has the same load during both. If the kernel
ends our scheduler, the figures until then are printed before the error.

Keys with --json: scheduler, seconds, late_p50_us, late_p99_us, late_max_us (how late a thread that
sleeps 5 ms at a time wakes up), wait_per_turn_us (average time that threads were runnable before
they got a CPU), switches_per_s; for our scheduler also the keys of `ecalls sched status --json`.";

/// The figures of one scheduler.
#[derive(Debug, Serialize)]
struct Figures {
    scheduler: &'static str,
    seconds: f64,
    late_p50_us: u64,
    late_p99_us: u64,
    late_max_us: u64,
    wait_per_turn_us: f64,
    switches_per_s: f64,
    #[serde(flatten)]
    counts: Option<Counts>,
}

/// The kernel's statistics of all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    wait_ns: u64,
    turns: u64,
    switches: u64,
}

impl Machine {
    fn now() -> Machine {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let schedstat = fs::read_to_string("/proc/schedstat").unwrap_or_default();
        Machine::parse(&stat, &schedstat)
    }

    fn parse(stat: &str, schedstat: &str) -> Machine {
        let mut machine = Machine::default();
        for line in stat.lines() {
            if let Some(count) = line.strip_prefix("ctxt ") {
                machine.switches = count.trim().parse().unwrap_or(0);
            }
        }
        // A line has "cpu0" and nine numbers: the last two are waiting time and turns.
        for line in schedstat.lines().filter(|line| line.starts_with("cpu")) {
            let mut numbers = line.split_whitespace().skip(8);
            let mut next = || numbers.next().and_then(|number| number.parse::<u64>().ok());
            machine.wait_ns += next().unwrap_or(0);
            machine.turns += next().unwrap_or(0);
        }
        machine
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let options = args.policy.options()?;
    let stop = Stop::on_signals()?;
    super::check_free()?;
    // This reports missing features and privileges before the first measurement.
    let ecalls = Ecalls::open()?;
    let before_time = args.time.min(BEFORE_MAX);
    note(format_args!(
        "measuring the kernel's own scheduler for {before_time:?}"
    ));
    let (before, _) = measure("kernel", before_time, &stop, || Ok(()));
    if stop.is_set() {
        return Ok(());
    }
    let mut all = vec![before];
    let outcome = run_ours(&ecalls, &options, args.time, &stop, &mut all);
    // Whatever the outcome, the figures of the kernel's own scheduler are printed.
    print(&all, args.json)?;
    outcome
}

/// Runs our scheduler and appends its figures, those until the kernel ended it included.
fn run_ours(
    ecalls: &Ecalls,
    options: &Options,
    time: Duration,
    stop: &Stop,
    all: &mut Vec<Figures>,
) -> Outcome {
    let scheduler = Scheduler::start(ecalls.access(), options)?;
    note(format_args!("ours schedules for {time:?}"));
    let (mut with, ended) = measure("ecalls", time, stop, || ended_by_kernel(&scheduler));
    let counts = scheduler.counts().map(|counts| count::sum(&counts));
    if let Ok(Some(counts)) = &counts {
        with.counts = Some(Counts::new(counts));
    }
    all.push(with);
    ended?;
    counts?;
    scheduler.stop();
    Ok(())
}

/// Measures for `time`, or until the user interrupts or `check` fails. Returns the figures until
/// then, and the result of `check`.
fn measure(
    scheduler: &'static str,
    time: Duration,
    stop: &Stop,
    check: impl Fn() -> Outcome,
) -> (Figures, Outcome) {
    // If the kernel refuses this, the probe is 50 us later under both schedulers.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut late = Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3)
        .expect("bounds that hdrhistogram allows");
    let (begin_ns, before) = (now_ns(), Machine::now());
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end_ns = begin_ns.saturating_add(time_ns);
    let (mut next_ns, mut outcome) = (begin_ns, Ok(()));
    while next_ns < end_ns && !stop.is_set() && outcome.is_ok() {
        // The next probe is due relative to now, so that a late probe does not delay the following
        // ones.
        next_ns = now_ns() + PROBE_NS;
        if clock_nanosleep_absolute(ClockId::Monotonic, &timespec(next_ns)).is_ok() {
            late.saturating_record(now_ns().saturating_sub(next_ns));
        }
        outcome = check();
    }
    let (after, seconds) = (Machine::now(), (now_ns() - begin_ns) as f64 / 1e9);
    let turns = after.turns.saturating_sub(before.turns);
    let wait_ns = after.wait_ns.saturating_sub(before.wait_ns);
    let switches = after.switches.saturating_sub(before.switches);
    let figures = Figures {
        scheduler,
        seconds,
        late_p50_us: late.value_at_quantile(0.5) / 1000,
        late_p99_us: late.value_at_quantile(0.99) / 1000,
        late_max_us: late.max() / 1000,
        wait_per_turn_us: wait_ns as f64 / 1000.0 / turns.max(1) as f64,
        switches_per_s: switches as f64 / seconds,
        counts: None,
    };
    (figures, outcome)
}

fn timespec(at_ns: u64) -> Timespec {
    let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: part(at_ns / 1_000_000_000),
        tv_nsec: part(at_ns % 1_000_000_000),
    }
}

fn print(all: &[Figures], json: bool) -> Outcome {
    let mut out = Output::new(json);
    let mut table = Table::new(&[
        "SCHEDULER",
        ">SECONDS",
        ">LATE P50",
        ">P99",
        ">MAX us",
        ">WAIT PER TURN us",
        ">SWITCHES/s",
    ]);
    for figures in all {
        if json {
            out.object(figures)?;
            continue;
        }
        table.row([
            figures.scheduler.to_owned(),
            format!("{:.1}", figures.seconds),
            figures.late_p50_us.to_string(),
            figures.late_p99_us.to_string(),
            figures.late_max_us.to_string(),
            format!("{:.1}", figures.wait_per_turn_us),
            format!("{:.0}", figures.switches_per_s),
        ]);
    }
    if !json {
        out.table(&table)?;
        for counts in all.iter().filter_map(|figures| figures.counts.as_ref()) {
            super::print_counts(&mut out, counts)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Code, Failure};

    #[test]
    fn what_was_measured_until_the_scheduler_ended_is_kept() {
        let stop = Stop::on_signals().expect("signals");
        let ended = || Err(Failure::new(Code::Failed, "the kernel ended it"));
        let (figures, outcome) = measure("ecalls", Duration::from_secs(60), &stop, ended);
        assert!(outcome.is_err());
        assert!((0.004..60.0).contains(&figures.seconds), "{figures:?}");
    }

    #[test]
    fn waits_and_turns_are_those_of_all_cpus() {
        let stat = "cpu 1 2 3\nctxt 77\n";
        let schedstat =
            "version 17\ncpu0 0 0 0 0 0 0 5 100 3\ndomain0 MC 1\ncpu1 0 0 0 0 0 0 5 50 4\n";
        let machine = Machine::parse(stat, schedstat);
        assert_eq!(
            (machine.wait_ns, machine.turns, machine.switches),
            (150, 7, 77)
        );
    }
}
