//! `ecalls channel list`, and the same counters where other commands end.

use ecalls::Ecalls;
use ecalls_abi::lane::{FRAME_REASON_NAMES, LaneCount, LaneSource};
use ecalls_abi::relay::RELAY_REASON_NAMES;
use ecalls_abi::sink::{LaneOut, REMOTE_REASON_NAMES, Sink};
use ecalls_channel::cluster::{channels_of, relay_counts};
use ecalls_channel::source::{LaneStat, channels, host_text};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::exit::Outcome;
use crate::output::{Output, Table, note};
use crate::process;

/// List the channels that are open on this host, their counters and their sources
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ListArgs {
    /// List the channels that hosts of this cluster have open, instead
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const LIST_HELP: &str = "\
Keys with --json: channel, host (this host, as others see it), owner (process id), sent (frames of
this host to all sinks), frames, raised (frames that became events), refused (an object: count by
reason), sources (other hosts: host, fresh, missing, duplicate, stale, attributes by number and
told_ns, when they were told), sinks (other hosts: address or, of a
reliable channel, host, member, sent, failed), remote (events
that subscriptions forward: events, none, filtered, refused by reason, fanned; their frames: frames,
sent, late, gone; failed runs of the filter). From the first frame that arrived on, a source has
sent fresh + missing frames. The last object, whose channel is null, counts frames that name no
channel of this host, and events for a channel that had been closed; if a relay runs, it has the key
relay, too: what other hosts said to it in vain, by reason.

With --cluster, the keys are channel, policy (fast or reliable), format, kinds and creator (a
host).";

/// A channel of a cluster, as printed with `--json`.
#[derive(Debug, Serialize)]
struct ClusterRow<'a> {
    channel: &'a str,
    policy: &'a str,
    format: &'a str,
    kinds: &'a str,
    creator: String,
}

fn list_cluster(out: &mut Output, cluster: &str) -> Outcome {
    let mut table = Table::new(&["CHANNEL", "POLICY", "FORMAT", "KINDS"]);
    for channel in &channels_of(cluster)? {
        let row = ClusterRow {
            channel: &channel.name,
            policy: if channel.reliable { "reliable" } else { "fast" },
            format: &channel.format,
            kinds: &channel.kinds,
            creator: host_text(channel.creator),
        };
        if out.is_json() {
            out.object(&row)?;
        } else {
            table.row([row.channel, row.policy, row.format, row.kinds].map(str::to_owned));
        }
    }
    if !out.is_json() {
        out.table(&table)?;
    }
    out.flush()
}

/// Lists.
pub(super) fn list(args: &ListArgs) -> Outcome {
    let mut out = Output::new(args.json);
    if let Some(cluster) = &args.cluster {
        return list_cluster(&mut out, cluster);
    }
    let (stats, unnamed, closed) = match Ecalls::join()? {
        Some(ecalls) => channels(&ecalls)?,
        None => {
            note("no core runs on this host, so no channel is open");
            Default::default()
        }
    };
    let mut rows: Vec<Row> = stats.iter().map(Row::new).collect();
    let relay = relay_refused();
    if !args.json
        && let Some(line) = relay.as_ref().and_then(relay_line)
    {
        note(line);
    }
    if args.json {
        rows.push(Row {
            relay,
            ..Row::unnamed(&unnamed, &closed)
        });
    } else if unnamed.frames + closed.events > 0 {
        note(format!(
            "frames that name no channel of this host: {}; events for a channel that had been \
             closed: {}",
            unnamed.frames, closed.events
        ));
    }
    print(&mut out, &rows)?;
    out.flush()
}

/// What other hosts said to the relay in vain; `None`: no relay answers.
pub(crate) fn relay_refused() -> Option<Pairs<u64>> {
    match relay_counts() {
        Ok(counts) => counts.map(|counts| named(&RELAY_REASON_NAMES, &counts.count)),
        Err(error) => {
            note(format!("what the relay has refused is not known: {error}"));
            None
        }
    }
}

/// The same as text, if there is any.
pub(crate) fn relay_line(refused: &Pairs<u64>) -> Option<String> {
    let all = refused.0.iter();
    let all: Vec<_> = all.map(|(name, n)| format!("{name} {n}")).collect();
    (!all.is_empty()).then(|| format!("refused by the relay: {}", all.join(", ")))
}

/// Prints the counters of one channel.
pub(super) fn print_one(ecalls: &Ecalls, name: &str, json: bool) -> Outcome {
    let (stats, ..) = channels(ecalls)?;
    let own = stats.iter().filter(|stat| stat.name == name);
    let own: Vec<Row> = own.map(Row::new).collect();
    let mut out = Output::new(json);
    print(&mut out, &own)?;
    out.flush()
}

/// Keys that are not known before, with their values.
#[derive(Debug, Default)]
pub(crate) struct Pairs<V>(pub(crate) Vec<(String, V)>);

impl<V: Serialize> Serialize for Pairs<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A channel, as printed with `--json`.
#[derive(Debug, Default, Serialize)]
struct Row {
    channel: Option<String>,
    host: Option<String>,
    owner: Option<u32>,
    sent: u64,
    frames: u64,
    raised: u64,
    refused: Pairs<u64>,
    sources: Vec<Source>,
    sinks: Vec<SinkRow>,
    remote: Remote,
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<Pairs<u64>>,
}

