//! The server of `examples/connections.rs`, as cargo has built it, with many idle connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use limit::Running;

const LIMIT: Duration = Duration::from_secs(60);
const IDLE: usize = 100;

/// Beside the folder of this test; cargo builds it unless it is told to build this test alone.
fn server() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this binary");
    let server = test.parent()?.parent()?.join("examples/connections");
    server.exists().then_some(server)
}

fn get(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    let mut byte = [0];
    while !answer.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer in time");
        answer.push(char::from(byte[0]));
    }
    let length = answer
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("the body");
    answer + &String::from_utf8(body).expect("text")
}

#[test]
fn a_server_with_a_thread_for_each_connection_answers_beside_idle_ones() {
    let Some(server) = server() else {
        assert!(std::env::var_os("CI").is_none(), "cargo has not built it");
        eprintln!("skipped: the example is not built");
        return;
    };
    for kind in ["user-level", "system"] {
        let mut command = Command::new(&server);
        command.args(["0", env!("CARGO_MANIFEST_DIR"), kind]);
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let line = running.lines().find("port ", LIMIT);
        let port = line.split([' ', ':']).nth(1).expect("a port");
        let connect = || {
            let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("a connection");
            stream.set_read_timeout(Some(LIMIT)).expect("a limit");
            stream
        };
        let mut idle: Vec<_> = (0..IDLE).map(|_| connect()).collect();
        let mut busy = connect();
        for _ in 0..20 {
            assert!(get(&mut busy, "/Cargo.toml").contains("name = \"ecalls-threads\""));
        }
        assert!(
            get(&mut busy, "/../../Cargo.toml").contains("ecalls-threads"),
            "no way out"
        );
        assert!(get(&mut busy, "/nothing").starts_with("HTTP/1.1 404"));
        let last = idle.last_mut().expect("an idle one");
        assert!(
            get(last, "/Cargo.toml").starts_with("HTTP/1.1 200"),
            "they are still served"
        );
    }
}
