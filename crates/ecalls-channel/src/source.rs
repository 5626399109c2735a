//! What arrived on the channels of this host, and from whom; what went to others, and to whom.

use ecalls::Ecalls;
use ecalls_abi::lane::LaneCount;
use ecalls_abi::sink::LaneOut;
use ecalls_kernel::Result;
pub use ecalls_kernel::lane::LaneStat;

/// The channels that are open on this host, with their counters, sources and sinks; the count of
/// the frames that named none of them and were damaged; and that of the events by `remote` for a
/// channel that had been closed.
///
/// # Errors
/// [`ecalls_kernel::Error::Denied`] for clients of a daemon.
pub fn channels(ecalls: &Ecalls) -> Result<(Vec<LaneStat>, LaneCount, LaneOut)> {
    ecalls_kernel::lane::lanes(ecalls.core()?)
}

/// A host as people write it: `4f01:02-00-00-00-00-01`, where the first number is 0 but for
/// instances.
pub fn host_text(host: u64) -> String {
    let bytes = host.to_be_bytes();
    let address: Vec<String> = bytes[2..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{:02x}{:02x}:{}", bytes[0], bytes[1], address.join("-"))
}
