//! The leases of one manager: who has how much of its host's resources, and until when.
//!
//! The life of a request, which is known by the asking host and the request's id:
//!
//! ```text
//! request -> refused
//!         -> waiting  -> withdrawn (cancelled) | late (nobody waits for an answer any more)
//!         -> reserved -> cancelled | expired (not confirmed in time)
//!                     -> confirmed -> released | cancelled | lapsed (held for too long)
//! waiting -> reserved, when what it needs is free and no request with an earlier end waits for it
//! ```
//!
//! Every path ends, by itself too: a client that is killed loses its leases. A request that has
//! ended is remembered for a while, so that a copy of it that arrives late reserves nothing. All
//! that is remembered is limited; what is beyond is refused.
//!
//! Invariants, whatever arrives in whatever order:
//!
//! - of no resource more is reserved and confirmed than there is;
//! - requests = refused + withdrawn + late + waiting + granted;
//! - granted = reserved + confirmed + released + cancelled + expired + lapsed.
//!
//! Nothing here reads a clock or sends anything: the time is an argument, and must not go back;
//! answers gather until [`Leases::take_answers`].

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::{FromBytes, Immutable, IntoBytes, transmute};

use crate::message::{Answer, Verdict, Want};
use crate::resource::{Amounts, RESOURCES, Resource};

/// Limits of one manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that wait, are reserved or confirmed.
    pub open: usize,
    /// The same, of one asking host.
    pub open_of_host: usize,
    /// Requests that have ended and are remembered.
    pub remembered: usize,
    /// How long they are, ns.
    pub remember_ns: u64,
    /// How long a reservation waits to be confirmed, ns.
    pub reserve_ns: u64,
    /// The longest time that a lease may be held, ns.
    pub hold_ns: u64,
}

/// The largest number of requests that wait at one host.
pub const WAITING_MAX: u64 = 4096;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open: WAITING_MAX as usize,
            open_of_host: 1024,
            remembered: 8192,
            remember_ns: 10_000_000_000,
            reserve_ns: 1_000_000_000,
            hold_ns: 3_600_000_000_000,
        }
    }
}

/// A request: the asking host and the id that it chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The asking host.
    pub host: u64,
    /// The request.
    pub id: u64,
}

/// How many counts there are.
pub const LIVES: usize = 13;

/// What has become of the requests so far; `reserved`, `confirmed` and `waiting` are those of now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Counts {
    /// Were refused at once.
    pub refused: u64,
    /// Cancelled while they waited, or before they arrived.
    pub withdrawn: u64,
    /// Nobody waited for their answer any more.
    pub late: u64,
    /// Wait.
    pub waiting: u64,
    /// Were reserved, whatever came then.
    pub granted: u64,
    /// Are reserved.
    pub reserved: u64,
    /// Are in use.
    pub confirmed: u64,
    /// Were used and given back.
    pub released: u64,
    /// Cancelled after they had been reserved.
    pub cancelled: u64,
    /// Not confirmed in time.
    pub expired: u64,
    /// Held for too long.
    pub lapsed: u64,
    /// Not requests: copies of one that had arrived.
    pub duplicate: u64,
    /// Not requests: messages that no request of this manager explains, and impossible ones.
    pub stray: u64,
}

/// Their names, in order.
pub const COUNT_NAMES: [&str; LIVES] = [
    "refused",
    "withdrawn",
    "late",
    "waiting",
    "granted",
    "reserved",
    "confirmed",
    "released",
    "cancelled",
    "expired",
    "lapsed",
    "duplicate",
    "stray",
];

impl Counts {
    /// All, in order.
    pub fn words(&self) -> [u64; LIVES] {
        transmute!(*self)
    }

    /// The counts of these words.
    pub fn of_words(words: [u64; LIVES]) -> Counts {
        transmute!(words)
    }

    /// Requests that arrived, without copies.
    pub fn requests(&self) -> u64 {
        self.refused + self.withdrawn + self.late + self.waiting + self.granted
    }

    /// Whether what was granted is there, or has ended in one of the ways.
    pub fn are_whole(&self) -> bool {
        let ended = self.released + self.cancelled + self.expired + self.lapsed;
        self.granted == self.reserved + self.confirmed + ended
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Reserved,
    Confirmed,
    /// Only its answer is known.
    Ended(Verdict),
}

/// As the arrival of a request: its cancellation has arrived, and it has not.
const BEFORE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Lease {
    want: Want,
    arrived_ns: u64,
    /// When the state ends by itself.
    until_ns: u64,
    waited_ns: u64,
    state: State,
}

/// The leases of one manager.
#[derive(Debug)]
pub struct Leases {
    limits: Limits,
    capacity: Amounts,
    used: Amounts,
    all: BTreeMap<Key, Lease>,
    open_of: BTreeMap<u64, usize>,
    /// Those that are open, by the end of their state.
    ends: BTreeSet<(u64, Key)>,
    /// Those that have ended, by when they are forgotten.
    remembered: BTreeSet<(u64, Key)>,
    /// Those that wait, by the time until which somebody waits for the answer.
    waiting: [BTreeSet<(u64, Key)>; RESOURCES],
    counts: Counts,
    answers: Vec<(Key, Answer)>,
}

impl Leases {
    /// A manager that has this to give.
    pub fn new(capacity: Amounts, limits: Limits) -> Leases {
        Leases {
            limits,
            capacity,
            used: Amounts::default(),
            all: BTreeMap::new(),
            open_of: BTreeMap::new(),
            ends: BTreeSet::new(),
            remembered: BTreeSet::new(),
            waiting: Default::default(),
            counts: Counts::default(),
            answers: Vec::new(),
        }
    }

