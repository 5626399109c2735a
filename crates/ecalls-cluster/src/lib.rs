//! Resource management and load balancing among the hosts of a channel (KECho §3, §4).
//!
//! Each host runs a [`Manager`], which tells the others what its host has to give ([`summary`]),
//! and gives it away: a request is answered by a lease ([`lease`]), which is confirmed or expires.
//! A [`Client`] of any host asks some managers ([`choice`]), takes the first positive answer, and
//! cancels the others ([`ask`]). There is no registry and no host on which the others depend.
//!
//! The rules are state machines without input or output, which get the time as an argument:
//! [`lease`], [`ask`], [`summary::Teller`], [`choice`]. They are tested by properties, and by a
//! simulation of eight hosts; [`manager`] and [`client`] connect them with a channel.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ask;
pub mod choice;
pub mod client;
pub mod lease;
pub mod manager;
pub mod message;
mod post;
pub mod probe;
pub mod resource;
pub mod summary;

pub use client::Client;
pub use manager::Manager;
pub use resource::Resource;
