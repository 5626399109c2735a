//! A server: it answers requests of its users, and does the work that other servers send.
//!
//! One thread owns the client of the managers, and has any number of allocations under way; each
//! connection has a thread, which waits for its place.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ecalls::Ecalls;
use ecalls_channel::Channel;
use ecalls_cluster::Manager;
use ecalls_cluster::ask::Outcome as Ended;
use ecalls_cluster::choice::Choice;
use ecalls_cluster::client::{Allocation, Client, Wish};
use ecalls_cluster::manager::Setup;
use ecalls_cluster::message::{CHANNEL, FORMAT, KINDS};
use ecalls_cluster::resource::{Amounts, Resource};
use rustix::time::{ClockId, clock_gettime};

use super::load::get;
use super::{COMPUTES, HOSTS, Outcome, POLICIES, PORT, Policy, WORK, address};

/// How long a request waits for its place.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long the client waits for answers before it looks for further requests.
const TURN: Duration = Duration::from_millis(1);

/// To the thread that owns the client.
enum Asked {
    Place(Sender<Option<Allocation>>),
    Back(Allocation),
}

/// Serves until killed.
pub(crate) fn serve(host: &str, policy: &str) -> Outcome<()> {
    let host: u8 = host.parse()?;
    let policy = POLICIES.iter().find(|(name, _)| *name == policy);
    let (_, policy) = *policy.ok_or("no such policy")?;
    let ecalls = Ecalls::host()?;
    let channel = Channel::open(&ecalls, CHANNEL, FORMAT, KINDS, "eth")?;
    for other in (1..=HOSTS).filter(|other| *other != host) {
        channel.add_sink(address(other).parse()?)?;
    }
    let mut capacity = Amounts::default();
    *capacity.of_mut(Resource::Job) = 1;
    let mut manager = Manager::start(&ecalls, CHANNEL, &Setup::new(capacity))?;
    std::thread::spawn(move || manager.run(|| false));
    let client = Client::join(&ecalls, CHANNEL)?;
    let (asks, asked) = self::channel();
    std::thread::spawn(move || place(client, policy, &asked));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    println!("serves");
    for stream in listener.incoming() {
        let asks = asks.clone();
        std::thread::spawn(move || answer(stream?, &asks));
    }
    Ok(())
}

/// Answers one request.
fn answer(mut stream: TcpStream, asks: &Sender<Asked>) -> Outcome<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().ok_or("no request")??;
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    let body = match first.split(' ').nth(1) {
        // Of another server, which has allocated this one.
        Some("/work") => {
            work();
            "done"
        }
        _ => request(asks)?,
    };
    let status = if body == "refused" {
        "503 Service Unavailable"
    } else {
        "200 OK"
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(())
}

/// A user's request: where it has been done.
fn request(asks: &Sender<Asked>) -> Outcome<&'static str> {
    let (told, heard) = channel();
    asks.send(Asked::Place(told))?;
    let Some(allocation) = heard.recv()? else {
        return Ok("refused");
    };
    let done = match allocation.address {
        None => {
            work();
            Ok("here")
        }
        Some(host) => get(&host.to_string(), "/work").map(|_| "there"),
    };
    asks.send(Asked::Back(allocation))?;
    done
}

/// Occupies this host for the time of a request, and computes for a part of it.
fn work() {
    let begin = Instant::now();
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let until = used() + COMPUTES;
    while used() < until {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
    std::thread::sleep(WORK.saturating_sub(begin.elapsed()));
}

/// The policy's wish: the first one of a request, or the one that follows if nobody had a place.
fn wish(policy: Policy, is_first: bool) -> Option<Wish> {
    let (choice, deadline, here) = match (policy, is_first) {
        (Policy::Alone, true) => (Choice::Best(0), DEADLINE, true),
        (Policy::After, true) => (Choice::Best(0), DEADLINE / 2, true),
        (Policy::After, false) => (Choice::Best(1), DEADLINE / 2, false),
        (Policy::Best, true) => (Choice::Best(2), DEADLINE, true),
        (Policy::Random, true) => (Choice::Random(1), DEADLINE, true),
        (Policy::Alone | Policy::Best | Policy::Random, false) => return None,
    };
    Some(Wish {
        resource: Resource::Job,
        amount: 1,
        deadline,
        hold: DEADLINE,
        waits: true,
        choice,
        here,
    })
}

/// Allocates a place for each request.
fn place(mut client: Client, policy: Policy, asked: &Receiver<Asked>) -> Outcome<()> {
    let mut waiting: BTreeMap<u64, (bool, Sender<Option<Allocation>>)> = BTreeMap::new();
    loop {
        for one in asked.try_iter() {
            match one {
                Asked::Place(told) => {
                    let wish = wish(policy, true).ok_or("each policy has one")?;
                    waiting.insert(client.begin(&wish)?, (true, told));
                }
                Asked::Back(allocation) => client.give_back(&allocation),
            }
        }
        for allocation in client.poll(TURN)? {
            let Some((is_first, told)) = waiting.remove(&allocation.id) else {
                continue;
            };
            let next = wish(policy, false).filter(|_| is_first);
            match (allocation.outcome, next) {
                (Ended::Granted { .. }, _) => drop(told.send(Some(allocation))),
                (_, Some(wish)) => {
                    waiting.insert(client.begin(&wish)?, (false, told));
                }
                (_, None) => drop(told.send(None)),
            }
        }
    }
}
