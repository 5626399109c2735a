//! A world without a kernel: managers and asking hosts as state machines, a network that delays,
//! loses and repeats messages, and a clock that goes from event to event. All by one seed.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ecalls_cluster::ask::{Ask, Outcome, Sends};
use ecalls_cluster::lease::{Key, Leases, Limits};
use ecalls_cluster::message::{Answer, Body, Want};
use ecalls_cluster::resource::{Amounts, Resource};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Exponentially distributed.
    pub(crate) fn exponential(&mut self, mean: f64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean) as u64
    }
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    ToManager(usize, Key, Body),
    ToAsk(usize, u64, Answer),
    WakeManager(usize),
    WakeAsk(usize),
    /// A number that means something to the test.
    Own(u64),
}

/// What the network does to messages: delay, and how many of a thousand it loses and repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) delay_ns: u64,
    pub(crate) jitter_ns: u64,
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
}

/// An allocation, and how it ended.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) ask: Ask,
    pub(crate) key: Key,
    pub(crate) begun_ns: u64,
    pub(crate) ended: Option<(u64, Outcome)>,
    pub(crate) is_alive: bool,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) random: Random,
    pub(crate) network: Network,
    /// Host number h is `managers[h - 1]`; `None`: it was killed.
    pub(crate) managers: Vec<Option<Leases>>,
    pub(crate) asks: Vec<Running>,
    /// Hosts that have said that they have confirmed, by request.
    pub(crate) confirmed: BTreeMap<u64, Vec<u64>>,
    events: BTreeMap<u64, Event>,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    number: u64,
}

impl World {
    pub(crate) fn new(seed: u64, hosts: usize, jobs: u64, network: Network) -> World {
        let mut capacity = Amounts::default();
        *capacity.of_mut(Resource::Job) = jobs;
        let manager = || Some(Leases::new(capacity, Limits::default()));
        World {
            now_ns: 0,
            random: Random(seed),
            network,
            managers: (0..hosts).map(|_| manager()).collect(),
            asks: Vec::new(),
            confirmed: BTreeMap::new(),
            events: BTreeMap::new(),
            order: BinaryHeap::new(),
            number: 0,
        }
    }

    /// What is due already happens now.
    pub(crate) fn at(&mut self, at_ns: u64, event: Event) {
        let at_ns = at_ns.max(self.now_ns);
        self.number += 1;
        self.events.insert(self.number, event);
        self.order.push(Reverse((at_ns, self.number)));
    }

    fn travel(&mut self, make: impl Fn() -> Event) {
        let copies = match self.random.below(1000) {
            one if one < self.network.lost => 0,
            one if one < self.network.lost + self.network.repeated => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let jitter_ns = self.random.below(self.network.jitter_ns.max(1));
            let at_ns = self.now_ns + self.network.delay_ns + jitter_ns;
            self.at(at_ns, make());
        }
    }

    pub(crate) fn tell_manager(&mut self, host: u64, key: Key, body: Body) {
        self.travel(|| Event::ToManager(host as usize - 1, key, body));
    }

    /// Host `home` asks these hosts.
    pub(crate) fn ask(&mut self, home: u64, want: Want, hosts: &[u64]) -> usize {
        let number = self.asks.len();
        let key = Key {
            host: home,
            id: number as u64 + 1,
        };
        let (ask, sends) = Ask::new(self.now_ns, want, hosts);
        self.asks.push(Running {
            ask,
            key,
            begun_ns: self.now_ns,
            ended: None,
            is_alive: true,
        });
        self.sends(number, sends);
        self.wake_ask(number);
        number
    }

    fn sends(&mut self, number: usize, sends: Sends) {
        let key = self.asks[number].key;
        for (host, body) in sends {
            self.tell_manager(host, key, body);
        }
        let running = &mut self.asks[number];
        if running.ended.is_none()
            && let Some(outcome) = running.ask.outcome()
        {
            running.ended = Some((self.now_ns, outcome));
        }
    }

    /// What a client that is alive does.
    fn play(&mut self, number: usize, act: impl FnOnce(&mut Ask) -> Sends) {
        if self.asks[number].is_alive {
            let sends = act(&mut self.asks[number].ask);
            self.sends(number, sends);
        }
    }

    fn wake_ask(&mut self, number: usize) {
        if self.asks[number].is_alive
            && let Some(next_ns) = self.asks[number].ask.next_ns()
        {
            self.at(next_ns, Event::WakeAsk(number));
        }
    }

    /// The next event that the state machines do not take; `None`: none comes until then.
    pub(crate) fn step_until(&mut self, until_ns: u64) -> Option<u64> {
        while let Some(Reverse((at_ns, _))) = self.order.peek() {
            if *at_ns > until_ns {
                break;
            }
            let Some(Reverse((at_ns, number))) = self.order.pop() else {
                break;
            };
            self.now_ns = at_ns;
            match self.events.remove(&number) {
                Some(Event::Own(number)) => return Some(number),
                Some(Event::ToManager(at, key, body)) => {
                    self.manage(at, |leases, now_ns| match body {
                        Body::Request(want) => leases.request(now_ns, key, &want),
                        Body::Confirm => leases.confirm(now_ns, key),
                        Body::Cancel => leases.cancel(now_ns, key),
                        Body::Release => leases.release(now_ns, key),
                        Body::Load(_) | Body::Answer(_) => leases.stray(),
                    });
                }
                Some(Event::WakeManager(at)) => self.manage(at, Leases::pass),
                Some(Event::ToAsk(number, host, answer)) => {
                    self.play(number, |ask| ask.answer(host, &answer));
                    self.play(number, |ask| ask.decide(at_ns));
                }
                Some(Event::WakeAsk(number)) => {
                    self.play(number, |ask| ask.pass(at_ns));
                    self.wake_ask(number);
                }
                None => {}
            }
        }
        self.now_ns = until_ns;
        None
    }

    fn manage(&mut self, at: usize, act: impl FnOnce(&mut Leases, u64)) {
        let host = at as u64 + 1;
        let Some(leases) = &mut self.managers[at] else {
            return;
        };
        act(leases, self.now_ns);
        let (answers, next_ns) = (leases.take_answers(), leases.next_ns());
        assert!(leases.counts().are_whole(), "{:?}", leases.counts());
        for (key, answer) in answers {
            if answer.verdict == ecalls_cluster::message::Verdict::Confirmed {
                let hosts = self.confirmed.entry(key.id).or_default();
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
            let number = key.id as usize - 1;
            self.travel(|| Event::ToAsk(number, host, answer));
        }
        if let Some(next_ns) = next_ns {
            self.at(next_ns, Event::WakeManager(at));
        }
    }
}
