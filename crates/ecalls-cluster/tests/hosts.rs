//! Four hosts on one bridge, each a network namespace with a core of its own (an instance): one
//! allocates, the others manage, and some of them fail, lie or forge. Needs root, `ip`, and a
//! kernel with veth and bridge.
//!
//! The hosts are this test binary again, told by an environment variable to be one; each does what
//! the lines of its input say. All of the network ends with the processes that are in it.

#![allow(unsafe_code, reason = "the harness moves threads between namespaces")]

#[path = "../../ecalls-channel/tests/harness/mod.rs"]
mod harness;

use std::io::BufRead;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls::Ecalls;
use ecalls_channel::frame::Submission;
use ecalls_channel::{Channel, Publisher, To};
use ecalls_cluster::ask::Outcome;
use ecalls_cluster::choice::Choice;
use ecalls_cluster::client::Wish;
use ecalls_cluster::lease::Counts;
use ecalls_cluster::manager::Setup;
use ecalls_cluster::message::{Answer, Body, CHANNEL, FORMAT, KINDS, Message, Verdict, Want};
use ecalls_cluster::resource::{Amounts, Resource};
use ecalls_cluster::summary::Summary;
use ecalls_cluster::{Client, Manager};
use harness::{HOST, Member as Host, PATIENCE, bridge, ip, quiet_network, wait_until};
use serde_json::{Value, json};

const HOSTS: u8 = 4;
const SECOND: u64 = 1_000_000_000;
const MANY: u64 = 100;

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 79, 0, host])
}

fn hardware(host: u8) -> String {
    format!("02:00:00:00:79:{host:02x}")
}

/// Not a test: what a host does.
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
    ip(&format!("addr add {}/24 dev eth", address(number)));
    ip("link set eth up");
    let ecalls = Ecalls::host().expect("a core");
    let channel = Channel::open(&ecalls, CHANNEL, FORMAT, KINDS, "eth").expect("it");
    let others = (1..=HOSTS).filter(|other| *other != number);
    others.for_each(|other| channel.add_sink(address(other)).expect("there is a route"));
    println!("\nready {:x}", channel.host());
    let mut member = Member {
        client: Client::join(&ecalls, CHANNEL).expect("it is open"),
        ecalls,
        counts: Arc::default(),
        held_back: None,
    };
    loop {
        let line = next();
        let words: Vec<&str> = line.split(' ').collect();
        member.act(&words);
    }
}

struct Member {
    ecalls: Ecalls,
    client: Client,
    counts: Arc<Mutex<Counts>>,
    /// A request that a manager has not answered yet.
    held_back: Option<(Rogue, Message)>,
}

impl Member {
    fn act(&mut self, words: &[&str]) {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let host = |at: usize| u64::from_str_radix(words[at], 16).expect("a host");
        match words {
            ["manage", ..] => self.manage(number(1)),
            ["counts"] => {
                let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
                println!("\n{}", json!(counts.words()));
            }
            ["discover"] => {
                let (told, refused) = self.client.discover().expect("the tables");
                let told: Vec<String> = told.iter().map(|one| format!("{:x}", one.host)).collect();
                let refused = refused
                    .iter()
                    .map(|(host, name, value)| json!([format!("{host:x}"), name, value]));
                println!(
                    "\n{}",
                    json!({"told": told, "refused": refused.collect::<Vec<_>>()})
                );
            }
            ["allocate", _, "now"] => allocate(&mut self.client, number(1), false),
            ["allocate", _, "waits"] => {
                let (best, ecalls) = (number(1), self.ecalls.clone());
                std::thread::spawn(move || {
                    let mut client = Client::join(&ecalls, CHANNEL).expect("it is open");
                    allocate(&mut client, best, true);
                });
            }
            ["many", ..] => many(&mut self.client, number(1)),
            ["release", ..] => {
                let done = self.client.release(host(1), number(2), PATIENCE);
                println!("\nreleased {}", done.expect("it answers"));
            }
            ["reserve", ..] => Rogue::new(&self.ecalls).reserve(host(1), number(2)),
            ["lie"] => Rogue::new(&self.ecalls).lie(),
            ["idle"] => Rogue::new(&self.ecalls).tell(),
            ["grant-and-die"] => Rogue::new(&self.ecalls).grant_and_die(),
            ["hold-back"] => {
                let mut rogue = Rogue::new(&self.ecalls);
                let request = rogue.hold_back();
                self.held_back = Some((rogue, request));
            }
            ["answer-twice"] => {
                let (rogue, request) = self.held_back.take().expect("it has one");
                rogue.answer_twice(&request);
            }
            ["forge", ..] => Rogue::new(&self.ecalls).forge(host(1), host(2)),
            ["pretend", ..] => Rogue::new(&self.ecalls).pretend(host(1), host(2), number(3)),
            _ => panic!("{words:?}"),
        }
    }

