//! Four hosts on one bridge, each a network namespace with a core of its own (an instance): every
//! frame that a host sends, by a publisher or by the kernel (`remote`), is fresh or missing at
//! every other host, also when a link is cut; and two of them on a cable that loses, repeats and
//! reorders. Needs root, `ip`, and a kernel with veth and bridge.
//!
//! The hosts are this test binary again, told by an environment variable to be one. All of the
//! network ends with the threads and processes that are in it.

#![allow(unsafe_code, reason = "the harness moves threads between namespaces")]

#[path = "harness/cable.rs"]
mod cable;
mod harness;
#[path = "harness/tap.rs"]
mod tap;

use std::collections::BTreeSet;
use std::io::BufRead;
use std::net::IpAddr;

use cable::Cable;

use ecalls::{Ecalls, Raise};
use ecalls_channel::frame::Submission;
use ecalls_channel::source::channels;
use ecalls_channel::{Channel, Publisher};
use harness::{HOST, Member, PATIENCE, bridge, ip, quiet_network, wait_until};
use serde_json::{Value, json};

const HOSTS: u8 = 4;
const LAST: usize = HOSTS as usize - 1; // the index of the one that is cut off
const CHANNEL: &str = "load";
/// A service of each host, whose events go to the channel's sinks.
const LOCAL: &str = "local";

/// Frames of each host by a publisher before, while and after the last host's link is cut; and as
/// many by the kernel.
const BEFORE: u64 = 200;
const CUT: u64 = 100;
const AFTER: u64 = 50;

/// Frames that go over the cable in each direction: fewer than any buffer on the way holds.
const CROSSING: u64 = 600;

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 77, 0, host])
}

fn hardware(host: u8) -> String {
    format!("02:00:00:00:77:{host:02x}")
}

/// Hosts that are connected to the bridge.
fn hosts(count: u8) -> Vec<Host> {
    let mut hosts: Vec<Host> = (1..=count).map(Host::start).collect();
    for host in &mut hosts {
        host.wait_for_link(true);
    }
    hosts
}

fn end(hosts: Vec<Host>) {
    for mut host in hosts {
        host.member.running.kill(PATIENCE);
        let _ = std::fs::remove_file(format!("/run/ecalls@test-host-{}.lock", host.number));
    }
}

/// Not a test: what a host does. It says its thread's number, waits until it has an interface, and
/// then does what the lines of its input say.
#[test]
fn host() {
    let Ok(number) = std::env::var(HOST) else {
        return;
    };
    let number: u8 = number.parse().expect("a number");
    quiet_network();
    println!("\nthread {}", rustix::thread::gettid().as_raw_nonzero());
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || lines.next().expect("a line").expect("readable");
    assert_eq!(next(), "go");
    configure(number);
    let ecalls = Ecalls::host().expect("a core");
    let channel = Channel::open(&ecalls, CHANNEL, "u64 value", "", "eth").expect("it");
    let mut memory = ecalls.channel().ring(4096).open().expect("a channel");
    let _subscription = ecalls
        .subscribe(CHANNEL)
        .expect("it")
        .memory(&memory)
        .install();
    let others: Vec<IpAddr> = (1..=HOSTS)
        .filter(|other| *other != number)
        .map(address)
        .collect();
    for other in &others {
        channel.add_sink(*other).expect("there is a route");
    }
    let _service = ecalls.register_service(LOCAL, "u64 value", "").expect("it");
    let local = ecalls.subscribe(LOCAL).expect("it").remote(CHANNEL);
    let _remote = local.install().expect("a subscription");
    let publisher = Publisher::new(&ecalls, CHANNEL, others).expect("it is open");
    println!("\nready {:x}", channel.host());
    loop {
        let line = next();
        match line.split_once(' ') {
            Some(("publish", count)) => publish(&publisher, count.parse().expect("a number")),
            Some(("raise", count)) => raise(&ecalls, count.parse().expect("a number")),
            _ if line == "report" => println!("\n{}", report(&ecalls)),
            _ if line == "link" => println!("\nlink {}", is_up("eth")),
            _ if line == "read" => {
                let mut events = 0;
                while memory.try_recv().is_some() {
                    events += 1;
                }
                println!("\nevents {events}");
            }
            _ if line == "heard" => {
                let (mut events, mut values) = (0, BTreeSet::new());
                while let Some(event) = memory.try_recv() {
                    if event.host().is_some() {
                        events += 1;
                        values.insert(event.data_bytes().to_vec());
                    }
                }
                println!("\nheard {events} {}", values.len());
            }
            _ => panic!("{line:?}"),
        }
    }
}

