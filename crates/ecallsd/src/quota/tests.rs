//! Limits at n-1, n and n+1; shares; and what always holds, whatever is charged and given back.

use proptest::prelude::*;

use super::*;
use crate::config::{Bytes, Count};

const ALL: [Resource; 6] = RESOURCES;

fn one(resource: Resource, amount: u64) -> Amounts {
    Amounts::NONE.and(resource, amount)
}

/// Limits that are never what is in the way.
fn generous() -> Limits {
    Limits {
        connections: Count(1024),
        channels: Count(1024),
        subscriptions: Count(4096),
        services: Count(56),
        bytes: Bytes(1 << 40),
        descriptors: Count(65536),
        ..Limits::default()
    }
}

#[test]
fn a_limit_is_reached_at_n_and_not_before() {
    let ledger = Ledger::new(&Machine::default());
    let limits = Limits::default();
    let most = Amounts::of_limits(&limits);
    for resource in ALL {
        let n = most.of(resource);
        let below = ledger.charge(1, &limits, one(resource, n - 1)).unwrap();
        let last = ledger.charge(1, &limits, one(resource, 1)).unwrap();
        let refusal = ledger.charge(1, &limits, one(resource, 1)).unwrap_err();
        assert_eq!(
            (refusal.resource, refusal.limit, refusal.shared),
            (Some(resource), n, false)
        );
        drop(last);
        assert_eq!(ledger.held(1).of(resource), n - 1);
        let _again = ledger.charge(1, &limits, one(resource, 1)).unwrap();
        drop(below);
    }
    assert!(ledger.users().is_empty());
}

#[test]
fn all_or_nothing_is_charged() {
    let ledger = Ledger::new(&Machine::default());
    let limits = Limits::default();
    let too_much = one(Resource::Channels, 1).and(Resource::Bytes, limits.bytes.0 + 1);
    assert!(ledger.charge(1, &limits, too_much).is_err());
    assert!(ledger.held(1).is_none() && ledger.users().is_empty());
}

#[test]
fn what_is_split_off_is_given_back_by_itself() {
    let ledger = Ledger::new(&Machine::default());
    let amounts = one(Resource::Channels, 1).and(Resource::Bytes, 4096);
    let mut charge = ledger.charge(5, &Limits::default(), amounts).unwrap();
    let retired = charge.split(Resource::Bytes);
    drop(charge);
    assert_eq!(ledger.held(5), one(Resource::Bytes, 4096));
    drop(retired);
    assert!(ledger.users().is_empty());
}

#[test]
fn greedy_users_leave_something_for_each_newcomer() {
    let ledger = Ledger::new(&Machine::default());
    let limits = generous();
    let mut charges = Vec::new();
    for uid in 1..USERS as u32 {
        while let Ok(charge) = ledger.charge(uid, &limits, one(Resource::Subscriptions, 1)) {
            charges.push(charge);
        }
    }
    let part = own_part(4096);
    assert_eq!(part, 8);
    let newcomer = ledger.charge(60000, &limits, one(Resource::Subscriptions, part));
    assert!(newcomer.is_ok());
    assert!(ledger.total().of(Resource::Subscriptions) <= 4096);
}

#[test]
fn a_single_user_gets_half_of_the_common_part_and_the_next_one_less() {
    let ledger = Ledger::new(&Machine::default());
    let limits = generous();
    let part = own_part(4096);
    let common = 4096 - part * USERS as u64;
    let take_all = |uid| {
        let mut charges = Vec::new();
        while let Ok(charge) = ledger.charge(uid, &limits, one(Resource::Subscriptions, 1)) {
            charges.push(charge);
        }
        charges
    };
    let first = take_all(1);
    assert_eq!(first.len() as u64, part + common / 2);
    let second = take_all(2);
    assert_eq!(second.len() as u64, part + common.div_ceil(2) / 3);
    drop(first);
    assert!(take_all(3).len() > second.len());
}

#[test]
fn more_users_than_the_core_has_rows_for_are_refused_by_name() {
    let ledger = Ledger::new(&Machine::default());
    let limits = Limits::default();
    let one = one(Resource::Connections, 1);
    let charges: Vec<_> = (1..=USERS as u32)
        .map(|uid| ledger.charge(uid, &limits, one).unwrap())
        .collect();
    let refusal = ledger.charge(9999, &limits, one).unwrap_err();
    assert_eq!(refusal.to_string(), "users at the same time (at most 255)");
    assert!(ledger.charge(1, &limits, one).is_ok());
    assert!(
        ledger.charge(0, &limits, one).is_ok(),
        "root has a row of its own"
    );
    drop(charges);
    assert!(ledger.charge(9999, &limits, one).is_ok());
}

