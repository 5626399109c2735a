//! Channels among hosts: clients that may publish on one, and try to send on another, to send what
//! its format does not describe, or to leave others no room. The test is the program that has the
//! channels open: a guest in the daemon's core, as root. Its relay is a list, and a gate before it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ecalls::{DropReason, Ecalls, Raise, Service, Subscription};
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::handler::HANDLER_REMOTE;
use ecalls_abi::message::{
    Answer, REFUSED_DENIED, REFUSED_INVALID, REFUSED_UNKNOWN, Refused, ReplaceHandler, Request,
    Subscribe,
};
use ecalls_abi::sink::{LaneOut, REMOTE_FORMAT, REMOTE_FULL, REMOTE_SHARE};
use ecalls_abi::subscription::ACTION_HANDLER;
use ecalls_abi::wire::text_id;
use ecalls_kernel::lane::{HostedLane, LaneStat, Transport, lanes};
use ecalls_kernel::owner::Owner;

use crate::actor::{Roles, Stage, start};
use crate::memory::Loop;
use crate::own::Own;
use crate::raw::{Raw, ring, tell};
use crate::running::wait_until;
use crate::scene::{Scene, new_user};
use crate::tests;
use crate::upload::text_file;

tests! {
    forged_arguments_of_remote_reach_no_other_channel
    data_that_the_format_of_a_channel_does_not_describe_are_refused_and_counted
    user_who_floods_a_channel_leaves_others_room_in_its_buffer
}

pub(crate) const ROLES: Roles = &[
    ("forges arguments", forge),
    ("sends other data", send_other_data),
    ("publishes", publish),
];

/// The channel on which a rule lets everybody publish, and one of root alone.
pub(crate) const OPEN: &str = "attacked";
const SECRET: &str = "secret";
const FORMAT: &str = "u64 value";
const SINK: u64 = 0x0200_0000_0007;

