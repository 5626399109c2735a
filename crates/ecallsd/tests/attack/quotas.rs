//! Limits, at n - 1, n and n + 1: the last one that fits works, the next one is refused with the
//! limit's name, and after one is given back one more fits. By users whose limits are small
//! ([`crate::daemon::SMALL`]).

use std::sync::atomic::{AtomicU32, Ordering};

use ecalls::timer::Timer;
use ecalls::{Ecalls, Error, Raise, now_ns};
use ecalls_abi::message::{OpenChannel, QUOTA_NAMES, REFUSED_QUOTA, Refused, Request, UserView};

use crate::actor::{Actor, Roles, Stage, start};
use crate::daemon::SMALL;
use crate::maps::number_of;
use crate::memory::{Loop, register};
use crate::own::Own;
use crate::raw::{self, Raw, tell};
use crate::running::PATIENCE;
use crate::scene::{Scene, is_emulated, user};
use crate::tests;
use std::time::{Duration, Instant};

tests! {
    connections_are_limited_per_user
    channels_are_limited_per_user
    subscriptions_are_limited_per_user
    services_are_limited_per_user
    bytes_are_limited_per_user
    timers_are_limited_per_user
    raised_events_are_limited_per_user_and_second
    offered_events_are_limited_per_user_and_second
    events_that_wait_are_limited_per_user
    requests_are_limited_per_user_and_second
}

pub(crate) const ROLES: Roles = &[
    ("many connections", connections),
    ("many channels", channels),
    ("many subscriptions", subscriptions),
    ("many services", services),
    ("many bytes", bytes),
    ("many timers", timers),
    ("many raises", raises),
    ("many offers", offers),
    ("many that wait", waiting),
    ("many requests", requests),
];

// As daemon.rs configures them.
const CONNECTIONS: usize = 4;
const CHANNELS: usize = 3;
const SUBSCRIPTIONS: usize = 3;
const SERVICES: usize = 2;
const TIMERS: usize = 2;
const QUEUED: u64 = 16;
const PER_SECOND: u64 = 1000;
const BURST: u64 = 10;
const REQUESTS_PER_SECOND: u32 = 200;
const REQUESTS_BURST: u32 = 50;

/// Runs a role as a user of small limits, and looks at its accounts when it is done.
fn at_the_edge(role: &str, check: impl Fn(&UserView)) {
    static NEXT: AtomicU32 = AtomicU32::new(SMALL.start);
    let scene = Scene::begin();
    let uid = NEXT.fetch_add(1, Ordering::SeqCst);
    let mut actor: Actor = start(role, uid, &[]);
    actor.expect("done");
    check(&user(uid).expect("it is known"));
    actor.end();
    scene.end();
}

fn connections_are_limited_per_user() {
    at_the_edge("many connections", |_| {});
}

fn channels_are_limited_per_user() {
    at_the_edge("many channels", |_| {});
}

fn subscriptions_are_limited_per_user() {
    at_the_edge("many subscriptions", |_| {});
}

fn services_are_limited_per_user() {
    at_the_edge("many services", |_| {});
}

fn bytes_are_limited_per_user() {
    at_the_edge("many bytes", |_| {});
}

fn timers_are_limited_per_user() {
    at_the_edge("many timers", |_| {});
}

fn raised_events_are_limited_per_user_and_second() {
    at_the_edge("many raises", |view| {
        assert!(used(view, "raised events per second") > 0);
    });
}

fn offered_events_are_limited_per_user_and_second() {
    at_the_edge("many offers", |view| {
        assert!(used(view, "events per second") > 0);
    });
}

fn events_that_wait_are_limited_per_user() {
    at_the_edge("many that wait", |view| {
        assert!(used(view, "queued events") <= QUEUED);
    });
}

fn requests_are_limited_per_user_and_second() {
    at_the_edge("many requests", |view| {
        assert!(used(view, "requests per second") > 0);
    });
}

