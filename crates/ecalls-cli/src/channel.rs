//! `ecalls channel`: channels among hosts. An event that is published on one host becomes an event
//! of the others, in their kernels.

pub(crate) mod list;
pub(crate) mod open;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ecalls::{Ecalls, Format};
use ecalls_abi::service::SubscriptionCount;
use ecalls_channel::frame::Submission;
use ecalls_channel::{ClientPublisher, Publisher, set_out};
use serde::Serialize;

use self::list::{ListArgs, Pairs, print_one};
use self::open::{CreateArgs, OpenArgs};
use crate::chain::ChainArgs;
use crate::duration;
use crate::ecode::text;
use crate::exit::{Code, Failure, Outcome};
use crate::held::HeldArgs;
use crate::output::{Output, note};
use crate::raise::{data, find_kind, pair};
use crate::stop::Stop;
use crate::watch;

/// Exchange events with other hosts
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Create(CreateArgs),
    Open(OpenArgs),
    Forward(ForwardArgs),
    Filter(FilterArgs),
    Pub(PubArgs),
    /// Subscribe to a channel: print its events as they arrive, as `ecalls watch` does
    Sub(watch::Args),
    List(ListArgs),
}

/// Send the events of a service to the sinks of a channel, in the kernel, until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = FORWARD_HELP)]
struct ForwardArgs {
    /// Name of the channel, which a program on this host has open
    channel: String,
    /// Name of the service, see `ecalls services`
    service: String,
    #[command(flatten)]
    chain: ChainArgs,
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
The filter sees each event that `ecalls channel forward` or `ecalls channel pub` is to send to the
channel's sinks, in its format, and all sinks with the attributes that they told (`man 7 ecode`,
Sinks); it runs before a packet exists:
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
    /// Addresses of the hosts that get the event, instead of the channel's sinks
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
by address of a host to which it could not be sent), offered (subscriptions on this host).

The channel's filter (`ecalls channel filter`) chooses among its sinks; the kernel sends the event
then, and `sinks` is null unless the filter chose none. All hosts that --to names get the event, and
all sinks get one with --attribute, which tells them what filters choose by.

Without root, where the daemon runs, this needs the right `publish` for the channel
(`man 5 ecallsd.toml`). The kernel sends the event then, too, and to no subscription on this host.";

/// How long a client of the daemon waits to learn what has become of its event.
const FATE: Duration = Duration::from_secs(2);

fn attribute(text: &str) -> Result<(u8, u64), String> {
    let (number, value) = pair(text)?;
    match (number.parse(), value.parse()) {
        (Ok(number @ 0..32), Ok(value)) => Ok((number, value)),
        _ => Err("an attribute is a number below 32 and its value, for example 3=40".to_owned()),
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Create(args) => open::create(args),
        Command::Open(args) => open::open(args),
        Command::Forward(args) => forward(args),
        Command::Filter(args) => filter(args),
        Command::Pub(args) => publish(args),
        Command::Sub(args) => watch::run(args),
        Command::List(args) => list::list(args),
    }
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
    let texts = args.chain.texts()?;
    let builder = ecalls.subscribe(&args.service)?;
    let builder = args.chain.subscribe(builder, &texts);
    let subscription = builder.remote(&args.channel).install()?;
    subscription.warnings().iter().for_each(note);
    note(format!(
        "forwarding {} to the sinks of {}",
        args.service, args.channel
    ));
    args.held.wait(&stop, &ecalls)?;
    drop(subscription);
    print_one(&ecalls, &args.channel, args.held.json)
}

fn publish(args: &PubArgs) -> Outcome {
    let name = &args.channel;
    let ecalls = joined(name)?;
    let info = ecalls.access().service_named(name)?.info;
    let (kind, kind_name) = find_kind(&info, args.kind.as_deref())?;
    let left = args.deadline.map_or(0, |time| time.as_nanos());
    let submission = Submission {
        data: data(&Format::parse(info.format())?, &args.fields)?,
        kind,
        slot_type: args.slot_type,
        priority: args.priority,
        left_ns: u64::try_from(left).unwrap_or(u64::MAX),
        attributes: args.attributes.clone(),
    };
    if let Err(denied @ ecalls::Error::Denied { .. }) = ecalls.lane() {
        return match args.sinks[..] {
            [] => publish_as_client(&ecalls, args, &kind_name, &submission),
            _ => Err(denied.into()),
        };
    }
    let publisher = match args.sinks[..] {
        [] => Publisher::to_sinks(&ecalls, name)?,
        _ => Publisher::new(&ecalls, name, args.sinks.iter().copied())?,
    };
    let sent = match args.attributes[..] {
        [] => publisher.submit(&submission)?,
        _ => publisher.tell(&submission)?,
    };
    if let Some(fate) = publisher.fates(FATE)? {
        return tell_fate(args, &kind_name, &fate, sent.offered);
    }
    let mut out = Output::new(args.json);
    let failed: Vec<_> = sent
        .failed
        .iter()
        .map(|(sink, error)| (sink, error))
        .collect();
    if args.json {
        out.object(&Published {
            channel: name,
            sinks: Some(sent.sinks),
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
            sent.sinks + sent.failed.len(),
            sent.offered
        ))?;
    }
    out.flush()?;
    for (ip, error) in failed {
        note(format!("{ip}: {error}"));
    }
    Ok(())
}

/// The same for a client of the daemon that may not make frames.
fn publish_as_client(
    ecalls: &Ecalls,
    args: &PubArgs,
    kind: &str,
    submission: &Submission,
) -> Outcome {
    let channel = &args.channel;
    let publisher = ClientPublisher::new(ecalls, channel)?;
    publisher.submit(submission)?;
    tell_fate(args, kind, &publisher.fates(FATE)?, 0)
}

/// What the kernel side has done with an event; `offered` to subscriptions on this host.
fn tell_fate(args: &PubArgs, kind: &str, fate: &SubscriptionCount, offered: i64) -> Outcome {
    let channel = &args.channel;
    let has_sink = fate.delivered > 0;
    if !has_sink && fate.filtered == 0 {
        let why = "the event was dropped: its deadline had passed, or a limit of this user or the \
                   channel's buffer was full (`ecalls stat`)";
        return Err(Failure::new(Code::Failed, why));
    }
    let mut out = Output::new(args.json);
    if args.json {
        out.object(&Published {
            channel,
            sinks: (!has_sink).then_some(0),
            failed: Pairs(Vec::new()),
            offered,
        })?;
    } else {
        let to = match has_sink {
            true => "the kernel sends it to the channel's sinks, as its filter chooses",
            false => "no host gets it: the channel has no sink, or its filter chose none",
        };
        let here = match offered {
            0 => String::new(),
            some => format!("; offered to {some} subscriptions here"),
        };
        out.line(format!("published {channel} {kind}: {to}{here}"))?;
    }
    out.flush()
}

/// A published event, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Published<'a> {
    channel: &'a str,
    sinks: Option<usize>,
    failed: Pairs<String>,
    offered: i64,
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
