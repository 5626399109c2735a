//! A cluster of many hosts in one process: relays' parts in the network, without their programs.
//!
//! Some relays are hubs: they listen, each is connected to each, and all others are clients of one
//! of them, as relays that listen nowhere are. All have one channel open and follow its hosts. Then
//! one more joins and leaves, which all others must notice; one asks for all hosts, as a review
//! does; and one event goes to every host, and there to each entry of a table of local members.
//! With plain sessions instead of relays the same is done by tokens, a get and a put.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ecalls_abi::wire::Wire;
use ecalls_abi::zerocopy::IntoBytes;
use ecalls_relay::config::Config;
use ecalls_relay::info::{Info, Policy, VERSION};
use ecalls_relay::key::{Host, Name};
use ecalls_relay::network::{Happening, Network, Presence};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zenoh::sample::SampleKind;
use zenoh::{Session, Wait};

use super::{KEY, Outcome, free_port, session, wait_for};

/// All hosts share this machine's processors: none is to be left for dead meanwhile.
const LEASE_MS: u64 = 60_000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Every session needs some.
fn allow_files() -> Outcome<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// How long it takes until `done`, ms.
fn until(mut done: impl FnMut() -> bool) -> Outcome<f64> {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > PATIENCE {
            return Err("a host has not noticed".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// A relay that has the channel open, and how many hosts it knows.
struct Member {
    network: Network,
    host: Host,
    presence: Option<Presence>,
    known: usize,
    lost: u64,
}

impl Member {
    fn open(number: u64, listen: Vec<String>, connect: Vec<String>) -> Outcome<Member> {
        let mut config = Config::default();
        config.network.listen = listen;
        config.network.connect = connect;
        config.network.scouting = false;
        config.network.lease_ms = LEASE_MS;
        Ok(Member {
            network: Network::open(&config)?,
            host: Host {
                id: number + 1,
                address: [10, 0, (number >> 8) as u8, number as u8],
                format: 7,
            },
            presence: None,
            known: 0,
            lost: 0,
        })
    }

    fn enter(&mut self, name: &Name) -> Outcome<()> {
        let info = Info {
            version: VERSION,
            format: "u32 value".to_owned(),
            kinds: "event".to_owned(),
            policy: Policy::Reliable,
            creator: 1,
        };
        self.presence = Some(self.network.enter(name, &self.host, &info)?);
        Ok(())
    }

    /// Whether it knows so many.
    fn knows(&mut self, hosts: usize) -> bool {
        let (happenings, lost) = self.network.take();
        self.lost += lost;
        for happening in happenings {
            match happening {
                Happening::Host(_, _, true) => self.known += 1,
                Happening::Host(_, _, false) => self.known -= 1,
                _ => {}
            }
        }
        self.known == hosts
    }
}

/// So many relays, with so many local members each, of which so many are hubs.
pub(super) fn relays(count: usize, local: usize, hubs: usize) -> Outcome<()> {
    allow_files()?;
    let name = Name {
        cluster: "bench".to_owned(),
        channel: "scale".to_owned(),
    };
    let address = |_| Ok(format!("127.0.0.1:{}", free_port()?));
    let hubs: Vec<String> = (0..hubs).map(address).collect::<Outcome<_>>()?;
    let begin = Instant::now();
    let mut members = Vec::new();
    for number in 0..count {
        members.push(match hubs.get(number) {
            Some(own) => Member::open(number as u64, vec![own.clone()], hubs[..number].to_vec())?,
            None => {
                let hub = hubs[number % hubs.len()].clone();
                Member::open(number as u64, Vec::new(), vec![hub])?
            }
        });
    }
    for member in &mut members {
        member.enter(&name)?;
    }
    let all = |members: &mut Vec<Member>, hosts| {
        until(|| members.iter_mut().all(|member| member.knows(hosts)))
    };
    all(&mut members, count)?;
    let open = begin.elapsed().as_secs_f64() * 1e3;
    let mut late = Member::open(count as u64, Vec::new(), vec![hubs[0].clone()])?;
    let began = Instant::now();
    late.enter(&name)?;
    all(&mut members, count + 1)?;
    let join = began.elapsed().as_secs_f64() * 1e3;
    until(|| late.knows(count + 1))?;
    let joined = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    late.presence = None;
    all(&mut members, count)?;
    let leave = began.elapsed().as_secs_f64() * 1e3;

    let (review, seen) = review(&members[count - 1].network, &name)?;
    let (event, once) = event(&members, &name, local)?;
    let lost: u64 = members.iter().map(|member| member.lost).sum();
    println!(
        "{{\"open_ms\":{open:.1},\"join_ms\":{join:.1},\"joined_ms\":{joined:.1},\
         \"leave_ms\":{leave:.1},\"review_ms\":{review:.1},\"seen\":{seen},\"lost\":{lost},\
         \"event_ms\":{event:.1},\"once\":{once}}}"
    );
    // Closing one session after the other would take as long as opening them.
    std::process::exit(0);
}

/// One host asks for all: how long it takes, ms, and how many it has found. One that finds nobody
/// is none (review.rs of the relay), and another one follows.
fn review(network: &Network, name: &Name) -> Outcome<(f64, usize)> {
    let mut seen = 0;
    loop {
        let began = Instant::now();
        network.review(name, 1)?;
        let mut ended = false;
        until(|| {
            for happening in network.take().0 {
                match happening {
                    Happening::Seen(..) => seen += 1,
                    Happening::Reviewed(_) => ended = true,
                    _ => {}
                }
            }
            ended
        })?;
        if seen > 0 {
            return Ok((began.elapsed().as_secs_f64() * 1e3, seen));
        }
    }
}

/// An event of the first host goes to each member of all others: how long it takes, ms, and whether
/// each has taken it once.
fn event(members: &[Member], name: &Name, local: usize) -> Outcome<(f64, bool)> {
    let [source, others @ ..] = members else {
        return Err("there is no host".into());
    };
    let wire = Wire {
        host: source.host.id,
        ..Wire::default()
    };
    let frame = [wire.as_bytes(), &[7; 16]].concat();
    let began = Instant::now();
    for member in others {
        until(|| source.network.has_room())?;
        let (to, own) = (member.host.id, source.host.id);
        if !source.network.send(name, to, own, frame.clone()) {
            return Err("a frame was not taken".into());
        }
    }
    let mut tables = vec![vec![0u32; local]; others.len()];
    until(|| {
        for (member, table) in others.iter().zip(&mut tables) {
            while member.network.next_frame().is_some() {
                table.iter_mut().for_each(|member| *member += 1);
            }
        }
        tables.iter().flatten().all(|taken| *taken > 0)
    })?;
    let ms = began.elapsed().as_secs_f64() * 1e3;
    Ok((ms, tables.iter().flatten().all(|taken| *taken == 1)))
}

/// So many plain sessions.
pub(super) fn sessions(count: usize) -> Outcome<()> {
    allow_files()?;
    let port = free_port()?;
    let known: Vec<Arc<AtomicUsize>> = (0..count).map(|_| Arc::default()).collect();
    let taken = Arc::new(AtomicUsize::new(0));
    let follow = |session: &Session, known: &Arc<AtomicUsize>| {
        let (known, taken) = (Arc::clone(known), Arc::clone(&taken));
        let liveliness = session.liveliness().declare_subscriber("peer/sink/*");
        let tokens = liveliness.history(true).callback(move |sample| {
            match sample.kind() {
                SampleKind::Put => known.fetch_add(1, Ordering::Relaxed),
                SampleKind::Delete => known.fetch_sub(1, Ordering::Relaxed),
            };
        });
        let count = move |_| {
            taken.fetch_add(1, Ordering::Relaxed);
        };
        let events = session.declare_subscriber(KEY).callback(count).wait()?;
        Outcome::Ok((tokens.wait()?, events))
    };
    let token = |session: &Session, number: usize| {
        let key = format!("peer/sink/{number}");
        session.liveliness().declare_token(key).wait()
    };
    let begin = Instant::now();
    let mut kept = Vec::new();
    for (number, known) in known.iter().enumerate() {
        let session = match number {
            0 => session("peer", "listen/endpoints", &port)?,
            _ => session("client", "connect/endpoints", &port)?,
        };
        kept.push((follow(&session, known)?, token(&session, number)?, session));
    }
    let all = |hosts| until(|| known.iter().all(|one| one.load(Ordering::Relaxed) == hosts));
    all(count)?;
    let open = begin.elapsed().as_secs_f64() * 1e3;
    let late = session("client", "connect/endpoints", &port)?;
    let began = Instant::now();
    let own = token(&late, count)?;
    all(count + 1)?;
    let join = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    drop(own);
    all(count)?;
    let leave = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    wait_for(&kept[count - 1].2, count as u32)?;
    let review = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    kept[0].2.put(KEY, vec![7u8; 176]).wait()?;
    until(|| taken.load(Ordering::Relaxed) >= count)?;
    let event = began.elapsed().as_secs_f64() * 1e3;
    println!(
        "{{\"open_ms\":{open:.1},\"join_ms\":{join:.1},\"leave_ms\":{leave:.1},\
         \"review_ms\":{review:.1},\"event_ms\":{event:.1}}}"
    );
    std::process::exit(0);
}