fn used(view: &UserView, name: &str) -> u64 {
    let at = QUOTA_NAMES.iter().position(|known| *known == name);
    view.used[at.expect("a quota's name")]
}

/// `most` fit, one more is refused for its quota, and one more fits when one is given back.
fn edge<T>(
    what: &str,
    most: usize,
    mut make: impl FnMut() -> Result<T, String>,
    mut give_back: impl FnMut(T),
) {
    let mut held = Vec::new();
    for number in 1..=most {
        held.push(make().unwrap_or_else(|no| panic!("number {number} of {most}: {no}")));
    }
    for _ in 0..2 {
        match make() {
            Ok(_) => panic!("more than {most} {what}"),
            Err(no) => assert!(no.contains(what), "{no}"),
        }
    }
    give_back(held.pop().expect("there are some"));
    // The daemon hears of it a moment later.
    let begin = Instant::now();
    held.push(loop {
        match make() {
            Ok(one) => break one,
            Err(no) => assert!(begin.elapsed() < PATIENCE, "after one was given back: {no}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    });
    held.into_iter().for_each(give_back);
}

fn refusal(refused: &Refused) -> String {
    assert_eq!(refused.error, REFUSED_QUOTA, "{}", tell(refused));
    tell(refused)
}

fn connections(stage: &mut Stage) {
    let make = || match Raw::open() {
        Ok((raw, ..)) => Ok(raw),
        Err(error) => Err(error.to_string()),
    };
    edge("connections", CONNECTIONS, make, drop);
    stage.done();
}

fn channels(stage: &mut Stage) {
    let raw = std::cell::RefCell::new(Raw::open().expect("the daemon").0);
    edge(
        "channels",
        CHANNELS,
        || {
            raw.borrow_mut()
                .open_channel(&raw::ring(64))
                .map_err(|no| refusal(&no))
        },
        |channel| {
            let close = Request::CloseChannel(number_of(channel.id));
            raw.borrow_mut().value(&close).expect("its own");
        },
    );
    stage.done();
}

fn subscriptions(stage: &mut Stage) {
    let client = std::cell::RefCell::new(Loop::open(&raw::ring(64)));
    let (service, channel) = (client.borrow().service, client.borrow().channel.id);
    let make = || {
        let mut subscribe = ecalls_abi::message::Subscribe {
            service,
            channel,
            actions: 1,
            ..Default::default()
        };
        subscribe.action[0].kind = ecalls_abi::subscription::ACTION_MEMORY;
        subscribe.action[0].channel = channel;
        let made = client
            .borrow_mut()
            .raw
            .value(&Request::Subscribe(subscribe));
        made.map_err(|no| refusal(&no))
    };
    // There is one already.
    edge("subscriptions", SUBSCRIPTIONS - 1, make, |id| {
        let end = Request::Unsubscribe(number_of(u32::try_from(id).expect("an id")));
        client.borrow_mut().raw.value(&end).expect("its own");
    });
    stage.done();
}

fn services(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let mut number = 0;
    let make = || {
        number += 1;
        let name = format!("many-{}-{number}", std::process::id());
        ecalls
            .register_service(&name, "", "")
            .map_err(|error| error.to_string())
    };
    edge("services", SERVICES, make, drop);
    stage.done();
}

/// Two MiB: one channel of 4096 events, and no second one.
fn bytes(stage: &mut Stage) {
    let raw = std::cell::RefCell::new(Raw::open().expect("the daemon").0);
    let large = OpenChannel {
        capacity: 4096,
        ..OpenChannel::default()
    };
    edge(
        "bytes of shared memory",
        1,
        || {
            raw.borrow_mut()
                .open_channel(&large)
                .map_err(|no| refusal(&no))
        },
        |channel| {
            let close = Request::CloseChannel(number_of(channel.id));
            raw.borrow_mut().value(&close).expect("its own");
            drop(channel);
        },
    );
    stage.done();
}

fn timers(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let channel = ecalls.channel().ring(64).open().expect("a channel");
    let make = || match Timer::after(channel.caller(), Duration::from_secs(60)) {
        Ok(timer) => Ok(timer),
        Err(error @ (Error::Quota { .. } | Error::LimitReached { .. })) => Err(error.to_string()),
        Err(error) => Err(format!("timers: {error}")),
    };
    edge("timers", TIMERS, make, drop);
    stage.done();
}

/// The number of events that may pass in this time, with a small tolerance.
fn allowed(begin: Instant) -> u64 {
    let elapsed = u64::try_from(begin.elapsed().as_millis()).expect("a short time");
    BURST + (elapsed + 1) * PER_SECOND / 1000 + 1
}

fn raises(stage: &mut Stage) {
    let own = Own::register();
    std::thread::sleep(Duration::from_millis(50));
    let (begin, data) = (Instant::now(), [0; 8]);
    let mut raised = 0;
    let more = |raised| raised < BURST + 20 && begin.elapsed() < PATIENCE;
    while begin.elapsed() < Duration::from_millis(200) || more(raised) {
        match own.service.raise(&Raise::new(&data)) {
            Ok(_) => raised += 1,
            Err(error) => assert!(matches!(error, Error::Quota { .. }), "{error}"),
        }
        assert!(
            raised <= allowed(begin),
            "{raised} in {:?}",
            begin.elapsed()
        );
    }
    assert!(raised >= BURST + 20 || is_emulated(), "only {raised}");
    stage.done();
}

/// One raise is offered to three subscriptions.
fn offers(stage: &mut Stage) {
    let own = Own::register();
    let channel = own.ecalls.channel().ring(1024).open();
    let channel = channel.expect("a channel");
    let subscriptions: Vec<_> = (0..SUBSCRIPTIONS)
        .map(|_| own.subscribe(&channel))
        .collect();
    let (begin, data) = (Instant::now(), [0; 8]);
    while begin.elapsed() < Duration::from_millis(200) {
        let _ = own.service.raise(&Raise::new(&data));
    }
    let most = allowed(begin);
    let counts = subscriptions
        .iter()
        .map(|one| one.count().expect("the daemon"));
    let (mut delivered, mut refused) = (0, 0);
    for count in counts {
        delivered += count.delivered;
        refused += count.dropped[ecalls::DropReason::Quota as usize];
    }
    assert!(delivered <= most, "{delivered}, {most} are allowed");
    assert!(refused > 0);
    // The client is told in its own memory, too.
    assert!(channel.lost().dropped[ecalls::DropReason::Quota as usize] > 0);
    stage.done();
}

fn waiting(stage: &mut Stage) {
    let own = Own::register();
    let channel = own.channel();
    let _subscription = own.subscribe(&channel);
    let (mut accepted, data) = (0, [0; 8]);
    for _ in 0..3 * QUEUED {
        let later = now_ns() + 2_000_000_000;
        accepted += u64::from(
            own.service
                .raise(&Raise::new(&data).at(Some(later), None))
                .is_ok(),
        );
        // Not faster than its rate: this is about another limit.
        std::thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(accepted, QUEUED);
    stage.done();
}

fn requests(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    // A machine that stands still answers fewer in a second.
    for second in 1.. {
        let begin = Instant::now();
        let mut asked = 1;
        while begin.elapsed() < Duration::from_secs(1) {
            raw.ask(&Request::LookQueue(number_of(0)), &[])
                .expect("an answer");
            asked += 1;
        }
        let most = REQUESTS_BURST + REQUESTS_PER_SECOND * 11 / 10 + 2;
        assert!(
            asked <= most,
            "{asked} in {:?}, {most} are allowed",
            begin.elapsed()
        );
        if asked >= REQUESTS_PER_SECOND || is_emulated() {
            break;
        }
        assert!(second < 10, "{asked} in the last of {second} seconds");
        // As many as at first may come at once in the next one.
        std::thread::sleep(Duration::from_millis(500));
    }
    let _ = register;
    stage.done();
}
