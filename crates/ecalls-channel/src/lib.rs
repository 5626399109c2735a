//! Channels among hosts (KECho): an event that one host submits becomes an event of every host to
//! which it is sent, in the kernel of each, without a process there that receives it.
//!
//! A host opens a channel by a name, a format and a network interface ([`Channel`]). From then on
//! the channel is a service of the same name, to which programs subscribe as to any service; a
//! filter at the sink (IN, KECho) is a handler in E-code of a subscription. A [`Publisher`] submits
//! events, and so does the kernel itself, without a process: the events of any service go to the
//! channel's sinks ([`Channel::add_sink`]) by the action `remote` of a subscription, which is also
//! how clients of the daemon publish ([`ClientPublisher`]). [`frame`] has their form between hosts.
//!
//! Hosts of a cluster find each other by the relay of each ([`cluster`]); without it, programs name
//! the sinks' addresses.
//!
//! Frames of the lane are not repeated and not encrypted: it is for events that are small, frequent
//! and soon replaced by the next one, among hosts of a network whose hosts are trusted. Those of a
//! reliable channel of a cluster go by the relays. Each source numbers its frames, and each sink
//! counts those that are missing ([`source`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod channel;
pub mod cluster;
pub mod frame;
mod publisher;
mod relay;
pub mod source;

pub use channel::{Channel, set_out};
pub use publisher::{ClientPublisher, Publisher, Sent, To};
