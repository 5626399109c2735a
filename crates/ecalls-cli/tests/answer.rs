//! `ecalls answer list` shows what this process has the kernel answer, and `ecalls answer hold`
//! lets a process without privileges do that. Needs root.

use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecalls::{AnswerPlan, Answers};
use limit::net::Net;
use limit::{Lines, Running, ended};
use serde_json::Value;

/// How long anything that should happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A user without privileges.
const SOMEBODY: u32 = 64012;

fn command(arguments: &[&str]) -> Command {
    command_of(env!("CARGO_BIN_EXE_ecalls").as_ref(), arguments)
}

fn command_of(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(["answer", "list", "--every", "100ms", "--json"])
        .args(arguments);
    command
}

/// Reads lines until one is of this port, and as it should be.
fn wait_for(lines: &mut Lines, port: u16, is_it: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    let mut last = Value::Null;
    loop {
        let line = lines.next(PATIENCE).expect("the command ended");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["port"] == port && line["pid"] == std::process::id() {
            if is_it(&line) {
                return line;
            }
            last = line;
        }
        assert!(begin.elapsed() < PATIENCE, "waited too long: {last}");
    }
}

#[test]
fn what_answers_is_shown_with_its_counts() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    let service = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = service.local_addr().expect("it is bound");
    let plan = AnswerPlan {
        interface: "lo",
        at,
        cells: 16,
        echo: 0,
        per_second: 10_000,
    };
    let text = "data[0] == 'd' ? DROP : data[0] == 'u' ? UP : 3";
    let mut answers = Answers::start(&plan, text).expect("root may");
    assert!(answers.fill(3, b"reply"));
    let mut shown = Running::start(command(&[]).stdout(Stdio::piped()));
    let mut lines = shown.lines();
    let line = wait_for(&mut lines, at.port(), |_| true);
    for (key, value) in [
        ("interface", "lo".into()),
        ("address", "127.0.0.1".into()),
        ("cells", Value::from(16)),
        ("limit_per_s", Value::from(10_000)),
        ("answered", Value::from(0)),
    ] {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(at).expect("an address");
    for (request, many) in [(b"ask", 5), (b"up!", 3), (b"del", 2)] {
        for _ in 0..many {
            client.send(request).expect("sent");
        }
    }
    let line = wait_for(&mut lines, at.port(), |line| {
        (&line["answered"], &line["up"], &line["dropped"]) == (&5.into(), &3.into(), &2.into())
    });
    assert!(line["answered_per_s"].is_number(), "{line}");
    // The rates are those of the interval.
    wait_for(&mut lines, at.port(), |line| line["answered_per_s"] == 0.0);
    drop(answers);
    let once = ended(&mut command(&["--once"]), PATIENCE);
    let is_there = once.out.contains(&format!("\"port\":{}", at.port()));
    assert!(once.code == 0 && !is_there, "{once:?}");
    // Somebody may not be able to come to where the program is.
    let copy = std::env::temp_dir().join(format!("ecalls-answer-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_ecalls"), &copy).expect("a program for all");
    let mut theirs = command_of(&copy, &["--once"]);
    let denied = ended(theirs.uid(SOMEBODY).current_dir("/"), PATIENCE);
    let _ = std::fs::remove_file(copy);
    assert!(
        denied.code == 3 && denied.err.contains("root"),
        "{denied:?}"
    );
}

/// The text of a service with one request.
const ONE: &str = "length == 4 ? 0 : UP";
const UNIT: &str = include_str!("../../../etc/systemd/ecalls-answer@.service");

fn of_unit(key: &str) -> &'static str {
    let value = UNIT.lines().find_map(|line| line.strip_prefix(key));
    value.expect("the unit says so")
}

/// Holds by that text, in a network or in this one, with the words and the rights of the unit.
fn hold(net: Option<&Net>, options: &str, text: &str) -> Running {
    let rights = of_unit("CapabilityBoundingSet=").to_lowercase();
    let rights = rights.replace("cap_", "+").replace(' ', ",");
    let mut command = net.map_or_else(|| Command::new("setpriv"), |net| net.command("setpriv"));
    command.arg(format!("--bounding-set=-all,{rights}"));
    command.args(["--no-new-privs", env!("CARGO_BIN_EXE_ecalls")]);
    for word in of_unit("ExecStart=/usr/bin/ecalls ").split(' ') {
        match word {
            "$OPTIONS" => command.args(options.split(' ')),
            "/etc/ecalls/answer/%i.ec" => command.arg("-"),
            word => command.arg(word),
        };
    }
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut input = running.input().expect("a pipe");
    input.write_all(text.as_bytes()).expect("a pipe");
    running
}

#[test]
fn holder_ends_with_its_interface() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    let Some((net, far)) = Net::pair() else {
        return;
    };
    let options = "--interface eth --at 0.0.0.0:7000 --user nobody";
    let mut holder = hold(Some(&net), options, ONE);
    let mut complaints = holder.complaints();
    complaints.find("may answer at", PATIENCE);
    let answers = net.within(|| Answers::borrow_at(7000)).expect("it lends");
    far.ip("link del eth");
    assert!(!holder.wait(PATIENCE).success());
    complaints.find("eth is gone", PATIENCE);
    assert!(answers.have_ended());
}

#[test]
fn cells_are_lent_until_the_command_is_killed() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    let service = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = service.local_addr().expect("it is bound");
    let hold = |user: &str, text: &str| {
        let options = format!("--interface lo --at {at} --user {user} --cells 4");
        hold(None, &options, text)
    };
    for (user, text, wanted) in [
        ("nobody-of-this-name", ONE, "no user"),
        ("nobody", "length ==", "answer:1"),
    ] {
        let told = hold(user, text).output(PATIENCE);
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(!told.status.success() && said.contains(wanted), "{said}");
    }
    let mut holder = hold("nobody", ONE);
    holder.complaints().find("may answer at", PATIENCE);
    // Root may have them, too.
    let mut answers = Answers::borrow_at(at.port()).expect("they are there");
    assert!(answers.put(b"ping", b"healthy"));
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(at).expect("an address");
    let mut bytes = [0; 64];
    for socket in [&client, &service] {
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    }
    client.send(b"ping").expect("sent");
    let count = client.recv(&mut bytes).expect("a reply");
    assert_eq!(&bytes[..count], b"healthy");
    let mut shown = Running::start(command(&[]).stdout(Stdio::piped()));
    let mut lines = shown.lines();
    let begin = Instant::now();
    loop {
        let line = lines.next(PATIENCE).expect("the command ended");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["port"] == at.port() {
            assert_eq!(line["pid"], holder.id(), "{line}");
            assert_eq!((&line["cells"], &line["answered"]), (&4.into(), &1.into()));
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "it is not shown");
    }
    assert!(!answers.have_ended());
    holder.kill(PATIENCE);
    assert!(answers.have_ended());
    client.send(b"ping").expect("sent");
    assert_eq!(service.recv(&mut bytes).expect("it goes up"), 4);
}
