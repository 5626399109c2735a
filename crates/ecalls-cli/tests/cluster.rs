//! `ecalls cluster` on three hosts, each a network namespace with a core of its own (an instance):
//! managers of two give away jobs, the third one uses them. Needs root, `ip`, and a kernel with
//! veth and bridge.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limit::net::Net;
use limit::{Ended, Running, ended};
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

    fn command(&self) -> Command {
        let mut command = self.net.command(env!("CARGO_BIN_EXE_ecalls"));
        command.env(
            "ECALLS_INSTANCE",
            format!("test-cli-cluster-{}", self.number),
        );
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
        let number = self.number;
        let _ = std::fs::remove_file(format!("/run/ecalls@test-cli-cluster-{number}.lock"));
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
    let first = hosts[0].rows(&["allocate", "job", "1", "--json"]).remove(0);
    assert_eq!(
        (&first["granted"], &first["strays"]),
        (&json!(true), &json!(0)),
        "{first}"
    );
    let second = hosts[0]
        .rows(&["allocate", "job", "1", "--random", "2", "--json"])
        .remove(0);
    assert_eq!(second["granted"], json!(true), "{second}");
    assert_ne!(first["host"], second["host"]);
    let third = hosts[0].cluster(&["allocate", "job", "1"]);
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

    let rows = hosts[0].rows(&["top", "--once", "--json"]);
    let of = |host: &Value| {
        let mut rows = rows.iter().filter(|row| row["host"] == *host);
        rows.next().unwrap_or_else(|| panic!("{rows:?}"))["leases"].clone()
    };
    for given in [&first, &second] {
        let leases = of(&given["host"]);
        assert_eq!(leases["confirmed"], json!(1), "{rows:?}");
        assert_eq!(leases["waiting"], json!(0), "{rows:?}");
    }
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

    stopped_managers_grant_nothing_for_which_nobody_waits(&hosts);

    // A manager that was killed is silent, and is not asked; when it is back, it is.
    hosts[1].manager.as_mut().expect("it runs").kill(PATIENCE);
    hosts[0].wait_for_hosts(1);
    let given = hosts[0].rows(&["allocate", "job", "1", "--json"]).remove(0);
    assert_eq!(given["asked"].as_array().map(Vec::len), Some(1), "{given}");
    hosts[1].serve();
    hosts[0].wait_for_hosts(2);
    let given = hosts[0].rows(&["allocate", "job", "1", "--json"]).remove(0);
    assert_eq!(given["granted"], json!(true), "{given}");
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
        let rows = hosts[0].rows(&["top", "--once", "--json"]);
        let others = rows.iter().filter(|row| row["address"].is_string());
        others.map(|row| row["leases"].clone()).collect()
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
