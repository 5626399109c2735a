//! The server as clients see it, in each mode: the same requests must get the same answers.
//!
//! - [`server`]: the program, which ends with the test;
//! - [`answers`]: what requests get;
//! - [`clients`]: clients that are slow, many, or gone;
//! - [`vanish`]: clients of another host whose cable is cut;
//! - [`client`], [`programs`]: curl, ab, wrk, h2load and a browser.

#[path = "web/answers.rs"]
mod answers;
#[path = "web/client.rs"]
mod client;
#[path = "web/clients.rs"]
mod clients;
#[path = "web/programs.rs"]
mod programs;
#[path = "web/server.rs"]
mod server;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[path = "servers/site.rs"]
#[allow(dead_code, reason = "tests/servers.rs uses the rest")]
mod site;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[path = "web/vanish.rs"]
mod vanish;
