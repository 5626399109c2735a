//! `ecalls cluster serve`: the manager of this host.
//!
//! It is a program of its own, and not a part of the relay: it opens a channel, for which it needs
//! the core and root, and the relay is the process that has neither.

use std::net::IpAddr;
use std::time::Instant;

use ecalls::Ecalls;
use ecalls_channel::Channel;
use ecalls_channel::cluster::{ClusterChannel, Wanted};
use ecalls_channel::source::host_text;
use ecalls_cluster::lease::{COUNT_NAMES, Counts};
use ecalls_cluster::manager::Setup;
use ecalls_cluster::message::{FORMAT, KINDS};
use ecalls_cluster::resource::{AMOUNT_MAX, Amounts};
use ecalls_cluster::{Manager, Resource, probe};

use super::ChannelArgs;
use crate::channel::list::Pairs;
use crate::channel::open::tell;
use crate::exit::{Failure, Outcome};
use crate::held::HeldArgs;
use crate::output::{Output, note};
use crate::raise::pair;
use crate::stop::Stop;

/// Manage the resources of this host: tell the others its load, and answer their requests
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Name of the cluster, whose other hosts the relay finds
    #[arg(long, conflicts_with = "sinks")]
    cluster: Option<String>,
    /// Network interface on which messages arrive; the hosts on its network must be trusted. In a
    /// cluster, the relay's configuration can name it
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// IPv4 addresses of the other hosts, where no relay runs
    #[arg(long = "to", value_name = "ADDRESS", value_delimiter = ',')]
    sinks: Vec<IpAddr>,
    /// Messages go by the relays, which repeat what is lost: later, and encrypted if the relays are
    #[arg(long, requires = "cluster")]
    reliable: bool,
    /// What this host gives away, instead of its CPUs and its memory: cpu (thousandths of a CPU),
    /// memory (MiB), disk (MiB/s), net (Mbit/s), job (any jobs, so many at a time)
    #[arg(long, value_name = "RESOURCE=AMOUNT", value_delimiter = ',', value_parser = offer)]
    offer: Vec<(Resource, u64)>,
    #[command(flatten)]
    channel: ChannelArgs,
    #[command(flatten)]
    held: HeldArgs,
}

const HELP: &str = "\
Examples, as root:
  ecalls cluster serve --cluster lab
  ecalls cluster serve --interface eth0 --to 10.0.0.2,10.0.0.3 --offer job=4,memory=2048

The manager does not enforce what it gives away: it counts, so that no two clients get the same. A
lease that is not confirmed within 1 s ends, and one that is not released within the time that its
client named, at most 1 h. Each host has one manager; a host that has nothing to give, and only uses
what others have, runs one with --offer job=0.

When the command ends it prints what it has counted. Keys with --json: refused, withdrawn (cancelled
while they waited), late (nobody waited for the answer any more), waiting (now), granted, reserved
(now), confirmed (now), released, cancelled, expired (not confirmed), lapsed (held for too long),
duplicate (messages that had arrived before), stray (messages that nothing explains). granted =
reserved + confirmed + released + cancelled + expired + lapsed.

This needs root, and Linux 6.6 or newer. Where the daemon runs, the manager ends with it.";

fn offer(text: &str) -> Result<(Resource, u64), String> {
    let (name, amount) = pair(text)?;
    let resource = name.parse()?;
    match amount.parse() {
        Ok(amount) if amount <= AMOUNT_MAX => Ok((resource, amount)),
        _ => Err("an amount is a whole number, e.g. job=4".to_owned()),
    }
}

impl Args {
    fn capacity(&self) -> Amounts {
        let mut capacity = Amounts::default();
        if self.offer.is_empty() {
            let (cpu, memory_mib) = probe::capacity();
            *capacity.of_mut(Resource::Cpu) = cpu;
            *capacity.of_mut(Resource::Memory) = memory_mib;
        }
        for (resource, amount) in &self.offer {
            *capacity.of_mut(*resource) = *amount;
        }
        capacity
    }
}

/// The channel, which is open until this is dropped: one of both.
#[derive(Default)]
struct Opened {
    _alone: Option<Channel>,
    _cluster: Option<ClusterChannel>,
}

fn open(args: &Args, ecalls: &Ecalls) -> Result<Opened, Failure> {
    let (name, interface) = (&args.channel.name, args.interface.as_deref());
    if let Some(cluster) = &args.cluster {
        let wanted = Wanted {
            cluster,
            name,
            events: Some((FORMAT, KINDS)),
            interface,
            reliable: args.reliable,
        };
        let name = name.clone();
        let channel = ClusterChannel::open(ecalls, &wanted, move |change| tell(&name, &change))?;
        return Ok(Opened {
            _cluster: Some(channel),
            ..Opened::default()
        });
    }
    let interface = interface.ok_or_else(|| {
        Failure::usage("say where messages arrive: --cluster lab, or --interface eth0 --to ADDRESS")
    })?;
    let channel = Channel::open(ecalls, name, FORMAT, KINDS, interface)?;
    args.sinks
        .iter()
        .try_for_each(|sink| channel.add_sink(*sink))?;
    Ok(Opened {
        _alone: Some(channel),
        ..Opened::default()
    })
}

/// Serves until interrupted.
pub(super) fn run(args: &Args) -> Outcome {
    let (stop, begin) = (Stop::on_signals()?, Instant::now());
    let ecalls = Ecalls::open()?;
    let opened = open(args, &ecalls)?;
    let capacity = args.capacity();
    let mut manager = Manager::start(&ecalls, &args.channel.name, &Setup::new(capacity))?;
    let given = Resource::ALL.iter().map(|one| (one, capacity.of(*one)));
    let given: Vec<String> = given
        .filter(|(_, amount)| *amount != 0)
        .map(|(resource, amount)| format!("{resource} {amount}"))
        .collect();
    note(format!(
        "manages host {}: {}",
        host_text(manager.host()),
        match &given[..] {
            [] => "nothing to give".to_owned(),
            given => given.join(", "),
        }
    ));
    manager.run(|| args.held.is_over(&stop, begin))?;
    let counts = manager.counts();
    drop((manager, opened));
    print(&counts, args.held.json)
}

/// Counts with their names, as printed with `--json`.
pub(super) fn named(counts: &Counts) -> Pairs<u64> {
    let names = COUNT_NAMES.iter().map(|name| (*name).to_owned());
    Pairs(names.zip(counts.words()).collect())
}

fn print(counts: &Counts, json: bool) -> Outcome {
    let mut out = Output::new(json);
    let pairs = &named(counts);
    if json {
        out.object(pairs)?;
    } else {
        let words: Vec<String> = pairs
            .0
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        out.line(words.join(", "))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_a_resource_and_an_amount() {
        assert_eq!(offer("job=4"), Ok((Resource::Job, 4)));
        assert_eq!(offer("memory=0"), Ok((Resource::Memory, 0)));
        for text in [
            "job",
            "jobs=4",
            "job=",
            "job=-1",
            "job=1.5",
            "cpu=9999999999999999",
        ] {
            assert!(offer(text).is_err(), "{text}");
        }
    }
}
