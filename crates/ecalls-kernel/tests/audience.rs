//! Subscriptions that see their own user's events: who gets what, how many there can be, and that
//! what is dropped is counted for them as for all. Needs root.

#![allow(unsafe_code, reason = "threads of other users")]

mod harness;

use std::time::Duration;

use ecalls_abi::audience::AUDIENCE_MAX;
use ecalls_abi::channel::DropReason;
use ecalls_abi::event::{TARGET_ALL, TARGET_WAKE_ONE};
use ecalls_abi::subscription::{SCOPE_ALL, SCOPE_OWN};
use ecalls_abi::version::SUBSCRIBERS_MAX;
use ecalls_kernel::Error;
use ecalls_kernel::measure::Measure;
use harness::{assert_service_identity, stage};
use limit::calm::measured;

const ANNA: u32 = 61_001;
const BERT: u32 = 61_002;

#[test]
fn own_subscription_sees_its_users_events_only() {
    let Some(stage) = stage() else { return };
    let before = stage.service();
    let anna = stage.subscribe(&stage.owner(ANNA, 0), SCOPE_OWN);
    let everyone = stage.subscribe(&stage.owner(0, 0), SCOPE_ALL);
    assert_eq!(stage.raise_as(ANNA, 3).result, 2, "offered to both");
    assert_eq!(stage.raise_as(BERT, 5).result, 1);
    assert_eq!(stage.raise_as(0, 7).result, 1);
    assert_eq!(stage.count(&anna).offered, 3);
    assert_eq!(stage.count(&everyone).offered, 15);
    drop(everyone);
    stage.raise_as(BERT, 2);
    stage.raise_as(ANNA, 1);
    assert_eq!(stage.count(&anna).delivered, 4);
    let after = stage.service();
    assert_service_identity(&before, &after);
    let nobody = DropReason::NoSubscriber;
    assert_eq!(after.dropped(nobody) - before.dropped(nobody), 2);
}

#[test]
fn event_for_a_process_goes_to_that_process_and_user() {
    let Some(stage) = stage() else { return };
    let anna = stage.subscribe(&stage.owner(ANNA, 0), SCOPE_OWN);
    let bert = stage.subscribe(&stage.owner(BERT, 0), SCOPE_OWN);
    let target = i32::try_from(std::process::id()).expect("a process id");
    let to = |target| Measure {
        target,
        ..Measure::new(2)
    };
    stage.raise_this_as(ANNA, &to(target));
    stage.raise_this_as(ANNA, &to(1));
    assert_eq!(
        stage.count(&anna).offered,
        2,
        "not what is for another process"
    );
    assert_eq!(stage.count(&bert).offered, 0, "not what is another user's");
}

#[test]
fn audience_takes_256_subscriptions_and_no_more() {
    let Some(stage) = stage() else { return };
    let (anna, bert) = (stage.owner(ANNA, 0), stage.owner(BERT, 0));
    // Both have this process as receiver, so they share that audience.
    let first = stage.subscribe(&bert, SCOPE_OWN);
    let mut all: Vec<_> = (1..AUDIENCE_MAX)
        .map(|_| stage.subscribe(&anna, SCOPE_OWN))
        .collect();
    assert!(matches!(
        stage.try_subscribe(&anna, SCOPE_OWN),
        Err(Error::LimitReached {
            limit: AUDIENCE_MAX,
            ..
        })
    ));
    let offered = i64::try_from(all.len()).expect("few");
    // So many handlers do not fit into one go; the rest follows.
    assert_eq!(stage.raise_as(ANNA, 1).result, offered);
    for subscription in &all {
        stage.wait_for(subscription, 1);
    }
    drop(first);
    all.push(stage.subscribe(&anna, SCOPE_OWN));
    // A full audience takes nobody else's place.
    let others: Vec<_> = (0..SUBSCRIBERS_MAX)
        .map(|_| stage.subscribe(&stage.owner(0, 0), SCOPE_ALL))
        .collect();
    assert_eq!(stage.raise_as(BERT, 1).result, 64);
    all.truncate(SUBSCRIBERS_MAX + 1);
    assert_eq!(stage.raise_as(ANNA, 1).result, 64 + 65);
    drop((all, others));
    assert_eq!(stage.raise_as(ANNA, 1).result, -i64::from(libc::ENOENT));
}

#[test]
fn many_audiences_come_and_go_without_a_trace() {
    let Some(stage) = stage() else { return };
    for round in 0..3 {
        let all: Vec<_> = (0..500)
            .map(|uid| stage.try_subscribe(&stage.owner(ANNA + uid % 250, 0), SCOPE_OWN))
            .collect();
        let there = all.iter().filter(|one| one.is_ok()).count();
        assert_eq!(there, AUDIENCE_MAX, "they share a receiver; round {round}");
        assert_eq!(stage.raise_as(ANNA + 3, 1).result, 2);
    }
    assert_eq!(stage.raise_as(ANNA, 1).result, -i64::from(libc::ENOENT));
}

#[test]
fn wake_one_takes_turns_over_list_and_audience() {
    let Some(stage) = stage() else { return };
    let all: Vec<_> = (0..2)
        .map(|_| stage.subscribe(&stage.owner(0, 0), SCOPE_ALL))
        .chain((0..70).map(|_| stage.subscribe(&stage.owner(ANNA, 0), SCOPE_OWN)))
        .collect();
    let one = Measure {
        target: TARGET_WAKE_ONE,
        ..Measure::new(72 * 3)
    };
    assert_eq!(stage.raise_this_as(ANNA, &one).result, 1);
    for subscription in &all {
        assert_eq!(stage.count(subscription).delivered, 3, "each in turn");
    }
}

#[test]
fn event_that_the_queue_drops_is_counted_for_its_audience() {
    measured(Duration::from_millis(50), || {
        let Some(stage) = stage() else { return };
        let before = stage.service();
        let anna = stage.subscribe(&stage.owner(ANNA, 0), SCOPE_OWN);
        let bert = stage.subscribe(&stage.owner(BERT, 0), SCOPE_OWN);
        let held = Measure {
            target: TARGET_ALL,
            release_ns: 300_000_000,
            ..Measure::new(3000)
        };
        stage.raise_this_as(ANNA, &held);
        assert_eq!(stage.count(&bert).offered, 0);
        let dropped = stage.count(&anna).dropped(DropReason::QueueFull);
        assert!(dropped >= 3000 - 2 * 1023, "{dropped}");
        stage.wait_for(&anna, 3000);
        let after = stage.service();
        assert_service_identity(&before, &after);
        let full = DropReason::QueueFull;
        assert_eq!(after.dropped(full) - before.dropped(full), dropped);
    });
}
