//! `ecalls sched`: starts and stops our scheduler, and shows its state.
//!
//! The process that starts the scheduler holds it, in the foreground: when this process ends, for
//! whatever reason, the kernel schedules all tasks itself again.

pub(crate) mod count;
mod hold;
mod policy;
mod seen;
pub(crate) mod thread;
mod top;
mod trace;
mod trial;

use ecalls_abi::sched::{SchedCount, WHY_EVENT, WHY_FAIR, WHY_RELEASE, WHY_WINDOW};
use ecalls_kernel::scheduler;
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::output::Output;
use count::{quantile, sum};
use seen::{Seen, Worst};

/// Start, stop and observe ECalls' scheduler: fair shares, release times, windows
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Start the scheduler, hold it until SIGINT or SIGTERM, then print its counters
    Start(hold::Args),
    /// Run the scheduler for a while, and compare it with the kernel's own
    Try(trial::Args),
    /// Show the threads with the greatest demand for CPU time, live
    Top(top::Args),
    /// End the running scheduler of ECalls
    Stop,
    /// Show the active scheduler, its counters, and the threads that use it
    Status(Status),
    /// Record the scheduler's decisions for some seconds in a file for Perfetto
    Trace(trace::Args),
}

#[derive(Debug, clap::Args)]
#[command(after_help = SEEN)]
struct Status {
    /// Also show the greatest delays, and the threads that ran during each
    #[arg(long)]
    worst: bool,
    /// Reset the record of the greatest delays after it is shown
    #[arg(long, requires = "worst")]
    forget: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
The scheduler needs root and a kernel with sched_ext (Debian's from 7.0 on). While it runs, it
schedules every thread of the machine except real-time threads. Threads share the CPU by their nice
values; a thread that polls cooperatively also runs at its release times.

Keys with --json: kernel (whether it has sched_ext), running (the scheduler's name, or null), holder
(the process that holds ours, or null), and for our scheduler: policy, server_us, reserve_percent,
period_us, slice_min_us, slack_us, ahead_us, watchdog_us (the options of start), fair, release,
window, event (choices by reason), kept, preempted, balanced, stolen, entered, left, full, polls,
overran, slept, ahead, parked, overdue (turns of threads that had waited for a third of
watchdog_us), releases, tardy_p50_us, tardy_p99_us, tardy_max_us (from the release to the CPU).";

const SEEN: &str = "\
The command lists groups, and threads that poll, have a window, read events or are in a group. LATE
is the time from the release to the CPU, WAIT the time that the thread was runnable without a CPU,
RUN the time until the next thread ran, DEMOTED the number of times that the thread broke each rule
(overran/slept/ahead). The figures of a thread are reset when it moves to another CPU or names
another group.

--worst lists the 16 greatest delays since the scheduler began: each shows how much of the time from
the release to the CPU each thread ran. The rest ('by others') belongs to interrupts, real-time
threads, threads beyond the eight that are named, and turns before the last 64 of that CPU.

Keys with --json: those that `ecalls sched --help` names, threads and groups: each with kind
(cooperative, window, fair, group), group, uid, pid, tid, name, cpu_ms, tardiness, delay, slice
(each with p50_us, p99_us, max_us and buckets: pairs of lower bound in us and count), overran,
slept, ahead; and with --worst, worst: tardy_ns, ago_ns, pid, tid, name, group, cpu, before_ns (the
part of tardy_ns in which the thread was still asleep or running), rest_ns (the part that no thread
in `by` accounts for), by (ran_ns, pid, tid, name, kind).";

/// The output of `status`.
#[derive(Debug, Default, Serialize)]
struct Shown {
    kernel: bool,
    running: Option<String>,
    holder: Option<u32>,
    #[serde(flatten)]
    policy: Option<policy::Shown>,
    #[serde(flatten)]
    counts: Option<Counts>,
    #[serde(flatten)]
    seen: Option<Observed>,
}

/// The threads and groups that use the scheduler.
#[derive(Debug, Serialize)]
struct Observed {
    threads: Vec<Seen>,
    groups: Vec<Seen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<Vec<Worst>>,
}

impl Observed {
    fn look(args: &Status) -> Result<Observed, Failure> {
        let all = seen::all(&scheduler::seen()?);
        let worst = if args.worst {
            Some(seen::worst()?)
        } else {
            None
        };
        if args.forget {
            scheduler::forget()?;
        }
        let (threads, groups) = all.into_iter().partition(|seen| seen.tid.is_some());
        Ok(Observed {
            threads,
            groups,
            worst,
        })
    }
}

#[derive(Debug, Serialize)]
struct Counts {
    fair: u64,
    release: u64,
    window: u64,
    event: u64,
    kept: u64,
    preempted: u64,
    balanced: u64,
    stolen: u64,
    entered: u64,
    left: u64,
    full: u64,
    polls: u64,
    overran: u64,
    slept: u64,
    ahead: u64,
    parked: u64,
    overdue: u64,
    releases: u64,
    tardy_p50_us: u64,
    tardy_p99_us: u64,
    tardy_max_us: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Start(args) => hold::run(args),
        What::Try(args) => trial::run(args),
        What::Top(args) => top::run(args),
        What::Stop => hold::stop(),
        What::Status(args) => show(args),
        What::Trace(args) => trace::run(args),
    }
}

/// Which kernels have sched_ext.
const HOW_TO_GET_IT: &str = "\
    Debian's kernels have it from 7.0 on (CONFIG_SCHED_CLASS_EXT): Debian 13 gets one from its \
    backports, by `apt install -t trixie-backports linux-image-amd64`";

/// The error for a kernel without sched_ext.
pub(crate) fn no_sched_ext() -> Failure {
    let message = format!("this kernel has no sched_ext: {HOW_TO_GET_IT}");
    Failure::new(Code::Unsupported, message)
}

/// Fails if a scheduler runs already, before a core or privileges are needed.
fn check_free() -> Outcome {
    let state = scheduler::state().ok_or_else(no_sched_ext)?;
    let Some(name) = state.running else {
        return Ok(());
    };
    let how = match scheduler::is_ours(&name) {
        true => "`ecalls sched stop` ends it",
        false => "end it first",
    };
    let message = format!("the scheduler {name} runs already: {how}");
    Err(Failure::new(Code::Failed, message))
}

/// The error for a command that needs our scheduler while it does not run.
pub(crate) fn not_started() -> Failure {
    let message = "our scheduler does not run: start it first (`ecalls sched start`)";
    Failure::new(Code::Unknown, message)
}

fn show(args: &Status) -> Outcome {
    let json = args.json;
    let mut out = Output::new(json);
    let Some(state) = scheduler::state() else {
        if !json {
            out.line(format_args!(
                "this kernel has no sched_ext, so its own scheduler runs: {HOW_TO_GET_IT}"
            ))?;
            return out.flush();
        }
        return print(&mut out, &Shown::default());
    };
    // Our scheduler runs, and this user may read its maps.
    let running = state.running.as_deref();
    let can_look = running.is_some_and(scheduler::is_ours) && state.holder.is_some();
    let policy = can_look.then(scheduler::options).transpose()?;
    let (counts, seen) = match can_look {
        true => (sum(&scheduler::counts()?), Some(Observed::look(args)?)),
        false => (None, None),
    };
    if !json {
        let running = running.unwrap_or("the kernel's own");
        let holder = state.holder.map(|pid| format!(", held by process {pid}"));
        out.line(format_args!("{running}{}", holder.unwrap_or_default()))?;
    }
    print(
        &mut out,
        &Shown {
            kernel: true,
            running: state.running,
            holder: state.holder,
            policy: policy.map(policy::Shown::from),
            counts: counts.map(|counts| Counts::new(&counts)),
            seen,
        },
    )
}

impl Counts {
    fn new(count: &SchedCount) -> Counts {
        let chosen = |why: u32| count.chosen.get(why as usize).copied().unwrap_or(0);
        Counts {
            fair: chosen(WHY_FAIR),
            release: chosen(WHY_RELEASE),
            window: chosen(WHY_WINDOW),
            event: chosen(WHY_EVENT),
            kept: count.kept,
            preempted: count.preempted,
            balanced: count.balanced,
            stolen: count.stolen,
            entered: count.entered,
            left: count.left,
            full: count.full,
            polls: count.polls,
            overran: count.overran,
            slept: count.slept,
            ahead: count.ahead,
            parked: count.parked,
            overdue: count.overdue,
            releases: count.releases,
            tardy_p50_us: quantile(&count.tardiness, 50),
            tardy_p99_us: quantile(&count.tardiness, 99),
            tardy_max_us: count.tardiest_ns / 1000,
        }
    }
}

fn print(out: &mut Output, shown: &Shown) -> Outcome {
    if out.is_json() {
        out.object(shown)?;
        return out.flush();
    }
    if let Some(policy) = &shown.policy {
        out.line(policy)?;
    }
    if let Some(counts) = &shown.counts {
        print_counts(out, counts)?;
    }
    if let Some(seen) = &shown.seen {
        print_seen(out, seen)?;
    }
    out.flush()
}

fn print_seen(out: &mut Output, seen: &Observed) -> Outcome {
    if !seen.threads.is_empty() {
        let all: Vec<Seen> = seen.threads.iter().chain(&seen.groups).cloned().collect();
        out.line("")?;
        out.table(&seen::table(&all))?;
    }
    if let Some(worst) = &seen.worst {
        out.line("")?;
        out.table(&seen::worst_table(worst))?;
    }
    Ok(())
}

fn print_counts(out: &mut Output, counts: &Counts) -> Outcome {
    out.line(format_args!(
        "chosen    {} by share, {} by release, {} by window, {} by event",
        counts.fair, counts.release, counts.window, counts.event
    ))?;
    out.line(format_args!(
        "moved     {} to balance, {} to an idle CPU; {} took the CPU at once",
        counts.balanced, counts.stolen, counts.preempted
    ))?;
    out.line(format_args!(
        "parked    {} times until the next period of a control group (cpu.max)",
        counts.parked
    ))?;
    out.line(format_args!(
        "overdue   {} turns of threads that had waited for a third of the watchdog's time",
        counts.overdue
    ))?;
    out.line(format_args!(
        "polling   {} threads entered, {} left, {} found the table full; {} polls",
        counts.entered, counts.left, counts.full, counts.polls
    ))?;
    out.line(format_args!(
        "demoted   {} overran, {} slept otherwise than by polling, {} were ahead",
        counts.overran, counts.slept, counts.ahead
    ))?;
    out.line(format_args!(
        "released  {} times; late by {} us (median), {} us (99 %), {} us (maximum)",
        counts.releases, counts.tardy_p50_us, counts.tardy_p99_us, counts.tardy_max_us
    ))?;
    Ok(())
}
