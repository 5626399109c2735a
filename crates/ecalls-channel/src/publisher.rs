//! Submits events to a channel: one frame to each sink, and the same event on this host. Frames
//! have numbers for each sink, together with those that the kernel side sends (`remote`).
//!
//! If the channel has a filter at the source (OUT, KECho §2.2), it chooses the sinks of what is
//! submitted to the channel's. It is the kernel side's: so the event is one of a service of this
//! program, which the kernel side sends, as those of clients.
//!
//! A client of the daemon ([`ClientPublisher`]) makes no frames: its events are those of a service
//! of its own, which the kernel side sends.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ecalls::{Ecalls, Raise, Service, Subscription};
use ecalls_abi::lane::WAY_RELAY;
use ecalls_abi::service::SubscriptionCount;
use ecalls_abi::sink::Sink;
use ecalls_abi::text;
use ecalls_abi::wire::WIRE_PORT;
use ecalls_kernel::lane::{Numbers, Transport};
use ecalls_kernel::{Error, Result, sender};

use crate::frame::{self, Origin, Submission};
use crate::relay::ByRelay;
use crate::source::host_text;

/// Submits events to a channel that a program of this host has opened.
#[derive(Debug)]
pub struct Publisher {
    ecalls: Ecalls,
    name: String,
    numbers: Numbers,
    /// Each with its number on the channel; `None`: the channel's, at each event.
    sinks: Option<Vec<(u32, To)>>,
    /// The way of events for which the channel's filter chooses; made for the first one.
    filtered: OnceLock<ClientPublisher>,
    relay: ByRelay,
    /// One for each family of addresses among the sinks.
    ip4: Option<UdpSocket>,
    ip6: Option<UdpSocket>,
}

/// Where a sink is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// On the lane.
    Address(IpAddr),
    /// Behind the relays.
    Host(u64),
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            To::Address(ip) => ip.fmt(f),
            To::Host(host) => f.write_str(&host_text(*host)),
        }
    }
}

/// How an event was submitted.
#[derive(Debug)]
pub struct Sent {
    /// The channel's filter chooses the sinks, and the kernel side sends: what it has done,
    /// [`Publisher::fates`] says.
    pub is_filtered: bool,
    /// Sinks to which it was sent; 0 if the filter chooses them.
    pub sinks: usize,
    /// Sinks to which it could not be sent; they will count the frame as missing.
    pub failed: Vec<(To, io::Error)>,
    /// Subscriptions on this host to which it was offered.
    pub offered: i64,
}

impl Publisher {
    /// Prepares to submit events of channel `name` to the hosts with these addresses, at most 64
    /// as long as the channel is open.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no program of this host has opened the channel, [`Error::Denied`]
    /// without the right to send from the lane's port.
    pub fn new(
        ecalls: &Ecalls,
        name: &str,
        sinks: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Publisher> {
        let numbers = Numbers::of(Arc::clone(ecalls.lane()?), name)?;
        let (mut numbered, mut addresses) = (Vec::new(), Vec::new());
        for address in sinks {
            if numbers.channel().way == WAY_RELAY {
                return Err(Error::Invalid {
                    what: "a sink's address",
                    given: address.to_string(),
                    expected: "none: the sinks of a reliable channel are the hosts of its cluster",
                });
            }
            numbered.push((numbers.sink(address)?, To::Address(address)));
            addresses.push(address);
        }
        let socket = |is: fn(&IpAddr) -> bool| {
            let first = addresses.iter().find(|address| is(address));
            first.map(|address| sender(WIRE_PORT, *address)).transpose()
        };
        Ok(Publisher {
            ip4: socket(IpAddr::is_ipv4)?,
            ip6: socket(IpAddr::is_ipv6)?,
            ecalls: ecalls.clone(),
            name: name.to_owned(),
            numbers,
            sinks: Some(numbered),
            filtered: OnceLock::new(),
            relay: ByRelay::default(),
        })
    }

    /// Prepares to submit events of channel `name` to its sinks, those of each moment: the hosts
    /// that have been added ([`crate::Channel::add_sink`]), or that are in its cluster; of these
    /// the ones that the channel's filter chooses, as long as it has one
    /// ([`crate::Channel::set_out`]).
    ///
    /// # Errors
    /// As [`Publisher::new`].
    pub fn to_sinks(ecalls: &Ecalls, name: &str) -> Result<Publisher> {
        let any = Ipv4Addr::UNSPECIFIED;
        let mut publisher = Publisher::new(ecalls, name, [])?;
        publisher.sinks = None;
        if publisher.numbers.channel().way != WAY_RELAY {
            publisher.ip4 = Some(sender(WIRE_PORT, any.into())?);
        }
        Ok(publisher)
    }

    /// The sinks of this moment.
    fn sinks(&self) -> Vec<(u32, To)> {
        if let Some(sinks) = &self.sinks {
            return sinks.clone();
        }
        let numbered = (0..).zip(self.numbers.sinks());
        let members = numbered.filter(|(_, sink)| sink.member != 0);
        let to = |sink: &Sink| match sink.host() {
            Some(host) => Some(To::Host(host)),
            None => sink.ip().map(To::Address),
        };
        members
            .filter_map(|(number, sink)| Some((number, to(&sink)?)))
            .collect()
    }

    /// Submits an event. A sink that cannot be reached does not keep it from the others.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a submission that no frame can carry, or whose data are longer than
    /// the channel's format says, or that has attributes while a filter chooses
    /// ([`Publisher::tell`]); those of raising the event on this host.
    pub fn submit(&self, submission: &Submission) -> Result<Sent> {
        match self.sinks.is_none() && self.numbers.has_out() {
            true => self.submit_filtered(submission),
            false => self.tell(submission),
        }
    }

    fn submit_filtered(&self, submission: &Submission) -> Result<Sent> {
        self.check(&self.origin(), submission)?;
        let publisher = match self.filtered.get() {
            Some(publisher) => publisher,
            None => {
                // Another thread may be first: then that one is used.
                let publisher = ClientPublisher::new(&self.ecalls, &self.name)?;
                self.filtered.get_or_init(|| publisher)
            }
        };
        if !publisher.submit(submission)? {
            return Err(Error::Quota {
                which: "events of your user",
                limit: 0,
            });
        }
        Ok(Sent {
            is_filtered: true,
            sinks: 0,
            failed: Vec::new(),
            offered: self.raise(submission)?,
        })
    }

    /// What has become of the events for which the channel's filter chose, as
    /// [`ClientPublisher::fates`] says it; `None`: there were none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn fates(&self, time: Duration) -> Result<Option<SubscriptionCount>> {
        let publisher = self.filtered.get();
        publisher.map(|one| one.fates(time)).transpose()
    }