    /// A manager with so many jobs, in a thread of its own until this process ends.
    fn manage(&self, jobs: u64) {
        let mut capacity = Amounts::default();
        *capacity.of_mut(Resource::Job) = jobs;
        let setup = Setup::new(capacity);
        let mut manager = Manager::start(&self.ecalls, CHANNEL, &setup).expect("it is open");
        let counts = Arc::clone(&self.counts);
        std::thread::spawn(move || {
            loop {
                manager.turn().expect("it is open");
                *counts.lock().unwrap_or_else(PoisonError::into_inner) = manager.counts();
            }
        });
        println!("\nmanages");
    }
}

fn wish(choice: Choice, deadline: Duration, waits: bool) -> Wish {
    Wish {
        resource: Resource::Job,
        amount: 1,
        deadline,
        hold: Duration::from_secs(60),
        waits,
        choice,
        here: false,
    }
}

/// So many jobs at once, each of which waits at two hosts and is over at once when it begins.
fn many(client: &mut Client, count: u64) {
    for _ in 0..count {
        client
            .begin(&wish(Choice::Random(2), PATIENCE, true))
            .expect("it asks");
    }
    let mut granted = 0;
    // Some are being given back when the last one has been granted.
    while granted < count || client.is_leaving() {
        for allocation in client.poll(PATIENCE).expect("it is open") {
            assert!(
                matches!(allocation.outcome, Outcome::Granted { .. }),
                "{allocation:?}"
            );
            assert!(allocation.address.is_some());
            client.give_back(&allocation);
            granted += 1;
        }
    }
    println!("\ngranted {granted}");
}

/// Asks so many hosts, the best ones.
fn allocate(client: &mut Client, best: u64, waits: bool) {
    let choice = Choice::Best(best as usize);
    let allocation = client.allocate(&wish(choice, Duration::from_secs(5), waits));
    let allocation = allocation.expect("the channel is open");
    let host = match allocation.outcome {
        Outcome::Granted { host, .. } => format!("{host:x}"),
        other => format!("{other:?}"),
    };
    let asked = allocation.asked.len();
    let (id, strays) = (allocation.id, allocation.strays);
    println!(
        "\n{}",
        json!({"host": host, "id": id, "strays": strays, "asked": asked})
    );
}

/// A host that says whatever it likes.
struct Rogue {
    publisher: Publisher,
    memory: ecalls::Channel,
    _subscription: ecalls::Subscription,
}

impl Rogue {
    fn new(ecalls: &Ecalls) -> Rogue {
        let memory = ecalls.channel().ring(256).open().expect("memory");
        let subscription = ecalls.subscribe(CHANNEL).expect("it").memory(&memory);
        Rogue {
            publisher: Publisher::to_sinks(ecalls, CHANNEL).expect("it is open"),
            _subscription: subscription.install().expect("a subscription"),
            memory,
        }
    }

    fn submission(&self, id: u64, to: u64, from: u64, body: Body) -> Submission {
        let source = self.publisher.source().expect("on the lane");
        let message = Message {
            id,
            from,
            to,
            address: source.octets(),
            body,
        };
        Submission {
            data: message.write(),
            kind: message.kind(),
            ..Submission::default()
        }
    }

    fn say(&self, id: u64, to: u64, body: Body) {
        let submission = self.submission(id, to, self.publisher.host(), body);
        if to == self.publisher.host() {
            let here = self.publisher.submit_here(&submission);
            assert!(here.expect("raised") > 0);
        } else {
            // The last byte of its hardware address is its number.
            let to = To::Address(address(to as u8));
            assert!(self.publisher.submit_to(to, &submission).expect("sent"));
        }
    }

    fn attributes(&self) -> Vec<(u8, u64)> {
        let source = self.publisher.source().expect("on the lane");
        let summary = Summary {
            address: u64::from(u32::from(source)),
            ..Summary::default()
        };
        summary.attributes()
    }

    /// The next request that is for this host.
    fn request(&mut self) -> Message {
        loop {
            let event = self.memory.recv().expect("an event");
            let message = Message::read(event.kind, event.data_bytes());
            let is_request = |one: &Message| {
                matches!(one.body, Body::Request(_)) && one.to == self.publisher.host()
            };
            if let Some(message) = message.filter(is_request) {
                return message;
            }
        }
    }

