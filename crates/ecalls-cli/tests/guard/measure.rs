//! The figures of doc/servers.md. They are measured only if wanted, in a network namespace of its
//! own, since `compare_with_backlogs_*` change a setting: `unshare --net sh -c 'ip link set lo up;
//! cargo test -p ecalls-cli --test guard measure -- --ignored --nocapture --test-threads 1'`.

use std::time::Duration;

use crate::load::{Outcome, Server, bursts, steady};
use crate::{IP4, start};

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
