//! The figures of doc/guard.md. They are measured only if wanted, in a network namespace of its
//! own, since `compare_with_backlogs_*` change a setting: `unshare --net sh -c 'ip link set lo up;
//! cargo test -p ecalls-cli --test guard measure -- --ignored --nocapture --test-threads 1'`.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limit::Running;

use crate::load::{Outcome, Server, bursts, listener, steady};
use crate::{IP4, PATIENCE, start};

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
    run("guard, sorry", 4096, Some("sorry"));
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

/// lighttpd, whose page is a program that computes for some 10 ms, with so many connections at
/// once.
fn lighttpd(folder: &Path, connections: u32) -> (Running, SocketAddr) {
    let page = "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done\n\
                printf 'Content-Type: text/plain\\r\\n\\r\\nreply'\n";
    std::fs::write(folder.join("page"), page).expect("a page");
    let free = listener(SocketAddr::new(IP4, 0), 1);
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let config = format!(
        "server.modules = (\"mod_cgi\")\ncgi.assign = (\"/page\" => \"/bin/sh\")\n\
         server.document-root = \"{}\"\nserver.bind = \"{}\"\nserver.port = {}\n\
         server.max-connections = {connections}\n",
        folder.display(),
        address.ip(),
        address.port()
    );
    let path = folder.join("config");
    std::fs::write(&path, config).expect("a configuration");
    let mut command = Command::new("lighttpd");
    let server = Running::start(command.arg("-D").arg("-f").arg(path).stderr(Stdio::null()));
    let begin = Instant::now();
    while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
        assert!(begin.elapsed() < PATIENCE, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    (server, address)
}

/// An event-driven server accepts at once unless it has reached its limit of connections.
#[test]
#[ignore = "a measurement"]
fn compare_with_limits_of_lighttpd() {
    let time = Duration::from_secs(4);
    let folder = std::env::temp_dir().join(format!("ecalls-guard-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    for connections in [512, 16, 4] {
        for mode in [None, Some("refuse")] {
            let (_server, address) = lighttpd(&folder, connections);
            let _guard = mode.map(|mode| start(address.port(), &["--mode", mode]));
            let outcome = steady(address, 400, time);
            let name = format!("{connections}, guard {}", mode.unwrap_or("none"));
            show(Duration::from_millis(10), &name, "400/s", time, &outcome);
        }
    }
    std::fs::remove_dir_all(&folder).expect("it is there");
}