    /// Nobody has less load than this host.
    fn tell(&self) {
        let body = Body::Load(Counts::default());
        let mut submission = self.submission(0, 0, self.publisher.host(), body);
        submission.attributes = self.attributes();
        self.publisher.submit(&submission).expect("sent");
        println!("\ntold");
    }

    /// It is 2000 thousandths busy.
    fn lie(&self) {
        let body = Body::Load(Counts::default());
        let mut submission = self.submission(0, 0, self.publisher.host(), body);
        submission.attributes = self.attributes();
        submission.attributes[0].1 = 2000;
        self.publisher.submit(&submission).expect("sent");
        println!("\ntold");
    }

    /// A client that is killed when its request has been granted.
    fn reserve(&self, host: u64, id: u64) {
        let want = Want {
            resource: Resource::Job,
            amount: 1,
            left_ns: SECOND,
            hold_ns: SECOND,
            waits: true,
        };
        self.say(id, host, Body::Request(want));
        println!("\nasked");
    }

    fn answer(verdict: Verdict) -> Body {
        Body::Answer(Answer {
            verdict,
            left_ns: SECOND,
            waited_ns: 0,
        })
    }

    /// A manager that is killed when it has reserved.
    fn grant_and_die(&mut self) {
        self.tell();
        let request = self.request();
        self.say(request.id, request.from, Rogue::answer(Verdict::Granted));
        std::process::abort();
    }

    /// A manager that does not answer a request yet.
    fn hold_back(&mut self) -> Message {
        self.tell();
        let request = self.request();
        println!("\nholds back");
        request
    }

    /// It answers when others have won, three times.
    fn answer_twice(&self, request: &Message) {
        for verdict in [Verdict::Granted, Verdict::Granted, Verdict::Confirmed] {
            self.say(request.id, request.from, Rogue::answer(verdict));
        }
        println!("\nanswered");
    }

    /// It has seen a request and pretends to be the host that was asked, and one that was not;
    /// answers to requests of its own imagination; and what is no message.
    fn forge(&mut self, victim: u64, other: u64) {
        self.tell();
        let request = self.request();
        for _ in 0..20 {
            for (id, from) in [(request.id, other), (request.id + 2, other), (7, 8)] {
                let answer = Rogue::answer(Verdict::Confirmed);
                let submission = self.submission(id, victim, from, answer);
                self.publisher.submit(&submission).expect("sent");
            }
            let mut submission = self.submission(7, victim, 8, Body::Cancel);
            submission.data.truncate(100);
            self.publisher.submit(&submission).expect("sent");
            submission.data = vec![0xff; 168];
            self.publisher.submit(&submission).expect("sent");
        }
        let to = To::Address(IpAddr::from([10, 79, 0, 99]));
        let submission = self.submission(1, 1, 1, Body::Cancel);
        assert!(
            !self
                .publisher
                .submit_to(to, &submission)
                .expect("it is none")
        );
        println!("\nforged");
    }
}

impl Rogue {
    /// It knows the number of a request that `victim` has made of a manager, and says whatever that
    /// one could say of it, in its name.
    fn pretend(&self, manager: u64, victim: u64, id: u64) {
        let want = Want {
            resource: Resource::Job,
            amount: 1,
            left_ns: SECOND,
            hold_ns: 60 * SECOND,
            waits: true,
        };
        let address = To::Address(address(manager as u8));
        for body in [
            Body::Release,
            Body::Cancel,
            Body::Confirm,
            Body::Request(want),
        ] {
            let submission = self.submission(id, manager, victim, body);
            assert!(self.publisher.submit_to(address, &submission).expect("it"));
        }
        // And that the victim's manager has done nothing.
        let load = self.submission(0, 0, victim, Body::Load(Counts::default()));
        self.publisher.submit(&load).expect("sent");
        println!("\npretended");
    }
}

/// Starts a host.
fn start(number: u8) -> Host {
    let instance = format!("test-cluster-{number}");
    Host::start(number, &instance, &hardware(number))
}

impl Host {
    fn ask(&mut self, line: &str) -> Value {
        self.tell(line);
        let first = if line == "counts" { "[" } else { "{" };
        serde_json::from_str(&self.lines.find(first, PATIENCE)).expect("JSON")
    }

    fn manage(&mut self, jobs: u64) {
        self.tell(&format!("manage {jobs}"));
        self.lines.find("manages", PATIENCE);
    }

