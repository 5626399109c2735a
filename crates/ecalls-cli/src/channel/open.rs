//! `ecalls channel create` and `ecalls channel open`: a channel is open on this host while the
//! command runs. In a cluster, the hosts that have it open are its sinks.

use std::net::{IpAddr, Ipv4Addr};

use ecalls::Ecalls;
use ecalls_channel::Channel;
use ecalls_channel::cluster::{Change, ClusterChannel, Wanted};
use ecalls_channel::source::host_text;

use super::list::print_one;
use crate::exit::{Failure, Outcome};
use crate::held::{EventArgs, HeldArgs};
use crate::output::note;
use crate::stop::Stop;

/// Create a channel in a cluster, open it on this host and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct CreateArgs {
    /// Name of the channel, at most 31 letters, digits and . - _
    name: String,
    /// Name of the cluster, of the same characters
    #[arg(long)]
    cluster: String,
    /// Frames go by the relays, which repeat what is lost, instead of over the lane: later, and
    /// encrypted if the relays are
    #[arg(long)]
    reliable: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    held: HeldArgs,
}

const CREATE_HELP: &str = "\
Example, as root, on hosts that run `ecalls-relay` with the lane's interface in its configuration:
  ecalls channel create load --cluster lab --format 'u32 cpu; u32 free_mib' &
on each further one:
  ecalls channel open load --cluster lab &
  ecalls channel sub load --where 'cpu > 80'
and on any of them:
  ecalls channel pub load cpu=95

The hosts that have the channel open are its sinks, from the moment when they join until they leave.
The channel exists as long as one host has it open, whichever that is. If it exists with this
format, it is opened; with another one, that is an error.";

/// Open a channel on this host and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = OPEN_HELP)]
pub(crate) struct OpenArgs {
    /// Name of the channel, the same on each host, at most 31 bytes without blanks
    name: String,
    /// Open the channel that a host of this cluster has created
    #[arg(long, conflicts_with_all = ["sinks", "format", "kinds"])]
    cluster: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// IPv4 addresses of its sinks: the hosts to which `ecalls channel forward` sends
    #[arg(long = "to", value_name = "ADDRESS", value_delimiter = ',')]
    sinks: Vec<IpAddr>,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    held: HeldArgs,
}

/// Where the channel's frames are.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Network interface on which frames arrive; the hosts on its network must be trusted. In a
    /// cluster, the relay's configuration can name it
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
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

With --cluster, the other hosts are found by the relay, see `ecalls channel create --help`.

This needs root, and Linux 6.6 or newer. Where the daemon runs, the channel ends with it.";

/// Creates.
pub(super) fn create(args: &CreateArgs) -> Outcome {
    let events = Some((args.events.format.as_str(), args.events.kinds.as_str()));
    let wanted = Wanted {
        cluster: &args.cluster,
        name: &args.name,
        events,
        interface: args.place.interface.as_deref(),
        reliable: args.reliable,
    };
    in_cluster(&wanted, &args.held)
}

/// Opens.
pub(super) fn open(args: &OpenArgs) -> Outcome {
    let interface = args.place.interface.as_deref();
    if let Some(cluster) = &args.cluster {
        let wanted = Wanted {
            cluster,
            name: &args.name,
            events: None,
            interface,
            reliable: false,
        };
        return in_cluster(&wanted, &args.held);
    }
    let interface = interface.ok_or_else(|| {
        Failure::usage("say where frames arrive: --interface eth0, or --cluster lab")
    })?;
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let OpenArgs { name, events, .. } = args;
    let EventArgs { format, kinds } = events;
    let channel = Channel::open(&ecalls, name, format, kinds, interface)?;
    args.sinks
        .iter()
        .try_for_each(|sink| channel.add_sink(*sink))?;
    announce(name, Some(interface), &channel);
    args.held.wait(&stop, &ecalls)?;
    print_one(&ecalls, name, args.held.json)
}

/// The line for which scripts wait.
fn announce(name: &str, interface: Option<&str>, channel: &Channel) {
    let place = interface.unwrap_or("the relay");
    note(format!(
        "opened {name} on {place} as host {}; watch it with `ecalls watch {name}`",
        host_text(channel.host())
    ));
}

/// Opens a channel of a cluster, and tells who joins and leaves until interrupted.
fn in_cluster(wanted: &Wanted<'_>, held: &HeldArgs) -> Outcome {
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let name = wanted.name.to_owned();
    let opened = ClusterChannel::open(&ecalls, wanted, move |change| tell(&name, &change))?;
    announce(wanted.name, opened.interface(), opened.channel());
    held.wait(&stop, &ecalls)?;
    print_one(&ecalls, wanted.name, held.json)
}

/// Tells of a host that joins or leaves.
pub(crate) fn tell(name: &str, change: &Change) {
    // On a reliable channel, hosts have no address.
    let host = |id: &u64, ip: &Ipv4Addr| match ip.is_unspecified() {
        true => host_text(*id),
        false => format!("{} at {ip}", host_text(*id)),
    };
    match change {
        Change::Joined(id, ip) => note(format!("{name}: host {} joined", host(id, ip))),
        Change::Left(id, ip) => note(format!("{name}: host {} left", host(id, ip))),
        Change::Differs(id, ip) => note(format!(
            "{name}: host {} has another format: it gets no events from here",
            host(id, ip)
        )),
        Change::Failed(id, ip, error) => {
            note(format!("{name}: host {} is no sink: {error}", host(id, ip)));
        }
        Change::RelayGone => note(format!(
            "{name}: the relay has ended; the sinks stay, and who joins and leaves is not noticed"
        )),
        Change::RelayBack => note(format!("{name}: the relay is back")),
        other => note(format!("{name}: {other:?}")),
    }
}
