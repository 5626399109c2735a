//! What requests get.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::OnceLock;

use crate::server::{BIG, Server, each, rest};

/// Without the date, which differs.
fn plain(answer: &str) -> String {
    let lines = answer.split_inclusive("\r\n");
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[test]
fn each_mode_gives_the_same_answers() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9000));
    let large = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n";
    let questions = [
        ("GET / HTTP/1.0\r\n\r\n", "200"),
        ("HEAD / HTTP/1.0\r\n\r\n", "200"),
        ("GET /cpu?us=100 HTTP/1.0\r\n\r\n", "200"),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            "200",
        ),
        ("GET /none HTTP/1.0\r\n\r\n", "404"),
        ("GET /../../etc/passwd HTTP/1.0\r\n\r\n", "404"),
        ("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.0\r\n\r\n", "404"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
        ("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "405"),
        (large, "413"),
        (&long, "431"),
        ("GET / HTTP/3.0\r\n\r\n", "505"),
    ];
    let first = OnceLock::new();
    each(&[], |server, mode| {
        let answers = questions
            .map(|(question, _)| plain(&server.ask(question)))
            .to_vec();
        let expected = first.get_or_init(|| answers.clone());
        assert_eq!(&answers, expected, "{mode}");
        for ((question, wanted), answer) in questions.iter().zip(&answers) {
            assert_eq!(&status(answer), wanted, "{mode}: {question}");
        }
        assert!(
            answers[0].ends_with("\r\n\r\n<p>small</p>\n"),
            "{}",
            answers[0]
        );
        assert!(answers[1].ends_with("\r\n\r\n"), "HEAD: {}", answers[1]);
        let head = |answer: &str| answer.split("\r\n\r\n").next().map(str::to_owned);
        assert_eq!(
            head(&answers[0]),
            head(&answers[1]),
            "HEAD is GET without the page"
        );
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    each(&[], |server, mode| {
        let mut text = String::new();
        for us in 0..200 {
            text += &format!("GET /cpu?us={us} HTTP/1.1\r\nHost: x\r\n\r\n");
            if us % 10 == 0 {
                text += "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /";
            }
        }
        text += "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let whole = plain(&server.ask(&text));
        let pages: Vec<_> = whole.lines().filter(|line| line.ends_with(" us")).collect();
        let wanted: Vec<_> = (0..200).map(|us| format!("{us} us")).collect();
        assert_eq!(pages, wanted, "{mode}");
        assert_eq!(
            whole.matches("405 Method").count(),
            2 * 20,
            "{mode}: line and page"
        );
        let mut stream = server.connect();
        for part in text.as_bytes().chunks(7) {
            stream.write_all(part).expect("it reads");
        }
        assert_eq!(plain(&rest(&mut stream)), whole, "{mode}: in parts");
    });
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_answers() {
    each(&[], |server, mode| {
        let mut stream = server.connect();
        let text = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3);
        stream.write_all(text.as_bytes()).expect("it reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let answers = rest(&mut stream);
        assert_eq!(answers.matches("<p>small</p>").count(), 3, "{mode}");
    });
}

#[test]
fn a_large_file_arrives_whole_and_the_connection_goes_on() {
    each(&[], |server, mode| {
        let mut stream = server.connect();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream
            .write_all((get("/big") + &get("/")).as_bytes())
            .expect("it reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("all");
        let begin = bytes
            .windows(4)
            .position(|end| end == b"\r\n\r\n")
            .expect("a head")
            + 4;
        let page = &bytes[begin..begin + BIG];
        let is_right = page
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at % 251) as u8);
        assert!(is_right, "{mode}");
        let after = String::from_utf8_lossy(&bytes[begin + BIG..]);
        assert!(after.starts_with("HTTP/1.1 200 OK\r\n"), "{mode}: {after}");
        assert!(after.ends_with("<p>small</p>\n"), "{mode}: {after}");
    });
}

#[test]
fn it_serves_ipv4_and_ipv6_at_once() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("not tested: no IPv6");
        return;
    }
    each(&["--listen", "[::1]:0"], |server: &mut Server, mode| {
        for address in server.addresses.clone() {
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            stream
                .write_all(b"GET / HTTP/1.0\r\n\r\n")
                .expect("it reads");
            let answer = rest(&mut stream);
            assert!(
                answer.ends_with("<p>small</p>\n"),
                "{mode}, {address}: {answer}"
            );
        }
    });
}
