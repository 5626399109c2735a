//! `ecalls cluster` on three hosts, each a network namespace with a core of its own (an instance):
//! managers of two give away jobs, the third one uses them. Needs root, `ip`, and a kernel with
//! veth and bridge.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecalls_abi::relay::{
    RELAY_COUNT, RELAY_COUNTED, RELAY_NO_FRAME, RELAY_OWN, RELAY_SECOND, RelayCounts, RelayMessage,
};
use ecalls_abi::wire;
use ecalls_abi::zerocopy::IntoBytes;
use limit::net::Net;
use limit::{Ended, Running, ended};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};
use serde_json::{Value, json};

/// How long anything that should happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const HOSTS: u8 = 3;

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

struct Host {
    number: u8,
    net: Net,
    manager: Option<Running>,
}

impl Host {
    fn new(number: u8, switch: &Net) -> Host {
        let net = Net::start();
        let (port, pid) = (format!("port{number}"), net.id());
        switch.ip(&format!(
            "link add {port} type veth peer name eth netns {pid}"
        ));
        switch.ip(&format!("link set {port} master bridge up"));
        net.ip(&format!("addr add 10.80.0.{number}/24 dev eth"));
        net.ip("link set eth up");
        let mut host = Host {
            number,
            net,
            manager: None,
        };
        host.serve();
        host
    }

    fn serve(&mut self) {
        let others = (1..=HOSTS).filter(|other| *other != self.number);
        let others: Vec<String> = others.map(|other| format!("10.80.0.{other}")).collect();
        let jobs = u8::from(self.number > 1);
        let mut command = self.command();
        command
            .args(["serve", "--interface", "eth", "--to", &others.join(",")])
            .args(["--offer", &format!("job={jobs}"), "--json"]);
        let (out, err) = (Stdio::piped(), Stdio::piped());
        let mut running = Running::start(command.stdout(out).stderr(err));
        running.complaints().find("manages host", PATIENCE);
        self.manager = Some(running);
    }

    fn instance(&self) -> String {
        format!("test-cli-cluster-{}", self.number)
    }

    fn ecalls(&self) -> Command {
        let mut command = self.net.command(env!("CARGO_BIN_EXE_ecalls"));
        command.env("ECALLS_INSTANCE", self.instance());
        command
    }

    fn command(&self) -> Command {
        let mut command = self.ecalls();
        command.arg("cluster");
        command
    }

    fn cluster(&self, arguments: &[&str]) -> Ended {
        ended(self.command().args(arguments), PATIENCE)
    }

    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let out = self.cluster(arguments).out;
        let rows = out
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        rows.collect()
    }

    /// Asks for a job, for longer than a busy machine takes to give one.
    fn allocate(&self, more: &[&str]) -> Value {
        let ask = ["allocate", "job", "1", "--deadline", "20s", "--json"];
        self.rows(&[&ask[..], more].concat()).remove(0)
    }

    fn wait_for_hosts(&self, count: usize) {
        wait_until("the other hosts have told", || {
            let rows = self.rows(&["discover", "--json"]);
            rows.iter()
                .filter(|row| row["silent"] == json!(false))
                .count()
                == count
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.manager.take());
        let _ = std::fs::remove_file(format!("/run/ecalls@{}.lock", self.instance()));
    }
}

/// What stands where a host's relay would be, and says what it has counted.
struct Relay(PathBuf);

