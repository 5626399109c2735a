//! What clients and servers do wrong beside a guard: connections that are there survive it, the
//! guard's counts are right afterwards, and the service returns. Each test has a network namespace
//! of its own.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use limit::calm::measured;
use limit::net::Net;
use limit::{Lines, Running};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::Value;

use crate::load::{Outcome, Server, TIMEOUT, clients, listener, serve, steady};
use crate::{AWAY, IP4, PATIENCE, connect_until_refused, may_load, start, wait_for};

/// Runs a test, with root, on a thread in a network namespace of its own.
pub(crate) fn in_net(test: impl FnOnce(&Net) + Send) {
    if !may_load() {
        return;
    }
    let net = Net::start();
    net.within(|| test(&net));
}

/// The same for a test whose figures are those of a machine that does not stand still.
fn measured_in_net(test: impl Fn(&Net) + Send + Sync) {
    measured(AWAY, || in_net(|net| test(net)));
}

/// Nine clients, the last two while others wait, of a server that needs 4 ms for each: it has time
/// for many more.
fn groups(server: SocketAddr, count: u32) -> Outcome {
    clients(server, count * 9, |number| {
        let within = [0, 0, 0, 0, 0, 0, 0, 18, 20][number as usize % 9];
        Duration::from_millis(u64::from(number / 9 * 150 + within))
    })
}

/// Asks and answers over a connection that is there.
fn exchange(ends: &mut (TcpStream, TcpStream)) {
    let (one, other) = ends;
    send(one, other);
    send(other, one);
}

fn send(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = [0; 4];
    to.set_read_timeout(Some(PATIENCE)).expect("a time");
    from.write_all(b"word").expect("it is there");
    to.read_exact(&mut bytes).expect("it is there");
}

fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let address = listener.local_addr().expect("it is bound");
    let client = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
    (client, listener.accept().expect("it is queued").0)
}

/// Reads lines until nobody comes any more and so many connections are open; returns how many were
/// established in these lines, and the last one.
fn settle(lines: &mut Lines, open: u64) -> (u64, Value) {
    settle_after(lines, open, 0)
}

/// The same, when so many have been established: the guard may tell of them late.
fn settle_after(lines: &mut Lines, open: u64, least: u64) -> (u64, Value) {
    let (mut established, begin) = (0, Instant::now());
    let line = wait_for(lines, "connections end", |line| {
        established += line["established"].as_u64().unwrap_or_default();
        let is_quiet = line["admitted"] == 0 && line["refused"] == 0;
        // Later than lines that wait to be read.
        let is_late = begin.elapsed() > TIMEOUT / 4;
        line["open"] == open && is_quiet && is_late && established >= least
    });
    (established, line)
}

/// A SYN of a client that does not exist: nobody answers what the server sends there.
fn syn(server: SocketAddrV4, number: u32) -> [u8; 40] {
    let mut packet = [0; 40];
    // The kernel completes the header.
    (packet[0], packet[8], packet[9]) = (0x45, 64, 6);
    let client = u32::from(Ipv4Addr::new(10, 1, 0, 0)) + number;
    packet[12..16].copy_from_slice(&client.to_be_bytes());
    packet[16..20].copy_from_slice(&server.ip().octets());
    packet[20..22].copy_from_slice(&40_000u16.to_be_bytes());
    packet[22..24].copy_from_slice(&server.port().to_be_bytes());
    (packet[32], packet[33], packet[34]) = (5 << 4, 2, 64);
    let words = packet[12..].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = sum + 6 + 20;
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A thousand of them in each second.
fn flood(server: SocketAddrV4, time: Duration) {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).expect("root may");
    let begin = Instant::now();
    for number in 0..time.as_millis() as u32 {
        let at = begin + Duration::from_millis(u64::from(number));
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let packet = syn(server, number);
        sendto(&raw, &packet, SendFlags::empty(), &server).expect("it takes packets");
    }
}

