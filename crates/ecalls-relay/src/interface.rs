//! Whether this host has an interface on which it can look for other relays.
//!
//! Zenoh looks for others on the interfaces that are up when a process first asks for them, and on
//! no other one as long as that process lives. A host whose cable or address comes later than its
//! relay would find nobody: then the relay begins anew ([`crate::relay::End::Anew`]).

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often the relay looks whether there is one now.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a relay waits for one before it serves programs without: a machine that is started has
/// its links up soon, and programs should not see the relay begin anew.
const WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// Whether [`is_there`], or is after a short wait.
#[must_use]
pub fn comes(name: &str) -> bool {
    let start = Instant::now();
    while !is_there(name) {
        if start.elapsed() > WAIT {
            return false;
        }
        sleep(POLL);
    }
    true
}

/// Whether an interface that reaches others is up and has an IPv4 address: the one of that name, or
/// any if the name is empty.
#[must_use]
pub fn is_there(name: &str) -> bool {
    pnet_datalink::interfaces().iter().any(|interface| {
        (name.is_empty() || interface.name == name)
            && interface.is_running()
            && interface.is_up()
            && interface.is_multicast()
            && interface.ips.iter().any(|ip| ip.ip().is_ipv4())
    })
}