    /// A request has arrived.
    pub fn request(&mut self, now_ns: u64, key: Key, want: &Want) {
        self.pass(now_ns);
        if let Some(lease) = self.all.get_mut(&key) {
            if lease.arrived_ns == BEFORE {
                lease.arrived_ns = now_ns;
                self.counts.withdrawn += 1;
                return self.answer(key, Verdict::Ended, 0, 0);
            }
            let lease = *lease;
            return self.repeated(now_ns, key, &lease);
        }
        let is_full = self.ends.len() >= self.limits.open
            || self.open_of.get(&key.host).copied().unwrap_or(0) >= self.limits.open_of_host;
        let verdict = if want.left_ns == 0 {
            Some(Verdict::Ended)
        } else if want.amount > self.capacity.of(want.resource) {
            Some(Verdict::Never)
        } else if is_full || !(want.waits || self.is_free(want)) {
            Some(Verdict::Busy)
        } else {
            None
        };
        let mut lease = Lease {
            want: *want,
            arrived_ns: now_ns,
            until_ns: now_ns.saturating_add(want.left_ns),
            waited_ns: 0,
            state: State::Waiting,
        };
        if let Some(verdict) = verdict {
            match verdict {
                Verdict::Ended => self.counts.late += 1,
                _ => self.counts.refused += 1,
            }
            lease.state = State::Ended(verdict);
            self.remember(now_ns, key, lease);
            return self.answer(key, verdict, 0, 0);
        }
        self.counts.waiting += 1;
        *self.open_of.entry(key.host).or_default() += 1;
        self.ends.insert((lease.until_ns, key));
        self.waiting[want.resource as usize].insert((lease.until_ns, key));
        self.all.insert(key, lease);
        self.grant(now_ns, want.resource);
        if self.all[&key].state == State::Waiting {
            self.answer(key, Verdict::Waits, want.left_ns, 0);
        }
    }

    /// The asking host uses what was reserved for it.
    pub fn confirm(&mut self, now_ns: u64, key: Key) {
        self.pass(now_ns);
        let Some(mut lease) = self.all.get(&key).copied() else {
            self.counts.stray += 1;
            return self.answer(key, Verdict::Ended, 0, 0);
        };
        match lease.state {
            State::Reserved => {
                self.ends.remove(&(lease.until_ns, key));
                let hold_ns = lease.want.hold_ns.min(self.limits.hold_ns);
                lease.until_ns = now_ns.saturating_add(hold_ns);
                lease.state = State::Confirmed;
                self.ends.insert((lease.until_ns, key));
                self.all.insert(key, lease);
                self.counts.reserved -= 1;
                self.counts.confirmed += 1;
                self.answer(key, Verdict::Confirmed, hold_ns, lease.waited_ns);
            }
            // Who confirms what still waits has been granted nothing.
            State::Waiting => self.counts.stray += 1,
            State::Confirmed | State::Ended(_) => self.repeated(now_ns, key, &lease),
        }
    }

    /// The asking host does not need it.
    pub fn cancel(&mut self, now_ns: u64, key: Key) {
        self.pass(now_ns);
        let Some(lease) = self.all.get(&key).copied() else {
            // It may be before its request: that is then refused.
            self.counts.stray += 1;
            let ended = Lease {
                want: Want {
                    resource: Resource::Job,
                    amount: 0,
                    left_ns: 0,
                    hold_ns: 0,
                    waits: false,
                },
                arrived_ns: BEFORE,
                until_ns: 0,
                waited_ns: 0,
                state: State::Ended(Verdict::Ended),
            };
            return self.remember(now_ns, key, ended);
        };
        let count = match lease.state {
            State::Waiting => &mut self.counts.withdrawn,
            State::Reserved | State::Confirmed => &mut self.counts.cancelled,
            State::Ended(_) => return,
        };
        *count += 1;
        self.end(now_ns, key, lease);
    }

    /// The asking host does not use it any more: as [`Leases::cancel`], with an answer.
    pub fn release(&mut self, now_ns: u64, key: Key) {
        self.pass(now_ns);
        match self.all.get(&key).copied() {
            Some(lease) if lease.state == State::Confirmed => {
                self.counts.released += 1;
                self.end(now_ns, key, lease);
            }
            _ => self.cancel(now_ns, key),
        }
        self.answer(key, Verdict::Ended, 0, 0);
    }

