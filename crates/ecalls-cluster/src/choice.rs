//! Which hosts are asked, by what they have told.
//!
//! Loads are old when they are used: everybody sends to the host that was best when it told, until
//! it tells again. Therefore one can ask several of the best and cancel the others when one begins,
//! or choose at random, which needs no load at all (tests/balance.rs compares them).

use std::net::Ipv4Addr;

use crate::summary::Summary;

/// A host that has told its summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The host.
    pub host: u64,
    /// How long ago, ns.
    pub age_ns: u64,
    /// What it told.
    pub summary: Summary,
}

impl Told {
    /// Its address on the lane; `None`: it is reached by the relay.
    pub fn ip4(&self) -> Option<Ipv4Addr> {
        self.summary.ip4()
    }
}

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// So many with the least load.
    Best(usize),
    /// So many, at random.
    Random(usize),
}

/// A host that has not told anything for longer is not asked, ns.
pub const AGE_MAX_NS: u64 = 5_000_000_000;

/// The hosts to ask. `random`: numbers of any distribution that covers all bits.
///
/// Of two hosts the one with fewer requests that wait has less load, then the one that is less
/// busy. Hosts that tell the same are in random order: else all would ask the same one.
pub fn choose(told: &[Told], choice: Choice, mut random: impl FnMut() -> u64) -> Vec<u64> {
    let fresh = told.iter().filter(|one| one.age_ns <= AGE_MAX_NS);
    let mut fresh: Vec<(u64, &Told)> = fresh.map(|one| (random(), one)).collect();
    fresh.sort_unstable_by_key(|(number, one)| (*number, one.host));
    let count = match choice {
        Choice::Random(count) => count,
        Choice::Best(count) => {
            fresh.sort_by_key(|(_, one)| (one.summary.waiting, one.summary.busy));
            count
        }
    };
    fresh.iter().take(count).map(|(_, one)| one.host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(host: u64, waiting: u64, busy: u64) -> Told {
        Told {
            host,
            age_ns: 1,
            summary: Summary {
                waiting,
                busy,
                ..Summary::default()
            },
        }
    }

    /// Numbers of an LCG.
    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state
        }
    }

    #[test]
    fn the_best_are_those_with_the_fewest_waiting_then_the_least_busy() {
        let hosts = [
            told(1, 2, 0),
            told(2, 0, 900),
            told(3, 0, 100),
            told(4, 1, 0),
        ];
        let best = |count| choose(&hosts, Choice::Best(count), random(7));
        assert_eq!(best(1), [3]);
        assert_eq!(best(3), [3, 2, 4]);
        assert_eq!(best(9), [3, 2, 4, 1]);
    }

    #[test]
    fn who_has_been_silent_for_long_is_not_asked() {
        let mut hosts = [told(1, 0, 0), told(2, 5, 900)];
        hosts[0].age_ns = AGE_MAX_NS + 1;
        for choice in [Choice::Best(2), Choice::Random(2)] {
            assert_eq!(choose(&hosts, choice, random(7)), [2]);
        }
    }

    #[test]
    fn equal_hosts_and_random_ones_are_chosen_equally_often() {
        let hosts: Vec<Told> = (0..8).map(|host| told(host, 0, 0)).collect();
        for choice in [Choice::Best(2), Choice::Random(2)] {
            let (mut counts, mut random) = ([0u32; 8], random(7));
            for _ in 0..8000 {
                let chosen = choose(&hosts, choice, &mut random);
                assert_ne!(chosen[0], chosen[1]);
                chosen.iter().for_each(|host| counts[*host as usize] += 1);
            }
            assert!(
                counts.iter().all(|count| (1800..2200).contains(count)),
                "{counts:?}"
            );
        }
    }
}
