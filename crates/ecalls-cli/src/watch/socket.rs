//! The sockets of a process that is watched: all that it has open, and those that it opens later.
//!
//! Connections that a registered listener accepts are registered by the kernel side itself. For
//! others its table of descriptors is looked at from time to time; only when it has a socket that
//! was not there before are its sockets registered (again).
//!
//! A registration outlives the watch, because ending it could end one that the process made itself.
//! It costs nothing while nobody is subscribed.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use ecalls::socket::Interest;
use ecalls::{Ecalls, Error};

use crate::exit::{Failure, Outcome};

/// How often the table of descriptors is looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Follows a process' sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    pid: u32,
    /// `socket:[inode]` of those that were registered.
    known: HashSet<String>,
    next: Instant,
}

impl Sockets {
    /// Registers the sockets of process `pid`, told to every subscription.
    pub(super) fn follow(ecalls: &Ecalls, pid: u32) -> Result<Sockets, Failure> {
        let mut sockets = Sockets {
            pid,
            known: open_sockets(pid),
            next: Instant::now() + PERIOD,
        };
        sockets.register(ecalls)?;
        Ok(sockets)
    }

    /// How many sockets were found open at last: `1 socket`.
    pub(super) fn count(&self) -> String {
        match self.known.len() {
            1 => "1 socket".to_owned(),
            n => format!("{n} sockets"),
        }
    }

    /// Registers sockets that are new, if it is time to look.
    pub(super) fn poll(&mut self, ecalls: &Ecalls) -> Outcome {
        if Instant::now() < self.next {
            return Ok(());
        }
        let open = open_sockets(self.pid);
        let any_new = open.iter().any(|socket| !self.known.contains(socket));
        self.known = open;
        self.next = Instant::now() + PERIOD;
        if any_new {
            self.register(ecalls)
        } else {
            Ok(())
        }
    }

    fn register(&mut self, ecalls: &Ecalls) -> Outcome {
        match ecalls.watch_sockets_of(self.pid, &Interest::default().everyone()) {
            Ok(_) => Ok(()),
            // It ended meanwhile: what it sent before may still arrive.
            Err(Error::Os { .. }) if crate::process::check(self.pid).is_err() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sockets in a process' table of descriptors; none if it has ended.
fn open_sockets(pid: u32) -> HashSet<String> {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return HashSet::new();
    };
    folder
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|target| target.into_os_string().into_string().ok())
        .filter(|target| target.starts_with("socket:"))
        .collect()
}
