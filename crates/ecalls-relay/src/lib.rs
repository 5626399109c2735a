//! The relay: how the hosts of a cluster find each other's channels (KECho), over Zenoh.
//!
//! One process per host, with one Zenoh session. Programs that open a channel of a cluster connect
//! to it (`abi/relay.h`) and are told which hosts have the channel open, too. Events go
//! from kernel to kernel without it, those of reliable channels from relay to relay
//! (doc/channels.md). It has no privilege and no capability, and uses no part of the event core: it
//! can at most mislead this host about who is there, and about what was said on reliable channels.
//!
//! It is a workspace of its own: Zenoh and what it needs are 200 crates, which nothing else waits
//! for.
//!
//! - [`config`]: what the administrator decides;
//! - [`access`]: of that, which hosts may do what;
//! - [`refusal`]: how often it was refused to them;
//! - [`key`]: names of channels and hosts in Zenoh;
//! - [`info`]: what a channel is, as hosts tell each other;
//! - [`interface`]: whether others can be looked for;
//! - [`network`]: the Zenoh session;
//! - [`door`]: where programs connect;
//! - [`client`]: a program that is connected;
//! - [`review`]: which hosts have a channel open;
//! - [`relay`]: the main loop.

#![forbid(unsafe_code)]

pub mod access;
pub mod client;
pub mod config;
pub mod door;
pub mod error;
pub mod info;
pub mod interface;
pub mod key;
pub mod network;
pub mod refusal;
pub mod relay;
pub mod review;
