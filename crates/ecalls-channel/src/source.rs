//! What arrived on the channels of this host, and from whom; what went to others, and to whom.

use ecalls::Ecalls;
use ecalls_abi::lane::LaneCount;
pub use ecalls_abi::lane::LaneSource;
use ecalls_abi::sink::LaneOut;
use ecalls_abi::wire::Host;
use ecalls_kernel::Result;
pub use ecalls_kernel::lane::LaneStat;

/// The channels that are open on this host, with their counters, sources and sinks; the count of
/// the frames that named none of them and were damaged; and that of the events by `remote` for a
/// channel that had been closed.
///
/// # Errors
/// [`ecalls_kernel::Error::Denied`] for clients of a daemon without root's rights.
pub fn channels(ecalls: &Ecalls) -> Result<(Vec<LaneStat>, LaneCount, LaneOut)> {
    ecalls_kernel::lane::lanes(ecalls.lane()?)
}

/// The other hosts that have sent frames of the channel of that name, and what each has told;
/// `None`: no program of this host has it open.
///
/// # Errors
/// As [`channels`].
pub fn sources(ecalls: &Ecalls, name: &str) -> Result<Option<Vec<(u64, LaneSource)>>> {
    ecalls_kernel::lane::sources(ecalls.lane()?, name)
}

/// Time in which frames became events on this host, ns: of all runs of the kernel side's program on
/// the interfaces while BPF statistics were enabled ([`ecalls_kernel::enable_statistics`]).
///
/// # Errors
/// As [`channels`].
pub fn receiving_ns(ecalls: &Ecalls) -> Result<u64> {
    Ok(ecalls_kernel::lane::receiving(ecalls.lane()?)?.total_ns)
}

/// A host as people write it ([`Host`]).
pub fn host_text(host: u64) -> String {
    Host(host).to_string()
}

/// The host that is written so.
pub fn host_of(text: &str) -> Option<u64> {
    Host::parse(text).map(|host| host.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_as_it_is_written() {
        for host in [1, 0x4f01_0200_0000_0001, u64::MAX] {
            assert_eq!(host_of(&host_text(host)), Some(host));
        }
        assert_eq!(host_text(0x4f01_0200_0000_0001), "4f01:02-00-00-00-00-01");
        for text in [
            "",
            "4f01",
            "4f01:02-00-00-00-00",
            "4f01:02-00-00-00-00-+1",
            "+f01:02-00-00-00-00-01",
            "4f01:02-00-00-00-00:01",
            "4f01-02-00-00-00-00-01",
            "4f01:02-00-00-00-00-0g",
            "4f01:02-00-00-00-00-011",
        ] {
            assert_eq!(host_of(text), None, "{text}");
        }
    }
}