/// Another host to which frames go.
#[derive(Debug, Serialize)]
struct SinkRow {
    address: String,
    member: bool,
    sent: u64,
    failed: u64,
}

/// Events that subscriptions send to the sinks.
#[derive(Debug, Default, Serialize)]
struct Remote {
    events: u64,
    none: u64,
    filtered: u64,
    refused: Pairs<u64>,
    fanned: u64,
    frames: u64,
    sent: u64,
    late: u64,
    gone: u64,
    failed: u64,
}

impl SinkRow {
    fn new(sink: &Sink) -> SinkRow {
        SinkRow {
            address: match (sink.host(), sink.ip()) {
                (Some(host), _) => host_text(host),
                (None, ip) => ip.map_or_else(String::new, |ip| ip.to_string()),
            },
            member: sink.member != 0,
            sent: sink.sent,
            failed: sink.failed,
        }
    }
}

impl Remote {
    fn new(out: &LaneOut) -> Remote {
        Remote {
            events: out.events,
            none: out.none,
            filtered: out.filtered,
            refused: named(&REMOTE_REASON_NAMES, &out.refused),
            fanned: out.fanned,
            frames: out.frames,
            sent: out.sent,
            late: out.late,
            gone: out.gone,
            failed: out.failed,
        }
    }
}

/// The counts that are not 0, by their reasons.
fn named(names: &[&str], counts: &[u64]) -> Pairs<u64> {
    let all = names.iter().zip(counts).filter(|(_, count)| **count > 0);
    Pairs(
        all.map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
    )
}

#[derive(Debug, Serialize)]
struct Source {
    host: String,
    fresh: u64,
    missing: u64,
    duplicate: u64,
    stale: u64,
    attributes: Pairs<u64>,
    told_ns: u64,
}

impl Row {
    fn unnamed(count: &LaneCount, out: &LaneOut) -> Row {
        Row {
            frames: count.frames,
            raised: count.raised,
            refused: named(&FRAME_REASON_NAMES, &count.refused),
            remote: Remote::new(out),
            ..Row::default()
        }
    }

    fn new(stat: &LaneStat) -> Row {
        Row {
            channel: Some(stat.name.clone()),
            host: Some(host_text(stat.channel.host)),
            owner: Some(stat.channel.owner),
            sent: stat.sinks.iter().map(|sink| sink.sent).sum(),
            sinks: stat.sinks.iter().map(SinkRow::new).collect(),
            sources: stat
                .sources
                .iter()
                .map(|(host, source)| Source::new(*host, source))
                .collect(),
            ..Row::unnamed(&stat.count, &stat.out)
        }
    }
}

impl Source {
    fn new(host: u64, source: &LaneSource) -> Source {
        let window = &source.window;
        let told = source
            .value
            .iter()
            .enumerate()
            .filter(|(_, value)| **value != 0);
        Source {
            host: host_text(host),
            fresh: window.fresh,
            missing: window.missing(),
            duplicate: window.duplicate,
            stale: window.stale,
            attributes: Pairs(
                told.map(|(number, value)| (number.to_string(), *value))
                    .collect(),
            ),
            told_ns: source.told_ns,
        }
    }
}

/// Prints channels as objects or as a table.
fn print(out: &mut Output, rows: &[Row]) -> Outcome {
    if out.is_json() {
        return rows.iter().try_for_each(|row| out.object(row));
    }
    let mut table = Table::new(&["CHANNEL", "OWNER", ">SENT", ">FRAMES", ">RAISED", "REFUSED"]);
    for row in rows {
        let refused: Vec<_> = row
            .refused
            .0
            .iter()
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        table.row([
            row.channel.clone().unwrap_or_default(),
            row.owner.map(process::show).unwrap_or_default(),
            row.sent.to_string(),
            row.frames.to_string(),
            row.raised.to_string(),
            refused.join(", "),
        ]);
        for source in &row.sources {
            let attributes = source
                .attributes
                .0
                .iter()
                .map(|(at, value)| format!(" {at}={value}"));
            table.note(format!(
                "from {}: {} fresh, {} missing, {} duplicate, {} stale{}",
                source.host,
                source.fresh,
                source.missing,
                source.duplicate,
                source.stale,
                attributes.collect::<String>()
            ));
        }
        for sink in &row.sinks {
            table.note(format!(
                "to {}{}: {} sent, {} failed",
                sink.address,
                if sink.member {
                    ""
                } else {
                    " (publishers only)"
                },
                sink.sent,
                sink.failed
            ));
        }
        let Remote {
            events,
            none,
            filtered,
            ..
        } = row.remote;
        if events > 0 {
            let refused = row.remote.refused.0.iter();
            let refused: Vec<_> = refused.map(|(name, n)| format!(", {name} {n}")).collect();
            table.note(format!(
                "forwarded: {} of {events} events in {} frames; no sink {none}, filtered \
                 {filtered}{}",
                row.remote.fanned,
                row.remote.sent,
                refused.concat()
            ));
        }
    }
    out.table(&table)
}