/// With room for all handshakes, and with SYN cookies.
#[test]
fn flood_of_syns_costs_nobody_a_connection() {
    measured_in_net(|net| {
        let ip = Ipv4Addr::new(10, 0, 0, 1);
        net.ip("addr add 10.0.0.1/32 dev lo");
        // What is sent there comes back and is discarded.
        net.ip("route add 10.1.0.0/16 dev lo");
        for backlog in [4096, 64] {
            let listener = listener(SocketAddr::new(ip.into(), 0), backlog);
            let SocketAddr::V4(address) = listener.local_addr().expect("it is bound") else {
                unreachable!("an address of IPv4");
            };
            let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
            let mut there = connection(&listener);
            let server = Server::at(listener, Duration::from_millis(4));
            let time = Duration::from_secs(3);
            let outcome = std::thread::scope(|scope| {
                scope.spawn(|| flood(address, time));
                // Let there be some.
                std::thread::sleep(time / 6);
                let outcome = groups(server.address, 13);
                exchange(&mut there);
                outcome
            });
            // A busy machine may make the server wait a little.
            assert!(outcome.replies.len() > 98, "{backlog}: {outcome:?}");
            let (established, line) = settle_after(&mut lines, 1, 99);
            assert!(
                (99..=118).contains(&established),
                "{established}, of: {line}"
            );
            assert!(line["admitted_total"].as_u64() > Some(1_000), "{line}");
            drop(there);
            settle(&mut lines, 0);
        }
    });
}

#[test]
fn connections_that_send_nothing_hold_the_server_up_only_while_they_are_there() {
    measured_in_net(|_| {
        let server = Server::start(IP4, Duration::from_millis(5), 4096);
        let (_guard, mut lines) = start(server.address.port(), &["--mode", "refuse"]);
        let silent = connect_until_refused(server.address);
        assert!(silent.len() < 30, "{} wait", silent.len());
        let during = steady(server.address, 50, Duration::from_secs(1));
        assert!(during.refused > 40, "told at once: {during:?}");
        drop(silent);
        settle(&mut lines, 0);
        let after = steady(server.address, 50, Duration::from_secs(1));
        assert!(after.replies.len() > 40, "{after:?}");
    });
}

#[test]
fn resets_right_after_the_handshake_are_counted_as_ends() {
    measured_in_net(|_| {
        let listener = listener(SocketAddr::new(IP4, 0), 4096);
        let address = listener.local_addr().expect("it is bound");
        let (_guard, mut lines) = start(address.port(), &["--target-delay", "60s"]);
        let mut there = connection(&listener);
        for _ in 0..500 {
            let client = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
            set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket takes it");
        }
        assert_eq!(settle_after(&mut lines, 1, 501).0, 501);
        exchange(&mut there);
        // They are queued still, and accepted like others.
        let server = Server::at(listener, Duration::ZERO);
        let after = steady(server.address, 50, Duration::from_secs(1));
        assert!(after.replies.len() > 40, "{after:?}");
        settle(&mut lines, 1);
        drop((server, there));
        wait_for(&mut lines, "all end", |line| {
            line["open"] == 0 && line["state"] == "no_listener"
        });
    });
}

/// Clients that vanish, of IPv4 and IPv6 in turns: one that the server waits for, and others in its
/// queue.
const VANISHED: usize = 4;

