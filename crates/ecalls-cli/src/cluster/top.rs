//! `ecalls cluster top`: the hosts of a cluster and the channels of this host, now and then.
//!
//! Loads of other hosts are read where their frames' attributes are, in the kernel's tables; what
//! their managers have counted is in the events that carry these attributes, to which this command
//! subscribes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ecalls::{Ecalls, now_ns};
use ecalls_channel::source::{LaneStat, channels, host_text};
use ecalls_cluster::client::told_of;
use ecalls_cluster::lease::Counts;
use ecalls_cluster::message::{Body, Message};
use serde::Serialize;

use super::ChannelArgs;
use super::serve::named;
use super::using::HostRow;
use crate::channel::list::{Pairs, relay_line, relay_refused};
use crate::duration;
use crate::exit::Outcome;
use crate::output::{CLEAR, Output, Table};
use crate::stop::Stop;
use crate::tables::Tables;

/// Entries of the ring through which loads arrive.
const RING: u32 = 4096;

/// Show the hosts, their loads and leases, and the rates of the channels
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Interval between two tables; the longest interval at which hosts tell their loads is 1 s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    every: Duration,
    #[command(flatten)]
    tables: Tables,
    #[command(flatten)]
    channel: ChannelArgs,
    /// Print one JSON object per host and per channel
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
The first table has the other hosts, as `ecalls cluster discover` shows them, with USED (leases that
are confirmed), GRANTED, REFUSED, LOST (leases that expired or lapsed) and GAPS (messages that this
host should have got and has not). This host has a row without a load: its manager's counts. The
second table has the channels among hosts that are open here, per second and in total. Below it is
what other hosts said to this host's relay in vain, if they did (`man 8 ecalls-relay`).

Keys of a host with --json: those of `ecalls cluster discover` (null: not told), leases (null, or an
object with the keys of `ecalls cluster serve --help`), missing; those of a channel: channel, hosts
(that have sent), in_per_s, out_per_s, raised, refused, sent, missing. If a relay runs, an object
has the key relay: what it refused, by reason.";

/// A host, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    told: Option<HostRow>,
    /// If it is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// The attribute that cannot be.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    leases: Option<Pairs<u64>>,
    missing: u64,
}

/// A channel, as printed with `--json`.
#[derive(Debug, Serialize)]
struct ChannelLine {
    channel: String,
    hosts: usize,
    in_per_s: f64,
    out_per_s: f64,
    raised: u64,
    refused: u64,
    sent: u64,
    missing: u64,
}

/// What the relay has refused, as printed with `--json`.
#[derive(Debug, Serialize)]
struct RelayLine<'a> {
    relay: &'a Pairs<u64>,
}

/// Shows.
pub(super) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let ecalls = args.channel.joined()?;
    let name = &args.channel.name;
    let mut memory = ecalls.channel().ring(RING).open()?;
    let builder = ecalls.subscribe(name)?.kinds(&["load"]).memory(&memory);
    let _subscription = builder.install()?;
    let mut out = Output::new(args.json);
    let is_live = args.tables.is_live(args.json);
    let (mut before, mut since) = (look(&ecalls)?, Instant::now());
    let mut counts = BTreeMap::new();
    let mut tables = 0;
    while args.tables.go_on_after(tables) && !stop.sleep(args.every) {
        let now = look(&ecalls)?;
        let own = now.iter().find(|stat| stat.name == *name);
        let host = own.map_or(0, |stat| stat.channel.host);
        while let Some(event) = memory.try_recv() {
            if let Some(message) = Message::of(&event, host)
                && let Body::Load(told) = message.body
            {
                counts.insert(message.from, told);
            }
        }
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        let hosts = own.map_or_else(Vec::new, |stat| host_lines(stat, &counts));
        let channels = channel_lines(&before, &now, seconds);
        let relay = relay_refused();
        if args.json {
            hosts.iter().try_for_each(|line| out.object(line))?;
            channels.iter().try_for_each(|line| out.object(line))?;
            let relay = relay.iter().map(|relay| RelayLine { relay });
            relay.into_iter().try_for_each(|line| out.object(&line))?;
        } else {
            if is_live {
                out.line(CLEAR)?;
            }
            out.table(&host_table(&hosts, &counts))?;
            out.line("")?;
            out.table(&channel_table(&channels))?;
            if let Some(line) = relay.as_ref().and_then(relay_line) {
                out.line(line)?;
            }
        }
        out.flush()?;
        before = now;
        tables += 1;
    }
    out.flush()
}