#[test]
fn root_has_no_limit_but_cannot_take_the_users_parts() {
    let ledger = Ledger::new(&Machine::default());
    let limits = Limits::default();
    let part = own_part(1024);
    let common = 1024 - part * USERS as u64;
    let _root = ledger
        .charge(0, &limits, one(Resource::Channels, common))
        .unwrap();
    assert!(
        ledger
            .charge(0, &limits, one(Resource::Channels, 1))
            .is_err()
    );
    // Root's part is taken: a user finds its own, and no more.
    let more = ledger.charge(7, &limits, one(Resource::Channels, part + 1));
    assert!(more.is_err());
    let own = ledger.charge(7, &limits, one(Resource::Channels, part));
    assert!(own.is_ok());
}

#[test]
fn smaller_totals_take_nothing_away_and_grant_nothing_new() {
    let ledger = Ledger::new(&Machine::default());
    let limits = Limits::default();
    let held = ledger
        .charge(1, &limits, one(Resource::Channels, 60))
        .unwrap();
    let machine = Machine {
        channels: Count(8),
        ..Machine::default()
    };
    ledger.set_machine(&machine);
    assert_eq!(ledger.held(1).of(Resource::Channels), 60);
    assert!(
        ledger
            .charge(1, &limits, one(Resource::Channels, 1))
            .is_err()
    );
    assert!(
        ledger
            .charge(2, &limits, one(Resource::Channels, 1))
            .is_err()
    );
    drop(held);
    assert!(
        ledger
            .charge(2, &limits, one(Resource::Channels, 4))
            .is_ok()
    );
}

#[derive(Clone, Debug)]
enum Step {
    Charge(u32, usize, u64),
    Release(usize),
    Retire(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u32, 0..ALL.len(), prop_oneof![1..4u64, 1..500u64])
            .prop_map(|(uid, resource, amount)| Step::Charge(uid, resource, amount)),
        2 => (0..64usize).prop_map(Step::Release),
        1 => (0..64usize, 0..ALL.len()).prop_map(|(at, resource)| Step::Retire(at, resource)),
    ]
}

proptest! {
    /// Against a model that only adds up: the sums agree, no total is exceeded, and whoever has
    /// less than its part of something gets one more.
    #[test]
    fn the_books_always_add_up(steps in proptest::collection::vec(step(), 1..300)) {
        let machine = Machine {
            connections: Count(600),
            channels: Count(1020),
            bytes: Bytes(2000),
            ..Machine::default()
        };
        let ledger = Ledger::new(&machine);
        let totals = Amounts::of_machine(&machine);
        let limits = generous();
        let mut charges: Vec<Charge> = Vec::new();
        for step in steps {
            match step {
                Step::Charge(uid, resource, amount) => {
                    let amounts = one(ALL[resource], amount);
                    charges.extend(ledger.charge(uid, &limits, amounts));
                }
                Step::Release(at) if at < charges.len() => drop(charges.swap_remove(at)),
                Step::Retire(at, resource) if at < charges.len() => {
                    let part = charges[at].split(ALL[resource]);
                    charges.push(part);
                }
                Step::Release(_) | Step::Retire(..) => {}
            }
            for resource in ALL {
                let sum: u64 = charges.iter().map(|one| one.amounts().of(resource)).sum();
                prop_assert_eq!(ledger.total().of(resource), sum);
                prop_assert!(sum <= totals.of(resource));
                for uid in 1..6 {
                    let mine = charges.iter().filter(|charge| charge.uid() == uid);
                    let mine: u64 = mine.map(|charge| charge.amounts().of(resource)).sum();
                    prop_assert_eq!(ledger.held(uid).of(resource), mine);
                    let least = own_part(totals.of(resource));
                    if mine < least {
                        prop_assert!(ledger.charge(uid, &limits, one(resource, 1)).is_ok());
                    }
                }
            }
        }
        drop(charges);
        prop_assert!(ledger.users().is_empty());
    }
}
