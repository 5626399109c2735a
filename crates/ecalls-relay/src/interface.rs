//! Whether this host has an interface on which it can look for other relays.
//!
//! Zenoh looks for others on the interfaces that are up when a process first asks for them, and on
//! no other one as long as that process lives. A host whose cable or address comes later than its
//! relay would find nobody: then the relay begins anew ([`crate::relay::End::Anew`]).

use std::time::Duration;

/// How often the relay looks whether there is one now.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

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
