//! Rows `answer_hit` and `answer_miss`: a key/value cache over UDP, whose hot keys the kernel
//! answers or does not (examples/answer), beside memcached with the same requests.
//!
//! One client has requests under way all the time: many for the replies in a second, one for how
//! long each takes. So a client does not wait for others, and the load is what the server has time
//! for. The servers take turns, several times, and values are medians. What the kernel answers, it
//! answers on the client's processor, so the client asks for no more than that processor has time
//! for; what a request takes of both processors tells the rest.

use std::net::{Ipv4Addr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ecalls_answer::Cache;
use rustix::param::clock_ticks_per_second;

use super::Line;
use super::stage::Stage;
use crate::bench::io::median;
use crate::bench::timing::{self, os};
use crate::exit::Failure;
use crate::output::note;
use crate::web::program::{Running, find};

const HIT: &str = "answer_hit";
const MISS: &str = "answer_miss";
pub(super) const ROWS: [&str; 2] = [HIT, MISS];

/// Keys that are asked for in turn.
const KEYS: usize = 64;
/// Bytes of a value: its reply is less than three times as long as its request.
const VALUE: usize = 64;
/// Requests under way for the replies in a second.
const WINDOW: usize = 16;
const PATIENCE: Duration = Duration::from_secs(5);
/// A reply that takes longer is lost.
const LOST: Duration = Duration::from_secs(3);

/// A server, and who answers.
const SERVERS: [(&str, &str); 3] = [
    ("memcached", "process"),
    ("answer", "process"),
    ("answer", "kernel"),
];

/// A server that runs.
enum Server {
    Other(#[expect(dead_code, reason = "it ends when it is dropped")] Running),
    Ours(JoinHandle<Option<u64>>),
}

/// What a client found.
#[derive(Clone, Copy, Debug)]
struct Found {
    replies_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
}

/// Measures all servers, `rounds` times.
pub(super) fn lines(stage: &Stage, seconds: f64, rounds: usize) -> Result<Vec<Line>, Failure> {
    timing::pin(stage.clients_cpu);
    let mut found: Vec<[Vec<Found>; 2]> = SERVERS.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for (at, (server, who)) in SERVERS.iter().enumerate() {
            let Some((server, client)) = start(stage, server, who)? else {
                continue;
            };
            let cpus = [stage.clients_cpu, stage.server_cpu];
            let both = [true, false].map(|hits| measure(&client, hits, seconds, cpus));
            end(server, &client)?;
            for (kept, one) in found[at].iter_mut().zip(both) {
                kept.push(one?);
            }
            if stage.stop.is_set() {
                return Ok(Vec::new());
            }
        }
    }
    let servers = SERVERS.iter().zip(&found);
    let lines = servers.flat_map(|((server, mode), both)| {
        let rows = ROWS.iter().zip(both).filter(|(_, found)| !found.is_empty());
        rows.map(|(row, found)| line(row, server, mode, found))
    });
    Ok(lines.collect())
}

fn line(row: &'static str, server: &'static str, mode: &'static str, found: &[Found]) -> Line {
    let median = |of: fn(&Found) -> f64| median(found.iter().map(of));
    let replies_per_s = median(|found| found.replies_per_s);
    Line {
        row,
        server,
        mode,
        offered_per_s: replies_per_s,
        idle: 0,
        guard: "none",
        replies_per_s,
        refused_per_s: 0.0,
        p50_ms: Some(median(|found| found.p50_ms)),
        p99_ms: Some(median(|found| found.p99_ms)),
        cpu_us_per_request: Some(median(|found| found.cpu_us)),
        calls_per_request: None,
    }
}

/// What `--check` bounds: a value by its base, and the largest ratio.
type Bound = (&'static str, Option<f64>, Option<f64>, f64);

/// The bounds of `--check`.
pub(super) fn bounds(lines: &[Line]) -> [Bound; 4] {
    let of = |row: &str, (server, mode): (&str, &str)| {
        let mut lines = lines.iter();
        lines.find(|line| (line.row, line.server, line.mode) == (row, server, mode))
    };
    let rate = |row, server| of(row, server).map(|line| line.replies_per_s);
    let time = |row, server| of(row, server).and_then(|line| line.p50_ms);
    let cost = |row, server| of(row, server).and_then(|line| line.cpu_us_per_request);
    let [memcached, process, kernel] = SERVERS;
    [
        (
            "replies of memcached, to those of the kernel",
            rate(HIT, memcached),
            rate(HIT, kernel),
            1.0,
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
            0.3,
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
fn start(stage: &Stage, server: &str, who: &str) -> Result<Option<(Server, UdpSocket)>, Failure> {
    let failed = |error| os("opening a socket", error);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    client.set_read_timeout(Some(LOST)).map_err(failed)?;
    let port = free_port().map_err(failed)?;
    let cpu = stage.server_cpu;
    let started = if server == "memcached" {
        let Some(program) = find(server) else {
            note(format_args!("not measured: {server} is not installed"));
            return Ok(None);
        };
        let words = format!("-l 127.0.0.1 -p 0 -U {port} -t 1 -u nobody");
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let running = Running::start(&program, &words, None)?;
        running.pin(cpu);
        Server::Other(running)
    } else {
        let interface = (who == "kernel").then_some("lo");
        let at = (Ipv4Addr::LOCALHOST, port).into();
        let mut cache = Cache::open(at, interface, 1_000_000_000)
            .map_err(|error| os("starting the cache", error))?;
        Server::Ours(std::thread::spawn(move || {
            timing::pin(cpu);
            while cache.serve().ok()? > 0 {}
            cache.counts().ok()?.map(|counts| counts.answered)
        }))
    };
    client
        .connect((Ipv4Addr::LOCALHOST, port))
        .map_err(failed)?;
    // Until it listens.
    let end = Instant::now() + PATIENCE;
    while ask(&client, &get("x")).is_err() {
        if Instant::now() > end || stage.stop.sleep(Duration::from_millis(5)) {
            return Err(os("starting a cache", format!("{server} does not answer")));
        }
    }
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

/// Ends it, and looks whether the kernel has answered.
fn end(server: Server, client: &UdpSocket) -> Result<(), Failure> {
    let Server::Ours(thread) = server else {
        return Ok(());
    };
    client
        .send(&[])
        .map_err(|error| os("ending the cache", error))?;
    match thread.join() {
        Ok(Some(0)) => Err(os("measuring", "the kernel has answered nothing")),
        Ok(_) => Ok(()),
        Err(_) => Err(os("measuring", "the cache has ended")),
    }
}

fn free_port() -> std::io::Result<u16> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(socket.local_addr()?.port())
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

fn ask(client: &UdpSocket, request: &[u8]) -> std::io::Result<()> {
    client.send(request)?;
    client.recv(&mut [0; 2000]).map(drop)
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

/// Asks for keys that there are, or for others.
fn measure(
    client: &UdpSocket,
    hits: bool,
    seconds: f64,
    cpus: [usize; 2],
) -> Result<Found, Failure> {
    let failed = |error| os("asking a cache", format!("a reply is lost ({error})"));
    let requests: Vec<Vec<u8>> = (0..KEYS).map(|key| get(&name(key, hits))).collect();
    let mut next = requests.iter().cycle();
    let mut send = || client.send(next.next().map_or(&[], Vec::as_slice));
    let half = Duration::from_secs_f64(seconds / 2.0);

    let mut times_ns = Vec::new();
    let end = Instant::now() + half;
    while Instant::now() < end {
        let begun = Instant::now();
        send().map_err(failed)?;
        client.recv(&mut [0; 2000]).map_err(failed)?;
        times_ns.push(begun.elapsed().as_nanos() as f64);
    }
    times_ns.sort_by(f64::total_cmp);
    let part = |part: f64| times_ns[(times_ns.len() as f64 * part) as usize] / 1e6;

    let (begun, before_us) = (Instant::now(), busy_us(cpus)?);
    let mut replies = 0u32;
    for _ in 0..WINDOW {
        send().map_err(failed)?;
    }
    while begun.elapsed() < half {
        client.recv(&mut [0; 2000]).map_err(failed)?;
        replies += 1;
        send().map_err(failed)?;
    }
    let replies_per_s = f64::from(replies) / begun.elapsed().as_secs_f64();
    let cpu_us = (busy_us(cpus)? - before_us) / f64::from(replies);
    for _ in 0..WINDOW {
        client.recv(&mut [0; 2000]).map_err(failed)?;
    }
    Ok(Found {
        replies_per_s,
        p50_ms: part(0.5),
        p99_ms: part(0.99),
        cpu_us,
    })
}
