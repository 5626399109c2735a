//! The sockets of a watched process: the ones that it has open, and those that it opens later.
//!
//! The kernel side itself registers connections that a registered listener accepts. To find other
//! sockets, this file reads the process's table of descriptors periodically, and registers the
//! sockets (again) only when a new one appeared.
//!
//! A registration outlives the watch, because ending it could also end one that the process made
//! itself. Without a subscription it costs nothing.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use ecalls::socket::Interest;
use ecalls::{Ecalls, Error};

use crate::exit::{Failure, Outcome};

/// The interval at which the table of descriptors is read.
const PERIOD: Duration = Duration::from_millis(250);

/// Follows the sockets of a process.
#[derive(Debug)]
pub(super) struct Sockets {
    pid: u32,
    /// `socket:[inode]` of the registered sockets.
    known: HashSet<String>,
    next: Instant,
}

impl Sockets {
    /// Registers the sockets of process `pid` for every subscription.
    pub(super) fn follow(ecalls: &Ecalls, pid: u32) -> Result<Sockets, Failure> {
        let mut sockets = Sockets {
            pid,
            known: open_sockets(pid),
            next: Instant::now() + PERIOD,
        };
        sockets.register(ecalls)?;
        Ok(sockets)
    }

    /// The number of open sockets that the last look found: `1 socket`.
    pub(super) fn count(&self) -> String {
        match self.known.len() {
            1 => "1 socket".to_owned(),
            n => format!("{n} sockets"),
        }
    }

    /// Registers new sockets, if the next look is due.
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
            // The process has ended; events that it caused may still arrive.
            Err(Error::Os { .. }) if crate::process::check(self.pid).is_err() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The sockets in the descriptor table of a process; none if it has ended.
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