    /// Time has passed: what ends by itself ends.
    pub fn pass(&mut self, now_ns: u64) {
        while let Some(&(until_ns, key)) = self.ends.first() {
            if until_ns > now_ns {
                break;
            }
            let lease = self.all[&key];
            let count = match lease.state {
                State::Waiting => &mut self.counts.late,
                State::Reserved => &mut self.counts.expired,
                State::Confirmed | State::Ended(_) => &mut self.counts.lapsed,
            };
            *count += 1;
            self.close(now_ns, key, lease);
        }
        // When all have ended that have: of those who wait, some do not any more.
        for resource in Resource::ALL {
            self.grant(now_ns, resource);
        }
        while let Some(&(until_ns, key)) = self.remembered.first() {
            if until_ns > now_ns && self.remembered.len() <= self.limits.remembered {
                break;
            }
            self.remembered.remove(&(until_ns, key));
            self.all.remove(&key);
        }
    }

    /// When [`Leases::pass`] has something to do; `None`: nothing is open.
    pub fn next_ns(&self) -> Option<u64> {
        self.ends.first().map(|(until_ns, _)| *until_ns)
    }

    /// A message that is none of ours.
    pub fn stray(&mut self) {
        self.counts.stray += 1;
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What is neither reserved nor in use.
    pub fn free(&self, resource: Resource) -> u64 {
        self.capacity.of(resource) - self.used.of(resource)
    }

    /// The answers so far, in order.
    pub fn take_answers(&mut self) -> Vec<(Key, Answer)> {
        std::mem::take(&mut self.answers)
    }

    fn is_free(&self, want: &Want) -> bool {
        // Nobody passes by those who wait.
        self.waiting[want.resource as usize].is_empty() && want.amount <= self.free(want.resource)
    }

    fn answer(&mut self, key: Key, verdict: Verdict, left_ns: u64, waited_ns: u64) {
        let answer = Answer {
            verdict,
            left_ns,
            waited_ns,
        };
        self.answers.push((key, answer));
    }

    /// The message has arrived before, or has come too late: what there is to say is said again.
    fn repeated(&mut self, now_ns: u64, key: Key, lease: &Lease) {
        let left_ns = lease.until_ns.saturating_sub(now_ns);
        let (verdict, left_ns) = match lease.state {
            State::Waiting => (Verdict::Waits, left_ns),
            State::Reserved => (Verdict::Granted, left_ns),
            State::Confirmed => (Verdict::Confirmed, left_ns),
            State::Ended(verdict) => (verdict, 0),
        };
        self.counts.duplicate += 1;
        self.answer(key, verdict, left_ns, lease.waited_ns);
    }

    /// Reserves for those who wait, in order, until one needs more than is free.
    fn grant(&mut self, now_ns: u64, resource: Resource) {
        while let Some(&(until_ns, key)) = self.waiting[resource as usize].first() {
            let mut lease = self.all[&key];
            if lease.want.amount > self.free(resource) {
                return;
            }
            self.waiting[resource as usize].remove(&(until_ns, key));
            self.ends.remove(&(until_ns, key));
            lease.until_ns = now_ns.saturating_add(self.limits.reserve_ns);
            lease.waited_ns = now_ns.saturating_sub(lease.arrived_ns);
            lease.state = State::Reserved;
            self.ends.insert((lease.until_ns, key));
            self.all.insert(key, lease);
            *self.used.of_mut(resource) += lease.want.amount;
            self.counts.waiting -= 1;
            self.counts.granted += 1;
            self.counts.reserved += 1;
            let waited_ns = lease.waited_ns;
            self.answer(key, Verdict::Granted, self.limits.reserve_ns, waited_ns);
        }
    }

    /// An open request ends, for a reason that has been counted.
    fn end(&mut self, now_ns: u64, key: Key, lease: Lease) {
        self.close(now_ns, key, lease);
        // Also when one ends that waited: it may have been in the way of one that needs less.
        self.grant(now_ns, lease.want.resource);
    }

    fn close(&mut self, now_ns: u64, key: Key, mut lease: Lease) {
        let resource = lease.want.resource;
        self.ends.remove(&(lease.until_ns, key));
        match lease.state {
            State::Waiting => {
                self.waiting[resource as usize].remove(&(lease.until_ns, key));
                self.counts.waiting -= 1;
            }
            State::Reserved => self.counts.reserved -= 1,
            State::Confirmed | State::Ended(_) => self.counts.confirmed -= 1,
        }
        if lease.state != State::Waiting {
            *self.used.of_mut(resource) -= lease.want.amount;
        }
        if let Some(open) = self.open_of.get_mut(&key.host) {
            *open -= 1;
            if *open == 0 {
                self.open_of.remove(&key.host);
            }
        }
        lease.state = State::Ended(Verdict::Ended);
        self.remember(now_ns, key, lease);
    }

    fn remember(&mut self, now_ns: u64, key: Key, mut lease: Lease) {
        lease.until_ns = now_ns.saturating_add(self.limits.remember_ns);
        self.remembered.insert((lease.until_ns, key));
        self.all.insert(key, lease);
    }
}
