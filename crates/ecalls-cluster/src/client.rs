//! Asks the managers of other hosts for resources, and gives them back.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Error, Result, Subscription, now_ns};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::ask::{Ask, Outcome, RESEND_NS, Sends};
use crate::choice::{Choice, Told, choose};
use crate::message::{Body, Message, TIME_MAX, Verdict, Want};
use crate::post::Post;
pub use crate::post::{Refused, told_of};
use crate::resource::Resource;

/// Entries of the ring through which answers arrive.
const RING: u32 = 1024;

/// How long answers to an allocation that has ended are still answered, ns.
const LINGER_NS: u64 = 1_000_000_000;

/// How often a host is told that something is given back, if it does not answer.
const RELEASES: u32 = 20;

/// What to allocate.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Of what.
    pub resource: Resource,
    /// How much.
    pub amount: u64,
    /// How long to try.
    pub deadline: Duration,
    /// The longest time until it is released; then the manager takes it back.
    pub hold: Duration,
    /// Whether the request waits at the hosts for what others use.
    pub waits: bool,
    /// Which hosts are asked.
    pub choice: Choice,
    /// Whether this host is asked, too.
    pub here: bool,
}

/// How an allocation went.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Its number, by which it is released.
    pub id: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The granting host's address on the lane; `None`: it is this host, or behind the relay.
    pub address: Option<Ipv4Addr>,
    /// The hosts that were asked.
    pub asked: Vec<u64>,
    /// Answers that changed nothing: of hosts that were not asked, and impossible ones.
    pub strays: u64,
    /// How long it took.
    pub took: Duration,
}

/// A program that uses resources of the hosts of a channel.
#[derive(Debug)]
pub struct Client {
    post: Post,
    memory: Channel,
    _subscription: Subscription,
    /// By number: those that are under way, and those that have ended lately.
    active: BTreeMap<u64, Active>,
    /// Those that nobody has asked for yet.
    ended: Vec<Allocation>,
    /// What is given back, by host and number, until the host has answered.
    leaving: BTreeMap<(u64, u64), Leaving>,
}

/// What is given back.
#[derive(Debug)]
struct Leaving {
    address: Option<Ipv4Addr>,
    sent_ns: u64,
    times: u32,
}

/// An allocation under way.
#[derive(Debug)]
struct Active {
    ask: Ask,
    hosts: Vec<u64>,
    addresses: BTreeMap<u64, Option<Ipv4Addr>>,
    begin: Instant,
    ended_ns: Option<u64>,
}

impl Client {
    /// Joins on a host whose manager, or another program, has the channel open.
    ///
    /// # Errors
    /// [`Error::Unknown`] if none has; those of a subscription.
    pub fn join(ecalls: &Ecalls, channel: &str) -> Result<Client> {
        let post = Post::new(ecalls, channel)?;
        let memory = ecalls.channel().ring(RING).open()?;
        let subscription = ecalls
            .subscribe(channel)?
            .kinds(&["answer"])
            .memory(&memory)
            .install()?;
        Ok(Client {
            post,
            memory,
            _subscription: subscription,
            active: BTreeMap::new(),
            ended: Vec::new(),
            leaving: BTreeMap::new(),
        })
    }

    /// This host.
    pub fn host(&self) -> u64 {
        self.post.host()
    }

    /// What the other hosts have told of themselves, and who told what cannot be: those are never
    /// asked.
    ///
    /// # Errors
    /// Those of reading the core's tables.
    pub fn discover(&self) -> Result<(Vec<Told>, Vec<Refused>)> {
        self.post.told()
    }

    /// Asks, and waits until a host has confirmed, all have refused, or the deadline has passed.
    ///
    /// # Errors
    /// Those of receiving and of reading the core's tables.
    pub fn allocate(&mut self, wish: &Wish) -> Result<Allocation> {
        let id = self.begin(wish)?;
        loop {
            if let Some(at) = self.ended.iter().position(|one| one.id == id) {
                return Ok(self.ended.remove(at));
            }
            self.turn(u64::MAX)?;
        }
    }

    /// Asks, and does not wait: [`Client::poll`] returns the allocation with this number when it
    /// has ended. Any number of them can be under way.
    ///
    /// # Errors
    /// Those of reading the core's tables.
    pub fn begin(&mut self, wish: &Wish) -> Result<u64> {
        let (told, _) = self.discover()?;
        let mut hosts = choose(&told, wish.choice, random);
        let addresses = told.iter().map(|one| (one.host, one.ip4()));
        let addresses = addresses.filter(|(host, _)| hosts.contains(host)).collect();
        hosts.extend(wish.here.then(|| self.host()));
        let want = Want {
            resource: wish.resource,
            amount: wish.amount,
            left_ns: nanoseconds(wish.deadline).min(TIME_MAX),
            hold_ns: nanoseconds(wish.hold).min(TIME_MAX),
            waits: wish.waits,
        };
        // 53 bits: some readers of JSON know no others.
        let id = random() >> 11 | 1;
        let (ask, sends) = Ask::new(now_ns(), want, &hosts);
        let active = Active {
            ask,
            hosts,
            addresses,
            begin: Instant::now(),
            ended_ns: None,
        };
        active.send(&self.post, id, sends);
        self.active.insert(id, active);
        self.settle();
        Ok(id)
    }

