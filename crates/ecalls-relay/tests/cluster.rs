//! Hosts on one bridge, each a network namespace with a core and a relay of its own: who opens a
//! channel, leaves it, is cut off or comes back is noticed by the others, and events go to those
//! that are there. Needs root, `ip`, a kernel with veth and bridge, and the built command and
//! library (target/release/ecalls and libecalls.a).

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use harness::{PATIENCE, Process, folder, start, wait_until};
use limit::net::Net;
use limit::{Lines, Running, ended};
use serde_json::{Value, json};

const HOSTS: u8 = 3;

fn ecalls() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/ecalls").to_owned()
}

/// cluster.c, compiled and linked with the library.
fn c_program(folder: &Path) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let program = folder.join("cluster").display().to_string();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    compiler.args([&program, "-I", &format!("{root}/include")]);
    compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster.c"));
    compiler.arg(format!("{root}/target/release/libecalls.a"));
    compiler.args(["-lelf", "-lz", "-lpthread", "-ldl", "-lm"]);
    let compiled = ended(&mut compiler, PATIENCE);
    assert_eq!(compiled.code, 0, "{compiled:?}");
    program
}

struct Host {
    number: u8,
    net: Net,
    folder: PathBuf,
    relay: Option<Process>,
}

/// A command that has a channel open.
struct Opener {
    running: Running,
    complaints: Lines,
}

impl Host {
    fn start(number: u8, switch: &Net, configuration: &str) -> Host {
        let mut host = Host::without_relay(number, switch, configuration);
        // A relay looks for the others on the interfaces that are up when it starts.
        wait_until("its link is up", || {
            host.net.ip("link show eth").contains("state UP")
        });
        host.start_relay();
        host
    }

    fn without_relay(number: u8, switch: &Net, configuration: &str) -> Host {
        let net = Net::start();
        let (port, pid) = (format!("port{number}"), net.id());
        switch.ip(&format!(
            "link add {port} type veth peer name eth netns {pid}"
        ));
        switch.ip(&format!("link set {port} master bridge"));
        switch.ip(&format!("link set {port} up"));
        net.ip(&format!("addr add 10.78.0.{number}/24 dev eth"));
        net.ip("link set eth up");
        let folder = folder(&format!("host-{number}"));
        std::fs::write(folder.join("relay.toml"), configuration).expect("it is written");
        Host {
            number,
            net,
            folder,
            relay: None,
        }
    }

    fn start_relay(&mut self) {
        let relay = self.command(env!("CARGO_BIN_EXE_ecalls-relay"));
        self.relay = Some(start(relay, &self.folder.join("relay.toml")));
    }

    fn kill_relay(&mut self) {
        let mut relay = self.relay.take().expect("it runs");
        relay.running.kill(PATIENCE);
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.net.command(program);
        command.env("ECALLS_INSTANCE", self.instance());
        command
    }

    fn instance(&self) -> String {
        format!("relay-test-{}", self.number)
    }

    fn address(&self) -> String {
        format!("10.78.0.{}", self.number)
    }

    /// A command of this host that ends.
    fn ecalls(&self, arguments: &[&str]) -> limit::Ended {
        ended(self.command(&ecalls()).args(arguments), PATIENCE)
    }

    fn open(&self, arguments: &[&str]) -> Opener {
        let mut command = self.command(&ecalls());
        command.arg("channel").args(arguments);
        let mut running = Running::start(command.stderr(Stdio::piped()));
        let mut complaints = running.complaints();
        complaints.find("opened ", PATIENCE);
        Opener {
            running,
            complaints,
        }
    }

    /// Publishes when the channel has so many sinks: to each of them. On a busy machine, a relay
    /// that gets no CPU for long has left meanwhile.
    fn publish_to(&self, sinks: u64, value: u32) {
        wait_until("it is published to the sinks that are there", || {
            self.publish(value) == sinks
        });
    }

    /// Publishes, and returns to how many hosts.
    fn publish(&self, value: u32) -> u64 {
        let shown = self.published(value);
        assert_eq!(shown["failed"], json!({}));
        shown["sinks"].as_u64().expect("a number")
    }

    fn published(&self, value: u32) -> Value {
        let field = format!("cpu={value}");
        let ended = self.ecalls(&["channel", "pub", "load", &field, "--json"]);
        serde_json::from_str(&ended.out).expect("JSON")
    }

