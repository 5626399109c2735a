//! The channel, as managers and clients use it: messages to one host or to all, and what the others
//! have told of themselves.

use std::net::Ipv4Addr;

use ecalls::{Ecalls, Result, now_ns};
use ecalls_channel::frame::Submission;
use ecalls_channel::source::{LaneSource, sources};
use ecalls_channel::{Publisher, To};

use crate::choice::Told;
use crate::message::{Body, Message};
use crate::summary::Summary;

/// A host that told an impossible summary: the attribute, and its value.
pub type Refused = (u64, &'static str, u64);

/// The way of messages.
#[derive(Debug)]
pub(crate) struct Post {
    ecalls: Ecalls,
    name: String,
    publisher: Publisher,
}

impl Post {
    /// That of a channel which a program of this host has opened.
    pub(crate) fn new(ecalls: &Ecalls, name: &str) -> Result<Post> {
        Ok(Post {
            ecalls: ecalls.clone(),
            name: name.to_owned(),
            publisher: Publisher::to_sinks(ecalls, name)?,
        })
    }

    /// This host.
    pub(crate) fn host(&self) -> u64 {
        self.publisher.host()
    }

    /// This host's address on the lane, as the others see it.
    pub(crate) fn address(&self) -> [u8; 4] {
        let source = self.publisher.source();
        source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets()
    }

    fn message(&self, id: u64, to: u64, body: Body) -> Message {
        Message {
            id,
            from: self.host(),
            to,
            address: self.address(),
            body,
        }
    }

    /// Sends a message to a host that is on the lane at this address, zeros: behind the relay. What
    /// cannot be sent is lost as on the way, and counted with the sink. Whether it was sent.
    pub(crate) fn send(&self, host: u64, address: [u8; 4], id: u64, body: Body) -> bool {
        let message = self.message(id, host, body);
        let submission = Submission {
            data: message.write(),
            kind: message.kind(),
            // Without a deadline, since a reader gets those with one first: a cancellation would be
            // overtaken by the next request.
            ..Submission::default()
        };
        if host == self.host() {
            return self.publisher.submit_here(&submission).is_ok();
        }
        let to = match address {
            [0, 0, 0, 0] => To::Host(host),
            address => To::Address(address.into()),
        };
        self.publisher.submit_to(to, &submission).unwrap_or(false)
    }

    /// Tells all hosts what this one is doing.
    pub(crate) fn tell(&self, body: Body, summary: &Summary) -> Result<()> {
        let message = self.message(0, 0, body);
        let sent = self.publisher.tell(&Submission {
            data: message.write(),
            kind: message.kind(),
            attributes: summary.attributes(),
            ..Submission::default()
        });
        sent.map(|_| ())
    }

    /// What the other hosts have told, as this host's kernel has stored it; and those that told
    /// what cannot be.
    pub(crate) fn told(&self) -> Result<(Vec<Told>, Vec<Refused>)> {
        let sources = sources(&self.ecalls, &self.name)?.unwrap_or_default();
        Ok(told_of(&sources, now_ns()))
    }
}

/// What the sources of a channel have told, and who told what cannot be.
pub fn told_of(sources: &[(u64, LaneSource)], now_ns: u64) -> (Vec<Told>, Vec<Refused>) {
    let (mut told, mut refused) = (Vec::new(), Vec::new());
    for (host, source) in sources.iter().filter(|(_, one)| one.told_ns != 0) {
        match Summary::read(&source.value) {
            Ok(summary) => told.push(Told {
                host: *host,
                age_ns: now_ns.saturating_sub(source.told_ns),
                summary,
            }),
            Err((name, value)) => refused.push((*host, name, value)),
        }
    }
    (told, refused)
}
