//! Rows `answer_hit` and `answer_miss`: a key/value cache over UDP, whose hot keys the kernel
//! answers or does not (examples/answer), beside memcached with the same requests.
//!
//! The client is another host: a network namespace at the other end of a cable (veth). What a host
//! receives, it processes on a processor of its own (receive packet steering), as if each had a
//! network card. The client has 1, 16 or 64 requests under way all the time, so the load is what
//! the server has time for. The servers take turns, several times, and values are medians. For how
//! long the server could have run and did not is told beside each: a server that other work keeps
//! from its processor looks worse than it is.

mod client;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ecalls_answer::Cache;
use rustix::param::clock_ticks_per_second;
use rustix::thread::gettid;

use self::client::{Client, MACS, Request};
use super::Line;
use super::stage::{self, Stage};
use crate::bench::channel::net::Net;
use crate::bench::io::median;
use crate::bench::network::{ip, within};
use crate::bench::timing::{self, os};
use crate::exit::{Code, Failure};
use crate::output::note;
use crate::web::program::{Running, find};

const HIT: &str = "answer_hit";
const MISS: &str = "answer_miss";
pub(super) const ROWS: [&str; 2] = [HIT, MISS];

/// Keys that are asked for in turn.
const KEYS: usize = 64;
/// Bytes of a value: its reply is less than three times as long as its request.
const VALUE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A reply that takes longer is lost.
const LOST: Duration = Duration::from_secs(3);

/// The cable's ends, and its hosts.
const END: &str = "ecb3";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// The processors that process what a new interface receives, as a mask in hexadecimal.
const STEERING: &str = "/proc/sys/net/core/rps_default_mask";

/// A server, and who answers.
const SERVERS: [(&str, &str); 3] = [
    ("memcached", "process"),
    ("answer", "process"),
    ("answer", "kernel"),
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) rounds: usize,
    /// Of each value.
    pub(super) seconds: f64,
    /// Requests under way.
    pub(super) under_way: &'static [u16],
}

/// A server that runs.
enum Server {
    Other(Running),
    Ours {
        serving: JoinHandle<Option<u64>>,
        thread: u32,
    },
}

/// What a client found.
#[derive(Clone, Copy, Debug)]
struct Found {
    replies_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
    /// The part of the time in which the server could have run and did not.
    kept_from: f64,
}

/// The client's host, at the other end of a cable.
struct Far(Net);

impl Far {
    fn connect(stage: &Stage) -> Result<Far, Failure> {
        let failed = |error| Failure::new(Code::Failed, format!("the client's host: {error}"));
        let net = Net::new().map_err(failed)?;
        // An interface has this from when it is made on.
        let steer = |cpu: usize| {
            std::fs::write(STEERING, format!("{:x}", 1_u64 << cpu))
                .map_err(|error| os(&format!("writing to {STEERING} (Linux 6.4)"), error))
        };
        steer(stage.server_cpu)?;
        within(net.pid(), || steer(stage.clients_cpu))?;
        let [here, there] = MACS.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        ip(&format!(
            "link add {END} address {here} type veth peer name eth address {there} netns {}",
            net.pid()
        ))?;
        ip(&format!("address add {HERE}/24 dev {END}"))?;
        ip(&format!("link set {END} up"))?;
        // Nobody there would tell it.
        ip(&format!("neighbour add {THERE} lladdr {there} dev {END}"))?;
        net.ip("link set eth up").map_err(failed)?;
        Ok(Far(net))
    }

    /// A client of that server.
    fn client(&self, server: SocketAddrV4) -> Result<Client, Failure> {
        within(self.0.pid(), || {
            Client::open("eth", THERE, server).map_err(|error| os("opening a packet socket", error))
        })
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // With its other end.
        let _ = ip(&format!("link delete {END}"));
    }
}

/// Measures all servers.
pub(super) fn lines(stage: &Stage, effort: Effort) -> Result<Vec<Line>, Failure> {
    timing::pin(stage.clients_cpu);
    let far = Far::connect(stage)?;
    let kinds: Vec<(usize, u16)> = (0..ROWS.len())
        .flat_map(|row| effort.under_way.iter().map(move |many| (row, *many)))
        .collect();
    let mut found = vec![vec![Vec::new(); kinds.len()]; SERVERS.len()];
    for _ in 0..effort.rounds {
        for (at, (server, who)) in SERVERS.iter().enumerate() {
            let Some((server, client)) = start(stage, &far, server, who)? else {
                continue;
            };
            let cpus = [stage.clients_cpu, stage.server_cpu];
            let all = kinds.iter().map(|(row, under_way)| {
                let requests = requests(&client, ROWS[*row] == HIT);
                let waited_ns = server.waited_ns()?;
                let found = measure(&client, requests, *under_way, effort.seconds, cpus)?;
                let kept_from = (server.waited_ns()? - waited_ns) / (effort.seconds * 1e9);
                Ok(Found { kept_from, ..found })
            });
            let all: Result<Vec<Found>, Failure> = all.collect();
            server.end(&client)?;
            for (kept, one) in found[at].iter_mut().zip(all?) {
                kept.push(one);
            }
            if stage.stop.is_set() {
                return Ok(Vec::new());
            }
        }
    }
    let servers = SERVERS.iter().zip(&found);
    let lines = servers.flat_map(|(server, of_kinds)| {
        let measured = kinds.iter().zip(of_kinds);
        let measured = measured.filter(|(_, found)| !found.is_empty());
        measured.map(|((row, many), found)| line(ROWS[*row], *server, *many, found))
    });
    Ok(lines.collect())
}

