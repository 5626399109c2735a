//! `--mode sorry`: clients that are turned away get an answer, which is bounded. Each test has a
//! network namespace of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limit::{Running, ended};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::fault::in_net;
use crate::load::{PAGE, listener};
use crate::{IP4, IP6, PATIENCE, guard, start, wait_for};

/// Connections that are answered at a time, and as many more as there may be processors.
const MOST: u64 = 256 + 64;

/// What a client gets that asks so: of the guard, for the server does not answer.
fn ask(address: SocketAddr, request: &[u8]) -> std::io::Result<String> {
    ask_for(address, request, PATIENCE)
}

/// The same, within so much time.
fn ask_for(address: SocketAddr, request: &[u8], time: Duration) -> std::io::Result<String> {
    let mut client = TcpStream::connect_timeout(&address, PATIENCE)?;
    client.set_read_timeout(Some(time))?;
    client.write_all(request)?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Connects until there is an answer: nobody accepts.
fn ask_until_answered(address: SocketAddr) -> String {
    let begin = Instant::now();
    loop {
        match ask_for(address, PAGE, Duration::from_millis(100)) {
            Ok(answer) => return answer,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "nobody answers");
    }
}

/// A listener that nobody accepts from, whose guard answers.
fn behind(ip: IpAddr) -> (TcpListener, SocketAddr) {
    // Not one of a group: a second one must wait until its port is free.
    let stuck = TcpListener::bind((ip, 0)).expect("a free port");
    let address = stuck.local_addr().expect("it is bound");
    (stuck, address)
}

#[test]
fn clients_that_are_turned_away_get_an_answer() {
    in_net(|_| {
        for ip in [IP4, IP6] {
            let (_stuck, address) = behind(ip);
            let (_guard, mut lines) = start(address.port(), &["--mode", "sorry"]);
            let answer = ask_until_answered(address);
            let (head, text) = answer.split_once("\r\n\r\n").expect("HTTP");
            assert!(head.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(head.contains("Retry-After: "), "{answer}");
            let length = format!("Content-Length: {}\r\n", text.len());
            assert!(head.contains(&length), "{answer}");
            // Who speaks TLS would not understand it, and gets an alert.
            let told = ask(address, b"\x16\x03\x01").expect("an alert");
            assert_eq!(told, "\x15\x03\x01\0\x02\x02\x50");
            let told = ask(address, b"\x17\x03\x01").expect_err("it is reset");
            assert_eq!(told.kind(), ErrorKind::ConnectionReset, "{told}");
            judge(address);
            judge_by_tls(address);
            let line = wait_for(&mut lines, "all are done", |line| {
                let is_quiet = line["refused"] == 0 && line["admitted"] == 0;
                line["sorry_open"] == 0 && is_quiet && line["refused_total"] == line["sorry_total"]
            });
            // They are not the server's.
            assert_eq!(line["open"], line["admitted_total"], "{line}");
            assert_eq!(line["refused_total"], line["sorry_total"], "{line}");
        }
    });
}

/// What programs that others wrote say of the answers.
fn judge(address: SocketAddr) {
    let page = format!("http://{address}/");
    for (program, arguments, wanted) in [
        ("curl", &["-sSi", "-m", "20"][..], "\nRetry-After: "),
        ("curl", &["-sSI", "-m", "20"], "HTTP/1.1 503 "),
        (
            "ab",
            &["-q", "-n", "300", "-c", "20"],
            "Non-2xx responses:      300\n",
        ),
        (
            "h2load",
            &["--h1", "-n", "100", "-c", "100"],
            "0 2xx, 0 3xx, 0 4xx, 100 5xx",
        ),
    ] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("not judged by {program}: it is not installed");
            continue;
        }
        let told = ended(Command::new(program).args(arguments).arg(&page), PATIENCE);
        assert!(told.out.contains(wanted), "{program}: {told:?}");
    }
}

