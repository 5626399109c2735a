//! `ecalls guard` beside a server that is too slow for its clients: one thread, which takes a fixed
//! time for each connection. Needs root.
//!
//! `compare_with_backlogs_*` measure the figures of doc/servers.md. They run only if wanted, in a
//! network namespace of their own, since they change a setting: `unshare --net sh -c 'ip link set
//! lo up; cargo test -p ecalls-cli --test guard -- --ignored --nocapture --test-threads 1'`.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use limit::net::Net;
use limit::{Ended, Lines, Running, ended};
use rustix::event::epoll;
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt::set_socket_reuseaddr,
};
use serde_json::Value;

/// How long anything that should happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client waits for its reply, as in the papers.
const TIMEOUT: Duration = Duration::from_secs(1);

const IP4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const IP6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn may_load() -> bool {
    let may = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if !may {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    may
}

fn guard(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls"));
    command
        .args(["guard", "--port", &port.to_string()])
        .args(arguments);
    command
}

/// A guard that works, and its lines, which are JSON.
fn start(port: u16, arguments: &[&str]) -> (Running, Lines) {
    let mut command = guard(port, arguments);
    command.args(["--json", "--every", "100ms"]);
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    running.complaints().find("guards port", PATIENCE);
    let lines = running.lines();
    (running, lines)
}

/// Reads lines until one is as it should be.
fn wait_for(lines: &mut Lines, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let line = lines.next(PATIENCE).expect("the guard ended");
        let line = serde_json::from_str(&line).expect("JSON");
        if is_it(&line) {
            return line;
        }
        assert!(begin.elapsed() < PATIENCE, "waited too long: {what}");
    }
}

fn listener(address: SocketAddr, backlog: i32) -> TcpListener {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    set_socket_reuseaddr(&socket, true).expect("a socket takes it");
    bind(&socket, &address).expect("a free port");
    listen(&socket, backlog).expect("it listens");
    socket.into()
}

/// A server of one thread: it accepts, reads, takes its time, replies, closes.
struct Server {
    address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(ip: IpAddr, page: Duration, backlog: i32) -> Server {
        let listener = listener(SocketAddr::new(ip, 0), backlog);
        let address = listener.local_addr().expect("it is bound");
        let end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let (mut client, _) = listener.accept().expect("a connection");
                // What a client that has gone does not send or take, nobody misses.
                let _ = client.set_read_timeout(Some(TIMEOUT));
                let _ = client.read(&mut [0; 64]);
                std::thread::sleep(page);
                let _ = client.write_all(b"reply");
            }
        });
        Server {
            address,
            end,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // It may wait for a connection; or the guard refuses this one, and others are queued.
        let _ = TcpStream::connect_timeout(&self.address, TIMEOUT);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// What became of the clients.
#[derive(Debug, Default)]
struct Outcome {
    /// Time from each connect to its reply, within [`TIMEOUT`], in ascending order.
    replies: Vec<Duration>,
    /// How many of them there were when the last client came.
    until_last: usize,
    refused: usize,
    late: usize,
}

impl Outcome {
    fn quantile(&self, of_100: usize) -> Duration {
        let last = self.replies.len().saturating_sub(1);
        let at = (self.replies.len() * of_100 / 100).min(last);
        self.replies.get(at).copied().unwrap_or_default()
    }
}

/// A client's connection.
struct Client {
    socket: OwnedFd,
    since: Instant,
    has_asked: bool,
}

/// Clients that come at the times `at` of the first `total` numbers, whatever becomes of those
/// before them (an open loop).
fn clients(server: SocketAddr, total: u32, at: impl Fn(u32) -> Duration) -> Outcome {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
    let mut live: Vec<Option<Client>> = Vec::new();
    let (mut outcome, begin, mut oldest) = (Outcome::default(), Instant::now(), 0);
    let mut events = Vec::with_capacity(1024);
    while live.len() < total as usize || oldest < live.len() {
        while live.len() < total as usize && at(live.len() as u32) <= begin.elapsed() {
            let key = epoll::EventData::new_u64(live.len() as u64);
            live.push(begin_one(server, &poll, key));
            outcome.until_last = outcome.replies.len();
        }
        while let Some(first) = live.get(oldest) {
            match first {
                Some(client) if client.since.elapsed() < TIMEOUT => break,
                Some(_) => outcome.late += 1,
                None => {}
            }
            live[oldest] = None;
            oldest += 1;
        }
        events.clear();
        let wait = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 500_000,
        };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&poll, buffer, Some(&wait)).expect("events");
        for event in &events {
            let key = event.data.u64() as usize;
            if let Some(client) = live[key].take() {
                live[key] = step(client, &poll, event.data, &mut outcome);
            }
        }
    }
    outcome.replies.sort_unstable();
    outcome
}

