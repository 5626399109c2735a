//! `ecalls cluster discover`, `allocate` and `release`: the resources of other hosts.

use std::net::Ipv4Addr;
use std::time::Duration;

use ecalls_channel::source::{host_of, host_text};
use ecalls_cluster::ask::Outcome as Ended;
use ecalls_cluster::choice::{AGE_MAX_NS, Choice, Told};
use ecalls_cluster::client::{Client, Wish};
use ecalls_cluster::resource::{AMOUNT_MAX, Resource};
use serde::Serialize;

use super::ChannelArgs;
use crate::duration::{self, show_ns};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table, note};

/// How long a release may take.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// List the hosts that have told what they have, and how busy they are
#[derive(Debug, clap::Args)]
#[command(after_help = DISCOVER_HELP)]
pub(super) struct DiscoverArgs {
    #[command(flatten)]
    channel: ChannelArgs,
    /// Print one JSON object per host
    #[arg(long)]
    json: bool,
}

const DISCOVER_HELP: &str = "\
This host is not listed: it is a host that asks. A host that has told nothing for 5 s is not asked
any more (SILENT). A host that has told a value which cannot be is never asked.

Keys with --json: host, address (null: behind the relay), age_ms, silent, busy (share of its CPUs),
memory_mib (available), net_kib_per_s, disk_kib_per_s, waiting (requests), cpu_free (thousandths of
a CPU), job_free; for a host that told what cannot be: host, refused (the attribute), value.";

/// A host, as printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct HostRow {
    pub(super) host: String,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) age_ms: u64,
    pub(super) silent: bool,
    pub(super) busy: f64,
    pub(super) memory_mib: u64,
    pub(super) net_kib_per_s: u64,
    pub(super) disk_kib_per_s: u64,
    pub(super) waiting: u64,
    pub(super) cpu_free: u64,
    pub(super) job_free: u64,
}

#[derive(Debug, Serialize)]
struct RefusedRow {
    host: String,
    refused: &'static str,
    value: u64,
}

impl HostRow {
    pub(super) fn new(told: &Told) -> HostRow {
        let summary = &told.summary;
        HostRow {
            host: host_text(told.host),
            address: told.ip4(),
            age_ms: told.age_ns / 1_000_000,
            silent: told.age_ns > AGE_MAX_NS,
            busy: summary.busy as f64 / 1000.0,
            memory_mib: summary.memory_mib,
            net_kib_per_s: summary.net_kib,
            disk_kib_per_s: summary.disk_kib,
            waiting: summary.waiting,
            cpu_free: summary.cpu_free,
            job_free: summary.job_free,
        }
    }

    /// The columns of [`HostRow::cells`].
    pub(super) const COLUMNS: [&'static str; 10] = [
        "HOST",
        "ADDRESS",
        ">AGE",
        ">BUSY %",
        ">MEMORY MiB",
        ">NET KiB/s",
        ">DISK KiB/s",
        ">WAITING",
        ">CPU FREE",
        ">JOBS FREE",
    ];

    pub(super) fn cells(&self) -> [String; 10] {
        let address = self
            .address
            .map_or_else(|| "relay".to_owned(), |ip| ip.to_string());
        let age = match self.silent {
            true => "SILENT".to_owned(),
            false => show_ns(self.age_ms * 1_000_000),
        };
        [
            self.host.clone(),
            address,
            age,
            format!("{:.1}", self.busy * 100.0),
            self.memory_mib.to_string(),
            self.net_kib_per_s.to_string(),
            self.disk_kib_per_s.to_string(),
            self.waiting.to_string(),
            self.cpu_free.to_string(),
            self.job_free.to_string(),
        ]
    }
}

/// Lists.
pub(super) fn discover(args: &DiscoverArgs) -> Outcome {
    let client = Client::join(&args.channel.joined()?, &args.channel.name)?;
    let (told, refused) = client.discover()?;
    let mut out = Output::new(args.json);
    let rows: Vec<HostRow> = told.iter().map(HostRow::new).collect();
    if args.json {
        rows.iter().try_for_each(|row| out.object(row))?;
    } else {
        let mut table = Table::new(&HostRow::COLUMNS);
        rows.iter().for_each(|row| table.row(row.cells()));
        out.table(&table)?;
    }
    for (host, name, value) in refused {
        let row = RefusedRow {
            host: host_text(host),
            refused: name,
            value,
        };
        if args.json {
            out.object(&row)?;
        } else {
            note(format!("{}: never asked, it told {name} {value}", row.host));
        }
    }
    out.flush()
}

