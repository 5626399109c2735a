//! The manager of a host: it tells the other hosts what this one is doing, and answers requests.
//!
//! It is a loop of one thread, which sleeps until a message arrives, a lease ends or it is time to
//! tell. If it is killed, its host tells nothing any more and is not asked; the leases that it had
//! given are unknown to the next one, which begins with all resources free.

use std::collections::BTreeMap;
use std::time::Duration;

use ecalls::{Channel, Ecalls, Result, Subscription, now_ns};

use crate::lease::{Counts, Key, Leases, Limits};
use crate::message::{Body, Message, Want};
use crate::post::Post;
use crate::probe::Probe;
use crate::resource::{Amounts, Resource};
use crate::summary::{Summary, Teller};

/// Entries of the ring through which messages arrive.
const RING: u32 = 4096;

/// Messages that are read before the answers are sent.
const BATCH: usize = 64;

/// Hosts whose addresses are known.
const HOSTS: usize = 4096;

/// How a manager is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What it gives away.
    pub capacity: Amounts,
    /// Its limits.
    pub limits: Limits,
    /// It tells at intervals between these.
    pub tell_least: Duration,
    /// The longest interval.
    pub tell_most: Duration,
}

impl Setup {
    /// For a host that gives this away.
    pub fn new(capacity: Amounts) -> Setup {
        Setup {
            capacity,
            limits: Limits::default(),
            tell_least: Duration::from_millis(200),
            tell_most: Duration::from_secs(1),
        }
    }
}

/// The manager of this host.
#[derive(Debug)]
pub struct Manager {
    post: Post,
    memory: Channel,
    _subscription: Subscription,
    leases: Leases,
    addresses: BTreeMap<u64, [u8; 4]>,
    probe: Probe,
    teller: Teller,
}

impl Manager {
    /// Starts on a channel which a program of this host has opened with
    /// [`FORMAT`](crate::message::FORMAT) and [`KINDS`](crate::message::KINDS).
    ///
    /// # Errors
    /// [`ecalls::Error::Unknown`] if none has; those of a subscription.
    pub fn start(ecalls: &Ecalls, channel: &str, setup: &Setup) -> Result<Manager> {
        let post = Post::new(ecalls, channel)?;
        let memory = ecalls.channel().ring(RING).open()?;
        let subscription = ecalls
            .subscribe(channel)?
            .kinds(&["request", "confirm", "cancel", "release"])
            .memory(&memory)
            .install()?;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Ok(Manager {
            post,
            memory,
            _subscription: subscription,
            leases: Leases::new(setup.capacity, setup.limits),
            addresses: BTreeMap::new(),
            probe: Probe::default(),
            teller: Teller::new(ns(setup.tell_least), ns(setup.tell_most)),
        })
    }

    /// This host.
    pub fn host(&self) -> u64 {
        self.post.host()
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.leases.counts()
    }

    /// Serves until `is_over`, which is asked whenever it is time to tell.
    ///
    /// # Errors
    /// Those of [`Manager::turn`].
    pub fn run(&mut self, is_over: impl Fn() -> bool) -> Result<()> {
        while !is_over() {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits for messages, a lease that ends, or the time to tell, and does what is to be done.
    ///
    /// # Errors
    /// Those of receiving, and of telling if the channel has been closed.
    pub fn turn(&mut self) -> Result<()> {
        let now = now_ns();
        let ends_ns = self.leases.next_ns().unwrap_or(u64::MAX);
        let wait_ns = ends_ns.saturating_sub(now).min(self.teller.least_ns());
        let mut event = self.memory.recv_timeout(Duration::from_nanos(wait_ns))?;
        let now = now_ns();
        for _ in 0..BATCH {
            let Some(taken) = event else { break };
            match Message::of(&taken, self.host()) {
                Some(message) => self.take(now, taken.raise_ns, &message),
                None => self.leases.stray(),
            }
            event = self.memory.try_recv();
        }
        self.leases.pass(now);
        for (key, answer) in self.leases.take_answers() {
            let address = self.addresses.get(&key.host).copied().unwrap_or_default();
            self.post
                .send(key.host, address, key.id, Body::Answer(answer));
        }
        let summary = self.summary(now);
        if self.teller.is_due(now, &summary) {
            self.post.tell(Body::Load(self.counts()), &summary)?;
        }
        Ok(())
    }

    /// A message that came to this host at `raise_ns`.
    fn take(&mut self, now_ns: u64, raise_ns: u64, message: &Message) {
        if message.to != self.host() {
            return self.leases.stray();
        }
        let is_known = self.addresses.contains_key(&message.from);
        if is_known || self.addresses.len() < HOSTS {
            self.addresses.insert(message.from, message.address);
        }
        let key = Key {
            host: message.from,
            id: message.id,
        };
        match &message.body {
            Body::Request(want) => {
                // This process may have been stopped meanwhile.
                let past_ns = now_ns.saturating_sub(raise_ns);
                let want = Want {
                    left_ns: want.left_ns.saturating_sub(past_ns),
                    ..*want
                };
                self.leases.request(now_ns, key, &want);
            }
            Body::Confirm => self.leases.confirm(now_ns, key),
            Body::Cancel => self.leases.cancel(now_ns, key),
            Body::Release => self.leases.release(now_ns, key),
            Body::Load(_) | Body::Answer(_) => {}
        }
    }

    fn summary(&mut self, now_ns: u64) -> Summary {
        let rates = self.probe.look(now_ns);
        Summary {
            busy: rates.busy,
            memory_mib: rates.memory_mib,
            net_kib: rates.net_kib,
            disk_kib: rates.disk_kib,
            waiting: self.leases.counts().waiting,
            cpu_free: self.leases.free(Resource::Cpu),
            job_free: self.leases.free(Resource::Job),
            address: u64::from(u32::from(std::net::Ipv4Addr::from(self.post.address()))),
        }
    }
}