fn steady(server: SocketAddr, per_s: u32, time: Duration) -> Outcome {
    let total = (f64::from(per_s) * time.as_secs_f64()) as u32;
    clients(server, total, |number| {
        Duration::from_secs(1) * number / per_s
    })
}

/// A number of clients at once, four times a second.
fn bursts(server: SocketAddr, size: u32, time: Duration) -> Outcome {
    let gap = Duration::from_millis(250);
    let total = size * (time.as_millis() / gap.as_millis()) as u32;
    clients(server, total, |number| gap * (number / size))
}

fn begin_one(server: SocketAddr, poll: &OwnedFd, key: epoll::EventData) -> Option<Client> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
    let since = Instant::now();
    // In progress, or refused: the first event tells.
    let _ = connect(&socket, &server);
    epoll::add(poll, &socket, key, epoll::EventFlags::OUT).expect("a place in the set");
    Some(Client {
        socket,
        since,
        has_asked: false,
    })
}

/// Its next event; `None`: it is done.
fn step(
    mut client: Client,
    poll: &OwnedFd,
    key: epoll::EventData,
    outcome: &mut Outcome,
) -> Option<Client> {
    if !client.has_asked {
        let is_connected = socket_error(&client.socket).is_ok_and(|error| error.is_ok());
        if !is_connected || rustix::io::write(&client.socket, b"page").is_err() {
            outcome.refused += 1;
            return None;
        }
        client.has_asked = true;
        epoll::modify(poll, &client.socket, key, epoll::EventFlags::IN).expect("it is in the set");
        return Some(client);
    }
    match rustix::io::read(&client.socket, &mut [0; 64]) {
        Ok(bytes) if bytes > 0 => outcome.replies.push(client.since.elapsed()),
        _ => outcome.refused += 1,
    }
    None
}

/// Three times as many clients as the server has time for, with a guard in that mode or without.
fn overload(ip: IpAddr, mode: Option<&str>) -> Outcome {
    let server = Server::start(ip, Duration::from_millis(20), 4096);
    let port = server.address.port();
    let guard = mode.map(|mode| start(port, &["--mode", mode]));
    let outcome = steady(server.address, 150, Duration::from_secs(4));
    if let Some((mut guard, mut lines)) = guard {
        let line = wait_for(&mut lines, "all clients are gone", |line| {
            line["admitted"] == 0 && line["refused"] == 0 && line["open"] == 0
        });
        assert!(line["refused_total"].as_u64() > Some(200), "{line}");
        assert!(line["turns"].as_u64() > Some(3), "{line}");
        guard.kill(PATIENCE);
    }
    outcome
}

#[test]
fn overloaded_server_replies_in_time_with_a_guard() {
    if !may_load() {
        return;
    }
    // They sleep nearly always, so they may run side by side.
    std::thread::scope(|scope| {
        for ip in [IP4, IP6] {
            let run = |mode| scope.spawn(move || overload(ip, mode));
            let (without, modes) = (run(None), ["refuse", "drop"]);
            let with = modes.map(|mode| run(Some(mode)));
            let without = without.join().expect("an outcome");
            for (mode, with) in modes.into_iter().zip(with) {
                let with = with.join().expect("an outcome");
                compare(&format!("{ip} {mode}"), &without, &with);
                assert_eq!(with.refused > 0, mode == "refuse", "{with:?}");
            }
        }
    });
}