/// The other hosts. While the gate is closed they take nothing.
#[derive(Debug, Default)]
struct Hosts {
    taken: AtomicU64,
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Hosts {
    fn close(&self, is_closed: bool) {
        *self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = is_closed;
        self.opened.notify_all();
    }
}

impl Transport for Hosts {
    fn send(&self, _: u64, _: &[u8]) -> io::Result<()> {
        let closed = self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let _open = self.opened.wait_while(closed, |is_closed| *is_closed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A channel that this process has open.
struct Opened {
    /// First: it sends what it has before the rest ends.
    lane: HostedLane,
    _service: Service,
    hosts: Arc<Hosts>,
    ecalls: Ecalls,
    name: &'static str,
}

impl Opened {
    fn open(name: &'static str) -> Opened {
        let ecalls = Ecalls::open().expect("the daemon");
        let core = Arc::clone(ecalls.lane().expect("a guest in its core"));
        let service = ecalls.register_service(name, FORMAT, "one").expect("it");
        let owner = Owner::current(&core).expect("it");
        let hosts = Arc::new(Hosts::default());
        let transport = Arc::clone(&hosts) as Arc<dyn Transport>;
        let lane = HostedLane::open_relayed(core, &owner, name, service.index(), None, transport)
            .expect("it is not open yet");
        lane.add_host(SINK).expect("there is room");
        Opened {
            lane,
            _service: service,
            hosts,
            ecalls,
            name,
        }
    }

    fn out(&self) -> LaneOut {
        let (all, ..) = lanes(self.ecalls.lane().expect("it")).expect("the tables");
        let its = |stat: &LaneStat| stat.name == self.name;
        all.into_iter().find(its).expect("it is open").out
    }

    /// The arguments of `remote` that belong to it.
    fn arguments(&self) -> [u64; 3] {
        self.lane.numbers().remote()
    }

    /// Waits until its buffer is empty, and checks the accounts.
    fn rest(&self) -> LaneOut {
        let sum =
            |out: &LaneOut| out.none + out.filtered + out.refused.iter().sum::<u64>() + out.fanned;
        wait_until("all has been sent", || {
            let out = self.out();
            out.events == sum(&out)
        });
        let out = self.out();
        wait_until("the sink has it", || {
            self.hosts.taken.load(Ordering::Relaxed) == out.fanned
        });
        out
    }
}

// --- arguments ---

fn forged_arguments_of_remote_reach_no_other_channel() {
    let scene = Scene::begin();
    let (open, secret) = (Opened::open(OPEN), Opened::open(SECRET));
    let [row, id, epoch] = secret.arguments();
    let arguments = [row, id, epoch, open.arguments()[0]].map(|one| one.to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut attacker = scene.attacker("forges arguments", &arguments);
    attacker.expect("forged");
    wait_until("each has sent its event", || {
        open.out().events == FORGED as u64
    });
    let out = open.rest();
    assert_eq!(out.fanned, FORGED as u64, "{out:?}");
    assert_eq!(secret.out(), LaneOut::default());
    // The channel is closed: its row is nobody's, or the next one's.
    drop(open);
    let next = Opened::open("next");
    assert_eq!(attacker.ask("the former channel?"), "refused");
    attacker.end();
    assert_eq!(next.out(), LaneOut::default());
    drop((next, secret));
    scene.end();
}

/// How many sets of forged arguments.
const FORGED: usize = 5;

fn to_remote(service: u32, argument: [u64; 3]) -> Subscribe {
    let mut body = Subscribe {
        service,
        actions: 1,
        ..Subscribe::default()
    };
    body.action[0].kind = ACTION_HANDLER;
    body.action[0].handler = HANDLER_REMOTE;
    body.action[0].argument = argument;
    body
}

fn forge(stage: &mut Stage) {
    let [row, id, epoch, own_row] = [0, 1, 2, 3].map(|at| stage.number(at));
    let own = text_id(OPEN);
    let mut client = Loop::open(&ring(64));
    let service = client.service;
    let refused = |raw: &mut Raw, body: Subscribe| {
        let refused = raw.value(&Request::Subscribe(body)).expect_err("a refusal");
        refused.error
    };
    for argument in [
        [row, id, epoch],
        [own_row, id, epoch],
        [row, 0, epoch],
        [own_row, text_id("no such channel"), 0],
        [0, u64::MAX, 0],
    ] {
        let refused = refused(&mut client.raw, to_remote(service, argument));
        assert_eq!(refused, REFUSED_DENIED, "{argument:x?}");
    }
    let mut twice = to_remote(service, [own_row, own, 0]);
    twice.action[1] = twice.action[0];
    twice.actions = 2;
    assert_eq!(refused(&mut client.raw, twice), REFUSED_INVALID);
    // With the id of the channel that it may use, the rest is the broker's to write.
    let forged: [_; FORGED] = [
        [0, own, 0],
        [row, own, epoch],
        [own_row, own, u64::MAX],
        [u64::MAX, own, 1],
        [63, own, epoch],
    ];
    for argument in forged {
        let body = Request::Subscribe(to_remote(service, argument));
        let subscribed = client.raw.value(&body);
        subscribed.unwrap_or_else(|no| panic!("{}", tell(&no)));
    }
    // Each of them sends it.
    client.raise(7);
    stage.say("forged");
    if stage.hear().is_some() {
        let body = to_remote(service, [own_row, own, 0]);
        assert_eq!(refused(&mut client.raw, body), REFUSED_UNKNOWN);
        stage.say("refused");
        stage.hear();
    }
}

// --- formats ---

fn data_that_the_format_of_a_channel_does_not_describe_are_refused_and_counted() {
    let scene = Scene::begin();
    let open = Opened::open(OPEN);
    let mut attacker = scene.attacker("sends other data", &[]);
    attacker.expect("done");
    attacker.end();
    let out = open.rest();
    assert_eq!((out.events, out.fanned), (3, 2), "{out:?}");
    assert_eq!(out.refused[REMOTE_FORMAT], 1, "{out:?}");
    drop(open);
    scene.end();
}

/// An upload, and its id or its refusal.
fn upload(raw: &mut Raw, request: &Request, text: &str) -> Result<u32, Box<Refused>> {
    let file: OwnedFd = text_file(text);
    match raw.ask(request, &[file.as_fd()]).expect("an answer").0 {
        Answer::Done(done) => Ok(u32::try_from(done.value).expect("an id")),
        Answer::Refused(refused) => Err(Box::new(refused)),
        other => panic!("{}", other.name()),
    }
}

fn send_other_data(stage: &mut Stage) {
    let own = Own::register();
    let builder = own.ecalls.subscribe(&own.name).expect("its service");
    let whole = builder
        .remote(OPEN)
        .install()
        .expect("the formats are the same");
    own.service.raise(&Raise::new(&[1; 8])).expect("raised");
    // Its own service may have any data; the channel may not.
    own.service.raise(&Raise::new(&[1; 16])).expect("raised");
    let is_counted = || {
        let count = whole.count().expect("its count");
        (count.delivered, count.dropped(DropReason::Size)) == (1, 1)
    };
    wait_until("the longer data are counted", is_counted);
    drop(whole);

    let (mut raw, ..) = Raw::open().expect("the daemon");
    let (service, _) = crate::memory::register_with(&mut raw, "u32 one; u32 other");
    let remote = [0, text_id(OPEN), 0];
    let refused = raw.value(&Request::Subscribe(to_remote(service, remote)));
    let told = tell(&refused.expect_err("another format"));
    assert!(told.contains("u32 one") && told.contains(FORMAT), "{told}");

    // By a text whose output has another format, when it is installed and when it is replaced.
    let mut body = to_remote(service, remote);
    body.action[1] = body.action[0];
    body.action[0].handler = HANDLER_ECODE;
    body.action[0].argument = [0; 3];
    body.actions = 2;
    let body = Request::Subscribe(body);
    let of = |field: &str| format!("struct output {{ {field}; }}; output.value = 7; return 1;");
    let other = upload(&mut raw, &body, &of("unsigned int value"));
    assert_eq!(other.expect_err("another format").error, REFUSED_INVALID);
    let none = upload(&mut raw, &body, "return 1;");
    assert_eq!(none.expect_err("its input's format").error, REFUSED_INVALID);
    let text = of("unsigned long value");
    let subscription = upload(&mut raw, &body, &text).unwrap_or_else(|no| panic!("{}", tell(&no)));
    let replace = Request::ReplaceHandler(ReplaceHandler {
        subscription,
        action: 0,
    });
    for other in [
        &of("signed long value")[..],
        &of("unsigned long value; long more"),
        "return 1;",
    ] {
        let refused = upload(&mut raw, &replace, other).expect_err("another format");
        assert_eq!(refused.error, REFUSED_INVALID, "{other}");
    }
    upload(&mut raw, &replace, &text).unwrap_or_else(|no| panic!("{}", tell(&no)));
    let service_of_it = own.ecalls.subscribe(&own.name).expect("its service");
    let last = service_of_it.remote(OPEN).install().expect("the same");
    own.service.raise(&Raise::new(&[2; 8])).expect("raised");
    let is_counted = || last.count().expect("its count").delivered == 1;
    wait_until("it has been given to the channel", is_counted);
    stage.done();
}

// --- room ---

/// More events than the buffer has room for.
const FLOOD: u64 = 4000;
const FEW: u64 = 20;

fn user_who_floods_a_channel_leaves_others_room_in_its_buffer() {
    let scene = Scene::begin();
    let open = Opened::open(OPEN);
    open.hosts.close(true);
    let (first, second) = (new_user(), new_user());
    let mut attacker = start("publishes", first, &[]);
    let sent = |actor: &mut crate::actor::Actor, count: u64| {
        let told = actor.ask(&count.to_string());
        let numbers: Vec<u64> = told
            .split(' ')
            .map(|one| one.parse().expect("it"))
            .collect();
        let [delivered, quota, full] = numbers[..] else {
            panic!("{told}");
        };
        assert_eq!(delivered + quota + full, count, "{told}");
        (delivered, quota, full)
    };
    let (delivered, quota, full) = sent(&mut attacker, FLOOD);
    eprintln!("  of {FLOOD} events {delivered} are in the buffer");
    assert!(quota > 0 && full == 0, "{delivered} {quota} {full}");
    // Of the same user: another process has no share of its own.
    let mut again = start("publishes", first, &[]);
    assert_eq!(sent(&mut again, FEW).0, 0);
    // Another user has room, and root has.
    let mut other = start("publishes", second, &[]);
    assert_eq!(sent(&mut other, FEW), (FEW, 0, 0));
    let root = by_root(&open.ecalls);
    for _ in 0..FEW {
        root.0.raise(&Raise::new(&[0; 8])).expect("raised");
    }
    let out = open.out();
    assert_eq!(out.refused[REMOTE_FULL], 0, "{out:?}");
    assert_eq!(out.refused[REMOTE_SHARE], quota + FEW, "{out:?}");

    open.hosts.close(false);
    let out = open.rest();
    assert_eq!(out.fanned, delivered + 2 * FEW, "{out:?}");
    // What has been sent takes no room.
    assert_eq!(sent(&mut attacker, FEW), (FEW, 0, 0));
    open.hosts.close(true);
    let (again_delivered, ..) = sent(&mut attacker, FLOOD);
    assert!(
        again_delivered.abs_diff(delivered) <= FEW + 2,
        "{again_delivered}"
    );
    open.hosts.close(false);
    open.rest();
    for actor in [attacker, again, other] {
        actor.end();
    }
    drop((root, open));
    scene.end();
}

/// A service whose events root sends on the channel.
fn by_root(ecalls: &Ecalls) -> (Service, Subscription) {
    let service = ecalls.register_service("by-root", FORMAT, "one");
    let builder = ecalls.subscribe("by-root").expect("it");
    (
        service.expect("it"),
        builder.remote(OPEN).install().expect("it"),
    )
}

/// Raises as many events as it is told, and says what became of them.
fn publish(stage: &mut Stage) {
    let own = Own::register();
    let builder = own.ecalls.subscribe(&own.name).expect("its service");
    let subscription = builder.remote(OPEN).install().expect("a rule lets it");
    let numbers = || {
        let count = subscription.count().expect("its count");
        let dropped = |reason| count.dropped(reason);
        [
            count.delivered,
            dropped(DropReason::Quota),
            dropped(DropReason::RingFull),
        ]
    };
    while let Some(count) = stage.hear() {
        let before = numbers();
        let mut left: u64 = count.parse().expect("a number");
        while left > 0 {
            // Its rate of raises is limited, too: those are not the subscription's.
            match own.service.raise(&Raise::new(&[0; 8])) {
                Ok(_) => left -= 1,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
        let count: u64 = count.parse().expect("a number");
        wait_until("each is counted", || {
            let sum = |numbers: [u64; 3]| numbers.iter().sum::<u64>();
            sum(numbers()) == sum(before) + count
        });
        let now = numbers();
        let [delivered, quota, full] = [0, 1, 2].map(|at| now[at] - before[at]);
        stage.say(format!("{delivered} {quota} {full}"));
    }
}