    /// Submits an event to all of its sinks, also if the channel has a filter: what this host tells
    /// of itself, by attributes, is what other hosts' filters choose by.
    ///
    /// # Errors
    /// As [`Publisher::submit`].
    pub fn tell(&self, submission: &Submission) -> Result<Sent> {
        let origin = self.origin();
        // Before it has a number: what cannot be sent must not be missed.
        self.check(&origin, submission)?;
        let mut failed = Vec::new();
        let sinks = self.sinks();
        for (number, sink) in &sinks {
            let sequence = self.numbers.next(*number);
            let bytes = frame::write(&Origin { sequence, ..origin }, submission)?;
            if let Err(error) = self.send(&bytes, *sink) {
                self.numbers.failed(*number);
                failed.push((*sink, error));
            }
        }
        Ok(Sent {
            is_filtered: false,
            sinks: sinks.len() - failed.len(),
            failed,
            offered: self.raise(submission)?,
        })
    }

    /// Submits an event to one of the channel's sinks, and to nobody else, on this host neither.
    /// `false`: that is none of its sinks at this moment.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a submission that no frame can carry; [`Error::Os`] if it cannot be
    /// sent: then the sink will count the frame as missing.
    pub fn submit_to(&self, sink: To, submission: &Submission) -> Result<bool> {
        let sinks = self.sinks();
        let Some((number, sink)) = sinks.into_iter().find(|(_, one)| *one == sink) else {
            return Ok(false);
        };
        let mut origin = self.origin();
        self.check(&origin, submission)?;
        origin.sequence = self.numbers.next(number);
        let sent = self.send(&frame::write(&origin, submission)?, sink);
        sent.map_err(|source| {
            self.numbers.failed(number);
            Error::Os {
                action: "sending to another host",
                source,
            }
        })?;
        Ok(true)
    }

    /// Submits an event to the subscriptions of this host, and to no other one; to how many.
    ///
    /// # Errors
    /// Those of raising the event.
    pub fn submit_here(&self, submission: &Submission) -> Result<i64> {
        self.raise(submission)
    }

    /// This host, as the others see it.
    pub fn host(&self) -> u64 {
        self.numbers.channel().host
    }

    /// This host's IPv4 address towards its sinks on the lane; `None`: it has none, or frames go by
    /// the relay.
    pub fn source(&self) -> Option<Ipv4Addr> {
        let sinks = self.numbers.sinks().into_iter();
        let mut sources = sinks.map(|sink| Ipv4Addr::from(sink.source));
        sources.find(|source| !source.is_unspecified())
    }

