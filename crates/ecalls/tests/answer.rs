//! Datagrams that the kernel answers, in network namespaces of the tests' own. Needs root; no core.
//!
//! tests/answer.py is the other host: it builds packets and judges replies by the RFCs.

#![allow(unsafe_code, reason = "a thread gets a network namespace of its own")]

mod harness;

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use ecalls::answer::{AnswerCount, AnswerText, Said};
use ecalls::{AnswerPlan, Answers, Error};
use harness::{PATIENCE, wait_until};
use limit::{Lines, Running};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The number of the cell is the third byte.
const THIRD: &str = "length > 2 ? data[2] : UP";

/// Moves this thread into a new network namespace, which ends with it. False: not here.
fn own_network() -> bool {
    if !harness::may_load() {
        return false;
    }
    // SAFETY: a thread's network namespace concerns no memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may");
    ip("link set lo up");
    true
}

fn ip(arguments: &str) -> String {
    let mut command = Command::new("ip");
    let ended = limit::ended(command.args(arguments.split(' ')), PATIENCE);
    assert_eq!(ended.code, 0, "ip {arguments}: {ended:?}");
    ended.out
}

fn plan(at: SocketAddr) -> AnswerPlan<'static> {
    AnswerPlan {
        interface: "lo",
        at,
        cells: 200,
        echo: 0,
        per_second: 1_000_000,
    }
}

/// A service's socket, and a client's that is connected to it.
fn sockets(address: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
    let bind = || UdpSocket::bind(address).expect("a port");
    let (service, client) = (bind(), bind());
    let at = service.local_addr().expect("it is bound");
    client.connect(at).expect("an address");
    for socket in [&service, &client] {
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    }
    (service, client, at)
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 2000];
    let count = socket.recv(&mut bytes).expect("a datagram");
    bytes[..count].to_vec()
}

/// What is there already.
fn now_received(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut bytes = [0; 2000];
    socket.set_nonblocking(true).expect("a socket");
    let got = socket.recv(&mut bytes);
    socket.set_nonblocking(false).expect("a socket");
    match got {
        Ok(count) => Some(bytes[..count].to_vec()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            None
        }
    }
}

fn has_nothing(socket: &UdpSocket) -> bool {
    now_received(socket).is_none()
}

fn counts(answers: &Answers) -> AnswerCount {
    answers.counts().expect("counts")
}

#[test]
fn kernel_answers_what_is_in_cells_and_the_service_gets_the_rest() {
    if !own_network() {
        return;
    }
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (service, client, at) = sockets(address);
        let mut answers = Answers::start(&plan(at), "data[0] == 'd' ? DROP : data[0]").expect("it");
        assert!(answers.warnings().is_empty(), "{:?}", answers.warnings());
        let ask = |text: &[u8]| client.send(text).expect("sent");

        ask(b"a question");
        assert_eq!(received(&service), b"a question", "an empty cell");
        assert!(answers.put(b"a question", b"its reply"));
        ask(b"a question");
        assert_eq!(received(&client), b"its reply");
        ask(b"a questiox");
        assert_eq!(received(&service), b"a questiox", "another request");
        ask(b"a quest");
        assert_eq!(received(&service), b"a quest", "a shorter request");

        assert!(answers.put(b"a question", b"a second reply"));
        ask(b"a question");
        assert_eq!(received(&client), b"a second reply");
        assert!(answers.remove(b"a question") && !answers.remove(b"a question"));
        ask(b"a question");
        assert_eq!(received(&service), b"a question", "it was removed");

        assert!(answers.fill(b'f'.into(), b"to all") && !answers.fill(200, b""));
        for request in [b"fffff".to_vec(), [b'f'; 1300].to_vec()] {
            ask(&request);
            assert_eq!(received(&client), b"to all");
        }
        assert!(answers.clear(b'f'.into()));
        ask(b"fffff");
        assert_eq!(received(&service), b"fffff", "it was cleared");

        ask(b"drop me");
        ask(&[250; 9]);
        assert_eq!(received(&service), [250; 9], "no such cell");
        assert!(has_nothing(&service) && has_nothing(&client));
        let counts = counts(&answers);
        let seen = [counts.answered, counts.dropped, counts.empty, counts.other];
        assert_eq!(seen, [4, 1, 4, 2], "{counts:?}");
        // The replies themselves come on this interface, too.
        assert_eq!(counts.passed, 4, "{counts:?}");
        assert_eq!(counts.seen(), 15, "each is counted once: {counts:?}");
    }
}