/// A cable is cut: nobody says that these connections have ended (half-open ones).
#[test]
fn clients_that_vanish_hold_the_server_up_no_longer_than_it_waits_for_them() {
    measured(AWAY, || {
        if !may_load() {
            return;
        }
        let Some((net, far)) = Net::pair() else {
            return;
        };
        net.within(|| {
            // What it has closed, and the other side does not confirm, the kernel gives up soon.
            std::fs::write("/proc/sys/net/ipv4/tcp_orphan_retries", "2").expect("root may");
            let any = Ipv6Addr::UNSPECIFIED.into();
            let server = Server::start(any, Duration::from_millis(5), 4096);
            let port = server.address.port();
            let (_guard, mut lines) = start(port, &["--mode", "refuse"]);
            let addresses = ["10.9.0.1", "fd09::1"]
                .map(|ip| SocketAddr::new(ip.parse().expect("an address"), port));
            let vanished = far.within(|| {
                let in_turns = addresses.iter().cycle().take(VANISHED);
                let connect = |address| TcpStream::connect_timeout(address, PATIENCE);
                in_turns.map(connect).collect::<Result<Vec<_>, _>>()
            });
            let vanished = vanished.expect("connections");
            far.ip("link set eth down");
            drop(vanished);
            for address in addresses {
                let during = steady(address, 50, Duration::from_millis(500));
                assert!(during.refused > 15, "told at once: {during:?}");
            }
            // Once it waits for them no more, the guard admits.
            let begin = Instant::now();
            while steady(addresses[0], 50, Duration::from_millis(500))
                .replies
                .len()
                < 20
            {
                assert!(begin.elapsed() < PATIENCE, "clients are still refused");
            }
            settle(&mut lines, 0);
            far.ip("link set eth up");
            for address in addresses {
                let after = far.within(|| steady(address, 50, Duration::from_secs(1)));
                assert!(after.replies.len() > 20, "{after:?}");
            }
            settle(&mut lines, 0);
        });
    });
}

/// Each is accepted, and has ended when the next one comes; now and then one ends with a reset.
#[test]
fn ten_thousand_connections_that_come_and_go_are_counted_and_leave_nothing() {
    in_net(|_| {
        let listener = listener(SocketAddr::new(IP4, 0), 4096);
        let address = listener.local_addr().expect("it is bound");
        let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
        let mut there = connection(&listener);
        for number in 0..10_000 {
            let client = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
            if number % 10 == 0 {
                set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket takes it");
            }
            drop(client);
            listener.accept().expect("a connection");
        }
        assert_eq!(settle_after(&mut lines, 1, 10_001).0, 10_001);
        exchange(&mut there);
        drop((listener, there));
        wait_for(&mut lines, "all end", |line| {
            line["open"] == 0 && line["state"] == "no_listener"
        });
    });
}

/// The clients who were turned away for a time, or waited, are those of any server without a guard.
#[test]
fn guard_that_is_killed_under_load_leaves_the_server_as_it_is_without() {
    in_net(|_| {
        let server = Server::start(IP4, Duration::from_millis(5), 4096);
        for mode in ["drop", "refuse", "sorry"] {
            let (mut guard, _lines) = start(server.address.port(), &["--mode", mode]);
            let time = Duration::from_secs(1);
            std::thread::scope(|scope| {
                let load = scope.spawn(|| steady(server.address, 600, time));
                std::thread::sleep(time / 2);
                guard.kill(PATIENCE);
                load.join().expect("an outcome")
            });
            // The queue that has grown since is served, and everybody after it in time.
            let begin = Instant::now();
            loop {
                let after = steady(server.address, 50, Duration::from_millis(500));
                if after.replies.len() >= 24 && after.refused == 0 {
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "{mode}: {after:?}");
            }
        }
    });
}

#[test]
fn server_that_dies_under_load_and_starts_again_is_guarded() {
    measured_in_net(|_| {
        let address = free_address();
        let mut server = process(address, "");
        let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
        let time = Duration::from_secs(4);
        let outcome = std::thread::scope(|scope| {
            let load = scope.spawn(|| steady(address, 150, time));
            std::thread::sleep(time / 4);
            server.kill(PATIENCE);
            wait_for(&mut lines, "it is gone", |line| {
                line["state"] == "no_listener"
            });
            server = process(address, "");
            load.join().expect("an outcome")
        });
        // Of 200 that it could make.
        assert!(outcome.replies.len() > 120, "{outcome:?}");
        assert!(outcome.refused > 150, "{outcome:?}");
        settle(&mut lines, 0);
        assert!(connect_until_refused(address).len() < 30);
        server.kill(PATIENCE);
        wait_for(&mut lines, "all end", |line| {
            line["open"] == 0 && line["state"] == "no_listener"
        });
    });
}

