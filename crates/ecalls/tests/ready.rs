//! Which sockets may be read, through shared memory, on real sockets. Needs root; no core.

mod harness;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ecalls::{Error, ReadySockets};
use harness::PATIENCE;

fn open() -> Option<ReadySockets> {
    harness::may_load().then(|| ReadySockets::open().expect("the kernel side"))
}

fn taken(ready: &mut ReadySockets) -> Vec<i32> {
    let mut taken = Vec::new();
    ready.take(|descriptor| taken.push(descriptor));
    taken
}

/// Waits until it is hinted.
fn hinted(ready: &mut ReadySockets) -> Vec<i32> {
    assert!(
        ready.wait(Some(PATIENCE)).expect("it sleeps"),
        "no hint came"
    );
    taken(ready)
}

fn listener(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Two ends of a connection; the first does not block.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let client = TcpStream::connect(address).expect("it listens");
    let (server, _) = listener.accept().expect("a connection");
    server.set_nonblocking(true).expect("a socket");
    (server, client)
}

#[test]
fn data_connections_ends_and_resets_are_hinted() {
    let Some(mut ready) = open() else { return };
    let (mut a, mut b) = pair();
    ready.add(&a).expect("a socket");
    let number = a.as_raw_fd();
    assert_eq!(taken(&mut ready), [number], "once when it is added");
    for _ in 0..100 {
        b.write_all(b"x").expect("room");
        assert_eq!(hinted(&mut ready), [number]);
        assert_eq!(a.read(&mut [0; 9]).expect("a byte"), 1);
    }
    b.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(hinted(&mut ready), [number]);
    assert_eq!(a.read(&mut [0; 9]).expect("the end"), 0);

    let (mut a, b) = pair();
    a.write_all(b"not read").expect("room");
    ready.add(&a).expect("a socket");
    taken(&mut ready);
    // With bytes that nobody has read this is a reset.
    std::thread::sleep(Duration::from_millis(1));
    drop(b);
    assert_eq!(hinted(&mut ready), [a.as_raw_fd()]);
    let error = a.read(&mut [0; 9]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, address) = listener(address);
        ready.add(&listener).expect("a socket");
        taken(&mut ready);
        let _client = TcpStream::connect(address).expect("it listens");
        assert_eq!(hinted(&mut ready), [listener.as_raw_fd()]);
        listener.accept().expect("a connection");
    }
}