    /// The allocations that have ended; waits for `longest` at most if none has.
    ///
    /// # Errors
    /// Those of receiving.
    pub fn poll(&mut self, longest: Duration) -> Result<Vec<Allocation>> {
        if self.ended.is_empty() {
            self.turn(now_ns().saturating_add(nanoseconds(longest)))?;
        }
        Ok(std::mem::take(&mut self.ended))
    }

    /// Gives back what a host had granted. Whether it has answered within `patience`; if not, it
    /// takes it back itself in time.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a host that has told nothing; those of receiving.
    pub fn release(&mut self, host: u64, id: u64, patience: Duration) -> Result<bool> {
        let (told, _) = self.discover()?;
        let told = told.iter().find(|one| one.host == host);
        if told.is_none() && host != self.host() {
            return Err(Error::Unknown {
                what: "host of the cluster",
                name: ecalls_channel::source::host_text(host),
                hint: "`ecalls cluster discover` lists them".to_owned(),
            });
        }
        self.leave(host, id, told.and_then(Told::ip4));
        let until_ns = now_ns().saturating_add(nanoseconds(patience));
        while self.leaving.contains_key(&(host, id)) && now_ns() < until_ns {
            self.turn(until_ns)?;
        }
        Ok(self.leaving.remove(&(host, id)).is_none())
    }

    /// Gives back what was granted, and does not wait for the host's answer: as long as there is
    /// none, it is told again, for a second, by the next calls of [`Client::poll`] and others.
    pub fn give_back(&mut self, allocation: &Allocation) {
        if let Outcome::Granted { host, .. } = allocation.outcome {
            self.leave(host, allocation.id, allocation.address);
        }
    }

    /// Whether something is being given back, and its host has not answered yet.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn leave(&mut self, host: u64, id: u64, address: Option<Ipv4Addr>) {
        self.post.send(host, octets(address), id, Body::Release);
        let leaving = Leaving {
            address,
            sent_ns: now_ns(),
            times: 1,
        };
        self.leaving.insert((host, id), leaving);
    }

    /// What was not answered is sent again.
    fn leave_again(&mut self, now_ns: u64) {
        self.leaving.retain(|_, one| one.times < RELEASES);
        for ((host, id), one) in &mut self.leaving {
            if one.next_ns() <= now_ns {
                self.post
                    .send(*host, octets(one.address), *id, Body::Release);
                one.sent_ns = now_ns;
                one.times += 1;
            }
        }
    }

    /// Waits for answers, until then at most, and does what is to be done.
    fn turn(&mut self, until_ns: u64) -> Result<()> {
        let asks = self.active.values().filter_map(|one| one.ask.next_ns());
        let next_ns = asks.chain(self.leaving.values().map(Leaving::next_ns));
        let wait_ns = next_ns.min().unwrap_or(u64::MAX).min(until_ns);
        let wait_ns = wait_ns.saturating_sub(now_ns());
        let mut event = self.memory.recv_timeout(Duration::from_nanos(wait_ns))?;
        while let Some(taken) = event {
            if let Some(message) = Message::of(&taken, self.post.host())
                && let Body::Answer(answer) = message.body
                && message.to == self.post.host()
            {
                if answer.verdict == Verdict::Ended {
                    self.leaving.remove(&(message.from, message.id));
                }
                if let Some(active) = self.active.get_mut(&message.id) {
                    let sends = active.ask.answer(message.from, &answer);
                    active.send(&self.post, message.id, sends);
                }
            }
            event = self.memory.try_recv();
        }
        let now_ns = now_ns();
        for (id, active) in &mut self.active {
            let mut sends = active.ask.decide(now_ns);
            sends.extend(active.ask.pass(now_ns));
            active.send(&self.post, *id, sends);
        }
        self.leave_again(now_ns);
        self.settle();
        Ok(())
    }

    /// Takes note of those that have ended. They stay for a while, to cancel what is granted too
    /// late.
    fn settle(&mut self) {
        let now_ns = now_ns();
        for (id, active) in &mut self.active {
            if active.ended_ns.is_none()
                && let Some(outcome) = active.ask.outcome()
            {
                active.ended_ns = Some(now_ns);
                self.ended.push(active.allocation(*id, outcome));
            }
        }
        self.active.retain(|_, active| {
            let ended_ns = active.ended_ns;
            ended_ns.is_none_or(|ended_ns| now_ns.saturating_sub(ended_ns) < LINGER_NS)
        });
    }
}

impl Active {
    fn send(&self, post: &Post, id: u64, sends: Sends) {
        for (host, body) in sends {
            let address = self.addresses.get(&host).copied().flatten();
            post.send(host, octets(address), id, body);
        }
    }

    fn allocation(&self, id: u64, outcome: Outcome) -> Allocation {
        let address = match outcome {
            Outcome::Granted { host, .. } => self.addresses.get(&host).copied().flatten(),
            Outcome::Refused | Outcome::Late => None,
        };
        Allocation {
            id,
            outcome,
            address,
            asked: self.hosts.clone(),
            strays: self.ask.strays(),
            took: self.begin.elapsed(),
        }
    }
}

impl Leaving {
    fn next_ns(&self) -> u64 {
        self.sent_ns.saturating_add(RESEND_NS)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn octets(address: Option<Ipv4Addr>) -> [u8; 4] {
    address.map_or([0; 4], |ip| ip.octets())
}

/// A number that nobody can guess.
fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // It fails only for more than 256 bytes, and before the machine's first random ones.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    u64::from_le_bytes(bytes)
}