fn line(
    row: &'static str,
    (server, mode): (&'static str, &'static str),
    under_way: u16,
    found: &[Found],
) -> Line {
    let median = |of: fn(&Found) -> f64| median(found.iter().map(of));
    let replies_per_s = median(|found| found.replies_per_s);
    Line {
        row,
        server,
        mode,
        offered_per_s: replies_per_s,
        idle: 0,
        guard: "none",
        clients: "ours",
        replies_per_s,
        refused_per_s: 0.0,
        p50_ms: Some(median(|found| found.p50_ms)),
        p99_ms: Some(median(|found| found.p99_ms)),
        cpu_us_per_request: Some(median(|found| found.cpu_us)),
        calls_per_request: None,
        under_way: Some(under_way),
        kept_from: median(|found| found.kept_from),
    }
}

/// What `--check` bounds: a value by its base, and the largest ratio.
type Bound = (&'static str, Option<f64>, Option<f64>, f64);

/// The bounds of `--check`. Without other work the first three were 0.41, 0.23 and 0.28.
pub(super) fn bounds(lines: &[Line]) -> [Bound; 4] {
    let of = |row: &str, (server, mode): (&str, &str), under_way: u16| {
        let mut lines = lines.iter();
        lines.find(|line| {
            (line.row, line.server, line.mode) == (row, server, mode)
                && line.under_way == Some(under_way)
        })
    };
    let rate = |row, server| of(row, server, 16).map(|line| line.replies_per_s);
    let time = |row, server| of(row, server, 16).and_then(|line| line.p50_ms);
    let cost = |row, server| of(row, server, 16).and_then(|line| line.cpu_us_per_request);
    let [memcached, process, kernel] = SERVERS;
    [
        (
            "replies of memcached, to those of the kernel",
            rate(HIT, memcached),
            rate(HIT, kernel),
            0.8,
        ),
        (
            "processor time of the kernel's replies and their clients, to that with memcached",
            cost(HIT, kernel),
            cost(HIT, memcached),
            0.7,
        ),
        (
            "time of half of the kernel's replies, to memcached's",
            time(HIT, kernel),
            time(HIT, memcached),
            0.6,
        ),
        (
            "replies to what goes up without the kernel, to those with it",
            rate(MISS, process),
            rate(MISS, kernel),
            1.5,
        ),
    ]
}

/// Starts a server on its processor, with all keys; `None`: it is not installed.
fn start(
    stage: &Stage,
    far: &Far,
    server: &str,
    who: &str,
) -> Result<Option<(Server, Client)>, Failure> {
    let cpu = stage.server_cpu;
    let at = free_address().map_err(|error| os("opening a socket", error))?;
    let started = if server == "memcached" {
        let Some(program) = find(server) else {
            note(format_args!("not measured: {server} is not installed"));
            return Ok(None);
        };
        let words = format!("-l {HERE} -p 0 -U {} -t 1 -u nobody", at.port());
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let running = Running::start(&program, &words, None)?;
        running.pin(cpu);
        Server::Other(running)
    } else {
        let interface = (who == "kernel").then_some(END);
        let mut cache = Cache::open(at.into(), interface, 1_000_000_000)
            .map_err(|error| os("starting the cache", error))?;
        let (told, thread) = mpsc::channel();
        let serving = std::thread::spawn(move || {
            timing::pin(cpu);
            told.send(gettid().as_raw_nonzero().get().unsigned_abs())
                .ok()?;
            while cache.serve().ok()? > 0 {}
            cache.counts().ok()?.map(|counts| counts.answered)
        });
        let thread = thread
            .recv()
            .map_err(|error| os("starting the cache", error))?;
        Server::Ours { serving, thread }
    };
    let client = far.client(at)?;
    let wait_at_most = |time| {
        let set = client.wait_at_most(time);
        set.map_err(|error| os("waiting for a cache", error))
    };
    // Until it listens.
    wait_at_most(LOOK_AGAIN)?;
    let end = Instant::now() + PATIENCE;
    while ask(&client, &get("x")).is_err() {
        if Instant::now() > end || stage.stop.is_set() {
            return Err(os("starting a cache", format!("{server} does not answer")));
        }
    }
    wait_at_most(LOST)?;
    for key in 0..KEYS {
        let text = format!(
            "set {} 0 0 {VALUE}\r\n{}\r\n",
            name(key, true),
            "v".repeat(VALUE)
        );
        ask(&client, &frame(&text))
            // So that ours has it in a cell.
            .and_then(|()| ask(&client, &get(&name(key, true))))
            .map_err(|error| os("filling a cache", error))?;
    }
    Ok(Some((started, client)))
}

impl Server {
    /// For how long it could have run and did not: each of its threads.
    fn waited_ns(&self) -> Result<f64, Failure> {
        match self {
            Server::Ours { thread, .. } => {
                Ok(stage::times(&format!("self/task/{thread}"))?.waited_ns)
            }
            Server::Other(running) => {
                let folder = format!("{}/task", running.pid());
                let threads = std::fs::read_dir(format!("/proc/{folder}"))?;
                let waited = threads.map(|thread| {
                    let thread = thread?.file_name().to_string_lossy().into_owned();
                    Ok(stage::times(&format!("{folder}/{thread}"))?.waited_ns)
                });
                waited.sum()
            }
        }
    }

    /// Ends it, and looks whether the kernel has answered.
    fn end(self, client: &Client) -> Result<(), Failure> {
        let Server::Ours { serving, .. } = self else {
            return Ok(());
        };
        client
            .send(&mut client.request(&[]), 0)
            .map_err(|error| os("ending the cache", error))?;
        match serving.join() {
            Ok(Some(0)) => Err(os("measuring", "the kernel has answered nothing")),
            Ok(_) => Ok(()),
            Err(_) => Err(os("measuring", "the cache has ended")),
        }
    }
}

fn free_address() -> std::io::Result<SocketAddrV4> {
    let socket = UdpSocket::bind((HERE, 0))?;
    Ok(SocketAddrV4::new(HERE, socket.local_addr()?.port()))
}

/// A key of 32 bytes.
fn name(key: usize, hits: bool) -> String {
    format!("{}-{key:027}", if hits { "keys" } else { "none" })
}

fn frame(text: &str) -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 1, 0, 0][..], text.as_bytes()].concat()
}

