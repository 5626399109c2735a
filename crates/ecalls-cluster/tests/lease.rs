//! The leases of a manager, whatever it is sent and whenever: never more is given than there is,
//! every lease ends in one of the ways, and the counts are equations.

use std::collections::BTreeMap;

use ecalls_cluster::lease::{Counts, Key, Leases, Limits};
use ecalls_cluster::message::{Answer, Verdict, Want};
use ecalls_cluster::resource::{Amounts, Resource};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const CAPACITY: u64 = 5;

fn leases() -> Leases {
    let mut capacity = Amounts::default();
    *capacity.of_mut(Resource::Job) = CAPACITY;
    Leases::new(capacity, Limits::default())
}

fn want(amount: u64, left_ns: u64, waits: bool) -> Want {
    Want {
        resource: Resource::Job,
        amount,
        left_ns,
        hold_ns: 3 * SECOND,
        waits,
    }
}

fn key(id: u64) -> Key {
    Key { host: 7, id }
}

/// What was said to this request since the last time.
fn said(leases: &mut Leases, id: u64) -> Vec<Verdict> {
    let answers = leases.take_answers().into_iter();
    let answers = answers.filter(|(to, _)| *to == key(id));
    answers.map(|(_, answer)| answer.verdict).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Request(u64, u64, u64, bool),
    Confirm(u64),
    Cancel(u64),
    Release(u64),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let id = 1u64..12;
    prop_oneof![
        4 => (id.clone(), 1..=CAPACITY + 1, 0..4 * SECOND, any::<bool>())
            .prop_map(|(id, amount, left, waits)| Act::Request(id, amount, left, waits)),
        3 => id.clone().prop_map(Act::Confirm),
        2 => id.clone().prop_map(Act::Cancel),
        2 => id.prop_map(Act::Release),
        3 => (0..2 * SECOND).prop_map(Act::Pass),
    ]
}

/// What the asking hosts know by the answers alone: who has how much, until when, and whether it is
/// confirmed.
type Held = BTreeMap<u64, (u64, u64, bool)>;

