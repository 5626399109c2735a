//! Submits events to a channel: one frame to each sink, and the same event on this host. Frames
//! have numbers for each sink, together with those that the kernel side sends (`remote`).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ecalls::{Ecalls, Raise};
use ecalls_abi::wire::WIRE_PORT;
use ecalls_kernel::lane::Numbers;
use ecalls_kernel::{Error, Result, sender};

use crate::frame::{self, Origin, Submission};

/// Submits events to a channel that a program of this host has opened.
#[derive(Debug)]
pub struct Publisher {
    ecalls: Ecalls,
    name: String,
    numbers: Numbers,
    /// Each with its number on the channel; `None`: the channel's, at each event.
    sinks: Option<Vec<(u32, SocketAddr)>>,
    /// One for each family of addresses among the sinks.
    ip4: Option<UdpSocket>,
    ip6: Option<UdpSocket>,
}

/// How an event was submitted.
#[derive(Debug)]
pub struct Sent {
    /// Sinks to which it was sent.
    pub sinks: usize,
    /// Sinks to which it could not be sent; they will count the frame as missing.
    pub failed: Vec<(SocketAddr, io::Error)>,
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
        sinks: impl IntoIterator<Item = std::net::IpAddr>,
    ) -> Result<Publisher> {
        let numbers = Numbers::of(Arc::clone(ecalls.core()?), name)?;
        let mut numbered = Vec::new();
        for address in sinks {
            numbered.push((numbers.sink(address)?, SocketAddr::new(address, WIRE_PORT)));
        }
        let socket = |is: fn(&SocketAddr) -> bool| {
            let mut addresses = numbered.iter().map(|(_, address)| address);
            let first = addresses.find(|address| is(address));
            first
                .map(|address| sender(WIRE_PORT, address.ip()))
                .transpose()
        };
        Ok(Publisher {
            ip4: socket(SocketAddr::is_ipv4)?,
            ip6: socket(SocketAddr::is_ipv6)?,
            ecalls: ecalls.clone(),
            name: name.to_owned(),
            numbers,
            sinks: Some(numbered),
        })
    }

    /// Prepares to submit events of channel `name` to its sinks, those of each moment: the hosts
    /// that have been added ([`crate::Channel::add_sink`]), or that are in its cluster.
    ///
    /// # Errors
    /// As [`Publisher::new`].
    pub fn to_sinks(ecalls: &Ecalls, name: &str) -> Result<Publisher> {
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        Ok(Publisher {
            ip4: Some(sender(WIRE_PORT, any.into())?),
            ip6: None,
            sinks: None,
            ..Publisher::new(ecalls, name, [])?
        })
    }

    /// The sinks of this moment.
    fn sinks(&self) -> Vec<(u32, SocketAddr)> {
        if let Some(sinks) = &self.sinks {
            return sinks.clone();
        }
        let numbered = (0..).zip(self.numbers.sinks());
        let members = numbered.filter(|(_, sink)| sink.member != 0);
        let addresses = members.filter_map(|(number, sink)| Some((number, sink.ip()?)));
        let addresses = addresses.map(|(number, ip)| (number, SocketAddr::new(ip, WIRE_PORT)));
        addresses.collect()
    }

    /// Submits an event. A sink that cannot be reached does not keep it from the others.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a submission that no frame can carry; those of raising the event on
    /// this host.
    pub fn submit(&self, submission: &Submission) -> Result<Sent> {
        let channel = self.numbers.channel();
        let origin = Origin {
            channel: channel.id,
            format: channel.format,
            host: channel.host,
            epoch: channel.epoch,
            sequence: 0,
        };
        // Before it has a number: what cannot be sent must not be missed.
        frame::write(&origin, submission)?;
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
            sinks: sinks.len() - failed.len(),
            failed,
            offered: self.raise(submission)?,
        })
    }

    fn send(&self, bytes: &[u8], sink: SocketAddr) -> io::Result<()> {
        let socket = match sink {
            SocketAddr::V4(_) => &self.ip4,
            SocketAddr::V6(_) => &self.ip6,
        };
        let socket = socket.as_ref().ok_or(io::ErrorKind::Unsupported)?;
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
        let mut raise = Raise::new(&submission.data)
            .kind(submission.kind)
            .slot_type(submission.slot_type)
            .priority(submission.priority);
        if submission.left_ns > 0 {
            raise = raise.deadline(Duration::from_nanos(submission.left_ns));
        }
        match self.ecalls.raise(&self.name, &raise) {
            // Nobody subscribes here.
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(2) => Ok(0),
            other => other,
        }
    }
}
