//! `ecalls channel`: channels among hosts. An event that is published on one host becomes an event
//! of the others, in their kernels.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ecalls::{Ecalls, Format, Handler};
use ecalls_abi::lane::{FRAME_REASON_NAMES, LaneCount, LaneSource};
use ecalls_abi::sink::{LaneOut, REMOTE_REASON_NAMES, Sink};
use ecalls_channel::frame::Submission;
use ecalls_channel::source::{LaneStat, channels, host_text};
use ecalls_channel::{Channel, Publisher, set_out};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::duration;
use crate::ecode::text;
use crate::exit::{Failure, Outcome};
use crate::handler;
use crate::held::{EventArgs, HeldArgs};
use crate::output::{Output, Table, note};
use crate::process;
use crate::raise::{data, find_kind, pair};
use crate::stop::Stop;

/// Exchange events with other hosts
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Open(OpenArgs),
    Forward(ForwardArgs),
    Filter(FilterArgs),
    Pub(PubArgs),
    List(ListArgs),
}

/// Open a channel on this host and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = OPEN_HELP)]
struct OpenArgs {
    /// Name of the channel, the same on each host, at most 31 bytes without blanks
    name: String,
    /// Network interface on which frames arrive; the hosts on its network must be trusted
    #[arg(long, value_name = "INTERFACE")]
    interface: String,
    /// IPv4 addresses of its sinks: the hosts to which `ecalls channel forward` sends
    #[arg(long = "to", value_name = "ADDRESS", value_delimiter = ',')]
    sinks: Vec<IpAddr>,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    held: HeldArgs,
}

const OPEN_HELP: &str = "\
Example, on two hosts of one network, as root:
  ecalls channel open load --interface eth0 --format 'u32 cpu; u32 free_mib' &
  ecalls watch load --where 'cpu > 80'
and on the second one, if the first has the address 10.0.0.1:
  ecalls channel pub load --to 10.0.0.1 cpu=95

The channel is a service of the same name on this host. Frames that other hosts send become its
events where they arrive, in the kernel; filters of subscriptions run there, too. A frame with
another format is refused. Keys with --json: see `ecalls channel list --help`.

This needs root, and Linux 6.6 or newer. A host that runs the daemon cannot open channels yet.";

/// Send the events of a service to the sinks of a channel, in the kernel, until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = FORWARD_HELP)]
struct ForwardArgs {
    /// Name of the channel, which a program on this host has open
    channel: String,
    /// Name of the service, see `ecalls services`
    service: String,
    /// Only events of this kind; the option may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// A handler that runs in the kernel before an event is sent, as for `ecalls watch`
    #[arg(long = "handler", value_name = "HANDLER", value_parser = handler::parse)]
    handlers: Vec<Handler>,
    /// Only events for which this E-code is true; the option may be repeated
    #[arg(long = "where", value_name = "TEXT")]
    conditions: Vec<String>,
    /// A handler in E-code, read from this file; several run in the order given, before --where
    #[arg(long = "ecode", value_name = "FILE")]
    texts: Vec<PathBuf>,
    #[command(flatten)]
    held: HeldArgs,
}

const FORWARD_HELP: &str = "\
Example, on a host that has opened the channel with the address of another one as its sink:
  ecalls channel open slow --interface eth0 --to 10.0.0.2 --format 'u64 us' &
  ecalls channel forward slow disk --ecode slow.ec

The data that are sent must have the format of the channel: either the service's data have it, or an
`output` of a handler in E-code (`man 7 ecode`). No process decides about an event or sees it; a
thread of the program that opened the channel carries frames to the interface. When the command
ends it prints the channel's counters, with --json under the keys of `ecalls channel list --help`.";

/// Set the filter of a channel at the source: E-code that chooses the sinks of each event
#[derive(Debug, clap::Args)]
#[command(after_help = FILTER_HELP)]
struct FilterArgs {
    /// Name of the channel, which a program on this host has open
    channel: String,
    /// The text; - reads standard input
    #[arg(required_unless_present = "none")]
    file: Option<PathBuf>,
    /// Names of the sinks' attributes, in the order of their numbers
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    attributes: Vec<String>,
    /// Remove the filter: each event goes to all sinks
    #[arg(long, conflicts_with = "file")]
    none: bool,
}

