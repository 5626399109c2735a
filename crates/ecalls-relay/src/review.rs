//! Which hosts have a channel open, as this relay knows it, and the reviews that put that right.
//!
//! Who joins and leaves, Zenoh tells. In large clusters it was seen to miss some, so every
//! `review_ms` all hosts are asked for: a host that is found and was not told has joined; one that
//! two complete reviews in a row do not find has left. A review that goes on is not
//! replaced: on a busy host of a large cluster none would ever end. Zenoh answers some reviews at
//! once, without an error, and with no host at all (3 of 40, when one of 30 hosts had just left):
//! so one that does not find this host's own token is not complete.
//!
//! An id is one host's: the token that was there first has it until that token goes. Another one
//! with the same id, and so with another address or format, is of a host that speaks for this one:
//! it becomes no sink, and is counted each time it is told. The token of a host whose address has
//! changed is believed when the former one has gone, at the next review at the latest.
//!
//! There is no network and no clock here: the main loop (relay.rs) says what was told and when, and
//! tells its programs what changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::key::Host;

/// Hosts of a channel that are kept.
const HOSTS_MAX: usize = 4096;

/// How long after its start a relay takes to find the others: until then, that a host is not known
/// does not mean that it is not there.
pub const SETTLE: Duration = Duration::from_secs(3);

/// How many times as long as a review has taken there is none: with many hosts it takes long.
const REST: u32 = 4;

/// Complete reviews in a row that do not find a host which has not left.
const MISSING_MAX: u8 = 2;

/// What it means that a host is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    News,
    Known,
    /// It says that it is this host.
    Own,
    /// It says that it is another one that is there.
    Second,
    /// There are too many.
    Full,
}

/// What a review has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// These are to leave: before the others join, one of which may have taken an id over.
    pub left: Vec<Host>,
    pub seen: BTreeSet<Host>,
    /// Nothing of it has been lost: a host that it has not seen was not there.
    pub is_complete: bool,
}

/// A look at all hosts that have the channel open.
#[derive(Debug)]
struct Review {
    number: u64,
    since: Instant,
    found: Found,
}

/// A host, and how many complete reviews in a row have not found it.
#[derive(Debug)]
struct Known {
    host: Host,
    missing: u8,
}

/// The other hosts of a channel.
#[derive(Debug)]
pub struct Hosts {
    own: Host,
    known: BTreeMap<u64, Known>,
    /// The one that runs.
    review: Option<Review>,
    /// When the next one begins, if none runs.
    due: Instant,
    is_settled: bool,
}

impl Hosts {
    /// None, as this host enters the channel.
    pub fn of(own: Host, now: Instant) -> Hosts {
        Hosts {
            own,
            known: BTreeMap::new(),
            review: None,
            due: now,
            is_settled: false,
        }
    }

    pub fn own(&self) -> &Host {
        &self.own
    }

    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Whether a host with this id is there.
    pub fn has(&self, id: u64) -> bool {
        self.known.contains_key(&id)
    }

    /// It was told, or found, that a host is there.
    pub fn join(&mut self, host: Host) -> Joined {
        if host == self.own {
            return Joined::Known;
        }
        if host.id == self.own.id {
            return Joined::Own;
        }
        match self.known.get(&host.id) {
            Some(known) if known.host == host => Joined::Known,
            Some(_) => Joined::Second,
            None if self.known.len() >= HOSTS_MAX => Joined::Full,
            None => {
                self.known.insert(host.id, Known { host, missing: 0 });
                Joined::News
            }
        }
    }

    /// It has left. False: it was not there.
    pub fn leave(&mut self, host: &Host) -> bool {
        let is_known = self.is_known(host);
        if is_known {
            self.known.remove(&host.id);
        }
        is_known
    }

    fn is_known(&self, host: &Host) -> bool {
        let known = self.known.get(&host.id);
        known.is_some_and(|known| known.host == *host)
    }

    /// When the next review begins; `None`: one runs.
    pub fn due(&self) -> Option<Instant> {
        self.review.is_none().then_some(self.due)
    }

    /// A review with this number begins; without one it has failed, and the next begins later.
    pub fn begin(&mut self, number: Option<u64>, now: Instant, pause: Duration) {
        self.due = now + pause;
        self.review = number.map(|number| Review {
            number,
            since: now,
            found: Found {
                is_complete: true,
                ..Found::default()
            },
        });
    }

    /// Whether the review with this number runs.
    pub fn is_reviewed_by(&self, number: u64) -> bool {
        let review = self.review.as_ref();
        review.is_some_and(|review| review.number == number)
    }

    /// The review has found this host. Of those that are not known, so many are kept as may be; one
    /// that is known is always seen, and so it stays.
    pub fn see(&mut self, host: Host) {
        let is_known = host == self.own || self.is_known(&host);
        if let Some(Review { found, .. }) = &mut self.review
            && (is_known || found.seen.len() < HOSTS_MAX)
        {
            found.seen.insert(host);
        }
    }

    /// Something of the review has been lost.
    pub fn see_no_more(&mut self) {
        if let Some(review) = &mut self.review {
            review.found.is_complete = false;
        }
    }

    /// The review has ended.
    pub fn end(&mut self, now: Instant, pause: Duration) -> Found {
        let Some(Review { since, found, .. }) = self.review.take() else {
            return Found::default();
        };
        let mut found = found;
        found.is_complete &= found.seen.contains(&self.own);
        self.due = now + pause.max(now.duration_since(since) * REST);
        for Known { host, missing } in self.known.values_mut() {
            if found.seen.contains(host) {
                *missing = 0;
            } else if found.is_complete {
                *missing += 1;
            }
            if *missing >= MISSING_MAX {
                found.left.push(*host);
            }
        }
        found
    }