/// Whether the interface sends. The kernel finds out some time after its peer has become ready, and
/// drops what is sent before.
fn is_up(interface: &str) -> bool {
    ip(&format!("link show {interface}")).contains("state UP")
}

/// Addresses, and those of the other hosts' interfaces: nothing is asked on the network.
fn configure(number: u8) {
    ip(&format!("addr add {}/24 dev eth", address(number)));
    ip("link set eth up");
    for other in (1..=HOSTS).filter(|other| *other != number) {
        ip(&format!(
            "neigh add {} lladdr {} dev eth nud permanent",
            address(other),
            hardware(other)
        ));
    }
}

fn publish(publisher: &Publisher, count: u64) {
    for value in 0..count {
        let data = value.to_ne_bytes().to_vec();
        let submission = Submission {
            data,
            ..Submission::default()
        };
        publisher.submit(&submission).expect("submitted");
    }
    println!("\nsubmitted");
}

/// The same by the kernel: events of another service go to the sinks.
fn raise(ecalls: &Ecalls, count: u64) {
    for value in 0..count {
        let data = value.to_ne_bytes();
        let offered = ecalls.raise(LOCAL, &Raise::new(&data)).expect("raised");
        assert_eq!(offered, 1);
    }
    println!("\nsubmitted");
}

fn report(ecalls: &Ecalls) -> Value {
    let (all, ..) = channels(ecalls).expect("the channels");
    let [stat] = &all[..] else { panic!("{all:?}") };
    let sources = stat.sources.iter().map(|(host, source)| {
        let window = source.window;
        let seen = [
            window.fresh,
            window.missing(),
            window.duplicate,
            window.stale,
        ];
        (format!("{host:x}"), json!(seen))
    });
    let sent: Vec<u64> = stat.sinks.iter().map(|sink| sink.sent).collect();
    json!({
        "sent": sent, "frames": stat.count.frames, "raised": stat.count.raised,
        "out": [stat.out.events, stat.out.fanned, stat.out.sent],
        "sources": Value::Object(sources.collect()),
    })
}

struct Host {
    number: u8,
    member: Member,
    /// Frames of others that have arrived there.
    fresh: u64,
}

impl Host {
    fn start(number: u8) -> Host {
        let instance = format!("test-host-{number}");
        Host {
            number,
            member: Member::start(number, &instance, &hardware(number)),
            fresh: 0,
        }
    }

    /// Waits until its link is up at both ends, or down at its own.
    fn wait_for_link(&mut self, up: bool) {
        let port = format!("-d link show port{}", self.number);
        wait_until("the link has changed", || {
            self.member.tell("link");
            self.member.lines.find("link ", PATIENCE).ends_with("true") == up
                && (!up || ip(&port).contains("state forwarding"))
        });
    }

    fn report(&mut self) -> Value {
        self.member.tell("report");
        serde_json::from_str(&self.member.lines.find("{", PATIENCE)).expect("JSON")
    }
}

/// Each host submits so many events by a publisher and as many by the kernel, each when the events
/// before have arrived: so no queue of the network is ever full, however busy the machine is.
/// `cut`: the last host is alone.
fn all_submit(hosts: &mut [Host], count: u64, cut: bool) {
    let hows = (0..hosts.len()).flat_map(|from| [(from, "publish"), (from, "raise")]);
    for (from, how) in hows {
        hosts[from].member.tell(&format!("{how} {count}"));
        hosts[from].member.lines.find("submitted", PATIENCE);
        for to in (0..hosts.len()).filter(|to| *to != from) {
            if !cut || from.max(to) + 1 < hosts.len() {
                hosts[to].fresh += count;
            }
            let fresh = json!(hosts[to].fresh);
            wait_until("the frames have arrived", || {
                hosts[to].report()["raised"] == fresh
            });
        }
    }
}

/// Packets that came from the host, as the bridge's port has counted them.
fn packets(number: u8) -> u64 {
    let text = ip(&format!("-j -s link show port{number}"));
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    shown[0]["stats64"]["rx"]["packets"]
        .as_u64()
        .expect("a number")
}