    /// What `ecalls channel list` shows of the channel.
    fn list(&self) -> Value {
        let ended = self.ecalls(&["channel", "list", "--json"]);
        let line = ended.out.lines().next().expect("a line");
        serde_json::from_str(line).expect("JSON")
    }

    /// Waits until no host of the cluster has a channel open.
    fn wait_for_no_channel(&self) {
        wait_until("the channel has ended", || {
            let list = ["channel", "list", "--cluster", "lab", "--json"];
            self.ecalls(&list).out.is_empty()
        });
    }

    /// Waits until the channel has so many sinks.
    fn wait_for_sinks(&self, count: usize) {
        wait_until("the sinks are those that are there", || {
            let list = self.list();
            let sinks = list["sinks"].as_array().expect("sinks");
            sinks.iter().filter(|sink| sink["member"] == true).count() == count
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.relay.take());
        let instance = self.instance();
        let _ = std::fs::remove_file(format!("/run/ecalls@{instance}.lock"));
        let _ = std::fs::remove_dir_all(format!("/run/ecalls-relay@{instance}"));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Opener {
    fn says(&mut self, text: &str) {
        self.complaints.find(text, PATIENCE);
    }
}

/// The tests' hosts have the same names, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());

    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bridge; `None`: the test may not run.
fn switch() -> Option<Net> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return None;
    }
    let net = Net::start();
    if !net.accepts("link add bridge type bridge") {
        eprintln!("skipped: this kernel has no bridge");
        return None;
    }
    net.ip("link set bridge up");
    Some(net)
}

const CONFIGURATION: &str = "\
[lane]
interface = \"eth\"
[network]
lease_ms = 3000
review_ms = 1000
";

/// Sends a packet to another host that is a frame of a host that there is not.
fn forge(from: &Host, channel: &str, to: &Host) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ecalls-channel/tests");
    let text = format!(
        "import sys; sys.path.insert(0, {folder:?}); import judge, socket, time\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"\", 914))\n\
         s.sendto(judge.write(dict(name={channel:?}, format=\"u32 cpu\", host=77, epoch=1, \
         sequence=time.time_ns(), left_ns=0, kind=0, type=0, priority=0, attributes=[], \
         data=\"07000000\")), ({:?}, 914))",
        to.address()
    );
    let mut python = from.command("python3");
    let done = ended(python.args(["-c", &text]), PATIENCE);
    assert_eq!(done.code, 0, "{done:?}");
}

/// Whether the events of a host with this id have arrived, and how many are missing.
fn arrived(list: &Value, host: &Value) -> Option<(u64, u64)> {
    let sources = list["sources"].as_array().expect("sources").iter();
    let mut sources = sources.filter(|source| source["host"] == *host);
    let source = sources.next()?;
    Some((source["fresh"].as_u64()?, source["missing"].as_u64()?))
}

/// What a host has sent to another one is fresh or missing there; `before`: what it had sent before
/// it opened the channel again.
fn check_accounting(from: &Host, to: &Host, before: u64) {
    let (sent, arrived) = (from.list(), to.list());
    let sources = arrived["sources"].as_array().expect("sources").iter();
    let mut sources = sources.filter(|source| source["host"] == sent["host"]);
    let source = sources.next().expect("it is a source");
    let number = |key: &str| source[key].as_u64().expect("a number");
    assert_eq!(
        frames_to(&sent, to) + before,
        number("fresh") + number("missing"),
        "{sent} {arrived}"
    );
}

/// The frames to a host, in what `ecalls channel list` shows: by its address, or by its id.
fn frames_to(list: &Value, to: &Host) -> u64 {
    let sinks = list["sinks"].as_array().expect("sinks").iter();
    let is_it = |address: &Value| *address == json!(to.address()) || *address == to.list()["host"];
    let mut sinks = sinks.filter(|sink| is_it(&sink["address"]));
    let sink = sinks.next().expect("it is a sink");
    sink["sent"].as_u64().expect("a number")
}

