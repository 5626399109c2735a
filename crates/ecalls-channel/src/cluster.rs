//! Channels of a cluster: the hosts that have the channel open are its sinks, by themselves.
//!
//! The relay of this host (ecalls-relay(8)) says which hosts join and leave. A thread makes them
//! sinks of the channel and removes them; on a reliable channel, whose frames go by the relays, it
//! also gives those that arrive to the kernel side. If the relay ends, the sinks stay: events of
//! the lane go from kernel to kernel without it. The thread connects again, and when the relay has
//! had time to find the others, sinks that it did not find are removed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ecalls::Ecalls;
use ecalls_abi::relay::{RELAY_FAST, RELAY_RELIABLE, RelayChannel, RelayCounts};
use ecalls_abi::text;
use ecalls_abi::wire::text_id;
use ecalls_kernel::{Error, Result, Worker, ip4_of};

use crate::Channel;
use crate::relay::{Host, Relay, Told, wait};

/// How long to wait before the next attempt to reach the relay, or to make a host a sink.
const REST: Duration = Duration::from_secs(1);

/// Which channel to open, and how.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The channel's name.
    pub name: &'a str,
    /// Format of the data and names of the kinds; `None`: those that other hosts have.
    pub events: Option<(&'a str, &'a str)>,
    /// The network interface of the lane; `None`: the one that the relay's configuration names.
    pub interface: Option<&'a str>,
    /// Whether a channel that does not exist yet is made a reliable one: its frames go by the
    /// relays, which repeat what is lost.
    pub reliable: bool,
}

/// What happens to the hosts of a channel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change {
    /// A host has the channel open: it is a sink now.
    Joined(u64, Ipv4Addr),
    /// It has no more.
    Left(u64, Ipv4Addr),
    /// A host has the channel open with another format: they do not exchange events.
    Differs(u64, Ipv4Addr),
    /// A host could not be made a sink; this is tried again.
    Failed(u64, Ipv4Addr, Error),
    /// The relay has ended: hosts that join and leave are not noticed until it is back.
    RelayGone,
    /// It is back.
    RelayBack,
}

/// A channel of a cluster, open until it is dropped or the process ends.
#[derive(Debug)]
pub struct ClusterChannel {
    channel: Arc<Channel>,
    interface: Option<String>,
    _worker: Worker,
}

impl ClusterChannel {
    /// Opens the channel. `told` is called by a thread of its own for each change of the hosts.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no relay runs, or if no host has the channel open and `events` does
    /// not say what it is; [`Error::Invalid`] for a format that other hosts do not have, and
    /// without an interface; those of [`Channel::open`].
    pub fn open(
        ecalls: &Ecalls,
        wanted: &Wanted<'_>,
        told: impl FnMut(Change) + Send + 'static,
    ) -> Result<ClusterChannel> {
        let relay = Relay::connect()?;
        let (info, interface) = settle(&relay, wanted)?;
        let (format, kinds) = (text::read(&info.format), text::read(&info.kinds));
        let named = interface.as_deref();
        let (channel, address) = match (info.policy == RELAY_RELIABLE, named) {
            (true, _) => {
                let events = (format, kinds);
                let channel = Channel::open_relayed(ecalls, wanted.name, events, named)?;
                (channel, [0; 4])
            }
            (false, Some(named)) => {
                let channel = Channel::open(ecalls, wanted.name, format, kinds, named)?;
                let address = ip4_of(named)?.map_or([0; 4], |ip| ip.octets());
                (channel, address)
            }
            (false, None) => {
                let expected = "one whose hosts are trusted: name it, or set it in the relay's \
                                configuration ([lane] of /etc/ecalls/relay.toml)";
                return Err(invalid("the network interface", "", expected));
            }
        };
        let own = Host {
            id: channel.host(),
            address,
            format: text_id(format),
        };
        let reliable = info.policy == RELAY_RELIABLE;
        relay.enter(&info, &own)?;
        let channel = Arc::new(channel);
        let mut following = Following {
            channel: Arc::clone(&channel),
            reliable,
            info,
            own,
            hosts: BTreeMap::new(),
            told,
        };
        let action = "starting to follow the hosts of a cluster";
        let follow = move |stop: &OwnedFd| following.run(relay, stop);
        Ok(ClusterChannel {
            channel,
            interface: interface.filter(|_| !reliable),
            _worker: Worker::start("ecalls-cluster", action, follow)?,
        })
    }