const FILTER_HELP: &str = "\
The filter sees each event that `ecalls channel forward` is to send, in the channel's format, and
all sinks with the attributes that they told (`man 7 ecode`, Sinks); it runs before a packet exists:
  for (s in sinks)
      if (s.load > 80 || age(s) > 5000000000)
          reject(s);
If it says `accept` or `best` anywhere, the sinks that it accepts get the event, otherwise those
that it does not reject; after `return 0`, none. The filter stays until the channel is closed, and
is replaced while events pass.";

/// Publish an event on a channel: to other hosts, and to subscriptions on this one
#[derive(Debug, clap::Args)]
#[command(after_help = PUB_HELP)]
struct PubArgs {
    /// Name of the channel, which a program on this host has open
    channel: String,
    /// Data, by the field names of the channel's format; other fields are 0. Arrays: name=1,2,3
    #[arg(value_name = "FIELD=VALUE", value_parser = pair)]
    fields: Vec<(String, String)>,
    /// Addresses of the hosts that get the event
    #[arg(long = "to", value_name = "ADDRESS", value_delimiter = ',')]
    sinks: Vec<IpAddr>,
    /// Kind of the event, by name or number
    #[arg(long)]
    kind: Option<String>,
    /// Discard the event where it is not delivered within this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    deadline: Option<Duration>,
    /// Priority, for channels whose slots are used by priority; 0 is the most urgent
    #[arg(long, default_value_t = 0, value_name = "N")]
    priority: u32,
    /// Type, for channels whose slots are used by type
    #[arg(long = "type", default_value_t = 0, value_name = "N")]
    slot_type: u32,
    /// Attributes of this host that travel with the event, by their numbers, 0 to 31
    #[arg(long = "attribute", value_name = "N=VALUE", value_parser = attribute)]
    attributes: Vec<(u8, u64)>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const PUB_HELP: &str = "\
Keys with --json: channel, sinks (number of hosts to which it was sent), failed (an object: reason
by address of a host to which it could not be sent), offered (subscriptions on this host).";

/// List the channels that are open on this host, their counters and their sources
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_HELP)]
struct ListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const LIST_HELP: &str = "\
Keys with --json: channel, host (this host, as others see it), owner (process id), sent (frames of
this host to all sinks), frames, raised (frames that became events), refused (an object: count by
reason), sources (other hosts: host, fresh, missing, duplicate, stale, attributes by number and
told_ns, when they were told), sinks (other hosts: address, member, sent, failed), remote (events
that subscriptions forward: events, none, filtered, refused by reason, fanned; their frames: frames,
sent, late, gone; failed runs of the filter). From the first frame that arrived on, a source has
sent fresh + missing frames. The last object, whose channel is null, counts frames that name no
channel of this host, and events for a channel that had been closed.";

fn attribute(text: &str) -> Result<(u8, u64), String> {
    let (number, value) = pair(text)?;
    match (number.parse(), value.parse()) {
        (Ok(number @ 0..32), Ok(value)) => Ok((number, value)),
        _ => Err("an attribute is a number below 32 and its value, for example 3=40".to_owned()),
    }
}

/// Opens, publishes or lists.
pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Open(args) => open(args),
        Command::Forward(args) => forward(args),
        Command::Filter(args) => filter(args),
        Command::Pub(args) => publish(args),
        Command::List(args) => list(args),
    }
}

fn open(args: &OpenArgs) -> Outcome {
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let OpenArgs { name, events, .. } = args;
    let EventArgs { format, kinds } = events;
    let channel = Channel::open(&ecalls, name, format, kinds, &args.interface)?;
    args.sinks
        .iter()
        .try_for_each(|sink| channel.add_sink(*sink))?;
    note(format!(
        "opened {name} on {} as host {}; watch it with `ecalls watch {name}`",
        args.interface,
        host_text(channel.host())
    ));
    args.held.wait(&stop);
    print_one(&ecalls, name, args.held.json)
}

/// Prints the counters of one channel.
fn print_one(ecalls: &Ecalls, name: &str, json: bool) -> Outcome {
    let (stats, ..) = channels(ecalls)?;
    let own = stats.iter().filter(|stat| stat.name == name);
    let own: Vec<Row> = own.map(Row::new).collect();
    let mut out = Output::new(json);
    print(&mut out, &own)?;
    out.flush()
}

