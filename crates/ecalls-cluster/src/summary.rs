//! What a host tells of itself: at most eight numbers, which travel as attributes with the frames
//! of its manager. The kernel of each other host writes them into the row of their source, with the
//! time of arrival; so filters in E-code and programs read them there without asking anybody.
//!
//! What arrives is what another host says. A number outside its range is no measurement: such a
//! host is left out of every choice, and counted. A number within its range can be a lie, too: then
//! requests go to a host that refuses them, and to the next one.

use std::net::Ipv4Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, transmute};

use crate::lease::WAITING_MAX;

/// How many attributes.
pub const ATTRIBUTES: usize = 8;

/// Their names, by number, as E-code uses them.
pub const NAMES: [&str; ATTRIBUTES] = [
    "busy",
    "memory_mib",
    "net_kib",
    "disk_kib",
    "waiting",
    "cpu_free",
    "job_free",
    "address",
];

/// The largest value of each.
const MOST: [u64; ATTRIBUTES] = [
    1000,
    1 << 30,
    1 << 30,
    1 << 30,
    WAITING_MAX,
    1 << 20,
    1 << 40,
    u32::MAX as u64,
];

/// A host's summary.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Summary {
    /// Busy share of its CPUs, in thousandths.
    pub busy: u64,
    /// Memory that is available, MiB.
    pub memory_mib: u64,
    /// Traffic of its network interfaces, both directions, KiB per second.
    pub net_kib: u64,
    /// Traffic of its disks, KiB per second.
    pub disk_kib: u64,
    /// Requests that wait at its manager.
    pub waiting: u64,
    /// Thousandths of a CPU that are not reserved.
    pub cpu_free: u64,
    /// Jobs that could begin.
    pub job_free: u64,
    /// Its IPv4 address on the lane, 0: it is reached by the relay.
    pub address: u64,
}

impl Summary {
    /// The attributes, by number.
    pub fn values(&self) -> [u64; ATTRIBUTES] {
        transmute!(*self)
    }

    /// The same as the frames of a channel carry them; beyond its range a value is the largest one.
    pub fn attributes(&self) -> Vec<(u8, u64)> {
        let limited = self.values().into_iter().zip(MOST);
        (0..)
            .zip(limited.map(|(value, most)| value.min(most)))
            .collect()
    }

    /// The summary that another host told.
    ///
    /// # Errors
    /// The name of an attribute that is outside its range, and its value.
    pub fn read(values: &[u64]) -> Result<Summary, (&'static str, u64)> {
        let mut told = [0; ATTRIBUTES];
        for (at, place) in told.iter_mut().enumerate() {
            *place = values.get(at).copied().unwrap_or_default();
            if *place > MOST[at] {
                return Err((NAMES[at], *place));
            }
        }
        Ok(transmute!(told))
    }

    /// Its address on the lane; `None`: it is reached by the relay.
    pub fn ip4(&self) -> Option<Ipv4Addr> {
        let address = u32::try_from(self.address).ok()?;
        (address != 0).then(|| Ipv4Addr::from(address))
    }

    /// Whether it says something else than `other`: what a choice may depend on.
    fn differs(&self, other: &Summary) -> bool {
        let apart = |a: u64, b: u64, least: u64| a.abs_diff(b) > least.max(b / 8);
        self.waiting != other.waiting
            || (self.cpu_free, self.job_free) != (other.cpu_free, other.job_free)
            || self.address != other.address
            || self.busy.abs_diff(other.busy) > 50
            || apart(self.memory_mib, other.memory_mib, 64)
            || apart(self.net_kib, other.net_kib, 1024)
            || apart(self.disk_kib, other.disk_kib, 1024)
    }
}

/// When to tell the summary: on change, but not too often; and now and then without a change, so
/// that its age says that the host is there.
#[derive(Clone, Copy, Debug)]
pub struct Teller {
    least_ns: u64,
    most_ns: u64,
    told: Option<(u64, Summary)>,
}

impl Teller {
    /// Tells at intervals between these.
    pub fn new(least_ns: u64, most_ns: u64) -> Teller {
        Teller {
            least_ns,
            most_ns,
            told: None,
        }
    }

    /// Whether this is to be told now. If so, it counts as told.
    pub fn is_due(&mut self, now_ns: u64, summary: &Summary) -> bool {
        let is_due = match &self.told {
            None => true,
            Some((told_ns, told)) => {
                let age_ns = now_ns.saturating_sub(*told_ns);
                age_ns >= self.most_ns || (age_ns >= self.least_ns && summary.differs(told))
            }
        };
        if is_due {
            self.told = Some((now_ns, *summary));
        }
        is_due
    }

    /// The interval within which it never tells twice, ns.
    pub fn least_ns(&self) -> u64 {
        self.least_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outside_its_range_is_refused_by_name() {
        let summary = Summary {
            busy: 1000,
            waiting: WAITING_MAX,
            address: u64::from(u32::MAX),
            ..Summary::default()
        };
        assert_eq!(Summary::read(&summary.values()), Ok(summary));
        for (at, name) in NAMES.into_iter().enumerate() {
            let mut values = summary.values();
            values[at] = MOST[at] + 1;
            assert_eq!(Summary::read(&values), Err((name, MOST[at] + 1)));
        }
    }

    #[test]
    fn what_a_host_tells_is_within_the_ranges() {
        let summary = Summary {
            busy: 2000,
            memory_mib: u64::MAX,
            ..Summary::default()
        };
        let told: Vec<u64> = summary
            .attributes()
            .iter()
            .map(|(_, value)| *value)
            .collect();
        assert_eq!(Summary::read(&told).map(|read| read.busy), Ok(1000));
    }

    #[test]
    fn a_change_is_told_at_a_bounded_rate_and_no_change_now_and_then() {
        let mut teller = Teller::new(100, 1000);
        let mut summary = Summary::default();
        assert!(teller.is_due(5, &summary));
        summary.waiting = 1;
        assert!(!teller.is_due(104, &summary));
        assert!(teller.is_due(105, &summary));
        summary.busy = 50;
        assert!(!teller.is_due(1104, &summary), "too little");
        assert!(teller.is_due(1105, &summary));
        assert!(!teller.is_due(2104, &summary));
        summary.busy = 101;
        assert!(teller.is_due(2104, &summary));
    }
}
