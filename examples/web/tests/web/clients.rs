//! Clients that are slow, many, or gone: the others are served, nothing is kept, nothing spins.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use crate::server::{Server, each, rest};

pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn is_served(server: &Server) -> bool {
    server
        .ask("GET / HTTP/1.0\r\n\r\n")
        .ends_with("<p>small</p>\n")
}

/// Waits for as long as it takes, or for a test's time.
pub(crate) fn until(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Reads the answer to one `GET` of the small page.
pub(crate) fn read_page(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"<p>small</p>\n") {
        let mut part = [0; 512];
        let count = stream.read(&mut part).expect("an answer");
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..count]);
    }
}

#[test]
fn a_request_that_comes_too_slowly_is_told_and_others_are_served_meanwhile() {
    each(&["--timeout", "2"], |server, mode| {
        let mut slow = server.connect();
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").expect("it reads");
        let mut silent = server.connect();
        assert!(is_served(server), "{mode}");
        let mut writer = slow.try_clone().expect("a descriptor");
        // A byte now and then gains no time.
        let drips = std::thread::spawn(move || {
            until(|| {
                std::thread::sleep(Duration::from_millis(20));
                writer.write_all(b"x").is_err()
            })
        });
        let mut answer = [0; 12];
        slow.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 408", "{mode}");
        assert!(
            drips.join().expect("it ends"),
            "{mode}: the connection stays"
        );
        assert_eq!(
            rest(&mut silent),
            "",
            "{mode}: it said nothing, and is told nothing"
        );
    });
}

#[test]
fn a_connection_stays_open_between_requests_for_as_long_as_is_set() {
    each(&["--idle", "3", "--timeout", "60"], |server, mode| {
        let mut stream = server.connect();
        for _ in 0..3 {
            stream.write_all(GET.as_bytes()).expect("it reads");
            read_page(&mut stream);
        }
        assert_eq!(rest(&mut stream), "", "{mode}");
    });
}

#[test]
fn a_client_that_does_not_read_holds_little_and_not_for_long() {
    each(&["--timeout", "2"], |server, mode| {
        let before = server.open_files();
        let mut stream = server.connect();
        stream.set_nonblocking(true).expect("it is a socket");
        let text = "GET /big HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50);
        let mut sent = 0;
        // Until the server reads no more, or has ended the connection.
        let ended = until(|| match stream.write(text.as_bytes()) {
            Ok(bytes) => {
                sent += bytes;
                false
            }
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        });
        assert!(ended, "{mode}");
        assert!(
            sent < 64_000_000,
            "{mode}: {sent} bytes of requests were taken"
        );
        assert!(until(|| server.open_files() == before), "{mode}");
        assert!(is_served(server), "{mode}");
    });
}

#[test]
fn at_the_limit_of_connections_others_wait_and_get_their_turn() {
    each(&["--connections", "4", "--idle", "60"], |server, mode| {
        let mut held: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for stream in &mut held[..3] {
            stream.write_all(GET.as_bytes()).expect("it reads");
            read_page(stream);
        }
        let mut late = server.connect();
        late.write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("room in the kernel");
        late.set_nonblocking(true).expect("it is a socket");
        let spins = server.cpu();
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        let part = (server.cpu() - spins).as_secs_f64() / begin.elapsed().as_secs_f64();
        assert!(part < 0.2, "{mode}: it spins, {part}");
        assert!(late.read(&mut [0; 1]).is_err(), "{mode}: no answer yet");
        late.set_nonblocking(false).expect("it is a socket");
        // At the limit an answer ends its connection.
        held[3].write_all(GET.as_bytes()).expect("it reads");
        let last = rest(&mut held[3]);
        assert!(last.contains("\r\nConnection: close\r\n"), "{mode}: {last}");
        assert!(rest(&mut late).ends_with("<p>small</p>\n"), "{mode}");
    });
}

#[test]
fn without_descriptors_it_neither_spins_nor_loses_the_others() {
    for mode in crate::server::MODES {
        let Some(server) = Server::with_files(40, mode, &["--idle", "60"]) else {
            continue;
        };
        let mut held: Vec<_> = (0..40).map(|_| server.connect()).collect();
        assert!(until(|| server.open_files_below(40) == 40), "{mode}");
        let before = server.cpu();
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(500));
        let part = (server.cpu() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
        assert!(part < 0.5, "{mode}: it spins, {part}");
        // There is none for the file either, and the first client is told.
        held[0]
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("it reads");
        let answer = rest(&mut held[0]);
        assert!(answer.starts_with("HTTP/1.1 503"), "{mode}: {answer}");
        assert!(answer.contains("\r\nRetry-After: "), "{mode}: {answer}");
        held.clear();
        assert!(until(|| is_served(&server)), "{mode}");
    }
}

#[test]
fn clients_that_reset_their_connections_leave_nothing() {
    each(&[], |server, mode| {
        let before = server.open_files();
        for round in 0..300 {
            let mut stream = server.connect();
            let text = ["", "GET / HT", GET, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"][round % 4];
            stream.write_all(text.as_bytes()).expect("it is open");
            set_socket_linger(&stream, Some(Duration::ZERO)).expect("it is a socket");
        }
        assert!(is_served(server), "{mode}");
        let is_closed = until(|| server.open_files() == before);
        assert!(is_closed, "{mode}: {} of {before}", server.open_files());
    });
}

#[test]
fn a_thousand_idle_connections_keep_nobody_waiting() {
    each(&[], |server, mode| {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        if files.maximum.is_some_and(|most| most < 1200) {
            eprintln!("not tested: the limit of descriptors is too low");
            return;
        }
        let raised = rustix::process::Rlimit {
            current: files.maximum,
            ..files
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("to its most");
        let mut idle: Vec<_> = (0..1000).map(|_| server.connect()).collect();
        for _ in 0..50 {
            assert!(is_served(server), "{mode}");
        }
        for at in [0, 500, 999] {
            idle[at].write_all(GET.as_bytes()).expect("it reads");
            read_page(&mut idle[at]);
        }
    });
}

#[test]
fn sigterm_ends_it_after_what_has_begun() {
    each(&["--timeout", "50"], |server, mode| {
        let mut idle = server.connect();
        idle.write_all(GET.as_bytes()).expect("it reads");
        read_page(&mut idle);
        let mut busy = server.connect();
        busy.write_all(b"GET /cpu?us=50000 HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("it reads");
        let mut reads = server.connect();
        reads
            .write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("it reads");
        let mut first = [0; 1];
        reads.read_exact(&mut first).expect("it has begun");
        server.terminate();
        assert!(rest(&mut busy).ends_with("50000 us\n"), "{mode}");
        let mut page = Vec::new();
        reads.read_to_end(&mut page).expect("all");
        let bytes = page.len();
        assert!(bytes > crate::server::BIG, "{mode}: {bytes}");
        assert_eq!(rest(&mut idle), "", "{mode}");
        assert!(server.wait().success(), "{mode}");
    });
}