impl Relay {
    fn of(host: &Host, counts: RelayCounts) -> Relay {
        let folder = PathBuf::from(format!("/run/ecalls-relay@{}", host.instance()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        let address = SocketAddrUnix::new(folder.join("socket")).expect("a short path");
        bind(&socket, &address).expect("it is free");
        listen(&socket, 8).expect("it is bound");
        std::thread::spawn(move || {
            // Until this process ends.
            while let Ok(program) = accept(&socket) {
                Relay::tell(&program, &counts);
            }
        });
        Relay(folder)
    }

    fn tell(program: &OwnedFd, counts: &RelayCounts) {
        let mut packet = [0; 4096];
        let received = recv(program, &mut packet[..], RecvFlags::empty());
        let (_, length) = received.expect("a packet");
        let (asked, _) = RelayMessage::parse(&packet[..length]).expect("a message");
        assert_eq!(asked.kind, RELAY_COUNT);
        let message = RelayMessage::new(RELAY_COUNTED, size_of::<RelayCounts>());
        let packet = [message.as_bytes(), counts.as_bytes()].concat();
        send(program, &packet, SendFlags::NOSIGNAL).expect("it reads");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The hosts, when each has been told of the others; `None`: the test may not run.
fn hosts() -> Option<(Net, Vec<Host>)> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return None;
    }
    let switch = Net::start();
    if !switch.accepts("link add bridge type bridge") || !switch.accepts("link add probe type veth")
    {
        eprintln!("skipped: this kernel has no bridge or no veth");
        return None;
    }
    switch.ip("link set bridge up");
    let hosts: Vec<Host> = (1..=HOSTS)
        .map(|number| Host::new(number, &switch))
        .collect();
    hosts[0].wait_for_hosts(2);
    Some((switch, hosts))
}

#[test]
fn jobs_of_other_hosts_are_found_allocated_and_released_by_commands() {
    let Some((_switch, mut hosts)) = hosts() else {
        return;
    };
    let first = hosts[0].allocate(&[]);
    assert_eq!(
        (&first["granted"], &first["strays"]),
        (&json!(true), &json!(0)),
        "{first}"
    );
    let second = hosts[0].allocate(&["--random", "2"]);
    assert_eq!(second["granted"], json!(true), "{second}");
    assert_ne!(first["host"], second["host"]);
    let third = hosts[0].cluster(&["allocate", "job", "1", "--deadline", "20s"]);
    assert_eq!(third.code, 6, "{third:?}");
    assert!(third.err.contains("refused by all 2 hosts"), "{third:?}");
    let late = [
        "allocate",
        "job",
        "1",
        "--wait",
        "--deadline",
        "200ms",
        "--json",
    ];
    assert_eq!(hosts[0].rows(&late)[0]["reason"], json!("late"));

    // They tell it after a while.
    let mut rows = Vec::new();
    wait_until("each of the two has lent one", || {
        rows = hosts[0].rows(&["top", "--once", "--json"]);
        [&first, &second].iter().all(|given| {
            let row = rows.iter().find(|row| row["host"] == given["host"]);
            let leases = row.map(|row| (&row["leases"]["confirmed"], &row["leases"]["waiting"]));
            leases == Some((&json!(1), &json!(0)))
        })
    });
    let channel = rows.last().expect("the channel");
    assert_eq!(
        (&channel["channel"], &channel["hosts"]),
        (&json!("cluster"), &json!(2))
    );
    let text = hosts[0].cluster(&["top", "--once"]).out;
    assert!(
        text.contains("10.80.0.2") && text.contains("GAPS"),
        "{text}"
    );

    for given in [&first, &second] {
        let (host, id) = (
            given["host"].as_str().expect("a host"),
            given["id"].to_string(),
        );
        let released = hosts[0].cluster(&["release", host, &id]);
        assert_eq!(released.code, 0, "{released:?}");
    }
    let other = hosts[0].cluster(&["release", "0000:02-00-00-00-00-09", "7"]);
    assert_eq!(other.code, 5, "{other:?}");

    counts_in_another_host_s_name_are_not_shown(&hosts);
    what_the_relay_has_refused_is_told(&hosts[0]);
    stopped_managers_grant_nothing_for_which_nobody_waits(&hosts);

    // A manager that was killed is silent, and is not asked; when it is back, it is.
    hosts[1].manager.as_mut().expect("it runs").kill(PATIENCE);
    hosts[0].wait_for_hosts(1);
    let given = hosts[0].allocate(&[]);
    assert_eq!(given["asked"].as_array().map(Vec::len), Some(1), "{given}");
    hosts[1].serve();
    hosts[0].wait_for_hosts(2);
    let given = hosts[0].allocate(&[]);
    assert_eq!(given["granted"], json!(true), "{given}");
}

/// The third host says what the second one's manager has counted.
fn counts_in_another_host_s_name_are_not_shown(hosts: &[Host]) {
    let rows = hosts[0].rows(&["discover", "--json"]);
    let second = rows.iter().find(|row| row["address"] == json!("10.80.0.2"));
    let second = second.expect("it has told")["host"].clone();
    let id = wire::Host::parse(second.as_str().expect("a text")).expect("a host");
    let lie = || {
        let mut command = hosts[2].ecalls();
        command.args(["channel", "pub", "cluster", "--to", "10.80.0.1"]);
        command.args(["--kind", "load", &format!("from={}", id.0)]);
        command.arg(format!("count={}", ["999"; 13].join(",")));
        assert_eq!(ended(&mut command, PATIENCE).code, 0);
    };
    let is_over = AtomicBool::new(false);
    let rows = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lie();
            }
        });
        let rows = hosts[0].rows(&["top", "--once", "--json"]);
        is_over.store(true, Ordering::Relaxed);
        rows
    });
    let shown = rows.iter().find(|row| row["host"] == second);
    let leases = &shown.expect("it is there")["leases"];
    assert_eq!(leases["confirmed"], json!(0), "{rows:?}");
}