    fn counts(&mut self) -> Counts {
        let words: Vec<u64> = serde_json::from_value(self.ask("counts")).expect("numbers");
        let counts = Counts::of_words(words.try_into().expect("all"));
        assert!(counts.are_whole(), "{counts:?}");
        counts
    }

    fn release(&mut self, host: &str, id: u64) {
        self.tell(&format!("release {host} {id}"));
        assert_eq!(self.lines.find("released", PATIENCE), "released true");
    }

    /// One thread of it says that it has been released, the other one what it got, in any order.
    fn release_and_get(&mut self, host: &str, id: u64) -> Value {
        self.tell(&format!("release {host} {id}"));
        let (mut given, mut is_released) = (Value::Null, false);
        while given.is_null() || !is_released {
            let line = self.lines.next(PATIENCE).expect("a line");
            is_released |= line == "released true";
            if line.starts_with('{') {
                given = serde_json::from_str(&line).expect("JSON");
            }
        }
        given
    }

    /// Waits until exactly these hosts have told something that can be.
    fn wait_for(&mut self, hosts: &[&str]) {
        let mut expected: Vec<&str> = hosts.to_vec();
        expected.sort_unstable();
        wait_until("the hosts have told", || {
            let told = self.ask("discover")["told"].clone();
            let mut told: Vec<String> = serde_json::from_value(told).expect("hosts");
            told.sort_unstable();
            told == expected
        });
    }
}

/// The hosts on a bridge; `None`: the test may not run.
fn hosts() -> Option<(MutexGuard<'static, ()>, Vec<Host>)> {
    let alone = bridge()?;
    Some((alone, (1..=HOSTS).map(start).collect()))
}

fn end(hosts: &mut [Host]) {
    for host in hosts {
        host.running.kill(PATIENCE);
    }
    for number in 1..=HOSTS {
        let _ = std::fs::remove_file(format!("/run/ecalls@test-cluster-{number}.lock"));
    }
}

#[test]
fn resources_are_found_allocated_released_and_taken_back() {
    let Some((_alone, mut hosts)) = hosts() else {
        return;
    };
    let ids: Vec<String> = hosts.iter().map(|host| host.id.clone()).collect();
    let [client, rest @ ..] = &mut hosts[..] else {
        return;
    };
    rest.iter_mut().for_each(|host| host.manage(1));
    client.wait_for(&[&ids[1], &ids[2], &ids[3]]);

    // All three are given, one after the other; a further one is refused, or waits.
    let mut got: Vec<(String, u64)> = Vec::new();
    for _ in 0..3 {
        let given = client.ask("allocate 3 now");
        assert_eq!(
            (&given["asked"], &given["strays"]),
            (&json!(3), &json!(0)),
            "{given}"
        );
        let host = given["host"].as_str().expect("a host").to_owned();
        got.push((host, given["id"].as_u64().expect("a number")));
    }
    let mut given: Vec<&str> = got.iter().map(|(host, _)| &host[..]).collect();
    given.sort_unstable();
    let mut all = vec![&ids[1][..], &ids[2], &ids[3]];
    all.sort_unstable();
    assert_eq!(given, all);
    assert_eq!(client.ask("allocate 3 now")["host"], json!("Refused"));
    // One that waits everywhere gets what is released first, and is withdrawn elsewhere.
    client.tell("allocate 3 waits");
    wait_until("it waits everywhere", || {
        rest.iter_mut().all(|host| host.counts().waiting == 1)
    });
    let (host, id) = got[0].clone();
    let given = client.release_and_get(&host, id);
    assert_eq!(given["host"], json!(host));
    got[0].1 = given["id"].as_u64().expect("a number");
    wait_until("it waits nowhere", || {
        rest.iter_mut().all(|host| host.counts().waiting == 0)
    });
    let withdrawn: u64 = rest.iter_mut().map(|host| host.counts().withdrawn).sum();
    assert_eq!(withdrawn, 2);

    for (host, id) in &got {
        client.release(host, *id);
    }

    // Many at once: each is granted once, and nothing is left.
    client.tell(&format!("many {MANY}"));
    assert_eq!(
        client.lines.find("granted", PATIENCE),
        format!("granted {MANY}")
    );
    wait_until("all have been given back", || {
        let all: Vec<Counts> = rest.iter_mut().map(Host::counts).collect();
        all.iter()
            .all(|one| one.waiting + one.reserved + one.confirmed == 0)
    });

    // What is not confirmed expires: a client that is killed.
    let own = rest[0].id.clone();
    rest[0].tell(&format!("reserve {own} 4712"));
    rest[0].lines.find("asked", PATIENCE);
    rest[1].tell(&format!("reserve {own} 4713"));
    rest[1].lines.find("asked", PATIENCE);
    wait_until("one has expired, then the other", || {
        let counts = rest[0].counts();
        counts.expired + counts.late == 2 && counts.reserved == 0
    });
    let all: Vec<Counts> = rest.iter_mut().map(Host::counts).collect();
    let sum = |of: fn(&Counts) -> u64| -> u64 { all.iter().map(of).sum() };
    assert_eq!(sum(|one| one.released), 4 + MANY, "{all:?}");
    assert_eq!(sum(|one| one.confirmed), 0, "{all:?}");
    // A cancellation is one if its request comes later or was lost, as on a busy machine.
    assert!(sum(|one| one.stray) <= MANY / 10, "{all:?}");
    end(&mut hosts);
}