fn hear(held: &mut Held, amounts: &BTreeMap<u64, u64>, now_ns: u64, answers: &[(Key, Answer)]) {
    for (key, answer) in answers {
        let until_ns = now_ns + answer.left_ns;
        match answer.verdict {
            Verdict::Granted => held.insert(key.id, (amounts[&key.id], until_ns, false)),
            Verdict::Confirmed => held.insert(key.id, (amounts[&key.id], until_ns, true)),
            Verdict::Ended => held.remove(&key.id),
            Verdict::Waits | Verdict::Busy | Verdict::Never => None,
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn never_is_more_given_than_there_is_and_everything_ends(
        acts in proptest::collection::vec(act(), 1..80),
    ) {
        let mut leases = leases();
        let (mut held, mut amounts) = (Held::new(), BTreeMap::new());
        let mut now_ns = SECOND;
        let mut arrived = 0;
        for act in acts {
            match act {
                Act::Request(id, amount, left_ns, waits) => {
                    arrived += 1;
                    amounts.entry(id).or_insert(amount);
                    leases.request(now_ns, key(id), &want(amounts[&id], left_ns, waits));
                }
                Act::Confirm(id) => leases.confirm(now_ns, key(id)),
                Act::Cancel(id) => {
                    leases.cancel(now_ns, key(id));
                    held.remove(&id);
                }
                Act::Release(id) => leases.release(now_ns, key(id)),
                Act::Pass(ns) => {
                    now_ns += ns;
                    leases.pass(now_ns);
                }
            }
            held.retain(|_, (_, until_ns, _)| *until_ns > now_ns);
            hear(&mut held, &amounts, now_ns, &leases.take_answers());
            let given: u64 = held.values().map(|(amount, ..)| amount).sum();
            prop_assert!(given <= CAPACITY);
            prop_assert_eq!(CAPACITY - leases.free(Resource::Job), given);
            let counts = leases.counts();
            let confirmed = held.values().filter(|(.., is_confirmed)| *is_confirmed).count();
            prop_assert_eq!(counts.confirmed, confirmed as u64);
            prop_assert_eq!(counts.reserved, (held.len() - confirmed) as u64);
            prop_assert!(counts.are_whole(), "{:?}", counts);
            prop_assert!(counts.requests() <= arrived);
            prop_assert!(counts.requests() + counts.duplicate + counts.stray >= arrived);
        }
        leases.pass(now_ns + 1000 * SECOND);
        let counts = leases.counts();
        prop_assert_eq!((counts.waiting, counts.reserved, counts.confirmed), (0, 0, 0));
        prop_assert!(counts.are_whole(), "{:?}", counts);
        prop_assert_eq!(leases.free(Resource::Job), CAPACITY);
        prop_assert_eq!(leases.next_ns(), None);
    }
}

#[test]
fn a_copy_of_a_request_reserves_nothing_more_and_gets_the_same_answer() {
    let mut leases = leases();
    for _ in 0..3 {
        leases.request(0, key(1), &want(2, SECOND, false));
        assert_eq!(said(&mut leases, 1), [Verdict::Granted]);
    }
    assert_eq!(leases.free(Resource::Job), CAPACITY - 2);
    assert_eq!((leases.counts().granted, leases.counts().duplicate), (1, 2));
    leases.confirm(1, key(1));
    leases.confirm(2, key(1));
    assert_eq!(said(&mut leases, 1), [Verdict::Confirmed; 2]);
    leases.release(3, key(1));
    leases.release(4, key(1));
    leases.request(5, key(1), &want(2, SECOND, false));
    assert_eq!(said(&mut leases, 1), [Verdict::Ended; 3]);
    assert_eq!(leases.free(Resource::Job), CAPACITY);
}

#[test]
fn what_is_not_confirmed_expires_and_what_is_held_for_too_long_lapses() {
    let mut leases = leases();
    leases.request(0, key(1), &want(5, SECOND, false));
    leases.pass(SECOND - 1);
    assert_eq!(leases.free(Resource::Job), 0);
    leases.pass(SECOND);
    assert_eq!(leases.free(Resource::Job), CAPACITY);
    leases.confirm(SECOND, key(1));
    assert_eq!(said(&mut leases, 1), [Verdict::Granted, Verdict::Ended]);
    leases.request(SECOND, key(2), &want(1, SECOND, false));
    leases.confirm(SECOND, key(2));
    leases.pass(4 * SECOND);
    let counts = leases.counts();
    assert_eq!((counts.expired, counts.lapsed, counts.granted), (1, 1, 2));
}

#[test]
fn those_who_wait_are_served_by_the_end_of_their_patience_and_nobody_passes_by() {
    let mut leases = leases();
    leases.request(0, key(1), &want(4, SECOND, true));
    leases.confirm(0, key(1));
    leases.request(1, key(2), &want(3, 9 * SECOND, true));
    leases.request(2, key(3), &want(2, 5 * SECOND, true));
    assert_eq!(said(&mut leases, 3), [Verdict::Waits]);
    // One unit is free, but two wait for more.
    leases.request(3, key(4), &want(1, SECOND, false));
    assert_eq!(said(&mut leases, 4), [Verdict::Busy]);
    leases.release(4, key(1));
    let answers = leases.take_answers();
    let granted = answers
        .iter()
        .filter(|(_, one)| one.verdict == Verdict::Granted);
    let granted: Vec<u64> = granted.map(|(key, _)| key.id).collect();
    assert_eq!(granted, [3, 2]);
    assert!(
        answers
            .iter()
            .any(|(key, one)| key.id == 3 && one.waited_ns == 2)
    );
}

#[test]
fn a_cancellation_that_overtakes_its_request_is_remembered() {
    let mut leases = leases();
    leases.cancel(0, key(1));
    leases.request(1, key(1), &want(1, SECOND, true));
    leases.request(2, key(1), &want(1, SECOND, true));
    assert_eq!(said(&mut leases, 1), [Verdict::Ended; 2]);
    let expected = Counts {
        withdrawn: 1,
        duplicate: 1,
        stray: 1,
        ..Counts::default()
    };
    assert_eq!(leases.counts(), expected);
}

#[test]
fn a_host_that_asks_without_end_is_refused_and_takes_no_memory() {
    let mut capacity = Amounts::default();
    *capacity.of_mut(Resource::Job) = 1;
    let limits = Limits {
        open: 8,
        open_of_host: 4,
        remembered: 16,
        ..Limits::default()
    };
    let mut leases = Leases::new(capacity, limits);
    for id in 1..=1000 {
        leases.request(0, key(id), &want(1, SECOND, true));
    }
    let counts = leases.counts();
    assert_eq!(
        (counts.granted, counts.waiting, counts.refused),
        (1, 3, 996)
    );
    leases.request(0, Key { host: 8, id: 1 }, &want(1, SECOND, true));
    assert_eq!(leases.counts().waiting, 4, "others are served");
    for id in 2000..3000 {
        leases.cancel(1, key(id));
    }
    assert_eq!(leases.counts().stray, 1000);
}