/// What programs that others wrote say of the alert; these use OpenSSL, and GnuTLS.
fn judge_by_tls(address: SocketAddr) {
    const PYTHON: &str = "import socket, ssl, sys; \
        context = ssl._create_unverified_context(); \
        context.wrap_socket(socket.create_connection((sys.argv[1], sys.argv[2])))";
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let page = format!("https://{address}/");
    for (program, arguments, wanted) in [
        ("curl", &["-sS", "-m", "20", &page][..], "internal error"),
        ("python3", &["-c", PYTHON, &ip, &port], "INTERNAL_ERROR"),
        (
            "gnutls-cli",
            &["--insecure", "-p", &port, &ip],
            "Internal error",
        ),
    ] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("not judged by {program}: it is not installed");
            continue;
        }
        let told = ended(Command::new(program).args(arguments), PATIENCE);
        let said = [told.out.as_str(), told.err.as_str()].concat();
        assert!(
            told.code != 0 && said.contains(wanted),
            "{program}: {told:?}"
        );
    }
}

/// As many as come beyond the cap have no connection.
#[test]
fn silent_clients_that_are_turned_away_are_bounded() {
    in_net(|_| {
        let (_stuck, address) = behind(IP4);
        let (_guard, mut lines) = start(address.port(), &["--mode", "sorry"]);
        ask_until_answered(address);
        let silent: Vec<_> = (0..400).map(|_| begin(address)).collect();
        let mut most = 0;
        let dropped = |line: &Value| {
            let [refused, sorry] = ["refused_total", "sorry_total"].map(|key| line[key].as_u64());
            refused.zip(sorry).map(|(refused, sorry)| refused - sorry)
        };
        let line = wait_for(&mut lines, "some are dropped", |line| {
            most = most.max(line["sorry_open"].as_u64().unwrap_or_default());
            dropped(line) > Some(0)
        });
        assert!(most <= MOST, "{most}: {line}");
        // They are reset, though they are silent still; what is dropped tries again.
        wait_for(&mut lines, "all are reset", |line| {
            most = most.max(line["sorry_open"].as_u64().unwrap_or_default());
            line["sorry_open"] == 0 && line["refused"] == 0
        });
        assert!((1..=MOST).contains(&most), "{most}");
        assert!(ask_until_answered(address).starts_with("HTTP/1.1 503 "));
        drop(silent);
    });
}

/// A client that says nothing.
fn begin(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    // It is in progress.
    let _ = connect(&socket, &address);
    socket
}

/// It says so once, counts each failure, and goes on when it may open descriptors again.
#[test]
fn guard_without_descriptors_answers_later() {
    in_net(|_| {
        let (_stuck, address) = behind(IP4);
        let mut command = guard(address.port(), &["--mode", "sorry"]);
        command.args(["--json", "--every", "100ms"]);
        let mut guard = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut complaints = guard.complaints();
        complaints.find("guards port", PATIENCE);
        let mut lines = guard.lines();
        ask_until_answered(address);
        assert_eq!(wait_for(&mut lines, "a line", |_| true)["sorry_failed"], 0);
        let limit = |files| {
            let pid = Pid::from_raw(guard.id().cast_signed());
            let (current, maximum) = (Some(files), Some(4096));
            prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).expect("a limit");
        };
        limit(0);
        let clients: Vec<_> = (0..20).map(|_| begin(address)).collect();
        let failed = |count: u64| move |line: &Value| line["sorry_failed"].as_u64() >= Some(count);
        wait_for(&mut lines, "it fails again and again", failed(3));
        let said = complaints.find("could not accept", PATIENCE);
        assert!(said.contains("Too many open files"), "{said}");
        limit(4096);
        assert!(ask_until_answered(address).starts_with("HTTP/1.1 503 "));
        drop(clients);
        guard.kill(PATIENCE);
        assert_eq!(complaints.rest(PATIENCE), "");
    });
}

#[test]
fn server_starts_again_beside_clients_that_are_answered() {
    in_net(|_| {
        for ip in [IP4, IP6] {
            let (stuck, address) = behind(ip);
            let (mut guard, mut lines) = start(address.port(), &["--mode", "sorry"]);
            ask_until_answered(address);
            let mut silent = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
            wait_for(&mut lines, "it is there", |line| line["sorry_open"] == 1);
            drop(stuck);
            // As nearly all servers do, it says that ends of connections do not matter.
            let again = TcpListener::bind(address).expect("the port is free");
            silent.write_all(PAGE).expect("it is there");
            let mut answer = String::new();
            silent.read_to_string(&mut answer).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            // Nor does it keep what the guard leaves.
            guard.kill(PATIENCE);
            drop(again);
            drop(listener(address, 1));
        }
    });
}
