//! Memory of closed channels that a process may still have mapped: it is charged to its user until
//! no process holds it.
//!
//! Closing a channel removes it from the kernel side at once, and nothing is written there any
//! more. But a process that holds its descriptors keeps the memory as long as it likes, and could
//! otherwise obtain more of it by opening and closing repeatedly.

use std::collections::HashSet;

use ecalls_kernel::Result;

use crate::client::Held;
use crate::quota::{Charge, Resource};

/// The interval of the checks, ns.
const PERIOD_NS: u64 = 500_000_000;

/// Memory that may still be in use.
#[derive(Debug, Default)]
pub struct Retired {
    segments: Vec<Segments>,
    looked_ns: u64,
}

/// The maps of one channel, or of one runtime's activations.
#[derive(Debug)]
struct Segments {
    maps: Vec<u32>,
    _charge: Charge,
}

impl Retired {
    /// Frees an object. The charge for its memory, i.e. for its `maps`, is released later.
    pub fn close<T>(&mut self, held: Held<T>, maps: Result<Vec<u32>>) {
        let Held { thing, mut charge } = held;
        // First delivery ends, then the charge is released.
        drop(thing);
        let bytes = charge.split(Resource::Bytes);
        if let Ok(maps) = maps {
            self.add(maps, bytes);
        }
    }

    /// Adds the maps of a closed channel with the charge for its memory.
    fn add(&mut self, maps: Vec<u32>, charge: Charge) {
        self.segments.push(Segments {
            maps,
            _charge: charge,
        });
    }

    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.segments.is_empty() && now_ns.saturating_sub(self.looked_ns) >= PERIOD_NS
    }

    /// Releases the charges for maps that are gone. `living`: the maps that still exist.
    pub fn release(&mut self, living: &HashSet<u32>, now_ns: u64) {
        self.looked_ns = now_ns;
        self.segments
            .retain(|segments| segments.maps.iter().any(|map| living.contains(map)));
    }

    pub fn len(&self) -> usize {
        self.segments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limits, Machine};
    use crate::quota::{Amounts, Ledger};

    #[test]
    fn memory_is_charged_until_its_last_map_is_gone() {
        let ledger = Ledger::new(&Machine::default());
        let bytes = Amounts::NONE.and(Resource::Bytes, 4096);
        let charge = ledger.charge(5, &Limits::default(), bytes).unwrap();
        let mut retired = Retired::default();
        retired.add(vec![1, 2, 3], charge);
        assert!(retired.is_due(PERIOD_NS));
        retired.release(&HashSet::from([3, 9]), PERIOD_NS);
        assert_eq!(ledger.held(5), bytes);
        assert!(!retired.is_due(PERIOD_NS + 1));
        retired.release(&HashSet::from([9]), 2 * PERIOD_NS);
        assert!(ledger.users().is_empty() && retired.is_empty());
    }
}
