//! As much as possible of everything: events, calls, timers, events that wait, kernel threads,
//! connections, requests. A limit is there to be reached; others do not feel it.

use std::time::{Duration, Instant};

use ecalls::downcall::Call;
use ecalls::timer::Timer;
use ecalls::{Ecalls, Handler, Raise, now_ns};
use ecalls_abi::message::{Number, QUOTA_QUEUED, Request};

use crate::actor::{Roles, Stage, start};
use crate::memory::Loop;
use crate::own::Own;
use crate::raw::{self, Raw};
use crate::running::PATIENCE;
use crate::scene::{Scene, is_emulated, new_user, user};
use crate::tests;

tests! {
    flood_of_events_is_throttled_and_leaves_others_alone
    flood_of_deferred_calls_leaves_others_alone
    flood_of_events_that_wait_leaves_others_their_queues
    flood_of_timers_leaves_others_alone
    flood_of_work_for_kernel_threads_leaves_others_alone
    reader_that_never_reads_loses_its_own_events_only
    hundreds_of_connections_per_second_leave_others_alone
    flood_of_requests_leaves_others_alone
}

pub(crate) const ROLES: Roles = &[
    ("raises", raise),
    ("defers", defer),
    ("holds", hold),
    ("timers", timers),
    ("threads", threads),
    ("never reads", never_read),
    ("connects", connect),
    ("asks", ask),
];

/// How long a flood lasts.
const TIME: Duration = Duration::from_millis(700);

fn flood_of_events_is_throttled_and_leaves_others_alone() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attackers = [(); 2].map(|()| start("raises", uid, &[]));
    for attacker in &mut attackers {
        attacker.expect("done");
    }
    let view = user(uid).expect("it is connected");
    assert!(view.raised > 10_000, "{view:?}");
    attackers.into_iter().for_each(crate::actor::Actor::end);
    scene.end();
}

fn flood_of_deferred_calls_leaves_others_alone() {
    Scene::begin().attack("defers", &[]);
}

fn flood_of_events_that_wait_leaves_others_their_queues() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("holds", uid, &[]);
    attacker.expect("done");
    let view = user(uid).expect("it is connected");
    assert!(
        view.used[QUOTA_QUEUED] <= view.limit[QUOTA_QUEUED],
        "{view:?}"
    );
    attacker.end();
    scene.end();
}

fn flood_of_timers_leaves_others_alone() {
    Scene::begin().attack("timers", &[]);
}

fn flood_of_work_for_kernel_threads_leaves_others_alone() {
    Scene::begin().attack("threads", &[]);
}

fn reader_that_never_reads_loses_its_own_events_only() {
    Scene::begin().attack("never reads", &[]);
}

fn hundreds_of_connections_per_second_leave_others_alone() {
    let scene = Scene::begin();
    let mut attackers = [(); 2].map(|()| scene.attacker("connects", &[]));
    let mut made = 0;
    for attacker in &mut attackers {
        let line = attacker.hear();
        made += line.parse::<u32>().expect("a number");
    }
    assert!(made >= 200, "only {made} connections");
    attackers.into_iter().for_each(crate::actor::Actor::end);
    scene.end();
}

fn flood_of_requests_leaves_others_alone() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attackers = [(); 4].map(|()| start("asks", uid, &[]));
    // Others get their answers meanwhile, each after one of the attackers'.
    let (mut other, ..) = Raw::open().expect("the daemon");
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    while begin.elapsed() < TIME / 2 {
        let before = Instant::now();
        let answer = other.ask(&Request::LookUser(Number::default()), &[]);
        slowest = slowest.max(before.elapsed());
        answer.expect("an answer");
    }
    drop(other);
    assert!(
        slowest < Duration::from_millis(200) + scene.slack() || is_emulated(),
        "an answer took {slowest:?}, and the machine stood still for up to {:?}",
        scene.slack()
    );
    for attacker in &mut attackers {
        attacker.expect("done");
    }
    attackers.into_iter().for_each(crate::actor::Actor::end);
    scene.end();
}

fn until_it_is_over(mut one: impl FnMut()) {
    let until = Instant::now() + TIME;
    while Instant::now() < until {
        for _ in 0..100 {
            one();
        }
    }
}