/// By name where it is not 0, and not at all if nothing has been.
fn what_the_relay_has_refused_is_told(host: &Host) {
    let list = |more: &[&str]| {
        let mut command = host.ecalls();
        ended(command.args(["channel", "list"]).args(more), PATIENCE)
    };
    let last = |out: &str| -> Value {
        let line = out.lines().last().expect("a line");
        serde_json::from_str(line).expect("JSON")
    };
    let mut counts = RelayCounts::default();
    let silent = Relay::of(host, counts);
    for told in [list(&[]), host.cluster(&["top", "--once"])] {
        let told = told.out + &told.err;
        assert!(!told.contains("refused by the relay"), "{told}");
    }
    assert_eq!(last(&list(&["--json"]).out)["relay"], json!({}));
    drop(silent);
    for (reason, count) in [(RELAY_NO_FRAME, 4), (RELAY_OWN, 1), (RELAY_SECOND, 23)] {
        counts.count[reason as usize] = count;
    }
    let _relay = Relay::of(host, counts);
    let line = "refused by the relay: no_frame 4, own 1, second 23\n";
    let listed = list(&[]);
    assert!(listed.err.contains(line), "{listed:?}");
    let top = host.cluster(&["top", "--once"]);
    assert!(top.out.ends_with(line), "{top:?}");
    let object = json!({"no_frame": 4, "own": 1, "second": 23});
    assert_eq!(last(&list(&["--json"]).out)["relay"], object);
    let told = host.cluster(&["top", "--once", "--json"]);
    assert_eq!(last(&told.out), json!({"relay": object}));
}

/// Managers that were stopped find requests whose time has passed when they go on.
fn stopped_managers_grant_nothing_for_which_nobody_waits(hosts: &[Host]) {
    let signal = |name: &str| {
        for host in &hosts[1..] {
            let pid = host.manager.as_ref().expect("it runs").id();
            let mut kill = Command::new("kill");
            assert_eq!(ended(kill.args([name, &pid.to_string()]), PATIENCE).code, 0);
        }
    };
    let leases = || -> Vec<Value> {
        let mut leases = Vec::new();
        wait_until("both tell", || {
            let rows = hosts[0].rows(&["top", "--once", "--json"]);
            let others = rows.iter().filter(|row| row["address"].is_string());
            leases = others.map(|row| row["leases"].clone()).collect();
            leases.len() == 2 && leases.iter().all(Value::is_object)
        });
        leases
    };
    let sum = |key: &str, all: &[Value]| -> u64 {
        all.iter().map(|one| one[key].as_u64().unwrap_or(0)).sum()
    };
    let before = leases();
    signal("-STOP");
    let late = ["allocate", "job", "1", "--deadline", "300ms", "--json"];
    assert_eq!(hosts[0].rows(&late)[0]["reason"], json!("late"));
    signal("-CONT");
    wait_until("both have found the request too late", || {
        sum("late", &leases()) == sum("late", &before) + 2
    });
    let after = leases();
    assert_eq!(sum("granted", &after), sum("granted", &before), "{after:?}");
}
