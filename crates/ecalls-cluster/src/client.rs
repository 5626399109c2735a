//! Asks the managers of other hosts for resources, and gives them back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Error, Result, Subscription, now_ns};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::ask::{Ask, Outcome, RESEND_NS, Sends};
use crate::choice::{Choice, Told, choose};
use crate::message::{Answer, Body, Message, TIME_MAX, Verdict, Want};
use crate::post::Post;
pub use crate::post::{Refused, told_of};
use crate::resource::Resource;

/// Entries of the ring through which answers arrive.
const RING: u32 = 1024;

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
        let begin = Instant::now();
        let (told, _) = self.discover()?;
        let mut hosts = choose(&told, wish.choice, random);
        let addresses = told.iter().map(|one| {
            let address = one.ip4().map_or([0; 4], |ip| ip.octets());
            (one.host, address)
        });
        let addresses: BTreeMap<u64, [u8; 4]> = addresses.collect();
        hosts.extend(wish.here.then(|| self.host()));
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let want = Want {
            resource: wish.resource,
            amount: wish.amount,
            left_ns: ns(wish.deadline).min(TIME_MAX),
            hold_ns: ns(wish.hold).min(TIME_MAX),
            waits: wish.waits,
        };
        // 53 bits: some readers of JSON know no others.
        let id = random() >> 11 | 1;
        let (mut ask, sends) = Ask::new(now_ns(), want, &hosts);
        let send = |post: &Post, sends: Sends| {
            for (host, body) in sends {
                let address = addresses.get(&host).copied().unwrap_or_default();
                post.send(host, address, id, body);
            }
        };
        send(&self.post, sends);
        while let Some(next_ns) = ask.next_ns() {
            let answers = self.answers(id, next_ns)?;
            for (host, answer) in answers {
                send(&self.post, ask.answer(host, &answer));
            }
            send(&self.post, ask.decide(now_ns()));
            send(&self.post, ask.pass(now_ns()));
        }
        Ok(Allocation {
            id,
            outcome: ask.outcome().unwrap_or(Outcome::Late),
            asked: hosts,
            strays: ask.strays(),
            took: begin.elapsed(),
        })
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
        let address = told.and_then(Told::ip4).map_or([0; 4], |ip| ip.octets());
        let begin = Instant::now();
        while begin.elapsed() < patience {
            self.post.send(host, address, id, Body::Release);
            let answers = self.answers(id, now_ns().saturating_add(RESEND_NS))?;
            let has_ended =
                |(from, answer): &(u64, Answer)| *from == host && answer.verdict == Verdict::Ended;
            if answers.iter().any(has_ended) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The answers about a request that have arrived; waits for the first one until then.
    fn answers(&mut self, id: u64, until_ns: u64) -> Result<Vec<(u64, Answer)>> {
        let mut answers = Vec::new();
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
            let mut event = self.memory.recv_timeout(left)?;
            if event.is_none() {
                return Ok(answers);
            }
            while let Some(taken) = event {
                let message = Message::read(taken.kind, taken.data_bytes());
                let is_ours = |one: &Message| one.id == id && one.to == self.post.host();
                if let Some(message) = message.filter(is_ours)
                    && let Body::Answer(answer) = message.body
                {
                    answers.push((message.from, answer));
                }
                event = self.memory.try_recv();
            }
            if !answers.is_empty() {
                return Ok(answers);
            }
        }
    }
}

/// A number that nobody can guess.
fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // It fails only for more than 256 bytes, and before the machine's first random ones.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    u64::from_le_bytes(bytes)
}