    /// The channel.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The interface of its lane; `None`: its frames go by the relays.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }
}

/// A channel that a host of a cluster has open. Its texts are what that host says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Format of its data.
    pub format: String,
    /// Names of its kinds.
    pub kinds: String,
    /// Its frames go by the relays.
    pub reliable: bool,
    /// The host that created it.
    pub creator: u64,
}

/// The channels of a cluster that any of its hosts has open.
///
/// # Errors
/// [`Error::Unknown`] if no relay runs, [`Error::Invalid`] for a name that no cluster has.
pub fn channels_of(cluster: &str) -> Result<Vec<Listed>> {
    let asked = RelayChannel::named(cluster, "any").ok_or_else(|| {
        let expected = "1 to 31 letters, digits and . - _";
        invalid("the name of the cluster", cluster, expected)
    })?;
    let all = Relay::connect()?.list(&asked)?;
    let mut all: Vec<Listed> = all
        .iter()
        .map(|channel| Listed {
            name: text::read(&channel.name).to_owned(),
            format: text::read(&channel.format).to_owned(),
            kinds: text::read(&channel.kinds).to_owned(),
            reliable: channel.policy == RELAY_RELIABLE,
            creator: channel.creator,
        })
        .collect();
    all.sort();
    Ok(all)
}