/// Of 200 that the server can make, it makes some 50 before the queue is a second long.
fn compare(what: &str, without: &Outcome, with: &Outcome) {
    let (before, after) = (without.replies.len(), with.replies.len());
    let told = format!("{what}: {before} replies without, {after} with");
    assert!(after as f64 > 1.75 * before as f64, "{told}");
    let (before, after) = (without.quantile(50), with.quantile(50));
    let told = format!("{what}: {before:?} without, {after:?} with");
    assert!(after.as_secs_f64() < 0.4 * before.as_secs_f64(), "{told}");
}

#[test]
fn server_with_time_for_its_clients_refuses_none() {
    if !may_load() {
        return;
    }
    let server = Server::start(IP4, Duration::from_millis(5), 128);
    let (_guard, mut lines) = start(server.address.port(), &["--mode", "refuse"]);
    let time = Duration::from_secs(2);
    let outcome = steady(server.address, 100, time);
    assert_eq!(outcome.replies.len(), 200, "{outcome:?}");
    // Within the target it takes 9.
    let outcome = bursts(server.address, 6, time);
    assert_eq!(outcome.replies.len(), 48, "{outcome:?}");
    let line = wait_for(&mut lines, "all came", |line| line["admitted_total"] == 248);
    assert_eq!(line["refused_total"], 0, "{line}");
}

/// Connects until it is refused: nobody accepts.
fn connect_until_refused(address: SocketAddr) -> Vec<TcpStream> {
    let (mut connected, begin) = (Vec::new(), Instant::now());
    loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => connected.push(stream),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return connected;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "nothing is refused");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn guard_that_is_killed_leaves_nothing() {
    if !may_load() {
        return;
    }
    for ip in [IP4, IP6] {
        let stuck = listener(SocketAddr::new(ip, 0), 4096);
        let address = stuck.local_addr().expect("it is bound");
        let (mut guard, _lines) = start(address.port(), &["--mode", "refuse"]);
        let connected = connect_until_refused(address);
        assert!(!connected.is_empty(), "the first one has an empty queue");
        guard.kill(PATIENCE);
        // The kernel ends the attachments of a process soon after it.
        let begin = Instant::now();
        while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
            assert!(begin.elapsed() < PATIENCE, "still refused");
        }
    }
}

#[test]
fn listener_that_is_closed_and_opened_again_is_guarded() {
    if !may_load() {
        return;
    }
    let stuck = listener(SocketAddr::new(IP4, 0), 4096);
    let address = stuck.local_addr().expect("it is bound");
    let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
    drop(connect_until_refused(address));
    drop(stuck);
    wait_for(&mut lines, "it is closed", |line| {
        line["state"] == "no_listener"
    });
    let _again = listener(address, 4096);
    wait_for(&mut lines, "it is open", |line| line["listeners"] == 1);
    let connected = connect_until_refused(address);
    assert!(
        !connected.is_empty(),
        "a new listener begins with an empty queue"
    );
}

fn refusal(command: &mut Command) -> Ended {
    ended(command, PATIENCE)
}

#[test]
fn what_cannot_be_guarded_is_told() {
    for wrong in [
        ["--target-delay", "1ms"],
        ["--mode", "sorry"],
        ["--port", "0"],
    ] {
        assert_eq!(refusal(&mut guard(80, &wrong)).code, 2, "{wrong:?}");
    }
    if !may_load() {
        return;
    }
    let mut command = guard(80, &[]);
    let told = refusal(command.uid(64012));
    assert_eq!(told.code, 3, "{told:?}");
    assert!(told.err.contains("CAP_NET_ADMIN"), "{told:?}");

    // A port of this namespace, looked at from another one.
    let here = listener(SocketAddr::new(IP4, 0), 1);
    let port = here.local_addr().expect("it is bound").port().to_string();
    let net = Net::start();
    let mut command = net.command(env!("CARGO_BIN_EXE_ecalls"));
    let told = refusal(command.args(["guard", "--port", &port]));
    assert_eq!(told.code, 5, "{told:?}");
    assert!(told.err.contains("no server listens"), "{told:?}");
}

