//! `ecalls stat`: the counters of the core, and the costs of its programs.
//!
//! The command reads the shared tables and never loads a core. Numbers are totals since the core
//! was loaded (of a service: since it was registered), costs those of the interval in which they
//! were measured.

mod channel;
mod program;
mod subscription;
mod user;

use std::time::Duration;

use ecalls::Ecalls;
use ecalls_abi::channel::State;
use ecalls_kernel::core::Cost;
use ecalls_kernel::objects::FastCall;
use ecalls_kernel::stat::{QueueOwner, QueueStat};
use serde::Serialize;

use crate::exit::Outcome;
use crate::output::{Output, Table, note};
use crate::services;
use crate::stop::Stop;
use crate::{duration, process};

/// How long costs are measured without `--watch`.
const COSTS_TIME: Duration = Duration::from_secs(1);

/// Show the counters of the core: services, subscriptions, channels, queues, drops, costs
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Repeat at this interval until interrupted
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    watch: Option<Duration>,
    /// Measure the CPU time of each service's programs, for a second or for the interval of
    /// --watch; meanwhile the kernel's statistics of BPF run times are on
    #[arg(long)]
    costs: bool,
    /// Show one row per user: its use of each quota of the daemon, and the fate of its events. Root
    /// sees all users, other users only themselves
    #[arg(long, value_enum, conflicts_with = "costs")]
    by: Option<By>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The key by which counters are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// By user.
    Uid,
}

const HELP: &str = "\
Keys with --json; `what` gives the type of an object:
  core          loaded, pid (the process that loaded it), daemon (whether that is the daemon),
                version, cpus, fast_call (null: no program has made one yet), age_ns
  service       the keys of `ecalls services --json`
  subscription  id, service, owner, receiver, state, kinds (bits; 0: all), pid, deadline_ns,
                channel, chain, offered, delivered, filtered, late, dropped (an object: count by
                reason), wakes, signals, threads, handlers, failed (runs of E-code that ended in
                a fault), faults (for each handler that failed: the reason of the last
                fault), undone (requests of E-code that could not be carried out)
  channel       channel, state, owner, layout, capacity, slot_use, defer (bits: 1 delay, 2 switch)
  queue         queue (cpu; threads: chains that continue in kernel threads; signals: signals
                that wait for their receiver), cpu, ready, held (until their release time)
  program       service, program, runs, total_ns, mean_ns (while costs were measured), skipped
                (runs that the kernel skipped because the program was already active: lost events)
  user          (--by uid) uid, raised, offered, delivered, filtered, late, dropped, quotas (an
                object: used and limit of connections, channels, ...; for a rate, used is the
                number of events or requests that were refused)
The table omits programs that are not attached. Runs and times are shown only with --costs.";

/// Prints all tables, once or repeatedly.
pub(crate) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let mut out = Output::new(args.json);
    loop {
        let Some(ecalls) = Ecalls::join()? else {
            return nothing_loaded(&mut out);
        };
        let time = args.watch.unwrap_or(COSTS_TIME);
        let costs = match args.costs {
            true => Some(program::measure(&ecalls, &stop, time)?),
            false => None,
        };
        match args.by {
            Some(By::Uid) => user::print(&mut out, &ecalls)?,
            None => print(&mut out, &ecalls, costs.as_deref().unwrap_or_default())?,
        }
        out.flush()?;
        // A core that this process held while it sleeps could not end.
        drop(ecalls);
        let ended = match args.watch {
            None => true,
            Some(_) if args.costs => stop.is_set(),
            Some(time) => stop.sleep(time),
        };
        if ended {
            return Ok(());
        }
        if !args.json {
            out.line("")?;
        }
    }
}

fn nothing_loaded(out: &mut Output) -> Outcome {
    if out.is_json() {
        out.object(&serde_json::json!({"what": "core", "loaded": false}))?;
    } else {
        note("nothing is loaded: no program on this machine uses events now");
    }
    out.flush()
}

fn print(out: &mut Output, ecalls: &Ecalls, costs: &[Cost]) -> Outcome {
    print_core(out, ecalls)?;
    let found = ecalls.services()?;
    let rows: Vec<_> = found.iter().map(services::Row::new).collect();
    if out.is_json() {
        for row in &rows {
            out.object(&ServiceObject {
                what: "service",
                row,
            })?;
        }
    } else {
        services::print(out, &rows)?;
    }
    subscription::print(out, &found, &ecalls.access().subscriptions()?)?;
    channel::print(out, &ecalls.access().channels()?)?;
    print_queues(out, &ecalls.access().queues()?)?;
    program::print(out, &found, costs)
}

#[derive(Debug, Serialize)]
struct ServiceObject<'a> {
    what: &'static str,
    #[serde(flatten)]
    row: &'a services::Row,
}

#[derive(Debug, Serialize)]
struct CoreRow<'a> {
    what: &'static str,
    loaded: bool,
    pid: u32,
    daemon: bool,
    version: u32,
    cpus: u32,
    fast_call: Option<&'a str>,
    age_ns: u64,
}

fn print_core(out: &mut Output, ecalls: &Ecalls) -> Outcome {
    let host = ecalls.access().view()?;
    let age_ns = ecalls::now_ns().saturating_sub(host.start_ns);
    if out.is_json() {
        return out.object(&CoreRow {
            what: "core",
            loaded: true,
            pid: host.pid,
            daemon: host.daemon,
            version: ecalls_abi::ABI_VERSION,
            cpus: host.cpus,
            fast_call: host.fast_call.map(FastCall::name),
            age_ns,
        });
    }
    out.line(format!(
        "core: loaded {} ago by {}{}, version {}, {} CPUs, {}\n",
        duration::show_ns(age_ns),
        if host.daemon { "the daemon, " } else { "" },
        process::show(host.pid),
        ecalls_abi::ABI_VERSION,
        host.cpus,
        match host.fast_call {
            Some(mechanism) => format!("fast call by {}", mechanism.name()),
            None => "no fast call made yet".to_owned(),
        }
    ))
}

#[derive(Debug, Serialize)]
struct QueueRow {
    what: &'static str,
    queue: &'static str,
    cpu: Option<u32>,
    ready: u32,
    held: u32,
}

fn print_queues(out: &mut Output, queues: &[QueueStat]) -> Outcome {
    let mut table = Table::new(&["QUEUE", ">READY", ">HELD"]);
    for stat in queues {
        let (queue, cpu) = match stat.owner {
            QueueOwner::Cpu(cpu) => ("cpu", Some(cpu)),
            QueueOwner::Threads => ("threads", None),
            QueueOwner::Signals => ("signals", None),
        };
        if out.is_json() {
            out.object(&QueueRow {
                what: "queue",
                queue,
                cpu,
                ready: stat.ready,
                held: stat.held,
            })?;
            continue;
        }
        table.row([
            cpu.map_or(queue.to_owned(), |cpu| format!("cpu {cpu}")),
            stat.ready.to_string(),
            stat.held.to_string(),
        ]);
    }
    section(out, &table, queues.len())
}

fn state_name(state: u32) -> &'static str {
    State::from_raw(state).map_or("unknown", State::name)
}

/// Prints a table after an empty line, if it has rows.
fn section(out: &mut Output, table: &Table, rows: usize) -> Outcome {
    if out.is_json() || rows == 0 {
        return Ok(());
    }
    out.line("")?;
    out.table(table)
}