#[test]
fn server_without_descriptors_is_behind_until_it_has_some() {
    measured_in_net(|_| {
        let address = free_address();
        let mut server = process(address, "hoards");
        let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
        let outcome = steady(address, 100, Duration::from_secs(4));
        // Half of the time it has none. Without a guard nobody is refused.
        assert!(outcome.refused > 100, "{outcome:?}");
        assert!(outcome.replies.len() > 100, "{outcome:?}");
        server.kill(PATIENCE);
        settle(&mut lines, 0);
    });
}

#[test]
fn listeners_that_share_a_port_are_behind_when_all_are() {
    in_net(|_| {
        let one = listener(SocketAddr::new(IP4, 0), 4096);
        let address = one.local_addr().expect("it is bound");
        let other = listener(address, 4096);
        let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
        wait_for(&mut lines, "both are seen", |line| line["listeners"] == 2);
        let connected = connect_until_refused(address);
        // One is closed, so nobody accepted what was queued there: the other one is behind until it
        // accepts.
        drop(one);
        wait_for(&mut lines, "one is left", |line| line["listeners"] == 1);
        assert!(TcpStream::connect_timeout(&address, PATIENCE).is_err());
        let left = accept_all(&other);
        assert!(
            (1..connected.len()).contains(&left),
            "{left} of {}",
            connected.len()
        );
        assert!(TcpStream::connect_timeout(&address, PATIENCE).is_ok());
        assert_eq!(accept_all(&other), 1);
        drop(connected);
        settle(&mut lines, 0);
    });
}

/// What has come and what comes in a moment: the last step of a handshake is the kernel's.
fn accept_all(listener: &TcpListener) -> usize {
    listener.set_nonblocking(true).expect("a listener takes it");
    let accept = || std::iter::from_fn(|| listener.accept().ok()).count();
    let accepted = accept();
    std::thread::sleep(Duration::from_millis(100));
    accepted + accept()
}

fn free_address() -> SocketAddr {
    let listener = listener(SocketAddr::new(IP4, 0), 1);
    listener.local_addr().expect("it is bound")
}

/// What [`server_process`] is to be: its address and its kind.
const ROLE: &str = "ECALLS_TEST_SERVER";

/// A server that is a process, which listens.
fn process(address: SocketAddr, kind: &str) -> Running {
    let this = std::env::current_exe().expect("this test");
    let mut command = Command::new(this);
    command.args(["--exact", "--ignored", "fault::server_process"]);
    let server = Running::start(command.env(ROLE, format!("{address} {kind}")));
    let begin = Instant::now();
    while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
        assert!(begin.elapsed() < PATIENCE, "it does not listen");
        std::thread::sleep(Duration::from_millis(1));
    }
    server
}

/// Pages of 20 ms, one after another; or it replies at once and keeps all connections as long as it
/// can, then is out of descriptors for a while, and closes them.
#[test]
#[ignore = "a server for other tests"]
fn server_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (address, kind) = role.split_once(' ').expect("two words");
    let listener = listener(address.parse().expect("an address"), 4096);
    if kind != "hoards" {
        loop {
            let (client, _) = listener.accept().expect("a connection");
            serve(client, Duration::from_millis(20));
        }
    }
    let few = Some(40);
    let limit = Rlimit {
        current: few,
        maximum: few,
    };
    setrlimit(Resource::Nofile, limit).expect("less is permitted");
    let mut kept = VecDeque::new();
    loop {
        match listener.accept() {
            Ok((mut client, _)) => {
                let _ = client.write_all(crate::load::REPLY);
                kept.push_back(client);
            }
            Err(_) => {
                std::thread::sleep(TIMEOUT / 2);
                kept.clear();
            }
        }
    }
}
