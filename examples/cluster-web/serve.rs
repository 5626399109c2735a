//! A server: it answers requests of its users, and does the work that other servers send.
//!
//! One thread owns the client of the managers, and has any number of allocations under way; each
//! connection has a thread, which waits for its place. Paths of requests: `/N` is a user's, by
//! policy N; `/work` another server's; `/tell/MS` sets how often the manager tells its load, and
//! `/cost` asks for the processor time of the manager, the client, its choices, and the kernel's
//! receiving.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ecalls::Ecalls;
use ecalls_channel::Channel;
use ecalls_channel::source::receiving_ns;
use ecalls_cluster::Manager;
use ecalls_cluster::ask::Outcome as Ended;
use ecalls_cluster::choice::Choice;
use ecalls_cluster::client::{Allocation, Client, Wish};
use ecalls_cluster::manager::Setup;
use ecalls_cluster::message::{CHANNEL, FORMAT, KINDS};
use ecalls_cluster::resource::{Amounts, Resource};
use rustix::time::{ClockId, clock_gettime};

use super::load::get;
use super::{COMPUTES, HOSTS, Outcome, POLICIES, PORT, WORK, address};

/// How long a request waits for its place.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long the client waits for answers before it looks for further requests.
const TURN: Duration = Duration::from_millis(1);

/// Where requests are done.
#[allow(dead_code, reason = "the example does not use all of them")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Here, within 5 s.
    Alone,
    /// Here; on the best other host after 2.5 s: the paper's.
    After,
    /// On one of so many best other hosts, or here if that is said: on whichever begins first.
    Best(usize, bool),
    /// The same, on hosts at random.
    Random(usize, bool),
    /// On one host after the other, without asking.
    Turn,
}

/// To the thread that owns the client.
enum Asked {
    Place(Policy, Sender<Option<Allocation>>),
    Back(Allocation),
}

/// What all threads of a server know.
#[derive(Clone)]
struct Server {
    host: u8,
    ecalls: Ecalls,
    asks: Sender<Asked>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// How often the manager tells, ms; 0: as it likes.
    tell_ms: AtomicU64,
    /// Processor time of the threads of manager and client, ns.
    manager_ns: AtomicU64,
    client_ns: AtomicU64,
    /// Of the client: what it took to choose hosts and to ask them.
    choosing_ns: AtomicU64,
    /// Requests that were forwarded in turn.
    forwarded: AtomicUsize,
}

/// Serves until killed.
pub(crate) fn serve(host: &str) -> Outcome<()> {
    let host: u8 = host.parse()?;
    let ecalls = Ecalls::host()?;
    let channel = Channel::open(&ecalls, CHANNEL, FORMAT, KINDS, "eth")?;
    for other in (1..=HOSTS).filter(|other| *other != host) {
        channel.add_sink(address(other).parse()?)?;
    }
    let client = Client::join(&ecalls, CHANNEL)?;
    let (asks, asked) = self::channel();
    let shared = Arc::new(Shared::default());
    let server = Server {
        host,
        ecalls: ecalls.clone(),
        asks,
        shared: Arc::clone(&shared),
    };
    std::thread::spawn(move || place(client, &asked, &shared));
    let shared = Arc::clone(&server.shared);
    std::thread::spawn(move || manage(&ecalls, &shared));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    println!("serves");
    for stream in listener.incoming() {
        let server = server.clone();
        std::thread::spawn(move || answer(stream?, &server));
    }
    Ok(())
}

/// The manager, and another one whenever it is to tell at other intervals.
fn manage(ecalls: &Ecalls, shared: &Shared) -> Outcome<()> {
    let mut capacity = Amounts::default();
    *capacity.of_mut(Resource::Job) = 1;
    loop {
        let mut setup = Setup::new(capacity);
        let tell_ms = shared.tell_ms.load(Ordering::Relaxed);
        if tell_ms > 0 {
            setup.tell_least = Duration::from_millis(tell_ms);
            setup.tell_most = setup.tell_least;
        }
        let is_over = || {
            shared.manager_ns.store(thread_ns(), Ordering::Relaxed);
            shared.tell_ms.load(Ordering::Relaxed) != tell_ms
        };
        Manager::start(ecalls, CHANNEL, &setup)?.run(is_over)?;
    }
}