/// Allocate a resource of another host
#[derive(Debug, clap::Args)]
#[command(after_help = ALLOCATE_HELP)]
pub(super) struct AllocateArgs {
    /// cpu (thousandths of a CPU), memory (MiB), disk (MiB/s), net (Mbit/s) or job
    resource: Resource,
    /// How much
    #[arg(value_parser = clap::value_parser!(u64).range(1..=AMOUNT_MAX))]
    amount: u64,
    /// Ask the N hosts with the least load
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "random")]
    best: usize,
    /// Ask N hosts at random, whatever their load
    #[arg(long, value_name = "N")]
    random: Option<usize>,
    /// Ask this host, too
    #[arg(long)]
    here: bool,
    /// Wait at the hosts for what others use, instead of being refused
    #[arg(long)]
    wait: bool,
    /// Give up after this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    deadline: Duration,
    /// The longest time until it is released; then the host takes it back
    #[arg(long, value_name = "TIME", default_value = "10m")]
    #[arg(value_parser = duration::parse_positive)]
    hold: Duration,
    #[command(flatten)]
    channel: ChannelArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const ALLOCATE_HELP: &str = "\
Example:
  ecalls cluster allocate job 1 --random 2 --wait --deadline 5s
  granted by 0000:02-00-00-00-00-02 after 0.4 ms: release it with
  ecalls cluster release 0000:02-00-00-00-00-02 7341089712

All chosen hosts are asked at once. The first positive answer wins, and the others are cancelled
when the winner has confirmed. Of answers that are there at the same moment the one whose request
had waited for less time wins, then the lower host. Loads are up to 1 s old, so one best host is
everybody's best host: three best ones, or two at random, are better.

The exit code is 6 if all hosts refused, or none confirmed before the deadline. Keys with --json:
granted (true or false), host and id (for `release`), hold_ms (until the host takes it back),
waited_ms (at the host), took_ms, asked (hosts), reason (null, \"refused\" or \"late\"), strays
(answers that changed nothing: of hosts that were not asked, and impossible ones).";

/// An allocation, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Allocated {
    granted: bool,
    host: Option<String>,
    id: u64,
    hold_ms: u64,
    waited_ms: f64,
    took_ms: f64,
    asked: Vec<String>,
    reason: Option<&'static str>,
    strays: u64,
}

/// Allocates.
pub(super) fn allocate(args: &AllocateArgs) -> Outcome {
    let mut client = Client::join(&args.channel.joined()?, &args.channel.name)?;
    let allocation = client.allocate(&Wish {
        resource: args.resource,
        amount: args.amount,
        deadline: args.deadline,
        hold: args.hold,
        waits: args.wait,
        choice: args.random.map_or(Choice::Best(args.best), Choice::Random),
        here: args.here,
    })?;
    let mut row = Allocated {
        granted: false,
        host: None,
        id: allocation.id,
        hold_ms: 0,
        waited_ms: 0.0,
        took_ms: allocation.took.as_secs_f64() * 1e3,
        asked: allocation
            .asked
            .iter()
            .map(|host| host_text(*host))
            .collect(),
        reason: None,
        strays: allocation.strays,
    };
    match allocation.outcome {
        Ended::Granted {
            host,
            hold_ns,
            waited_ns,
        } => {
            row.granted = true;
            row.host = Some(host_text(host));
            (row.hold_ms, row.waited_ms) = (hold_ns / 1_000_000, waited_ns as f64 / 1e6);
        }
        Ended::Refused => row.reason = Some("refused"),
        Ended::Late => row.reason = Some("late"),
    }
    let mut out = Output::new(args.json);
    if args.json {
        out.object(&row)?;
    } else if let Some(host) = &row.host {
        out.line(format!(
            "granted by {host} after {:.1} ms: release it with\necalls cluster release {host} {}",
            row.took_ms, row.id
        ))?;
    }
    out.flush()?;
    let asked = row.asked.len();
    match allocation.outcome {
        Ended::Granted { .. } => Ok(()),
        Ended::Refused if asked == 0 => Err(Failure::new(
            Code::Nothing,
            "no host to ask: none has told anything in the last 5 s (`ecalls cluster discover`)",
        )),
        Ended::Refused => Err(Failure::new(
            Code::Nothing,
            format!("refused by all {asked} hosts that were asked: --wait waits"),
        )),
        Ended::Late => Err(Failure::new(
            Code::Nothing,
            format!(
                "none of {asked} hosts confirmed within {}",
                show_ns(allocation.took.as_nanos() as u64)
            ),
        )),
    }
}

/// Give back what was allocated
#[derive(Debug, clap::Args)]
pub(super) struct ReleaseArgs {
    /// The host that granted it, as `allocate` has printed it
    #[arg(value_parser = host)]
    host: u64,
    /// Its number there
    id: u64,
    #[command(flatten)]
    channel: ChannelArgs,
}

fn host(text: &str) -> Result<u64, String> {
    host_of(text).ok_or_else(|| "a host is written as 0000:02-00-00-00-00-02".to_owned())
}

/// Releases.
pub(super) fn release(args: &ReleaseArgs) -> Outcome {
    let mut client = Client::join(&args.channel.joined()?, &args.channel.name)?;
    match client.release(args.host, args.id, RELEASE_TIME)? {
        true => Ok(()),
        false => Err(Failure::new(
            Code::Nothing,
            "the host does not answer; it takes back what it granted when the time for it ends",
        )),
    }
}