#[test]
fn user_space_says_what_the_kernel_does() {
    if !own_network() {
        return;
    }
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for text in [
            "length > 2 ? data[2] : UP",
            "data[length]",
            "DROP",
            "-5",
            "10000000000",
            "250",
            "if (length > 50) return 3;",
            "static u32 n; n++; return n % 7;",
            "hash(remote_ip[0] + remote_ip[15] + family) % 300",
            "remote_port % 300",
        ] {
            let (service, client, at) = sockets(address);
            let own = client.local_addr().expect("it is bound");
            let mut answers = Answers::start(&plan(at), text).expect("they begin");
            (0..200).for_each(|cell| assert!(answers.fill(cell, &[cell as u8; 3])));
            let mut same = AnswerText::new(text).expect("a text");
            let mut dropped = 0;
            for length in [1, 3, 51, 144, 145, 1300] {
                let datagram: Vec<u8> = (0..length).map(|at| at as u8 | 1).collect();
                client.send(&datagram).expect("sent");
                match same.says(&datagram, Some(own)) {
                    Said::Cell(cell @ 0..200) => {
                        assert_eq!(received(&client), [cell as u8; 3], "{text}: {length}");
                    }
                    Said::Drop => dropped += 1,
                    _ => assert_eq!(received(&service), datagram, "{text}: {length}"),
                }
            }
            assert_eq!(counts(&answers).dropped, dropped, "{text}");
            assert!(has_nothing(&service) && has_nothing(&client), "{text}");
        }
    }
}

#[test]
fn what_is_echoed_is_the_requests_and_nothing_else() {
    if !own_network() {
        return;
    }
    for echo in [0, 2, 8, 16] {
        let (service, client, at) = sockets("127.0.0.1:0");
        let plan = AnswerPlan { echo, ..plan(at) };
        let mut answers = Answers::start(&plan, "UP + 1").expect("they begin");
        let request: Vec<u8> = (0..143).collect();
        let reply: Vec<u8> = (0..255).rev().collect();
        assert!(answers.put(&request, &reply));
        let mut asked = request.clone();
        asked[..echo].fill(77);
        client.send(&asked).expect("sent");
        let mut expected = reply.clone();
        expected[..echo].fill(77);
        assert_eq!(received(&client), expected, "echo {echo}");
        asked[echo] ^= 1;
        client.send(&asked).expect("sent");
        assert_eq!(received(&service), asked);
        if echo > 0 {
            assert!(!answers.put(&request[..echo - 1], b"shorter than the echo"));
            assert!(answers.fill(0, &reply[..echo]));
            client.send(&asked[..echo - 1]).expect("sent");
            assert_eq!(received(&service), asked[..echo - 1]);
        }
    }
}

#[test]
fn replies_are_bounded_in_length_and_number() {
    if !own_network() {
        return;
    }
    let (service, client, at) = sockets("127.0.0.1:0");
    let slow = AnswerPlan {
        per_second: 1,
        ..plan(at)
    };
    let mut answers = Answers::start(&slow, THIRD).expect("they begin");
    assert!(answers.put(b"..\x01", &[7; 9]));
    assert!(!answers.put(b"..\x01", &[7; 10]), "more than three times");
    assert!(!answers.put(b"..\x01", b""), "none");
    assert!(!answers.put(&[1; 145], &[7; 10]), "longer than the prefix");
    assert!(!answers.fill(2, &[7; 1201]), "too long");
    client.send(b"..\x01").expect("sent");
    assert_eq!(received(&service), b"..\x01", "the former reply is gone");

    assert!(answers.fill(1, &[7; 10]));
    client.send(b"..\x01").expect("sent");
    assert_eq!(received(&service), b"..\x01");
    assert_eq!(counts(&answers).too_long, 1);

    assert!(answers.put(b"..\x01", &[7; 9]));
    for _ in 0..40 {
        client.send(b"..\x01").expect("sent");
    }
    let mut counts = counts(&answers);
    wait_until("all are counted", || {
        counts = answers.counts().expect("counts");
        counts.answered + counts.limited == 40
    });
    assert!(counts.answered >= 1 && counts.limited >= 1, "{counts:?}");
    for _ in 0..counts.limited {
        assert_eq!(received(&service), b"..\x01");
    }
    assert!(has_nothing(&service));
}

/// Ends the writer, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn reply_that_is_being_written_is_never_sent_in_parts() {
    if !own_network() {
        return;
    }
    let (service, client, at) = sockets("127.0.0.1:0");
    let mut answers = Answers::start(&plan(at), "0").expect("they begin");
    let request = [1; 100];
    let done = AtomicBool::new(false);
    let (mut whole, mut up) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (0..=255u8).cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                answers.put(&request, &[byte; 300]);
            }
        });
        let _stop = Stop(&done);
        // Until both have been met. (At first the cell is empty, too.)
        while whole < 300 || up < 300 {
            client.send(&request).expect("sent");
            wait_until("it is answered or goes up", || {
                if now_received(&service).is_some() {
                    up += 1;
                    return true;
                }
                let Some(reply) = now_received(&client) else {
                    return false;
                };
                assert!(reply.len() == 300 && reply.iter().all(|byte| *byte == reply[0]));
                whole += 1;
                true
            });
        }
    });
    let counts = counts(&answers);
    assert_eq!(counts.answered, whole, "{counts:?}");
    assert_eq!(counts.torn + counts.empty, up, "{counts:?}");
}