/// Processor time of this thread.
fn thread_ns() -> u64 {
    let used = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    u64::try_from(used.as_nanos()).unwrap_or(u64::MAX)
}

/// Answers one request.
fn answer(mut stream: TcpStream, server: &Server) -> Outcome<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().ok_or("no request")??;
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    let path = first.split(' ').nth(1).unwrap_or_default();
    let shared = &server.shared;
    let body = if path == "/work" {
        // Of another server, which has allocated this one.
        work();
        "done".to_owned()
    } else if let Some(ms) = path.strip_prefix("/tell/") {
        shared.tell_ms.store(ms.parse()?, Ordering::Relaxed);
        "told".to_owned()
    } else if path == "/cost" {
        let of = |time: &AtomicU64| time.load(Ordering::Relaxed);
        let [manager, client, choosing] =
            [&shared.manager_ns, &shared.client_ns, &shared.choosing_ns].map(of);
        let receiving = receiving_ns(&server.ecalls)?;
        format!("{manager} {client} {choosing} {receiving}")
    } else {
        let number: usize = path.trim_start_matches('/').parse()?;
        let (_, policy) = POLICIES.get(number).ok_or("no such policy")?;
        request(server, *policy)?.to_owned()
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
fn request(server: &Server, policy: Policy) -> Outcome<&'static str> {
    let asks = &server.asks;
    if let Policy::Turn = policy {
        let turn = server.shared.forwarded.fetch_add(1, Ordering::Relaxed);
        let host = (turn % usize::from(HOSTS)) as u8 + 1;
        if host != server.host {
            // It waits there for its turn.
            return match get(&address(host), "/0")?.as_str() {
                "here" => Ok("there"),
                _ => Ok("refused"),
            };
        }
    }
    let (told, heard) = channel();
    asks.send(Asked::Place(policy, told))?;
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
    let until_ns = thread_ns() + COMPUTES.as_nanos() as u64;
    while thread_ns() < until_ns {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
    std::thread::sleep(WORK.saturating_sub(begin.elapsed()));
}

/// The policy's wish: the first one of a request, or the one that follows if nobody had a place.
fn wish(policy: Policy, is_first: bool) -> Option<Wish> {
    let (choice, deadline, here) = match (policy, is_first) {
        (Policy::Alone | Policy::Turn, true) => (Choice::Best(0), DEADLINE, true),
        (Policy::After, true) => (Choice::Best(0), DEADLINE / 2, true),
        (Policy::After, false) => (Choice::Best(1), DEADLINE / 2, false),
        (Policy::Best(count, here), true) => (Choice::Best(count), DEADLINE, here),
        (Policy::Random(count, here), true) => (Choice::Random(count), DEADLINE, here),
        (_, false) => return None,
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

/// Chooses hosts by what they told, and asks them.
fn choose(client: &mut Client, wish: &Wish, shared: &Shared) -> Outcome<u64> {
    let before_ns = thread_ns();
    let id = client.begin(wish)?;
    let spent_ns = thread_ns() - before_ns;
    shared.choosing_ns.fetch_add(spent_ns, Ordering::Relaxed);
    Ok(id)
}

/// Allocates a place for each request.
fn place(mut client: Client, asked: &Receiver<Asked>, shared: &Shared) -> Outcome<()> {
    let mut waiting: BTreeMap<u64, (Option<Policy>, Sender<Option<Allocation>>)> = BTreeMap::new();
    loop {
        shared.client_ns.store(thread_ns(), Ordering::Relaxed);
        for one in asked.try_iter() {
            match one {
                Asked::Place(policy, told) => {
                    let wish = wish(policy, true).ok_or("each policy has one")?;
                    let id = choose(&mut client, &wish, shared)?;
                    waiting.insert(id, (Some(policy), told));
                }
                Asked::Back(allocation) => client.give_back(&allocation),
            }
        }
        for allocation in client.poll(TURN)? {
            let Some((policy, told)) = waiting.remove(&allocation.id) else {
                continue;
            };
            let next = policy.and_then(|policy| wish(policy, false));
            match (allocation.outcome, next) {
                (Ended::Granted { .. }, _) => drop(told.send(Some(allocation))),
                (_, Some(wish)) => {
                    waiting.insert(choose(&mut client, &wish, shared)?, (None, told));
                }
                (_, None) => drop(told.send(None)),
            }
        }
    }
}