/// What other hosts have said to this host's relay in vain, by reason; `None`: no relay runs.
///
/// # Errors
/// [`Error::Denied`], and those of a relay that does not answer.
pub fn relay_counts() -> Result<Option<RelayCounts>> {
    match Relay::connect() {
        Ok(relay) => relay.counts().map(Some),
        Err(Error::Unknown { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn invalid(what: &'static str, given: &str, expected: &'static str) -> Error {
    Error::Invalid {
        what,
        given: format!("{given:?}"),
        expected,
    }
}

/// What the channel is, and the interface that identifies this host.
fn settle(relay: &Relay, wanted: &Wanted<'_>) -> Result<(RelayChannel, Option<String>)> {
    let asked = RelayChannel::named(wanted.cluster, wanted.name).ok_or_else(|| {
        let expected = "1 to 31 letters, digits and . - _";
        let given = format!("{}/{}", wanted.cluster, wanted.name);
        invalid("the channel of a cluster", &given, expected)
    })?;
    let (found, mut info) = relay.ask(&asked)?;
    match wanted.events {
        None if !found => {
            return Err(Error::Unknown {
                what: "channel of this cluster",
                name: wanted.name.to_owned(),
                hint: "no host has it open; `ecalls channel create` says what it is".to_owned(),
            });
        }
        None => {}
        Some((format, kinds)) if found => {
            let theirs = (text::read(&info.format), text::read(&info.kinds));
            if theirs != (format, kinds) || wanted.reliable != (info.policy == RELAY_RELIABLE) {
                let expected = "what the other hosts have: `ecalls channel open` takes theirs";
                let given = format!("{format}, kinds {kinds}");
                return Err(invalid("the format of the channel", &given, expected));
            }
        }
        Some((format, kinds)) => {
            let written = text::write(&mut info.format, format)
                .and_then(|()| text::write(&mut info.kinds, kinds));
            let expected = "a format and kinds of at most 511 bytes each";
            written.map_err(|_| invalid("the format of the channel", format, expected))?;
            info.policy = if wanted.reliable {
                RELAY_RELIABLE
            } else {
                RELAY_FAST
            };
        }
    }
    let configured = Some(text::read(&info.interface)).filter(|name| !name.is_empty());
    let interface = wanted.interface.or(configured).map(str::to_owned);
    Ok((info, interface))
}

/// How far a host is a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Sink,
    /// It has another format, or is not on the lane.
    Apart,
    /// It could not be made one.
    Failed,
}

fn stopped(stop: &OwnedFd, time: Duration) -> bool {
    let ready = wait(&[stop.as_fd()], Some(time));
    ready.is_ok_and(|ready| ready == [true])
}

/// What the thread has.
struct Following<F> {
    channel: Arc<Channel>,
    info: RelayChannel,
    reliable: bool,
    own: Host,
    /// The others, and whether this connection to the relay has told them.
    hosts: BTreeMap<Host, (Standing, bool)>,
    told: F,
}

impl<F: FnMut(Change)> Following<F> {
    fn run(&mut self, first: Relay, stop: &OwnedFd) {
        let mut relay = Some(first);
        loop {
            if let Some(connected) = relay.take() {
                if self.listen(&connected, stop) {
                    return;
                }
                (self.told)(Change::RelayGone);
            }
            if stopped(stop, REST) {
                return;
            }
            relay = Relay::connect().ok();
            relay = relay.filter(|relay| relay.enter(&self.info, &self.own).is_ok());
            if relay.is_some() {
                for (_, is_told) in self.hosts.values_mut() {
                    *is_told = false;
                }
                (self.told)(Change::RelayBack);
            }
        }
    }

    /// Follows the hosts until the relay ends. True: until this thread must.
    fn listen(&mut self, relay: &Relay, stop: &OwnedFd) -> bool {
        loop {
            let failed = self.hosts.values();
            let failed = failed
                .clone()
                .any(|(standing, _)| *standing == Standing::Failed);
            let time = failed.then_some(REST);
            match wait(&[stop.as_fd(), relay.as_fd()], time).as_deref() {
                Ok([true, _]) => return true,
                Ok([_, true]) => match relay.receive() {
                    Ok(Told::Host(host, true)) => self.joined(host),
                    Ok(Told::Host(host, false)) => self.left(host),
                    Ok(Told::Settled) => self.settled(),
                    // What is none of this channel, its sender will find missing.
                    Ok(Told::Frame(frame)) => drop(self.channel.arrive(&frame)),
                    Ok(_) => {}
                    Err(_) => return false,
                },
                Ok(_) => self.again(),
                Err(_) => return false,
            }
        }
    }

    fn joined(&mut self, host: Host) {
        if let Some((_, is_told)) = self.hosts.get_mut(&host) {
            *is_told = true;
            return;
        }
        let address = Ipv4Addr::from(host.address);
        let standing = if host.format != self.own.format {
            (self.told)(Change::Differs(host.id, address));
            Standing::Apart
        } else if host.address == [0; 4] && !self.reliable {
            (self.told)(Change::Joined(host.id, address));
            Standing::Apart
        } else {
            match self.set_sink(host, true) {
                Ok(()) => {
                    (self.told)(Change::Joined(host.id, address));
                    Standing::Sink
                }
                Err(error) => {
                    (self.told)(Change::Failed(host.id, address, error));
                    Standing::Failed
                }
            }
        };
        self.hosts.insert(host, (standing, true));
    }

    fn set_sink(&self, host: Host, is_sink: bool) -> Result<()> {
        let address = Ipv4Addr::from(host.address).into();
        match (self.reliable, is_sink) {
            (true, _) => self.channel.set_host(host.id, is_sink),
            (false, true) => self.channel.add_sink(address),
            (false, false) => self.channel.remove_sink(address).map(|_| ()),
        }
    }

    fn left(&mut self, host: Host) {
        let Some((standing, _)) = self.hosts.remove(&host) else {
            return;
        };
        let address = Ipv4Addr::from(host.address);
        // It may have come back with the same address before this was noticed.
        let sinks = self.hosts.iter();
        let mut sinks = sinks.filter(|(_, (standing, _))| *standing == Standing::Sink);
        let stays = sinks.any(|(other, _)| match self.reliable {
            true => other.id == host.id,
            false => other.address == host.address,
        });
        if standing == Standing::Sink && !stays {
            // It fails only if the channel has been closed.
            let _ = self.set_sink(host, false);
        }
        (self.told)(Change::Left(host.id, address));
    }

    /// Hosts that this connection has not told are not there.
    fn settled(&mut self) {
        let gone = self.hosts.iter().filter(|(_, (_, is_told))| !is_told);
        let gone: Vec<Host> = gone.map(|(host, _)| *host).collect();
        for host in gone {
            self.left(host);
        }
    }

    /// Tries again what failed.
    fn again(&mut self) {
        let failed = self.hosts.iter();
        let failed = failed.filter(|(_, (standing, _))| *standing == Standing::Failed);
        let failed: Vec<Host> = failed.map(|(host, _)| *host).collect();
        for host in failed {
            if self.set_sink(host, true).is_ok() {
                let (_, is_told) = self.hosts[&host];
                self.hosts.insert(host, (Standing::Sink, is_told));
                (self.told)(Change::Joined(host.id, Ipv4Addr::from(host.address)));
            }
        }
    }
}