fn raise(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    let mut number = 0;
    until_it_is_over(|| {
        number += 1;
        client.raise(number);
    });
    stage.done();
}

fn defer(stage: &mut Stage) {
    let own = Own::register();
    let delay = Duration::from_micros(100);
    let channel = own
        .ecalls
        .channel()
        .ring(64)
        .defer_delay(delay)
        .defer_switch()
        .open();
    let channel = channel.expect("a channel");
    let _subscription = own.subscribe(&channel);
    let call = Call::Raise {
        service: own.service.index(),
        kind: 0,
        target: -1,
        data: 1,
    };
    until_it_is_over(|| {
        let _ = channel.caller().defer(call);
    });
    stage.done();
}

/// Events whose release is far away, without and with deadlines that precede everybody's.
fn hold(stage: &mut Stage) {
    let own = Own::register();
    let channel = own.channel();
    let _subscription = own.subscribe(&channel);
    let data = [0; 8];
    until_it_is_over(|| {
        let second = now_ns() + 1_000_000_000;
        let _ = own
            .service
            .raise(&Raise::new(&data).at(Some(second), Some(second + 1)));
        let _ = own.service.raise(&Raise::new(&data).at(Some(second), None));
    });
    stage.done();
}

fn timers(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let mut held = Vec::new();
    for _ in 0..4 {
        let channel = ecalls.channel().ring(64).open().expect("a channel");
        let subscription = ecalls
            .subscribe("timer")
            .expect("it")
            .memory(&channel)
            .install();
        let subscription = subscription.expect("a subscription");
        let mut timers = Vec::new();
        while let Ok(timer) = Timer::every(channel.caller(), Duration::from_micros(50)) {
            timers.push(timer);
        }
        held.push((timers, subscription, channel));
    }
    std::thread::sleep(TIME);
    stage.done();
}

fn threads(stage: &mut Stage) {
    let own = Own::register();
    let mut held = Vec::new();
    let channel = own.channel();
    for _ in 0..16 {
        let subscription = own.ecalls.subscribe(&own.name).expect("it");
        let subscription = subscription
            .thread(&Handler::Count { end: false })
            .memory(&channel)
            .install();
        held.push(subscription.expect("a subscription"));
    }
    let data = [0; 8];
    until_it_is_over(|| {
        let _ = own.service.raise(&Raise::new(&data));
    });
    stage.done();
}

fn never_read(stage: &mut Stage) {
    let own = Own::register();
    let channel = own.channel();
    let subscription = own.subscribe(&channel);
    let data = [0; 8];
    let mut raised = 0;
    until_it_is_over(|| {
        raised += u64::from(own.service.raise(&Raise::new(&data)).is_ok());
    });
    let count = subscription.count().expect("the daemon");
    let lost = channel.lost();
    let full = lost.dropped[ecalls::DropReason::RingFull as usize];
    assert!(full > 0 && count.delivered <= 64, "{count:?} {lost:?}");
    assert_eq!(count.offered, raised, "{count:?}");
    stage.done();
}

fn connect(stage: &mut Stage) {
    let until = Instant::now() + TIME;
    let mut made = 0;
    // So many it must make, also on a machine that stands still meanwhile.
    while Instant::now() < until || made < 100 && Instant::now() < until + PATIENCE {
        // Some say HELLO, some nothing, some leave before they are heard.
        let connected = match made % 3 {
            0 => Raw::open().map(|(raw, ..)| raw),
            1 => Raw::connect(),
            _ => Raw::connect().inspect(|raw| {
                let _ = raw.send(raw::hello().packet(1).as_bytes(), &[]);
            }),
        };
        made += u32::from(connected.is_ok());
    }
    stage.say(made);
    stage.hear();
}

fn ask(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let until = Instant::now() + TIME;
    while Instant::now() < until {
        for look in [
            Request::LookUser,
            Request::LookSubscription,
            Request::LookQueue,
        ] {
            let _ = raw.ask(&look(Number::default()), &[]);
        }
        let fate = Request::LookFate(ecalls_abi::message::LookFate::default());
        let _ = raw.ask(&fate, &[]);
    }
    stage.done();
}