fn look(ecalls: &Ecalls) -> Result<Vec<LaneStat>, ecalls::Error> {
    channels(ecalls).map(|(all, ..)| all)
}

/// The other hosts that have sent anything, and this one.
fn host_lines(stat: &LaneStat, counts: &BTreeMap<u64, Counts>) -> Vec<Line> {
    let (told, refused) = told_of(&stat.sources, now_ns());
    let of_host = |host: u64, missing: u64| {
        let row = told.iter().find(|one| one.host == host).map(HostRow::new);
        let lie = refused.iter().find(|(one, ..)| *one == host);
        Line {
            host: row.is_none().then(|| host_text(host)),
            told: row,
            refused: lie.map(|(_, name, _)| *name),
            leases: counts.get(&host).map(named),
            missing,
        }
    };
    let others = stat.sources.iter();
    let others = others.map(|(host, source)| of_host(*host, source.window.missing()));
    others.chain([of_host(stat.channel.host, 0)]).collect()
}

fn channel_lines(before: &[LaneStat], now: &[LaneStat], seconds: f64) -> Vec<ChannelLine> {
    let sent = |stat: &LaneStat| stat.sinks.iter().map(|sink| sink.sent).sum::<u64>();
    let line = |stat: &LaneStat| {
        let mut former = before.iter();
        let former = former.find(|one| one.channel.epoch == stat.channel.epoch);
        let per_s = |of: &dyn Fn(&LaneStat) -> u64| {
            let was = former.map_or(0, of);
            of(stat).saturating_sub(was) as f64 / seconds.max(1e-9)
        };
        let missing = stat.sources.iter().map(|(_, one)| one.window.missing());
        ChannelLine {
            channel: stat.name.clone(),
            hosts: stat.sources.len(),
            in_per_s: per_s(&|stat| stat.count.frames),
            out_per_s: per_s(&sent),
            raised: stat.count.raised,
            refused: stat.count.refused.iter().sum(),
            sent: sent(stat),
            missing: missing.sum(),
        }
    };
    now.iter().map(line).collect()
}

fn host_table(lines: &[Line], counts: &BTreeMap<u64, Counts>) -> Table {
    let columns = [
        &HostRow::COLUMNS[..],
        &[">USED", ">GRANTED", ">REFUSED", ">LOST", ">GAPS"],
    ];
    let mut table = Table::new(&columns.concat());
    let texts: BTreeMap<String, &Counts> = counts
        .iter()
        .map(|(host, counts)| (host_text(*host), counts))
        .collect();
    for line in lines {
        let told = line.told.as_ref();
        let host = told.map(|row| &row.host).or(line.host.as_ref());
        let mut cells = told.map_or_else(|| vec![String::new(); 10], |row| row.cells().to_vec());
        cells[0] = host.cloned().unwrap_or_default();
        let counts = texts.get(&cells[0]);
        let shown = counts.map(|one| {
            [
                one.confirmed,
                one.granted,
                one.refused,
                one.expired + one.lapsed,
            ]
        });
        match shown {
            Some(shown) => cells.extend(shown.map(|count| count.to_string())),
            None => cells.extend([const { String::new() }; 4]),
        }
        cells.push(line.missing.to_string());
        table.row(cells);
        if let Some(name) = line.refused {
            table.note(format!("never asked: its {name} cannot be"));
        }
    }
    table
}

fn channel_table(lines: &[ChannelLine]) -> Table {
    let mut table = Table::new(&[
        "CHANNEL", ">HOSTS", ">IN/s", ">OUT/s", ">RAISED", ">REFUSED", ">SENT", ">GAPS",
    ]);
    for line in lines {
        table.row([
            line.channel.clone(),
            line.hosts.to_string(),
            format!("{:.1}", line.in_per_s),
            format!("{:.1}", line.out_per_s),
            line.raised.to_string(),
            line.refused.to_string(),
            line.sent.to_string(),
            line.missing.to_string(),
        ]);
    }
    table
}