#[test]
fn hosts_that_fail_lie_or_forge_cost_a_client_nothing_but_time() {
    let Some((_alone, mut hosts)) = hosts() else {
        return;
    };
    let ids: Vec<String> = hosts.iter().map(|host| host.id.clone()).collect();
    let [client, rogue, honest, other] = &mut hosts[..] else {
        return;
    };
    honest.manage(9);
    // A host that says what cannot be is not asked.
    rogue.tell("lie");
    rogue.lines.find("told", PATIENCE);
    client.wait_for(&[&ids[2]]);
    let refused = client.ask("discover")["refused"].clone();
    assert_eq!(refused, json!([[ids[1], "busy", 2000]]));
    let given = client.ask("allocate 2 now");
    assert_eq!(
        (&given["host"], &given["asked"]),
        (&json!(ids[2]), &json!(1))
    );

    // One that answers late, and again, has been beaten: it is cancelled.
    rogue.tell("hold-back");
    rogue.lines.find("told", PATIENCE);
    client.wait_for(&[&ids[1], &ids[2]]);
    let given = client.ask("allocate 2 now");
    assert_eq!(
        (&given["host"], &given["asked"]),
        (&json!(ids[2]), &json!(2))
    );
    rogue.lines.find("holds back", PATIENCE);
    rogue.tell("answer-twice");
    rogue.lines.find("answered", PATIENCE);

    // Forged answers: of the host that was asked, to the right request, when nothing has been
    // granted; of others; to other requests; and what is no message.
    other.tell("idle");
    other.lines.find("told", PATIENCE);
    rogue.tell(&format!("forge {} {}", ids[0], ids[3]));
    rogue.lines.find("told", PATIENCE);
    client.wait_for(&[&ids[1], &ids[2], &ids[3]]);
    let given = client.ask("allocate 3 now");
    assert_eq!(given["host"], json!(ids[2]), "{given}");
    rogue.lines.find("forged", PATIENCE);
    // The honest manager's own counts show what was for others and what is no message.
    wait_until("it knows what it has granted", || {
        let counts = honest.counts();
        (counts.confirmed, counts.granted) == (3, 3)
    });

    // The best host reserves and is killed: the next one gets the job.
    rogue.tell("grant-and-die");
    rogue.lines.find("told", PATIENCE);
    let given = client.ask("allocate 3 now");
    assert_eq!(given["host"], json!(ids[2]), "{given}");
    wait_until("it knows that", || honest.counts().confirmed == 4);
    end(&mut hosts);
}

#[test]
fn host_that_speaks_in_another_one_s_name_changes_nothing_of_that_one_s() {
    let Some((_alone, mut hosts)) = hosts() else {
        return;
    };
    let ids: Vec<String> = hosts.iter().map(|host| host.id.clone()).collect();
    let [client, rogue, honest, _other] = &mut hosts[..] else {
        return;
    };
    honest.manage(1);
    client.wait_for(&[&ids[2]]);
    let given = client.ask("allocate 1 now");
    assert_eq!(given["host"], json!(ids[2]), "{given}");
    let id = given["id"].as_u64().expect("a number");
    // The client does not wait for its confirmation to arrive.
    wait_until("the job is confirmed", || honest.counts().confirmed == 1);
    let before = honest.counts();
    assert_eq!(before.stray, 0);
    rogue.tell(&format!("pretend {} {} {id}", ids[2], ids[0]));
    rogue.lines.find("pretended", PATIENCE);
    wait_until("it has refused all that is for a manager", || {
        honest.counts().stray == 4
    });
    let after = Counts {
        stray: 0,
        ..honest.counts()
    };
    assert_eq!(after, before, "the client has its job");
    client.release(&ids[2], id);
    wait_until("the job is released", || honest.counts().released == 1);
    end(&mut hosts);
}