    /// That a frame can carry it, and that the channel's format describes its data.
    fn check(&self, origin: &Origin, submission: &Submission) -> Result<()> {
        let max = self.numbers.channel().data_max as usize;
        if submission.data.len() > max {
            return Err(Error::Invalid {
                what: "the data of an event",
                given: format!("{} bytes", submission.data.len()),
                expected: "at most as many as the channel's format describes",
            });
        }
        frame::write(origin, submission).map(|_| ())
    }

    fn origin(&self) -> Origin {
        let channel = self.numbers.channel();
        Origin {
            channel: channel.id,
            format: channel.format,
            host: channel.host,
            epoch: channel.epoch,
            sequence: 0,
        }
    }

    fn send(&self, bytes: &[u8], sink: To) -> io::Result<()> {
        let ip = match sink {
            To::Host(host) => return self.relay.send(host, bytes),
            To::Address(ip) => ip,
        };
        let socket = if ip.is_ipv4() { &self.ip4 } else { &self.ip6 };
        let socket = socket.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let sink = SocketAddr::new(ip, WIRE_PORT);
        match socket.send_to(bytes, sink) {
            Ok(_) => Ok(()),
            // An answer to an earlier frame: that host's port was closed then.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                socket.send_to(bytes, sink).map(|_| ())
            }
            Err(error) => Err(error),
        }
    }

    /// Raises the event on this host.
    fn raise(&self, submission: &Submission) -> Result<i64> {
        match self.ecalls.raise(&self.name, &raise(submission)) {
            // Nobody subscribes here.
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(2) => Ok(0),
            other => other,
        }
    }
}

/// Submits events of a client of the daemon, without privileges, to the sinks of a channel that
/// another program of this host has open.
///
/// The kernel side chooses the sinks (the channel's filter at the source), sends and counts: each
/// event is one of a service of this program, by the action `remote`. Subscriptions of this host do
/// not get it.
#[derive(Debug)]
pub struct ClientPublisher {
    service: Service,
    subscription: Subscription,
    submitted: AtomicU64,
}

/// Publishers of this process so far, for the names of their services.
static PUBLISHERS: AtomicU32 = AtomicU32::new(0);

impl ClientPublisher {
    /// Prepares to submit events of channel `name` to its sinks.
    ///
    /// # Errors
    /// [`Error::Denied`] without the right `publish` for the channel in the daemon's configuration,
    /// [`Error::Unknown`] if no program of this host has opened it.
    pub fn new(ecalls: &Ecalls, name: &str) -> Result<ClientPublisher> {
        let info = ecalls.access().service_named(name)?.info;
        let kinds = text::read(&info.kinds);
        let number = PUBLISHERS.fetch_add(1, Ordering::Relaxed);
        let own = format!("publisher-{}-{number}", ecalls.pid());
        let service = ecalls.register_service(&own, info.format(), kinds)?;
        Ok(ClientPublisher {
            service,
            subscription: ecalls.subscribe(&own)?.remote(name).install()?,
            submitted: AtomicU64::new(0),
        })
    }

    /// Gives an event to the kernel side. `false`: this user's limits let it raise no more now, and
    /// the event is counted.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a submission that no frame can carry, or with attributes: those are
    /// the host's, for its own programs to tell ([`Publisher::tell`]).
    pub fn submit(&self, submission: &Submission) -> Result<bool> {
        if !submission.attributes.is_empty() {
            return Err(Error::Invalid {
                what: "the attributes of an event",
                given: format!("{} attributes", submission.attributes.len()),
                expected: "none: they are the host's, which tells them to all sinks, past a filter \
                           (`Publisher::tell`, as root)",
            });
        }
        let is_raised = self.service.raise(&raise(submission))? > 0;
        self.submitted
            .fetch_add(is_raised.into(), Ordering::Relaxed);
        Ok(is_raised)
    }

    /// What has become of the events submitted so far, once that is known of all, after `time` at
    /// the latest: the kernel side has `delivered` them to the channel's buffer, `filtered` them
    /// since the channel had no sink for them, or dropped them. An event that is under way when
    /// this publisher ends is lost.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn fates(&self, time: Duration) -> Result<SubscriptionCount> {
        let (begin, submitted) = (Instant::now(), self.submitted.load(Ordering::Relaxed));
        loop {
            let count = self.subscription.count()?;
            let dropped: u64 = count.dropped.iter().sum();
            let known = count.delivered + count.filtered + count.late + dropped;
            if known >= submitted || begin.elapsed() >= time {
                return Ok(count);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The event on this host.
fn raise(submission: &Submission) -> Raise<'_> {
    let raise = Raise::new(&submission.data)
        .kind(submission.kind)
        .slot_type(submission.slot_type)
        .priority(submission.priority);
    match submission.left_ns {
        0 => raise,
        left_ns => raise.deadline(Duration::from_nanos(left_ns)),
    }
}
