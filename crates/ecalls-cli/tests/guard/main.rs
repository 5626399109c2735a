//! `ecalls guard` beside a server that is too slow for its clients: one thread, which takes a fixed
//! time for each connection. Needs root. `sorry` has the answers to those who are turned away;
//! `policy` texts that decide who is; `fault` what clients and servers do wrong; `measure` has
//! measurements, which run only if wanted.

mod fault;
mod load;
mod measure;
mod policy;
mod sorry;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limit::calm::measured;
use limit::net::Net;
use limit::{Ended, Lines, Running, ended};
use serde_json::Value;

use crate::load::{Outcome, Server, bursts, listener, steady};

/// How long anything that should happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const IP4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const IP6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn may_load() -> bool {
    let may = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if !may {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    may
}

fn guard(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls"));
    command
        .args(["guard", "--port", &port.to_string()])
        .args(arguments);
    command
}

/// A guard that works, and its lines, which are JSON.
fn start(port: u16, arguments: &[&str]) -> (Running, Lines) {
    let mut command = guard(port, arguments);
    command.args(["--json", "--every", "100ms"]);
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    running.complaints().find("guards port", PATIENCE);
    let lines = running.lines();
    (running, lines)
}

/// A processor that is away for longer makes servers and clients late: no figure is valid then.
const AWAY: Duration = Duration::from_millis(15);

/// Reads lines until one is as it should be.
fn wait_for(lines: &mut Lines, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let line = lines.next(PATIENCE).expect("the guard ended");
        let line = serde_json::from_str(&line).expect("JSON");
        if is_it(&line) {
            return line;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "waited too long: {what}: {line}"
        );
    }
}

/// Three times as many clients as the server has time for, with a guard in that mode or without.
fn overload(ip: IpAddr, mode: Option<&str>) -> Outcome {
    let server = Server::start(ip, Duration::from_millis(20), 4096);
    let port = server.address.port();
    let guard = mode.map(|mode| start(port, &["--mode", mode]));
    let outcome = steady(server.address, 150, Duration::from_secs(4));
    if let Some((mut guard, mut lines)) = guard {
        let line = wait_for(&mut lines, "all clients are gone", |line| {
            // An interval in which nobody came is not the end. A few of 600 may be lost before the
            // guard: they have gone before their second try.
            let [admitted, refused] =
                ["admitted_total", "refused_total"].map(|key| line[key].as_u64());
            let came = admitted
                .zip(refused)
                .map(|(admitted, refused)| admitted + refused);
            came >= Some(550) && line["admitted"] == 0 && line["refused"] == 0 && line["open"] == 0
        });
        assert!(line["refused_total"].as_u64() > Some(200), "{line}");
        assert!(line["turns"].as_u64() > Some(3), "{line}");
        guard.kill(PATIENCE);
    }
    outcome
}

#[test]
fn overloaded_server_replies_in_time_with_a_guard() {
    if !may_load() {
        return;
    }
    measured(AWAY, || {
        // They sleep nearly always, so they may run side by side.
        std::thread::scope(|scope| {
            for ip in [IP4, IP6] {
                let run = |mode| scope.spawn(move || overload(ip, mode));
                let (without, modes) = (run(None), ["refuse", "drop", "sorry"]);
                let with = modes.map(|mode| run(Some(mode)));
                let without = without.join().expect("an outcome");
                for (mode, with) in modes.into_iter().zip(with) {
                    let with = with.join().expect("an outcome");
                    compare(&format!("{ip} {mode}"), &without, &with);
                    assert_eq!(with.refused > 0, mode != "drop", "{with:?}");
                }
            }
        });
    });
}

/// Of 200 that the server can make, it makes some 50 before the queue is a second long.
fn compare(what: &str, without: &Outcome, with: &Outcome) {
    let (before, after) = (without.replies.len(), with.replies.len());
    let told = format!("{what}: {before} replies without, {after} with");
    assert!(after as f64 > 1.75 * before as f64, "{told}");
    let (before, after) = (without.quantile(50), with.quantile(50));
    let told = format!("{what}: {before:?} without, {after:?} with");
    assert!(after.as_secs_f64() < 0.4 * before.as_secs_f64(), "{told}");
}

#[test]
fn server_with_time_for_its_clients_refuses_none() {
    if !may_load() {
        return;
    }
    measured(AWAY, || {
        let server = Server::start(IP4, Duration::from_millis(5), 128);
        let (_guard, mut lines) = start(server.address.port(), &["--mode", "refuse"]);
        let time = Duration::from_secs(2);
        let outcome = steady(server.address, 100, time);
        // A machine that stands still for a moment makes a server wait.
        assert!(outcome.replies.len() > 180, "{outcome:?}");
        // Within the target it takes 9.
        let outcome = bursts(server.address, 6, time);
        assert!(outcome.replies.len() > 42, "{outcome:?}");
        wait_for(&mut lines, "all came", |line| {
            let [admitted, refused] =
                ["admitted_total", "refused_total"].map(|key| line[key].as_u64());
            admitted
                .zip(refused)
                .is_some_and(|(admitted, refused)| admitted + refused == 248)
        });
    });
}