    /// After a complete review: whether all hosts are known now, and were not before. That is so
    /// when the relay, which has `started` then, has had time to find them.
    pub fn settle(&mut self, now: Instant, started: Instant) -> bool {
        if self.is_settled {
            return false;
        }
        self.is_settled = now.duration_since(started) >= SETTLE;
        if !self.is_settled {
            self.due = self.due.min(started + SETTLE);
        }
        self.is_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    fn host(id: u64, last: u8) -> Host {
        Host {
            id,
            address: [10, 0, 0, last],
            format: 7,
        }
    }

    fn hosts(now: Instant) -> Hosts {
        Hosts::of(host(1, 1), now)
    }

    /// A review that takes no time, and sees these and this host.
    fn review(hosts: &mut Hosts, now: Instant, seen: &[Host], is_complete: bool) -> Found {
        hosts.begin(Some(5), now, PAUSE);
        assert!(hosts.is_reviewed_by(5) && !hosts.is_reviewed_by(4));
        seen.iter().for_each(|host| hosts.see(*host));
        hosts.see(host(1, 1));
        if !is_complete {
            hosts.see_no_more();
        }
        hosts.end(now, PAUSE)
    }

    #[test]
    fn host_that_two_complete_reviews_in_a_row_do_not_find_has_left() {
        let now = Instant::now();
        let (mut all, two) = (hosts(now), host(2, 2));
        assert_eq!(all.join(two), Joined::News);
        let left =
            |all: &mut Hosts, seen: &[Host], is_complete| review(all, now, seen, is_complete).left;
        assert_eq!(left(&mut all, &[], true), []);
        assert_eq!(left(&mut all, &[two], true), []);
        assert_eq!(left(&mut all, &[], true), []);
        // One of which something was lost says nothing.
        assert_eq!(left(&mut all, &[], false), []);
        assert_eq!(left(&mut all, &[], true), [two]);
        assert!(all.leave(&two) && !all.leave(&two));
        assert_eq!(left(&mut all, &[], true), []);
    }

    #[test]
    fn review_that_does_not_even_find_this_host_says_nothing_of_others() {
        let now = Instant::now();
        let (mut all, two) = (hosts(now), host(2, 2));
        assert_eq!(all.join(two), Joined::News);
        for _ in 0..5 {
            all.begin(Some(5), now, PAUSE);
            let found = all.end(now, PAUSE);
            assert_eq!((found.left, found.is_complete), (vec![], false));
        }
        assert!(review(&mut all, now, &[two], true).is_complete);
    }

    #[test]
    fn second_host_with_an_id_gets_it_only_when_the_first_has_left() {
        let now = Instant::now();
        let (mut all, two, other) = (hosts(now), host(2, 2), host(2, 9));
        assert_eq!(all.join(two), Joined::News);
        assert_eq!(all.join(two), Joined::Known);
        assert_eq!(all.join(other), Joined::Second);
        assert!(!all.leave(&other), "it was not there");
        assert!(all.has(2));
        for round in 0..3 {
            let found = review(&mut all, now, &[other], true);
            found.left.iter().for_each(|host| assert!(all.leave(host)));
            let joined: Vec<Joined> = found.seen.iter().map(|host| all.join(*host)).collect();
            let expected = [Joined::Second, Joined::News, Joined::Known][round];
            assert_eq!(joined, [Joined::Known, expected], "round {round}");
        }
        let of_another_format = Host { format: 8, ..other };
        assert_eq!(all.join(of_another_format), Joined::Second);
    }

    #[test]
    fn nobody_else_is_this_host() {
        let mut all = hosts(Instant::now());
        assert_eq!(all.join(host(1, 1)), Joined::Known);
        assert_eq!(all.join(host(1, 2)), Joined::Own);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn there_is_room_for_those_that_are_known_and_for_no_more_than_may_be() {
        let now = Instant::now();
        let mut all = hosts(now);
        let many = 10..10 + HOSTS_MAX as u64;
        for id in many.clone() {
            assert_eq!(all.join(host(id, 0)), Joined::News);
        }
        assert_eq!(all.join(host(2, 0)), Joined::Full);
        assert_eq!(all.join(host(10, 0)), Joined::Known);
        // Strangers come first, and take no known one's place.
        all.begin(Some(5), now, PAUSE);
        (100_000..200_000).for_each(|id| all.see(host(id, 0)));
        many.for_each(|id| all.see(host(id, 0)));
        all.see(host(1, 1));
        let found = all.end(now, PAUSE);
        assert!(found.is_complete);
        assert_eq!((found.left.len(), found.seen.len()), (0, 2 * HOSTS_MAX + 1));
    }

    #[test]
    fn review_that_takes_long_is_followed_by_a_longer_rest() {
        let now = Instant::now();
        let mut all = hosts(now);
        assert_eq!(all.due(), Some(now));
        all.begin(Some(5), now, PAUSE);
        assert_eq!(all.due(), None, "it runs");
        let later = now + Duration::from_secs(2);
        all.end(later, PAUSE);
        assert_eq!(all.due(), Some(later + Duration::from_secs(8)));
        all.begin(None, later, PAUSE);
        assert_eq!(all.due(), Some(later + PAUSE), "it could not begin");
        assert_eq!(all.end(later, PAUSE), Found::default());
    }

    #[test]
    fn all_hosts_are_known_once_and_not_before_the_relay_has_had_time() {
        let started = Instant::now();
        let mut all = hosts(started);
        all.begin(Some(5), started, SETTLE * 2);
        all.end(started, SETTLE * 2);
        assert!(!all.settle(started, started));
        assert_eq!(all.due(), Some(started + SETTLE), "the next one is earlier");
        assert!(all.settle(started + SETTLE, started));
        assert!(!all.settle(started + SETTLE, started), "it was told");
    }
}