/// Zenoh alone would never find anybody.
#[test]
fn relay_whose_link_comes_up_later_finds_the_others() {
    let _alone = alone();
    let Some(switch) = switch() else { return };
    let early = Host::start(1, &switch, CONFIGURATION);
    let create = ["create", "load", "--cluster", "lab", "--format", "u32 cpu"];
    let mut first = early.open(&create);

    let mut late = Host::without_relay(2, &switch, CONFIGURATION);
    switch.ip("link set port2 down");
    late.start_relay();
    let said = &mut late.relay.as_mut().expect("it runs").complaints;
    said.find("the lane's interface eth is not up", PATIENCE);
    switch.ip("link set port2 up");
    said.find("begins anew", PATIENCE);
    said.find("serves programs", PATIENCE);
    let _second = late.open(&["open", "load", "--cluster", "lab"]);
    first.says("10.78.0.2 joined");
    // That program may have told it before it said that the channel is open.
    late.wait_for_sinks(1);
}

#[test]
fn hosts_that_have_a_channel_open_are_its_sinks_until_they_leave() {
    let _alone = alone();
    let Some(switch) = switch() else { return };
    let mut hosts: Vec<Host> = (1..=HOSTS)
        .map(|number| Host::start(number, &switch, CONFIGURATION))
        .collect();
    let create = ["create", "load", "--cluster", "lab", "--format", "u32 cpu"];
    let open = ["open", "load", "--cluster", "lab"];
    let refused = hosts[1].ecalls(&["channel", "open", "load", "--cluster", "lab"]);
    assert!(refused.err.contains("no host has it open"), "{refused:?}");

    let mut first = hosts[0].open(&create);
    let mut second = hosts[1].open(&open);
    let mut third = hosts[2].open(&open);
    for host in &hosts {
        host.wait_for_sinks(2);
    }
    let listed = hosts[2].ecalls(&["channel", "list", "--cluster", "lab", "--json"]);
    let row: Value = serde_json::from_str(&listed.out).expect("one line of JSON");
    assert_eq!(row["channel"], json!("load"));
    assert_eq!(
        (&row["policy"], &row["format"]),
        (&json!("fast"), &json!("u32 cpu"))
    );
    let mut watch = hosts[1].command(&ecalls());
    watch.args(["channel", "sub", "load", "--json"]);
    let mut watch = Running::start(watch.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (mut events, mut said) = (watch.lines(), watch.complaints());
    said.find("watching load", PATIENCE);
    hosts[0].publish_to(2, 95);
    events.find("\"cpu\":95", PATIENCE);

    // The channel outlives the one who created it, and has its format.
    let before = [1, 2].map(|to| frames_to(&hosts[0].list(), &hosts[to]));
    first.running.kill(PATIENCE);
    second.says("10.78.0.1 left");
    third.says("10.78.0.1 left");
    let other = ["channel", "create", "load", "--cluster", "lab", "--format"];
    let differs = hosts[0].ecalls(&[&other[..], &["u64 cpu"]].concat());
    assert!(
        differs.err.contains("what the other hosts have"),
        "{differs:?}"
    );
    first = hosts[0].open(&open);
    second.says("10.78.0.1 joined");
    hosts[0].wait_for_sinks(2);
    hosts[0].publish_to(2, 1);
    events.find("\"cpu\":1}", PATIENCE);

    // A host whose relay was killed has left until it is started again. It keeps its own sinks.
    hosts[2].kill_relay();
    third.says("the relay has ended");
    first.says("10.78.0.3 left");
    hosts[0].publish_to(1, 2);
    hosts[2].publish_to(2, 3);
    events.find("\"cpu\":3}", PATIENCE);
    hosts[2].start_relay();
    third.says("the relay is back");
    first.says("10.78.0.3 joined");
    hosts[0].publish_to(2, 4);

    // A cut link is noticed when the lease has ended; a repaired one is found again.
    switch.ip("link set port3 down");
    first.says("10.78.0.3 left");
    third.says("10.78.0.1 left");
    switch.ip("link set port3 up");
    first.says("10.78.0.3 joined");
    third.says("10.78.0.1 joined");
    hosts[0].wait_for_sinks(2);
    wait_until("frames arrive again", || {
        hosts[0].publish(5);
        hosts[2].list()["sources"][0]["fresh"].as_u64() > Some(1)
    });
    check_accounting(&hosts[0], &hosts[1], before[0]);
    check_accounting(&hosts[0], &hosts[2], before[1]);
    check_accounting(&hosts[2], &hosts[1], 0);

    // Who ends in order has left at once.
    drop(third);
    second.says("10.78.0.3 left");
}

#[test]
fn frames_of_a_reliable_channel_go_by_the_relays_and_are_counted_as_those_of_the_lane() {
    let _alone = alone();
    let Some(switch) = switch() else { return };
    let mut hosts: Vec<Host> = (1..=HOSTS)
        .map(|number| Host::start(number, &switch, CONFIGURATION))
        .collect();
    let create = ["create", "load", "--cluster", "lab", "--format", "u32 cpu"];
    let mut first = hosts[0].open(&[&create[..], &["--reliable"]].concat());
    let open = ["open", "load", "--cluster", "lab"];
    let mut second = hosts[1].open(&open);
    let third = hosts[2].open(&open);
    for host in &hosts {
        host.wait_for_sinks(2);
    }
    // By publishers, and by the kernel: 100 events of a timer go to the sinks.
    let mut watch = hosts[1].command(&ecalls());
    watch.args(["channel", "sub", "load", "--json"]);
    let mut watch = Running::start(watch.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (mut events, mut said) = (watch.lines(), watch.complaints());
    said.find("watching load", PATIENCE);
    hosts[0].publish_to(2, 95);
    events.find("\"cpu\":95", PATIENCE);
    let mut service = hosts[0].command(&ecalls());
    service.args(["service", "local", "--format", "u32 cpu"]);
    let mut service = Running::start(service.stderr(Stdio::piped()));
    service.complaints().find("registered local", PATIENCE);
    let mut forward = hosts[0].command(&ecalls());
    forward.args(["channel", "forward", "load", "local", "--where", "cpu > 7"]);
    let mut forward = Running::start(forward.stderr(Stdio::piped()));
    forward.complaints().find("forwarding local", PATIENCE);
    for cpu in ["cpu=7", "cpu=8", "cpu=9"] {
        assert_eq!(hosts[0].ecalls(&["raise", "local", cpu]).code, 0);
    }
    events.find("\"cpu\":8}", PATIENCE);
    events.find("\"cpu\":9}", PATIENCE);
    wait_until("both have been sent to both", || {
        hosts[0].list()["remote"]["sent"] == json!(4)
    });
    let list = hosts[0].list();
    assert_eq!(list["remote"]["fanned"], json!(2), "{list}");
    let source = list["host"].clone();
    for host in &hosts[1..] {
        wait_until("all have arrived", || {
            arrived(&host.list(), &source).map(|(fresh, _)| fresh)
                == Some(frames_to(&hosts[0].list(), host))
        });
        assert_eq!(host.list()["refused"], json!({}));
    }

    // Without a relay, an event is not sent, and is missing at the sinks when the next arrives.
    hosts[0].kill_relay();
    first.says("the relay has ended");
    second.says("left");
    let failed = hosts[0].published(3);
    assert_eq!(failed["sinks"], json!(0), "{failed}");
    assert_eq!(
        failed["failed"].as_object().map(serde_json::Map::len),
        Some(2)
    );
    hosts[0].start_relay();
    first.says("the relay is back");
    second.says("joined");
    wait_until("frames arrive again", || {
        hosts[0].publish(5);
        arrived(&hosts[1].list(), &source).is_some_and(|(fresh, missing)| fresh > 3 && missing > 0)
    });
    check_accounting(&hosts[0], &hosts[1], 0);

    drop((second, third));
    hosts[0].wait_for_sinks(0);
}

#[test]
fn neither_packets_of_the_network_nor_a_stopped_relay_harm_a_reliable_channel() {
    let _alone = alone();
    let Some(switch) = switch() else { return };
    let mut hosts: Vec<Host> = (1..=HOSTS)
        .map(|number| Host::start(number, &switch, CONFIGURATION))
        .collect();
    let create = ["create", "load", "--cluster", "lab", "--format", "u32 cpu"];
    let _first = hosts[0].open(&[&create[..], &["--reliable"]].concat());
    let open = ["open", "load", "--cluster", "lab"];
    let second = hosts[1].open(&open);
    let mut third = hosts[2].open(&open);
    for host in &hosts {
        host.wait_for_sinks(2);
    }
    // A packet of the network that says that it is a frame of the channel is none; the same one of
    // a channel of the lane is.
    let _lane = hosts[1].open(&["open", "other", "--interface", "eth", "--format", "u32 cpu"]);
    let of = |name: &str| {
        let list = hosts[1].ecalls(&["channel", "list", "--json"]).out;
        let mut rows = list.lines().map(|line| {
            let row: Value = serde_json::from_str(line).expect("JSON");
            row
        });
        let row = rows.find(|row| row["channel"] == json!(name));
        row.expect("it is open")
    };
    let before = of("load");
    wait_until("a forged frame has arrived on the lane", || {
        forge(&hosts[2], "load", &hosts[1]);
        forge(&hosts[2], "other", &hosts[1]);
        of("other")["raised"].as_u64() > Some(1)
    });
    assert_eq!(of("load")["frames"], before["frames"]);

    // A relay that has stopped keeps nobody from ending.
    let pid = hosts[2].relay.as_ref().expect("it runs").running.id();
    for (signal, pid) in [("-STOP", pid), ("-TERM", third.running.id())] {
        let mut kill = Command::new("kill");
        assert_eq!(
            ended(kill.args([signal, &pid.to_string()]), PATIENCE).code,
            0
        );
    }
    assert_eq!(third.running.wait(PATIENCE).code(), Some(0));
    hosts[2].kill_relay();
    drop(second);
    hosts[0].wait_for_sinks(0);
}

/// A manager of a host, which gives away so many jobs.
fn manage(host: &Host, jobs: u32, options: &[&str]) -> Running {
    let mut command = host.command(&ecalls());
    command.args(["cluster", "serve", "--cluster", "lab", "--offer"]);
    command.arg(format!("job={jobs}")).args(options);
    let mut running = Running::start(command.stderr(Stdio::piped()));
    running.complaints().find("manages host", PATIENCE);
    running
}

#[test]
fn managers_of_a_cluster_lend_each_other_jobs_over_the_lane_and_by_the_relays() {
    let _alone = alone();
    let Some(switch) = switch() else { return };
    let hosts: Vec<Host> = (1..=HOSTS)
        .map(|number| Host::start(number, &switch, CONFIGURATION))
        .collect();
    for options in [&[][..], &["--reliable"]] {
        let managers: Vec<Running> = hosts
            .iter()
            .zip([0, 1, 1])
            .map(|(host, jobs)| manage(host, jobs, options))
            .collect();
        wait_until("the others have told", || {
            let listed = hosts[0].ecalls(&["cluster", "discover", "--json"]);
            listed.out.lines().count() == 2
        });
        let allocate = [
            "cluster",
            "allocate",
            "job",
            "1",
            "--deadline",
            "20s",
            "--json",
        ];
        let given = [0; 2].map(|_| {
            let ended = hosts[0].ecalls(&allocate);
            let row: Value = serde_json::from_str(&ended.out).expect("JSON");
            assert_eq!(row["granted"], json!(true), "{row}");
            row
        });
        assert_ne!(given[0]["host"], given[1]["host"]);
        assert_eq!(hosts[0].ecalls(&allocate).code, 6, "all is given away");
        for row in &given {
            let (host, id) = (row["host"].as_str().expect("a host"), row["id"].to_string());
            let released = hosts[0].ecalls(&["cluster", "release", host, &id]);
            assert_eq!(released.code, 0, "{released:?}");
        }
        drop(managers);
        hosts[0].wait_for_no_channel();
    }
}

#[test]
fn programs_in_c_on_two_hosts_of_a_cluster_hear_each_other_until_one_leaves() {
    let _alone = alone();
    let Some(switch) = switch() else { return };
    let hosts: Vec<Host> = (1..=2)
        .map(|number| Host::start(number, &switch, CONFIGURATION))
        .collect();
    let program = c_program(&hosts[0].folder);
    let begin = |host: &Host, word: &str| {
        let mut command = host.command(&program);
        command.arg(word).stdin(Stdio::piped());
        let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let lines = running.lines();
        (running, lines)
    };
    let (mut first, mut said) = begin(&hosts[0], "create");
    said.find("created", PATIENCE);
    let (mut second, mut heard) = begin(&hosts[1], "open");
    let mut lines = std::iter::from_fn(|| heard.next(PATIENCE));
    if !lines.any(|line| line == "heard both") {
        panic!("{}", second.complaints().rest(PATIENCE));
    }
    drop(first.input());
    for one in [&mut first, &mut second] {
        let complaints = one.complaints().rest(PATIENCE);
        assert_eq!(
            (one.wait(PATIENCE).code(), complaints.as_str()),
            (Some(0), "")
        );
    }
}
