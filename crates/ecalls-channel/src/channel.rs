//! A channel that is open on this host: a service, and the lane that raises its events.

use ecalls::{Ecalls, Service};
use ecalls_kernel::Result;
use ecalls_kernel::lane::HostedLane;
use ecalls_kernel::owner::Owner;
use std::net::IpAddr;
use std::sync::Arc;

/// A channel, open on this host until it is dropped or the process ends.
#[derive(Debug)]
pub struct Channel {
    /// The first field: no frame arrives any more when the service ends.
    lane: HostedLane,
    service: Service,
}

impl Channel {
    /// Opens the channel `name`: frames that arrive on `interface` become events of a service with
    /// the same name, which this process registers. Hosts whose formats for the channel differ do
    /// not receive each other's events.
    ///
    /// # Errors
    /// [`ecalls_kernel::Error::Denied`] for clients of a daemon, and without CAP_NET_ADMIN;
    /// [`ecalls_kernel::Error::Invalid`] for a name that is taken and an unknown interface;
    /// [`ecalls_kernel::Error::Unsupported`] before Linux 6.6.
    pub fn open(
        ecalls: &Ecalls,
        name: &str,
        format: &str,
        kinds: &str,
        interface: &str,
    ) -> Result<Channel> {
        let core = ecalls.core()?;
        let service = ecalls.register_service(name, format, kinds)?;
        let owner = Owner::current(core)?;
        let lane = HostedLane::open(Arc::clone(core), &owner, name, service.index(), interface)?;
        Ok(Channel { lane, service })
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