#[test]
fn datagrams_and_their_errors_are_hinted() {
    let Some(mut ready) = open() else { return };
    let a = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let b = UdpSocket::bind("127.0.0.1:0").expect("a port");
    a.set_nonblocking(true).expect("a socket");
    ready.add(&a).expect("a socket");
    taken(&mut ready);
    let address = a.local_addr().expect("it is bound");
    b.send_to(b"x", address).expect("sent");
    assert_eq!(hinted(&mut ready), [a.as_raw_fd()]);
    assert_eq!(a.recv(&mut [0; 9]).expect("a byte"), 1);
    a.connect(b.local_addr().expect("it is bound"))
        .expect("an address");
    drop(b);
    a.send(b"x").expect("sent");
    assert_eq!(hinted(&mut ready), [a.as_raw_fd()]);
    let error = a.recv(&mut [0; 9]).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn interest_ends_and_begins_without_a_call() {
    let Some(mut ready) = open() else { return };
    let (a, mut b) = pair();
    let number = a.as_raw_fd();
    ready.add(&a).expect("a socket");
    taken(&mut ready);
    ready.pause(number);
    b.write_all(b"x").expect("room");
    assert!(!ready.wait(Some(Duration::from_millis(1))).expect("slept"));
    ready.resume(number);
    assert_eq!(hinted(&mut ready), [number]);
    ready.remove(&a).expect("a socket");
    ready.resume(number);
    taken(&mut ready);
    b.write_all(b"x").expect("room");
    assert!(!ready.wait(Some(Duration::from_millis(1))).expect("slept"));
}

#[test]
fn what_is_no_internet_socket_is_refused_and_so_is_a_ninth_map() {
    let Some(mut ready) = open() else { return };
    let (local, _other) = UnixStream::pair().expect("a pair");
    let file = std::fs::File::open("/dev/null").expect("it exists");
    for fd in [local.as_fd(), file.as_fd()] {
        let error = ready.add(fd).expect_err("none");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    let (listener, _) = listener("127.0.0.1:0");
    let mut maps: Vec<_> = (0..8).map(|_| open().expect("a map")).collect();
    for map in &mut maps {
        map.add(&listener).expect("a seat");
        map.add(&listener).expect("the same seat");
    }
    let error = ready.add(&listener).expect_err("no seat");
    assert!(matches!(error, Error::LimitReached { .. }), "{error}");
    maps.pop();
    ready
        .add(&listener)
        .expect("the seat of a map that has ended");
}

#[test]
fn maps_of_two_processes_are_apart() {
    let Some(mut ready) = open() else { return };
    let mut child = std::process::Command::new(std::env::current_exe().expect("a path"));
    child.args(["--exact", "interest_ends_and_begins_without_a_call"]);
    let output = child.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    let (a, _b) = pair();
    ready.add(&a).expect("a socket");
    assert_eq!(taken(&mut ready), [a.as_raw_fd()]);
}

#[test]
fn closed_descriptors_copies_and_other_processes_lose_nothing() {
    let Some(mut ready) = open() else { return };
    let (a, mut b) = pair();
    ready.add(&a).expect("a socket");
    taken(&mut ready);
    // The copy keeps the socket, whose number another one gets.
    let number = a.as_raw_fd();
    let mut copy = a.try_clone().expect("a copy");
    drop(a);
    let (mut later, mut peer) = pair();
    let mut kept = Vec::new();
    while later.as_raw_fd() != number && kept.len() < 100 {
        kept.push((later, peer));
        (later, peer) = pair();
    }
    ready.add(&later).expect("a socket");
    taken(&mut ready);
    peer.write_all(b"x").expect("room");
    assert_eq!(hinted(&mut ready), [later.as_raw_fd()]);
    assert_eq!(later.read(&mut [0; 9]).expect("a byte"), 1);
    // What comes for the copy is a needless hint until the copy is added itself.
    b.write_all(b"x").expect("room");
    assert_eq!(hinted(&mut ready), [number]);
    ready.add(&copy).expect("a socket");
    assert!(hinted(&mut ready).contains(&copy.as_raw_fd()));
    assert_eq!(copy.read(&mut [0; 9]).expect("a byte"), 1);
    b.write_all(b"x").expect("room");
    assert_eq!(hinted(&mut ready), [copy.as_raw_fd()]);
}

#[test]
fn ten_thousand_connections_that_come_and_go_are_each_hinted_and_leave_nothing() {
    const AT_ONCE: usize = 100;
    let Some(mut ready) = open() else { return };
    let (listener, address) = listener("127.0.0.1:0");
    ready.add(&listener).expect("a socket");
    let own = listener.as_raw_fd();
    let mut ended = 0;
    for _ in 0..100 {
        let connect = || TcpStream::connect(address).expect("it listens");
        let clients: Vec<TcpStream> = (0..AT_ONCE).map(|_| connect()).collect();
        let mut servers = Vec::new();
        while servers.len() < AT_ONCE {
            assert!(hinted(&mut ready).contains(&own));
            while let Ok((server, _)) = listener.accept() {
                server.set_nonblocking(true).expect("a socket");
                ready.add(&server).expect("a socket");
                servers.push(server);
            }
        }
        // The hints of their beginning may tell of their end already.
        drop(clients);
        while !servers.is_empty() {
            for number in hinted(&mut ready) {
                let at = servers.iter().position(|one| one.as_raw_fd() == number);
                let is_over = |at: usize| {
                    let mut server = &servers[at];
                    matches!(server.read(&mut [0; 9]), Ok(0))
                };
                if let Some(at) = at.filter(|at| is_over(*at)) {
                    servers.swap_remove(at);
                    ended += 1;
                }
            }
        }
    }
    assert_eq!(ended, 100 * AT_ONCE);
    taken(&mut ready);
    assert!(!ready.wait(Some(Duration::ZERO)).expect("it looks"));
    let _client = TcpStream::connect(address).expect("it listens");
    assert_eq!(hinted(&mut ready), [own]);
}

#[test]
fn of_threads_that_share_a_listener_one_is_told_and_rather_one_that_sleeps() {
    const THREADS: usize = 4;
    const CONNECTIONS: u64 = 400;
    if open().is_none() {
        return;
    }
    let (listener, address) = listener("127.0.0.1:0");
    let (accepted, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let hints = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut ready = open().expect("a map");
                ready.add(&listener).expect("a socket");
                while !ends.load(Ordering::SeqCst) {
                    if !ready.wait(Some(Duration::from_millis(5))).expect("slept") {
                        continue;
                    }
                    hints.fetch_add(ready.take(|_| {}) as u64, Ordering::SeqCst);
                    while listener.accept().is_ok() {
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        for at in 1..=CONNECTIONS {
            let _client = TcpStream::connect(address).expect("it listens");
            let until = ecalls::now_ns() + PATIENCE.as_nanos() as u64;
            while accepted.load(Ordering::SeqCst) < at {
                assert!(ecalls::now_ns() < until, "connection {at} was not hinted");
                std::thread::yield_now();
            }
        }
        ends.store(true, Ordering::SeqCst);
    });
    let hints = hints.load(Ordering::SeqCst);
    assert!(hints <= CONNECTIONS + THREADS as u64, "{hints} hints");
}

/// Each of many sockets gets bytes from several threads; the reader sleeps whenever it finds
/// nothing. One hint too few, and it sleeps for ever.
#[test]
fn no_byte_is_missed_while_others_write_and_the_reader_sleeps() {
    const SOCKETS: usize = 64;
    const WRITERS: usize = 4;
    const ROUNDS: usize = 300;
    let Some(mut ready) = open() else { return };
    let (mut readers, writers): (Vec<_>, Vec<_>) = (0..SOCKETS).map(|_| pair()).unzip();
    let mut place = std::collections::HashMap::new();
    for (at, reader) in readers.iter().enumerate() {
        ready.add(reader).expect("a socket");
        place.insert(reader.as_raw_fd(), at);
    }
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let writers = &writers;
            scope.spawn(move || {
                let mut seed = number as u64 + 1;
                for round in 0..ROUNDS * SOCKETS / WRITERS {
                    let at = (round * WRITERS + number) % SOCKETS;
                    (&writers[at]).write_all(b"x").expect("room");
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    for _ in 0..seed >> 54 {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        let mut left = ROUNDS * SOCKETS;
        while left != 0 {
            let is_ready = ready.wait(Some(PATIENCE)).expect("slept");
            assert!(is_ready, "{left} bytes were not hinted");
            let mut hinted = Vec::new();
            ready.take(|descriptor| hinted.push(descriptor));
            for descriptor in hinted {
                let reader = &mut readers[place[&descriptor]];
                while let Ok(bytes) = reader.read(&mut [0; 16]) {
                    left -= bytes;
                }
            }
        }
    });
}
