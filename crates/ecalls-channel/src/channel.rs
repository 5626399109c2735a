//! A channel that is open on this host: a service, and the lane that raises its events.

use crate::relay::ByRelay;
use ecalls::{Ecalls, Service};
use ecalls_kernel::Result;
use ecalls_kernel::lane::{HostedLane, Kept, Numbers};
use ecalls_kernel::owner::Owner;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A channel, open on this host until it is dropped or the process ends.
#[derive(Debug)]
pub struct Channel {
    /// The first field: no frame arrives any more when the service ends.
    lane: HostedLane,
    service: Service,
    ecalls: Ecalls,
    kept: Mutex<Kept>,
}

impl Channel {
    /// Opens the channel `name`: frames that arrive on `interface` become events of a service with
    /// the same name, which this process registers. Hosts whose formats for the channel differ do
    /// not receive each other's events.
    ///
    /// # Errors
    /// [`ecalls_kernel::Error::Denied`] without root or CAP_NET_ADMIN;
    /// [`ecalls_kernel::Error::Invalid`] for a name that is taken and an unknown interface;
    /// [`ecalls_kernel::Error::Unsupported`] before Linux 6.6.
    pub fn open(
        ecalls: &Ecalls,
        name: &str,
        format: &str,
        kinds: &str,
        interface: &str,
    ) -> Result<Channel> {
        let core = ecalls.lane()?;
        let service = ecalls.register_service(name, format, kinds)?;
        let owner = Owner::current(core)?;
        let lane = HostedLane::open(Arc::clone(core), &owner, name, service.index(), interface)?;
        Ok(Channel {
            lane,
            service,
            ecalls: ecalls.clone(),
            kept: Mutex::default(),
        })
    }

    /// Opens the channel `name` for frames that go by the relay. The host is identified by the
    /// interface, if one is named.
    pub(crate) fn open_relayed(
        ecalls: &Ecalls,
        name: &str,
        (format, kinds): (&str, &str),
        interface: Option<&str>,
    ) -> Result<Channel> {
        let core = Arc::clone(ecalls.lane()?);
        let service = ecalls.register_service(name, format, kinds)?;
        let owner = Owner::current(&core)?;
        let transport = Arc::new(ByRelay::default());
        let index = service.index();
        let lane = HostedLane::open_relayed(core, &owner, name, index, interface, transport)?;
        Ok(Channel {
            lane,
            service,
            ecalls: ecalls.clone(),
            kept: Mutex::default(),
        })
    }

    /// Makes a host a sink that the relay reaches, or no more.
    pub(crate) fn set_host(&self, host: u64, is_sink: bool) -> Result<()> {
        match is_sink {
            true => self.lane.add_host(host),
            false => self.lane.remove_host(host).map(|_| ()),
        }
    }

    /// A frame has arrived by the relay. Whether it is one of a channel of this core.
    pub(crate) fn arrive(&self, frame: &[u8]) -> Result<bool> {
        self.lane.arrive(frame)
    }

    /// The service whose events are the channel's.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Makes the host with this IPv4 address a sink: it gets the events of each subscription on
    /// this host whose chain has the action [`remote`](ecalls::SubscriptionBuilder::remote) with
    /// this channel's name, without a process that decides. A host that is a sink already stays
    /// one.
    ///
    /// # Errors
    /// [`ecalls_kernel::Error::LimitReached`] if frames have been sent to 64 other addresses,
    /// [`ecalls_kernel::Error::Unsupported`] for an IPv6 address and on an interface without
    /// Ethernet headers; those of the network, without a route.
    pub fn add_sink(&self, address: IpAddr) -> Result<()> {
        self.lane.add_sink(address)
    }

    /// Makes a text in E-code the channel's filter at the source (OUT, KECho §2.2): for each event
    /// that `remote` is to send, and each that a [`Publisher`](crate::Publisher) submits to the
    /// channel's sinks, it sees the event, whose data have the channel's format, and all
    /// sinks, and chooses those that get it: before there is a packet. `attributes` are the names
    /// of the sinks' attributes, by number; a sink tells them with the frames that it sends on the
    /// channel itself.
    ///
    /// If the text says `accept` or `best` anywhere, the sinks that it accepts get the event;
    /// otherwise those that it does not reject. If its result is 0, none does. If a run fails, all
    /// do. Replaced while events pass, each event is filtered by the former text or by the new one;
    /// `static` variables of the same name and type keep their values. The compiler's warnings are
    /// returned.
    ///
    /// # Errors
    /// [`ecalls_kernel::Error::Ecode`] for a text with errors, or one that has an `output` or makes
    /// requests (`signal`, `count`, ...): the former filter remains.
    pub fn set_out(&self, text: &str, attributes: &[&str]) -> Result<Vec<String>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = attributes.iter().map(|name| (*name).to_owned()).collect();
        self.ecalls
            .set_out(self.lane.numbers(), Some(("out", text)), &names, &mut kept)
    }

    /// Removes the filter: each event goes to all sinks.
    ///
    /// # Errors
    /// Those of the core's lock.
    pub fn clear_out(&self) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.lane.numbers().set_out(None, &mut kept)
    }

    /// The host with this address gets no events by `remote` any more. Whether it did.
    ///
    /// # Errors
    /// Those of the core's lock.
    pub fn remove_sink(&self, address: IpAddr) -> Result<bool> {
        self.lane.remove_sink(address)
    }

    /// This host, as other hosts see it.
    pub fn host(&self) -> u64 {
        self.lane.numbers().channel().host
    }
}

/// Sets the filter of a channel that another program of this host has open, a text with its name in
/// messages, or removes it: as [`Channel::set_out`], but the variables of the filter begin anew.
///
/// # Errors
/// [`ecalls_kernel::Error::Unknown`] if none has, and those of [`Channel::set_out`].
pub fn set_out(
    ecalls: &Ecalls,
    channel: &str,
    text: Option<(&str, &str)>,
    attributes: &[String],
) -> Result<Vec<String>> {
    let numbers = Numbers::of(Arc::clone(ecalls.lane()?), channel)?;
    ecalls.set_out(&numbers, text, attributes, &mut Kept::default())
}
