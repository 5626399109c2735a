//! The service `net` on real connections over the loopback device. Needs root.
//!
//! A segment is lost by a listener whose queue of connections is full: the kernel then ignores
//! further ones, which are tried again after a second. A slow connection is one whose peer delays
//! its acknowledgements (40 ms), as TCP does when it has nothing to send.

mod harness;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use ecalls::{Channel, Ecalls, Event, Subscription};
use ecalls_abi::service::{NET_RETRANSMIT, NET_ROUND_TRIP, NET_STATE, NetEvent, SERVICE_NET};
use harness::{PATIENCE, Parameter, core, find, take_until_quiet};

/// The threshold is one for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The kernel's numbers of a connection's states.
const ESTABLISHED: u32 = 1;
const SYN_SENT: u32 = 2;
const CLOSE: u32 = 7;

/// A user that root can give a socket to.
const NOBODY: u32 = 65534;

fn watch(ecalls: &Ecalls, kinds: &[&str]) -> (Channel, Subscription) {
    let channel = ecalls.channel().ring(16384).open().expect("a channel");
    let builder = ecalls.subscribe("net").expect("the service").kinds(kinds);
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (channel, subscription)
}

fn data(event: &Event) -> NetEvent {
    event.data_as().expect("a net event")
}

fn listener(address: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind(address).expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    (listener, port)
}

#[test]
fn segment_that_is_sent_again_is_told() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let (mut channel, subscription) = watch(&ecalls, &["retransmit"]);
    let (listener, port) = listener("127.0.0.1:0");
    rustix::net::listen(&listener, 0).expect("the shortest queue");
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let tries = Duration::from_millis(1500);
    let connections: Vec<_> = (0..4)
        .map(|_| TcpStream::connect_timeout(&address, tries))
        .collect();
    assert!(connections.iter().any(Result::is_err), "one got no answer");
    let event = find(&mut channel, "a retransmission", |event| {
        data(event).remote_port == port
    });
    let told = data(&event);
    assert_eq!(event.kind, NET_RETRANSMIT);
    assert_eq!((told.state, told.former), (SYN_SENT, SYN_SENT));
    assert!((1..=2).contains(&told.retransmits), "{told:?}");
    assert_eq!(told.remote_ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(told.round_trip_us, 0, "nothing came back");
    assert!(told.window >= 1 && told.cookie != 0 && told.local_port != 0);
    assert_eq!((event.pid, event.uid), (0, 0), "of root's socket");
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_NET);
}

/// Sends `times` small segments, of which each is acknowledged late.
fn send_slowly(client: &mut TcpStream, server: &TcpStream, times: u32) {
    client.set_nodelay(true).expect("an option");
    for _ in 0..times {
        rustix::net::sockopt::set_tcp_quickack(server, false).expect("an option");
        client.write_all(b"x").expect("sent");
        std::thread::sleep(Duration::from_millis(60));
    }
}

#[test]
fn only_a_slow_connection_raises_round_trip_times() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let _threshold = Parameter::set(&ecalls, SERVICE_NET, Duration::from_millis(25));
    let (mut channel, subscription) = watch(&ecalls, &["round_trip"]);
    let (listener, port) = listener("[::1]:0");
    let connect = || {
        let client = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).expect("a connection");
        let (server, _) = listener.accept().expect("the connection");
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE)).expect("an option");
        }
        let own_port = client.local_addr().expect("its address").port();
        (client, server, own_port)
    };
    let (mut fast, mut fast_server, fast_port) = connect();
    let (mut slow, slow_server, slow_port) = connect();
    for _ in 0..20 {
        fast.write_all(b"x").expect("sent");
        fast_server.read_exact(&mut [0]).expect("received");
        fast_server.write_all(b"y").expect("sent");
        fast.read_exact(&mut [0]).expect("received");
    }
    send_slowly(&mut slow, &slow_server, 30);
    let mut times = Vec::new();
    take_until_quiet(&mut channel, |event| {
        let told = data(event);
        if told.local_port == slow_port {
            assert_eq!(event.kind, NET_ROUND_TRIP);
            assert_eq!(told.remote_ip(), IpAddr::V6(Ipv6Addr::LOCALHOST));
            assert_eq!(told.state, ESTABLISHED);
            assert!(
                told.round_trip_us >= 25_000,
                "below the threshold: {told:?}"
            );
            times.push((event.raise_ns, u64::from(told.round_trip_us) * 1000));
        }
        // A busy machine can delay the fast one, too.
        let fast = told.local_port == fast_port && told.round_trip_us < 25_000;
        assert!(!fast, "below the threshold: {told:?}");
    });
    assert!(times.len() >= 3, "{times:?}");
    for pair in times.windows(2) {
        let [(before, _), (now, round_trip)] = pair else {
            continue;
        };
        assert!(
            now - before >= *round_trip / 2,
            "about one per round trip: {times:?}"
        );
    }
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_NET);
}

#[test]
fn states_of_a_connection_are_told_in_order_and_in_the_name_of_its_user() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let (mut channel, subscription) = watch(&ecalls, &["state"]);
    let (listener, port) = listener("127.0.0.1:0");
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
    let own_port = client.local_addr().expect("its address").port();
    std::os::unix::fs::fchown(client.as_fd(), Some(NOBODY), None).expect("given away");
    drop(client);
    drop(listener);
    let mut states = Vec::new();
    let mut cookie = 0;
    find(&mut channel, "the end of the connection", |event| {
        let told = data(event);
        if told.remote_port != port {
            return false;
        }
        assert_eq!(event.kind, NET_STATE);
        if states.is_empty() {
            assert_eq!((told.former, told.state), (CLOSE, SYN_SENT));
            cookie = told.cookie;
        } else {
            assert_eq!(states.last(), Some(&told.former), "from the state before");
            assert_eq!((told.cookie, told.local_port), (cookie, own_port));
        }
        let given_away = told.former == ESTABLISHED || states.contains(&ESTABLISHED);
        assert_eq!(event.uid, if given_away { NOBODY } else { 0 }, "{told:?}");
        assert_eq!((event.pid, event.tid), (0, 0), "of no process");
        assert_eq!(event.r#type, told.state);
        states.push(told.state);
        told.state == CLOSE
    });
    assert!(states.starts_with(&[SYN_SENT, ESTABLISHED]), "{states:?}");
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_NET);
}