/// Connects until it is refused: nobody accepts.
fn connect_until_refused(address: SocketAddr) -> Vec<TcpStream> {
    let (mut connected, begin) = (Vec::new(), Instant::now());
    loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => connected.push(stream),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return connected;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "nothing is refused");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn guard_that_is_killed_leaves_nothing() {
    if !may_load() {
        return;
    }
    for ip in [IP4, IP6] {
        let stuck = listener(SocketAddr::new(ip, 0), 4096);
        let address = stuck.local_addr().expect("it is bound");
        let (mut guard, _lines) = start(address.port(), &["--mode", "refuse"]);
        let connected = connect_until_refused(address);
        assert!(!connected.is_empty(), "the first one has an empty queue");
        guard.kill(PATIENCE);
        // The kernel ends the attachments of a process soon after it.
        let begin = Instant::now();
        while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
            assert!(begin.elapsed() < PATIENCE, "still refused");
        }
    }
}

#[test]
fn listener_that_is_closed_and_opened_again_is_guarded() {
    if !may_load() {
        return;
    }
    let stuck = listener(SocketAddr::new(IP4, 0), 4096);
    let address = stuck.local_addr().expect("it is bound");
    let (_guard, mut lines) = start(address.port(), &["--mode", "refuse"]);
    drop(connect_until_refused(address));
    drop(stuck);
    wait_for(&mut lines, "it is closed", |line| {
        line["state"] == "no_listener"
    });
    let _again = listener(address, 4096);
    wait_for(&mut lines, "it is open", |line| line["listeners"] == 1);
    let connected = connect_until_refused(address);
    assert!(
        !connected.is_empty(),
        "a new listener begins with an empty queue"
    );
}

fn refusal(command: &mut Command) -> Ended {
    ended(command, PATIENCE)
}

#[test]
fn what_cannot_be_guarded_is_told() {
    for wrong in [
        ["--target-delay", "1ms"],
        ["--mode", "shrug"],
        ["--port", "0"],
    ] {
        assert_eq!(refusal(&mut guard(80, &wrong)).code, 2, "{wrong:?}");
    }
    if !may_load() {
        return;
    }
    // Where any user may execute it.
    let copy = std::env::temp_dir().join(format!("ecalls-guard-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_ecalls"), &copy).expect("a copy");
    let mut command = Command::new(&copy);
    let told = refusal(command.args(["guard", "--port", "80"]).uid(64012));
    std::fs::remove_file(&copy).expect("it is there");
    assert_eq!(told.code, 3, "{told:?}");
    assert!(told.err.contains("CAP_NET_ADMIN"), "{told:?}");

    // A port of this namespace, looked at from another one.
    let here = listener(SocketAddr::new(IP4, 0), 1);
    let port = here.local_addr().expect("it is bound").port().to_string();
    let net = Net::start();
    let mut command = net.command(env!("CARGO_BIN_EXE_ecalls"));
    let told = refusal(command.args(["guard", "--port", &port]));
    assert_eq!(told.code, 5, "{told:?}");
    assert!(told.err.contains("no server listens"), "{told:?}");
}

#[test]
fn capabilities_of_the_unit_are_enough() {
    if !may_load() {
        return;
    }
    let unit = include_str!("../../../../etc/systemd/ecalls-guard@.service");
    let given = |key: &str| {
        let given = unit.lines().find_map(|line| line.strip_prefix(key));
        given.expect("the unit says so").to_lowercase()
    };
    let wanted = given("AmbientCapabilities=");
    assert_eq!(wanted, given("CapabilityBoundingSet="));
    // Servers tell it of their connections by a socket of Unix.
    assert!(given("RestrictAddressFamilies=").contains("af_unix"));
    let wanted = wanted.replace("cap_", "+").replace(' ', ",");
    let here = listener(SocketAddr::new(IP4, 0), 1);
    let port = here.local_addr().expect("it is bound").port();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=64012", "--regid=64012", "--clear-groups"]);
    for set in ["bounding-set", "inh-caps", "ambient-caps"] {
        command.arg(format!("--{set}=-all,{wanted}"));
    }
    let guarding = guard(port, &["--count", "1", "--every", "100ms", "--json"]);
    command
        .arg(guarding.get_program())
        .args(guarding.get_args());
    let told = ended(&mut command, PATIENCE);
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.out.lines().count(), 1, "{told:?}");
}
