//! The server as clients see it, in each mode: the same requests must get the same answers.
//!
//! - [`server`]: the program, which ends with the test;
//! - [`answers`]: what requests get;
//! - [`clients`]: clients that are slow, many, or gone;
//! - [`programs`]: curl, ab, wrk and h2load.

#[path = "web/answers.rs"]
mod answers;
#[path = "web/clients.rs"]
mod clients;
#[path = "web/programs.rs"]
mod programs;
#[path = "web/server.rs"]
mod server;
