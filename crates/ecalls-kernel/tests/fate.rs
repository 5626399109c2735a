//! What became of each event that was not delivered can be read by its id and by its user, newest
//! first; a delivered one leaves no note. Needs root.

#![allow(unsafe_code, reason = "the harness' threads of other users")]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use ecalls_abi::channel::DropReason;
use ecalls_abi::fate::{
    FATE_DROPPED, FATE_FILTERED, FATE_LATE, FATES, STAGE_CHAIN, STAGE_OFFER, STAGE_QUEUE,
};
use ecalls_abi::handler::HANDLER_COUNT;
use ecalls_abi::message::{FateView, QUOTA_UP};
use ecalls_abi::subscription::{Action, SCOPE_ALL};
use ecalls_kernel::measure::{Measure, RAISE_QUEUED};
use ecalls_kernel::subscription::HostedSubscription;
use ecalls_kernel::user::Limits;
use harness::{Stage, handler, request, stage};
use limit::calm::measured;

/// A user of its own for each test, so that others' notes are not in the way.
const USER: u32 = 61_100;
const ROW: u32 = 201;

fn subscribe(stage: &Stage, actions: Vec<Action>) -> HostedSubscription {
    let owner = stage.owner(0, 0);
    HostedSubscription::install(Arc::clone(&stage.core), &owner, &request(actions)).expect("one")
}

/// The one note of that user's events, found by its user and again by its id.
fn only_fate(stage: &Stage, uid: u32) -> FateView {
    let fates = stage.core.fates_of(uid, usize::MAX).expect("the table");
    assert_eq!(fates.len(), 1, "{fates:?}");
    let by_id = stage
        .core
        .fates(fates[0].event, usize::MAX)
        .expect("the table");
    assert_eq!(by_id, fates);
    assert_eq!(ecalls_abi::text::read(&fates[0].name), "core");
    assert!(fates[0].raise_ns <= fates[0].when_ns);
    fates[0]
}

#[test]
fn late_event_is_noted_where_it_was_offered() {
    let Some(stage) = stage() else { return };
    let subscription = stage.subscribe(&stage.owner(0, 0), SCOPE_ALL);
    let late = Measure {
        deadline_ns: 1,
        flags: RAISE_QUEUED,
        ..Measure::new(1)
    };
    stage.raise_this_as(USER, &late);
    assert_eq!(stage.count(&subscription).late, 1);
    let fate = only_fate(&stage, USER);
    assert_eq!((fate.what, fate.stage), (FATE_LATE, STAGE_OFFER));
    assert_eq!(fate.subscription, subscription.id().raw());
    assert!(fate.when_ns > fate.deadline_ns && fate.deadline_ns != 0);
}

#[test]
fn chain_that_ends_is_noted_with_its_action() {
    let Some(stage) = stage() else { return };
    let mut ends = handler(HANDLER_COUNT);
    ends.argument[0] = 1;
    let filtered = subscribe(&stage, vec![handler(HANDLER_COUNT), ends]);
    stage.raise_as(USER + 1, 1);
    let fate = only_fate(&stage, USER + 1);
    assert_eq!(
        (fate.what, fate.stage),
        (FATE_FILTERED, STAGE_CHAIN | 1 << 8)
    );
    drop(filtered);
    let missing = subscribe(&stage, vec![handler(60)]);
    stage.raise_as(USER + 2, 1);
    let fate = only_fate(&stage, USER + 2);
    assert_eq!((fate.what, fate.stage), (FATE_DROPPED, STAGE_CHAIN));
    assert_eq!(fate.reason as usize, DropReason::NoHandler.index());
    assert_eq!(fate.subscription, missing.id().raw());
}

#[test]
fn delivered_event_leaves_no_note() {
    let Some(stage) = stage() else { return };
    let subscription = stage.subscribe(&stage.owner(0, 0), SCOPE_ALL);
    stage.raise_as(USER + 3, 10);
    assert_eq!(stage.count(&subscription).delivered, 10);
    assert_eq!(stage.core.fates_of(USER + 3, usize::MAX).expect("it"), []);
}

#[test]
fn refused_offer_says_which_limit_and_floods_nobody() {
    let Some(stage) = stage() else { return };
    let limits = Limits {
        up_per_s: 1,
        up_burst: 1,
        ..Limits::default()
    };
    stage.core.set_user(ROW, USER, &limits).expect("a row");
    let subscription = stage.subscribe(&stage.owner(USER, ROW), SCOPE_ALL);
    stage.raise_as(USER + 4, 100);
    assert_eq!(stage.count(&subscription).dropped(DropReason::Quota), 99);
    let fates = stage.core.fates_of(USER + 4, usize::MAX).expect("it");
    assert!(
        (1..20).contains(&fates.len()),
        "one in a millisecond: {}",
        fates.len()
    );
    let quota = (fates[0].reason as usize, fates[0].stage, fates[0].quota);
    assert_eq!(
        quota,
        (DropReason::Quota.index(), STAGE_OFFER, QUOTA_UP as u64)
    );
}

#[test]
fn newest_notes_are_kept_and_come_first() {
    measured(Duration::from_millis(4), || {
        let Some(stage) = stage() else { return };
        let subscription = stage.subscribe(&stage.owner(0, 0), SCOPE_ALL);
        let held = Measure {
            release_ns: 100_000_000,
            ..Measure::new(6000)
        };
        stage.raise_this_as(USER + 5, &held);
        stage.wait_for(&subscription, 6000);
        let all = FATES * stage.core.cpus() as usize;
        let fates = stage.core.fates_of(USER + 5, usize::MAX).expect("it");
        assert!((FATES..=all).contains(&fates.len()), "{}", fates.len());
        assert!(fates.is_sorted_by_key(|fate| std::cmp::Reverse(fate.when_ns)));
        for fate in &fates {
            assert_eq!((fate.what, fate.stage), (FATE_DROPPED, STAGE_QUEUE));
            assert_eq!(fate.reason as usize, DropReason::QueueFull.index());
            assert_eq!(fate.subscription, 0, "all who would have got it");
            assert!((90_000_000..=100_000_000).contains(&(fate.release_ns - fate.raise_ns)));
        }
        let newest = stage.core.fates_of(USER + 5, 3).expect("it");
        assert_eq!(newest, fates[..3]);
    });
}