#[test]
fn frames_of_every_host_are_fresh_or_missing_at_every_other() {
    let Some(_alone) = bridge() else { return };
    let mut hosts = hosts(HOSTS);
    all_submit(&mut hosts, BEFORE, false);
    ip(&format!("link set port{HOSTS} down"));
    hosts[LAST].wait_for_link(false);
    all_submit(&mut hosts, CUT, true);
    ip(&format!("link set port{HOSTS} up"));
    hosts[LAST].wait_for_link(true);
    all_submit(&mut hosts, AFTER, false);
    let each = BEFORE + CUT + AFTER;
    let sent = 2 * each;
    let ids: Vec<String> = hosts.iter().map(|host| host.member.id.clone()).collect();
    for host in &mut hosts {
        let expected = |other: u8| match other == HOSTS || host.number == HOSTS {
            true => [2 * (BEFORE + AFTER), 2 * CUT, 0, 0],
            false => [sent, 0, 0, 0],
        };
        let others = (1..=HOSTS).filter(|other| *other != host.number);
        let sources: serde_json::Map<_, _> = others
            .map(|other| (ids[usize::from(other) - 1].clone(), json!(expected(other))))
            .collect();
        let fresh = host.fresh;
        let report = host.report();
        assert_eq!(
            report["sources"],
            Value::Object(sources),
            "at host {}",
            host.number
        );
        assert_eq!(report["sent"], json!(vec![sent; usize::from(HOSTS) - 1]));
        assert_eq!(report["out"], json!([each, each, 3 * each]));
        assert_eq!(
            report["frames"],
            json!(fresh),
            "a bridge floods what it does not know"
        );
        host.member.tell("read");
        let events = host.member.lines.find("events ", PATIENCE);
        assert_eq!(
            events,
            format!("events {}", fresh + each),
            "with what it published"
        );
    }
    // The bridge counts what came through each port, without us.
    for number in 1..HOSTS {
        assert_eq!(
            packets(number),
            sent * u64::from(HOSTS - 1),
            "of host {number}"
        );
    }
    assert_eq!(packets(HOSTS), 2 * (BEFORE + AFTER) * u64::from(HOSTS - 1));
    end(hosts);
}

/// What a sink counts of frames that arrive with these numbers, in this order, by the words of
/// doc/channels.md: fresh, missing, duplicate, stale.
fn counted(numbers: &[u64]) -> [u64; 4] {
    let (mut highest, mut duplicate, mut stale) = (0, 0, 0);
    let mut fresh = BTreeSet::new();
    for number in numbers {
        if number + 63 < highest {
            stale += 1;
        } else if !fresh.insert(*number) {
            duplicate += 1;
        }
        highest = highest.max(*number);
    }
    let first = fresh.first().expect("a frame arrives");
    let arrived = fresh.len() as u64;
    [arrived, highest - first + 1 - arrived, duplicate, stale]
}

#[test]
fn frames_that_a_cable_loses_repeats_and_reorders_are_events_once_and_all_is_counted() {
    let Some(_alone) = bridge() else { return };
    let mut hosts = hosts(2);
    for number in 1..=2 {
        ip(&format!("link set port{number} nomaster"));
    }
    let mut cable = Cable::between(["port1", "port2"], 0x2545_f491_4f6c_dd1d);
    for (from, how) in [(0, "publish"), (1, "raise")] {
        let to = 1 - from;
        hosts[from].member.tell(&format!("{how} {CROSSING}"));
        let target = [2, 0, 0, 0, 0x77, hosts[to].number];
        let passed = cable.carry(from, target, CROSSING);
        hosts[from].member.lines.find("submitted", PATIENCE);
        let (lost, repeated) = (passed.lost, passed.repeated);
        let arriving = passed.numbers.len() as u64;
        assert_eq!(arriving, CROSSING - lost + repeated);
        let expected = counted(&passed.numbers);
        let [fresh, missing, duplicate, stale] = expected;
        eprintln!("{how}: {lost} lost, {repeated} repeated: {expected:?}");
        assert!(missing > 0 && duplicate > 0 && stale > 0 && !passed.numbers.is_sorted());
        assert_eq!(fresh + duplicate + stale, arriving);
        wait_until("the frames have arrived", || {
            hosts[to].report()["frames"] == json!(arriving)
        });
        let id = hosts[from].member.id.clone();
        let host = &mut hosts[to];
        let report = host.report();
        assert_eq!(report["sources"][id], json!(expected), "{how}");
        assert_eq!(report["raised"], json!(fresh), "{how}");
        host.member.tell("heard");
        let heard = host.member.lines.find("heard ", PATIENCE);
        assert_eq!(heard, format!("heard {fresh} {fresh}"), "each once: {how}");
    }
    end(hosts);
}
