//! The server of examples/web tells the guard of its port what waits within it (abi/guard.h).
//! Needs root; skipped with a line that says so, unless ECALLS_TEST_ROOT is set.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ecalls_kernel::guard::{Guard, Mode};

const PATIENCE: Duration = Duration::from_secs(60);
const TARGET_NS: u64 = 50_000_000;
/// Requests that wait within the server, each of which takes so long.
const REQUESTS: usize = 60;
const PAGE: &str = "GET /cpu?us=50000 HTTP/1.1\r\nHost: x\r\n\r\n";

fn may_load() -> bool {
    let may = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if !may {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    may
}

/// The server of the examples; it ends with the test.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"))
            .args(["web-part", "/", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line
            .strip_prefix("http://")
            .and_then(|rest| rest.split('/').next());
        let address = address.and_then(|text| text.parse().ok());
        Server {
            child,
            address: address.expect("where it listens"),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream
    }

    /// A page that takes no time.
    fn ask(&self) {
        let mut stream = self.connect();
        stream
            .write_all(b"GET /cpu?us=1 HTTP/1.0\r\n\r\n")
            .expect("it reads");
        stream.read_to_end(&mut Vec::new()).expect("an answer");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connections_that_wait_within_a_server_count_as_queued() {
    if !may_load() {
        return;
    }
    let server = Server::start();
    let port = server.address.port();
    let guard = Guard::start(port, Mode::Refuse, TARGET_NS, None).expect("a guard");
    assert!(guard.hears(), "nobody else has the name");
    let told = || guard.told().expect("a page");
    until("the server tells", || {
        server.ask();
        told().is_some()
    });
    until("it has nothing to do", || {
        told().expect("it tells").numconnects == 0
    });
    // All are accepted, and get their turns in one go.
    let mut waiting: Vec<TcpStream> = (0..REQUESTS).map(|_| server.connect()).collect();
    server.ask();
    for stream in &mut waiting {
        stream.write_all(PAGE.as_bytes()).expect("it reads");
    }
    until("they wait within the server", || {
        told().is_some_and(|page| page.numconnects as usize > REQUESTS / 4)
    });
    until("one has waited", || {
        let since_ns = told().expect("it tells").since_ns;
        since_ns > 0 && ecalls::now_ns() > since_ns + 4 * TARGET_NS
    });
    // The queue in the kernel is empty: what this one finds is what the server tells.
    let before = guard.counts().expect("counts");
    let late = TcpStream::connect_timeout(&server.address, PATIENCE);
    let after = guard.counts().expect("counts");
    let found_ns = after.age_ns_sum - before.age_ns_sum;
    assert!(found_ns > TARGET_NS, "{found_ns}, {late:?}");
    for stream in &mut waiting {
        assert!(stream.read(&mut [0; 64]).expect("an answer") > 0);
    }
    until("all are served", || {
        told().expect("it tells").numconnects == 0
    });
    assert!(told().expect("it tells").served as usize >= REQUESTS);
    drop(server);
    until("what it told is forgotten", || told().is_none());
}

/// How many bytes of the guard's message a process of that user gets.
fn asked_as(user: &str, port: u16) -> String {
    let text = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
         s.connect('\\0ecalls-guard/{port}')\ntry:\n  print(len(s.recv(9)))\n\
         except ConnectionResetError:\n  print(0)"
    );
    // Not one of the tester's own: a stranger may have no way there.
    let python = "/usr/bin/python3";
    let output = Command::new("setpriv")
        .args(["--reuid", user, "--clear-groups", python, "-c", &text])
        .current_dir("/")
        .output()
        .expect("setpriv (package util-linux)");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn only_the_servers_user_gets_the_page() {
    if !may_load() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let guard = Guard::start(port, Mode::Refuse, TARGET_NS, None).expect("a guard");
    assert!(guard.hears());
    assert_eq!(asked_as("65534", port), "0", "a stranger");
    assert_eq!(asked_as("0", port), "1", "the user who opened the listener");
    // The next guard has the name again.
    drop(guard);
    let guard = Guard::start(port, Mode::Refuse, TARGET_NS, None).expect("a guard");
    assert!(guard.hears());
}