/// The core, in which a program has this channel open.
fn joined(name: &str) -> Result<Ecalls, Failure> {
    Ecalls::join()?.ok_or_else(|| {
        Failure::usage(format!(
            "no channel {name:?} is open on this host: `ecalls channel open {name} ...` opens it"
        ))
    })
}

fn filter(args: &FilterArgs) -> Outcome {
    let ecalls = joined(&args.channel)?;
    let source = args.file.as_deref().map(text::read).transpose()?;
    let given = source
        .as_ref()
        .map(|one| (one.name.as_str(), one.text.as_str()));
    let warnings = set_out(&ecalls, &args.channel, given, &args.attributes)?;
    warnings.iter().for_each(note);
    Ok(())
}

fn forward(args: &ForwardArgs) -> Outcome {
    let stop = Stop::on_signals()?;
    let ecalls = joined(&args.channel)?;
    let mut builder = ecalls.subscribe(&args.service)?;
    let kinds: Vec<&str> = args.kinds.iter().map(String::as_str).collect();
    builder = builder.kinds(&kinds);
    for handler in &args.handlers {
        builder = builder.handler(handler);
    }
    for file in &args.texts {
        let source = text::read(file)?;
        builder = builder.ecode_named(&source.name, &source.text);
    }
    for condition in &args.conditions {
        builder = builder.ecode_named("--where", condition);
    }
    let subscription = builder.remote(&args.channel).install()?;
    subscription.warnings().iter().for_each(note);
    note(format!(
        "forwarding {} to the sinks of {}",
        args.service, args.channel
    ));
    args.held.wait(&stop);
    drop(subscription);
    print_one(&ecalls, &args.channel, args.held.json)
}

fn publish(args: &PubArgs) -> Outcome {
    let name = &args.channel;
    let ecalls = joined(name)?;
    let publisher = Publisher::new(&ecalls, name, args.sinks.iter().copied())?;
    let info = ecalls.access().service_named(name)?.info;
    let (kind, kind_name) = find_kind(&info, args.kind.as_deref())?;
    let left = args.deadline.map_or(0, |time| time.as_nanos());
    let sent = publisher.submit(&Submission {
        data: data(&Format::parse(info.format())?, &args.fields)?,
        kind,
        slot_type: args.slot_type,
        priority: args.priority,
        left_ns: u64::try_from(left).unwrap_or(u64::MAX),
        attributes: args.attributes.clone(),
    })?;
    let mut out = Output::new(args.json);
    let failed: Vec<_> = sent
        .failed
        .iter()
        .map(|(sink, error)| (sink.ip(), error))
        .collect();
    if args.json {
        out.object(&Published {
            channel: name,
            sinks: sent.sinks,
            failed: Pairs(
                failed
                    .iter()
                    .map(|(ip, error)| (ip.to_string(), error.to_string()))
                    .collect(),
            ),
            offered: sent.offered,
        })?;
    } else {
        out.line(format!(
            "published {name} {kind_name}: sent to {} of {} hosts, offered to {} subscriptions \
             here",
            sent.sinks,
            args.sinks.len(),
            sent.offered
        ))?;
    }
    out.flush()?;
    for (ip, error) in failed {
        note(format!("{ip}: {error}"));
    }
    Ok(())
}

/// A published event, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Published<'a> {
    channel: &'a str,
    sinks: usize,
    failed: Pairs<String>,
    offered: i64,
}

fn list(args: &ListArgs) -> Outcome {
    let mut out = Output::new(args.json);
    let (stats, unnamed, closed) = match Ecalls::join()? {
        Some(ecalls) => channels(&ecalls)?,
        None => {
            note("no core runs on this host, so no channel is open");
            Default::default()
        }
    };
    let mut rows: Vec<Row> = stats.iter().map(Row::new).collect();
    if args.json {
        rows.push(Row::unnamed(&unnamed, &closed));
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

/// Keys that are not known before, with their values.
#[derive(Debug, Default)]
struct Pairs<V>(Vec<(String, V)>);

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
            address: sink.ip().map_or_else(String::new, |ip| ip.to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_a_number_below_32_and_a_value() {
        assert_eq!(attribute("31=40"), Ok((31, 40)));
        for text in ["32=1", "-1=1", "load=1", "3", "3=", "3=-1"] {
            assert!(attribute(text).is_err(), "{text}");
        }
    }
}
