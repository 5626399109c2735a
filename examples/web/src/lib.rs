//! Shows: a web server of one thread, as the papers' thttpd, that waits for its sockets by a
//! mechanism of the user's choice: select, poll, epoll, io_uring or ECalls. All else is the same
//! code.
//! Needs: nothing; for `--events ecalls` root.
//! Run:   cargo run --release -p ecalls-web -- FOLDER [--listen 127.0.0.1:8080] [--events poll]
//! Expect: a line with each address. `curl localhost:8080/NAME` gets FOLDER's file NAME, and
//! `curl localhost:8080/cpu?us=500` a page that costs 500 us of processor time. SIGTERM ends it:
//! requests that have begun are answered first.
//!
//! - `events`: the mechanisms, behind one trait;
//! - `server`: the loop: accepting, turns of connections, timeouts, the end;
//! - `socket`: a listening socket; `guard`: what the guard of its port is told;
//! - `connection`: one connection: what it has received, and what it has still to send;
//! - `request`: from bytes to a request, or to the status that says what is wrong with it;
//! - `page`: from a request to a page.
//!
//! It is a library, too: `ecalls bench web` runs it in a process of its own.

mod connection;
mod events;
mod guard;
mod page;
mod request;
mod server;
mod socket;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use events::Mechanism;
use page::Site;
use server::{Limits, Server};

/// What the server is to do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder whose files are served
    folder: PathBuf,
    /// Where to listen, several times if wanted; port 0: any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: Vec<SocketAddr>,
    /// The mechanism that waits for sockets
    #[arg(long, value_enum, default_value = "epoll")]
    events: Mechanism,
    /// Connections that may wait in the kernel until this server accepts them
    #[arg(long, value_name = "N", default_value_t = 1024)]
    backlog: i32,
    /// Take over connections from the kernel only when their request has come (TCP_DEFER_ACCEPT)
    #[arg(long)]
    defer: bool,
    /// Connections at a time; further ones wait in the kernel
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Time in which a request must have come, in which a client must take some of its answer, and
    /// which both have when this server is told to end
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    timeout: Duration,
    /// Time for which a connection may stay open between requests
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    idle: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("must be from 0.01 to 86400".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// What cannot be had: the folder, an address, the mechanism.
pub fn serve(arguments: &Arguments) -> Result<(), String> {
    // The soft limit is made for select, whose sets in the C library end at 1024; ours do not.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    // A lower limit is no fault: the server then has fewer connections.
    let _ = setrlimit(Resource::Nofile, files);
    let folder = &arguments.folder;
    let site = Site::open(folder)
        .map_err(|error| format!("opening the folder {}: {error}", folder.display()))?;
    let events = arguments
        .events
        .open()
        .map_err(|error| format!("{}: {error}; try --events epoll", arguments.events))?;
    let limits = Limits {
        connections: arguments.connections.max(1),
        timeout: arguments.timeout,
        idle: arguments.idle,
    };
    let mut server =
        Server::new(site, events, limits).map_err(|error| format!("preparing signals: {error}"))?;
    for address in &arguments.listen {
        let local = server
            .listen(*address, arguments.backlog, arguments.defer)
            .map_err(|error| format!("listening at {address}: {error}"))?;
        println!("http://{local}/ {}", arguments.events);
    }
    server
        .run()
        .map_err(|error| format!("waiting by {}: {error}", arguments.events))
}