#[test]
fn capabilities_of_the_unit_are_enough() {
    if !may_load() {
        return;
    }
    let unit = include_str!("../../../etc/systemd/ecalls-guard@.service");
    let given = |key: &str| {
        let given = unit.lines().find_map(|line| line.strip_prefix(key));
        given.expect("the unit says so").to_lowercase()
    };
    let wanted = given("AmbientCapabilities=");
    assert_eq!(wanted, given("CapabilityBoundingSet="));
    let wanted = wanted.replace("cap_", "+").replace(' ', ",");
    let here = listener(SocketAddr::new(IP4, 0), 1);
    let port = here.local_addr().expect("it is bound").port();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=64012", "--regid=64012", "--clear-groups"]);
    for set in ["bounding-set", "inh-caps", "ambient-caps"] {
        command.arg(format!("--{set}=-all,{wanted}"));
    }
    let guarding = guard(port, &["--count", "1", "--every", "100ms", "--json"]);
    command
        .arg(guarding.get_program())
        .args(guarding.get_args());
    let told = ended(&mut command, PATIENCE);
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.out.lines().count(), 1, "{told:?}");
}

/// `tcp_abort_on_overflow` while it lives.
struct Abort;

impl Abort {
    const PATH: &str = "/proc/sys/net/ipv4/tcp_abort_on_overflow";

    fn new() -> Abort {
        std::fs::write(Abort::PATH, "1").expect("root may");
        Abort
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        let _ = std::fs::write(Abort::PATH, "0");
    }
}

fn show(page: Duration, name: &str, load: &str, time: Duration, outcome: &Outcome) {
    println!(
        "{:>3} ms  {load:<13} {name:<20} {:>7.1} replies/s  p50 {:>4} ms  p99 {:>4} ms  \
         refused {:>5}  late {:>5}",
        page.as_millis(),
        outcome.until_last as f64 / time.as_secs_f64(),
        outcome.quantile(50).as_millis(),
        outcome.quantile(99).as_millis(),
        outcome.refused,
        outcome.late,
    );
}

/// Three times as many clients as the server has time for, and a fifth of what it has time for,
/// in bursts: with each of these backlogs, without and with `tcp_abort_on_overflow`, and with the
/// guard as it comes.
fn compare_with_backlogs(page_ms: u64) {
    let (page, time) = (Duration::from_millis(page_ms), Duration::from_secs(4));
    let per_s = 3000 / page_ms as u32;
    let run = |name: &str, backlog, mode: Option<&str>| {
        let server = Server::start(IP4, page, backlog);
        let _guard = mode.map(|mode| start(server.address.port(), &["--mode", mode]));
        let outcome = steady(server.address, per_s, time);
        show(page, name, "3 x capacity", time, &outcome);
        if page_ms == 50 || name.ends_with("abort") {
            return;
        }
        drop((server, _guard));
        let server = Server::start(IP4, page, backlog);
        let _guard = mode.map(|mode| start(server.address.port(), &["--mode", mode]));
        let size = 50 / page_ms as u32;
        let outcome = bursts(server.address, size, time);
        show(page, name, &format!("bursts of {size}"), time, &outcome);
    };
    for backlog in [1, 2, 4, 16, 64, 4096] {
        run(&format!("backlog {backlog}"), backlog, None);
    }
    for backlog in [2, 16] {
        let _abort = Abort::new();
        run(&format!("backlog {backlog}, abort"), backlog, None);
    }
    run("guard, drop", 4096, Some("drop"));
    run("guard, refuse", 4096, Some("refuse"));
}

#[test]
#[ignore = "a measurement, which changes a setting of its network namespace"]
fn compare_with_backlogs_page_of_2_ms() {
    compare_with_backlogs(2);
}

#[test]
#[ignore = "a measurement, which changes a setting of its network namespace"]
fn compare_with_backlogs_page_of_10_ms() {
    compare_with_backlogs(10);
}

#[test]
#[ignore = "a measurement, which changes a setting of its network namespace"]
fn compare_with_backlogs_page_of_50_ms() {
    compare_with_backlogs(50);
}