fn get(key: &str) -> Vec<u8> {
    frame(&format!("get {key}\r\n"))
}

fn ask(client: &Client, request: &[u8]) -> std::io::Result<()> {
    client.send(&mut client.request(request), 0)?;
    client.receive().map(drop)
}

/// For how long these processors have been busy, in us. What the kernel does for a packet is no
/// thread's, so it is in no thread's time.
fn busy_us(cpus: [usize; 2]) -> Result<f64, Failure> {
    let text =
        std::fs::read_to_string("/proc/stat").map_err(|error| os("reading /proc/stat", error))?;
    let mut ticks = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        if cpus.iter().any(|cpu| name == format!("cpu{cpu}")) {
            // user nice system idle iowait irq softirq
            let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            ticks += [0, 1, 2, 5, 6]
                .iter()
                .filter_map(|at| times.get(*at))
                .sum::<u64>();
        }
    }
    Ok(ticks as f64 * 1e6 / clock_ticks_per_second() as f64)
}

/// For keys that there are, or for others.
fn requests(client: &Client, hits: bool) -> Vec<Request> {
    let keys = (0..KEYS).map(|key| get(&name(key, hits)));
    keys.map(|data| client.request(&data)).collect()
}

/// Asks with so many requests under way. Their numbers tell which one a reply belongs to.
fn measure(
    client: &Client,
    mut requests: Vec<Request>,
    under_way: u16,
    seconds: f64,
    cpus: [usize; 2],
) -> Result<Found, Failure> {
    let failed = |error| os("asking a cache", format!("a reply is lost ({error})"));
    let mut begun = vec![Instant::now(); usize::from(u16::MAX) + 1];
    let mut send = |number: u16, begun: &mut [Instant]| {
        begun[usize::from(number)] = Instant::now();
        client.send(&mut requests[usize::from(number) % KEYS], number)
    };
    let mut next = under_way;
    for number in 0..under_way {
        send(number, &mut begun).map_err(failed)?;
    }
    let mut times_ns = Vec::new();
    let (start, before_us) = (Instant::now(), busy_us(cpus)?);
    while start.elapsed().as_secs_f64() < seconds {
        // As many again as have arrived: a host takes packets in bursts, if they come so.
        let mut arrived = Some(client.receive().map_err(failed)?);
        let before = times_ns.len();
        while let Some(number) = arrived {
            times_ns.push(begun[usize::from(number)].elapsed().as_nanos() as f64);
            arrived = client.receive_next().map_err(failed)?;
        }
        for _ in before..times_ns.len() {
            send(next, &mut begun).map_err(failed)?;
            next = next.wrapping_add(1);
        }
    }
    let replies = times_ns.len() as f64;
    let (elapsed_s, busy_us) = (start.elapsed().as_secs_f64(), busy_us(cpus)? - before_us);
    for _ in 0..under_way {
        client.receive().map_err(failed)?;
    }
    times_ns.sort_by(f64::total_cmp);
    let part = |part: f64| times_ns[(replies * part) as usize] / 1e6;
    Ok(Found {
        replies_per_s: replies / elapsed_s,
        p50_ms: part(0.5),
        p99_ms: part(0.99),
        cpu_us: busy_us / replies,
        kept_from: 0.0,
    })
}