#[test]
fn texts_that_fail_or_ask_for_more_are_told() {
    if !own_network() {
        return;
    }
    let (service, client, at) = sockets("127.0.0.1:0");
    let answers = Answers::start(&plan(at), "data[length]").expect("they begin");
    client.send(&[0; 144]).expect("sent");
    assert_eq!(received(&service), [0; 144]);
    assert_eq!(counts(&answers).failed, 1, "an index beyond the prefix");
    drop(answers);
    let text = |text: &str| Answers::start(&plan(at), text).expect_err(text).to_string();
    for (wrong, says) in [
        ("count(1); return 0;", "UP or DROP"),
        ("drop(1); return 0;", "UP or DROP"),
        ("struct output { u8 a; }; return 0;", "at most 0 bytes"),
        ("lenght", "did you mean 'length'"),
    ] {
        let told = text(wrong);
        assert!(told.contains(says), "{wrong}: {told}");
    }
    let told = |plan: &AnswerPlan<'_>| Answers::start(plan, "0").expect_err("it is wrong");
    for wrong in [
        AnswerPlan {
            cells: 0,
            ..plan(at)
        },
        AnswerPlan {
            echo: 3,
            ..plan(at)
        },
        AnswerPlan {
            echo: 18,
            ..plan(at)
        },
        AnswerPlan {
            per_second: 0,
            ..plan(at)
        },
        AnswerPlan {
            interface: "none",
            ..plan(at)
        },
        AnswerPlan {
            at: "127.0.0.1:0".parse().expect("one"),
            ..plan(at)
        },
    ] {
        assert!(matches!(told(&wrong), Error::Invalid { .. }), "{wrong:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The other host.
struct Host {
    lines: Lines,
    input: std::process::ChildStdin,
    _running: Running,
}

impl Host {
    fn start(port: u16) -> Host {
        ip("link add service type veth peer name other");
        ip("link set service address 02:00:00:00:00:11 addrgenmode none");
        ip("link set other address 02:00:00:00:00:22 addrgenmode none");
        ip("address add 10.77.0.1/24 dev service");
        ip("address add fd77::1/64 dev service nodad");
        // What is another host's goes on to it; and that one says nothing of its own.
        for setting in [
            "ipv4/conf/all/forwarding",
            "ipv6/conf/all/forwarding",
            "ipv6/conf/other/disable_ipv6",
        ] {
            std::fs::write(format!("/proc/sys/net/{setting}"), "1").expect("root may");
        }
        ip("link set service up");
        ip("link set other up");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answer.py");
        let mut command = Command::new("python3");
        command
            .args([script, "other", "020000000011", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        Host {
            lines: running.lines(),
            input: running.input().expect("a pipe"),
            _running: running,
        }
    }

    /// Sends such a packet, and says what came back.
    fn send(&mut self, case: &str, version: u8, data: &[u8], reply: bool) -> String {
        let hex = hex(data);
        writeln!(
            self.input,
            r#"{{"case": "{case}", "version": {version}, "data": "{hex}", "reply": {reply}}}"#
        )
        .expect("it reads");
        self.lines.next(PATIENCE).expect("an answer")
    }
}

/// Packets, and what becomes of each.
const CASES: &[(&str, &str)] = &[
    ("plain", "answered"),
    ("no_sum", "answered"),
    ("padded", "answered"),
    ("big", "unproven"), // nobody has verified so long a one
    ("wrong_sum", "unproven"),
    ("empty", "up"),
    ("wrong_ip_sum", "passed"),
    ("options", "passed"),
    ("fragment", "passed"),
    ("last_fragment", "passed"),
    ("vlan", "passed"),
    ("tcp", "passed"),
    ("udp_long", "passed"),
    ("udp_short", "passed"),
    ("udp_none", "passed"),
    ("ip_long", "passed"),
    ("ip_short", "passed"),
    ("other_port", "passed"),
    ("from_port", "passed"),
    ("from_zero", "passed"),
    ("from_many", "passed"),
    ("from_nobody", "passed"),
    ("from_loopback", "passed"),
    ("to_all", "passed"),
    ("to_other", "passed"),
    ("to_foreign", "passed"),
];

/// The first byte is the cell, and the last one of the cells takes any request.
const ANY: u8 = 199;

fn request_of(length: u8) -> Vec<u8> {
    (0..length).map(|at| length.wrapping_add(at)).collect()
}

/// What became of one packet, by name.
fn fate(former: &AnswerCount, now: &AnswerCount) -> String {
    let fates = [
        ("answered", now.answered - former.answered),
        ("unproven", now.unproven - former.unproven),
        (
            "up",
            now.up + now.empty + now.failed - former.up - former.empty - former.failed,
        ),
        ("passed", now.passed - former.passed),
    ];
    let met = fates.iter().filter(|(_, count)| *count > 0);
    met.map(|(name, count)| format!("{name}{}", if *count > 1 { "+" } else { "" }))
        .collect()
}

/// Sends packets of each form to a service at that address, by one version of the protocol.
fn send_all(host: &mut Host, answers: &Answers, at: SocketAddr, version: u8) {
    let is_ours = match at.ip().is_unspecified() {
        true => at.is_ipv6() || version == 4,
        false => at.is_ipv4() == (version == 4),
    };
    let mut ask = |case: &str, data: &[u8], expected: &str, reply: &[u8]| {
        let told = format!("{at}, IPv{version}, {case}, {} bytes", data.len());
        let expected = if is_ours { expected } else { "passed" };
        let is_answered = expected == "answered";
        let former = counts(answers);
        let got = host.send(case, version, data, is_answered);
        let mut now = former;
        wait_until("it is counted", || {
            now = counts(answers);
            now.seen() > former.seen()
        });
        assert_eq!(fate(&former, &now), expected, "{told}");
        let wanted = if is_answered {
            hex(reply)
        } else {
            "sent".to_owned()
        };
        assert_eq!(got, wanted, "{told}");
    };
    for length in [1, 2, 3, 4, 7, 8, 9, 143, 144] {
        let request = request_of(length);
        ask("plain", &request, "answered", &request.repeat(3));
    }
    for (case, expected) in CASES {
        let (data, reply) = match *case {
            "big" => (vec![ANY], vec![ANY; 999]),
            _ => (request_of(77), request_of(77).repeat(3)),
        };
        // IPv6 has no datagrams without a sum, and no sum of its header.
        let expected = match (*case, version) {
            ("no_sum", 6) => "unproven",
            ("wrong_ip_sum", 6) => "answered",
            _ => expected,
        };
        ask(case, &data, expected, &reply);
    }
}

#[test]
fn packets_of_any_form_are_answered_rightly_or_go_on() {
    if !own_network() {
        return;
    }
    let has_judge = Command::new("python3").arg("--version").output().is_ok();
    if !has_judge {
        eprintln!("skipped: there is no python3");
        return;
    }
    let mut host = Host::start(7011);
    for address in ["[::]", "0.0.0.0", "10.77.0.1", "[fd77::1]"] {
        let at: SocketAddr = format!("{address}:7011").parse().expect("an address");
        let plan = AnswerPlan {
            interface: "service",
            ..plan(at)
        };
        let mut answers = Answers::start(&plan, "length > 0 ? data[0] : UP").expect("they begin");
        for length in 1..=144 {
            let request = request_of(length);
            assert!(answers.put(&request, &request.repeat(3)));
        }
        assert!(answers.fill(ANY.into(), &[ANY; 999]));
        for version in [4, 6] {
            send_all(&mut host, &answers, at, version);
        }
    }
}

/// Set: this process answers at that port, until it is killed.
const PORT: &str = "ECALLS_TEST_ANSWERS";

#[test]
fn answering_process() {
    let Some(port) = std::env::var_os(PORT) else {
        return;
    };
    let at = format!("127.0.0.1:{}", port.to_string_lossy())
        .parse()
        .expect("an address");
    let mut answers = Answers::start(&plan(at), "0").expect("they begin");
    assert!(answers.fill(0, b"by the kernel"));
    println!("answers");
    std::thread::sleep(PATIENCE);
}

#[test]
fn nothing_answers_when_the_process_was_killed() {
    if !own_network() {
        return;
    }
    let (service, client, at) = sockets("127.0.0.1:0");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "answering_process", "--nocapture"])
        .env(PORT, at.port().to_string())
        .stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    running.lines().find("answers", PATIENCE);
    client.send(b"who answers?").expect("sent");
    assert_eq!(received(&client), b"by the kernel");
    running.kill(PATIENCE);
    wait_until("requests go up", || {
        client.send(b"who answers?").expect("sent");
        let mut went_up = false;
        wait_until("it is answered or goes up", || {
            went_up = now_received(&service).is_some();
            went_up || now_received(&client).is_some()
        });
        went_up
    });
}
