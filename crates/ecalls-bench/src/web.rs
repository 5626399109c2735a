//! A web server under load on the loopback interface: the demonstration shows its events, and
//! `ecalls bench server` measures what observing it costs.
//!
//! - [`program`]: the programs, which never outlive this one;
//! - [`server`], [`load`]: the server and the load generator;
//! - [`watch`]: what watching it takes beside subscriptions.

pub(crate) mod load;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod watch;

pub(crate) use load::Load;
pub(crate) use server::{Folder, Server};
