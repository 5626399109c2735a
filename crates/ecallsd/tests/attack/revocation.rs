//! After the end: memory that stays mapped, descriptors that are kept, a connection that is gone.
//! Nothing arrives any more, and what is held stays charged until it is let go.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ecalls_abi::downcall::Op;
use ecalls_abi::message::{QUOTA_BYTES, QUOTA_CHANNELS, QUOTA_SUBSCRIPTIONS, Request};

use crate::actor::{Roles, Stage, start};
use crate::maps::number_of;
use crate::memory::{Loop, subscribe};
use crate::raw;
use crate::running::wait_until;
use crate::scene::{Scene, new_user, user};
use crate::tests;

tests! {
    closed_channel_shows_nothing_more_and_stays_charged_while_it_is_held
    ended_subscription_delivers_nothing_more
    connection_that_is_closed_takes_everything_with_it_at_once
    memory_of_a_killed_client_held_by_its_child_stays_charged_until_that_ends
}

pub(crate) const ROLES: Roles = &[
    ("keeps memory", keep),
    ("unsubscribes", unsubscribe),
    ("hangs up", hang_up),
    ("leaves a child", leave_a_child),
];

fn closed_channel_shows_nothing_more_and_stays_charged_while_it_is_held() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("keeps memory", uid, &[]);
    attacker.expect("closed");
    std::thread::sleep(Duration::from_millis(1200));
    let used = user(uid).expect("it is connected").used;
    assert!(
        used[QUOTA_BYTES] > 0,
        "memory that is mapped is charged: {used:?}"
    );
    assert_eq!(used[QUOTA_CHANNELS], 0, "{used:?}");
    attacker.ask("let go");
    wait_until("what nobody holds is given back", || {
        user(uid).expect("it is connected").used[QUOTA_BYTES] == 0
    });
    attacker.end();
    scene.end();
}

fn ended_subscription_delivers_nothing_more() {
    Scene::begin().attack("unsubscribes", &[]);
}

fn connection_that_is_closed_takes_everything_with_it_at_once() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("hangs up", uid, &[]);
    attacker.expect("hung up");
    wait_until("the daemon has noticed", || {
        user(uid).is_none_or(|user| user.used[QUOTA_SUBSCRIPTIONS] + user.used[QUOTA_CHANNELS] == 0)
    });
    assert_eq!(attacker.ask("raise"), "nothing came");
    attacker.end();
    scene.end();
}

fn memory_of_a_killed_client_held_by_its_child_stays_charged_until_that_ends() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("leaves a child", uid, &[]);
    let child: u32 = attacker.hear().parse().expect("a process");
    attacker.kill();
    wait_until("its channel is closed", || {
        user(uid).is_none_or(|user| user.used[QUOTA_CHANNELS] == 0)
    });
    std::thread::sleep(Duration::from_millis(1200));
    let used = user(uid).expect("it is charged").used;
    assert!(used[QUOTA_BYTES] > 0, "{used:?}");
    let pid = rustix::process::Pid::from_raw(child.cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    wait_until("what nobody holds is given back", || {
        user(uid).is_none_or(|user| user.used[QUOTA_BYTES] == 0)
    });
    scene.end();
}

fn keep(stage: &mut Stage) {
    let mut client = Loop::open(&raw::ring(64));
    let (up, down) = (client.up(), client.down());
    client.raise(1);
    assert_eq!(up.words()[0].load(Ordering::Acquire), 1);
    let id = client.channel.id;
    client
        .raw
        .value(&Request::CloseChannel(number_of(id)))
        .expect("its own");
    // Into it, and by it: neither works any more.
    for number in 0..100 {
        client.raise(number);
        let _ = raw::fast_call(id, 0, Op::Getpid as u16, [0; 3]);
    }
    assert_eq!(
        up.words()[0].load(Ordering::Acquire),
        1,
        "an event came after the end"
    );
    assert_eq!(
        up.words()[1].load(Ordering::Acquire),
        1,
        "an event came after the end"
    );
    let sequence = down.words()[4 * 8 + 5].load(Ordering::Acquire);
    let _ = raw::fast_call(id, 0, Op::Getpid as u16, [0; 3]);
    assert_eq!(
        down.words()[4 * 8 + 5].load(Ordering::Acquire),
        sequence,
        "a call was taken"
    );
    stage.say("closed");
    stage.hear();
    let Loop { raw, channel, .. } = client;
    drop((up, down, channel));
    stage.say("let go");
    stage.hear();
    drop(raw);
}

fn unsubscribe(stage: &mut Stage) {
    let mut client = Loop::open(&raw::ring(64));
    let up = client.up();
    for round in 1..50 {
        client.raise(1);
        assert_eq!(up.words()[0].load(Ordering::Acquire), round);
        let id = client.subscription;
        client
            .raw
            .value(&Request::Unsubscribe(number_of(id)))
            .expect("its own");
        client.raise(2);
        assert_eq!(
            up.words()[0].load(Ordering::Acquire),
            round,
            "an event after the end"
        );
        client.subscription = subscribe(&mut client.raw, client.service, client.channel.id);
    }
    stage.say("done");
}

fn hang_up(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    let up = client.up();
    client.raise(1);
    let came = up.words()[0].load(Ordering::Acquire);
    assert_eq!(came, 1);
    rustix::net::shutdown(&client.raw.socket, rustix::net::Shutdown::Both).expect("its socket");
    stage.say("hung up");
    while stage.hear().is_some() {
        client.raise(2);
        let now = up.words()[0].load(Ordering::Acquire);
        stage.say(if now == came {
            "nothing came"
        } else {
            "an event came"
        });
    }
}

fn leave_a_child(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    let up = client.up();
    let child = raw::fork(|| {
        // Holds what it inherited, until it is killed.
        std::thread::sleep(Duration::from_secs(60));
        0
    });
    stage.say(child);
    stage.hear();
    drop(up);
}
