//! Asking hosts and managers together, over a network that delays, loses and repeats messages, with
//! managers and asking hosts that are killed.

mod world;

use ecalls_cluster::ask::{Ask, Outcome};
use ecalls_cluster::lease::{Counts, Leases};
use ecalls_cluster::message::{Answer, Body, Verdict, Want};
use ecalls_cluster::resource::Resource;
use proptest::prelude::*;
use world::{MS, Network, SECOND, World};

const HOSTS: u64 = 5;
const ASKS: u64 = 40;

fn want(waits: bool) -> Want {
    Want {
        resource: Resource::Job,
        amount: 1,
        left_ns: SECOND,
        hold_ns: 20 * SECOND,
        waits,
    }
}

/// Some ask now and then, use what they get for a while and release it; `lost` and `repeated` of a
/// thousand messages.
fn play(seed: u64, lost: u64, repeated: u64, kills: bool) -> World {
    let network = Network {
        delay_ns: MS,
        jitter_ns: 2 * MS,
        lost,
        repeated,
    };
    let mut world = World::new(seed, HOSTS as usize, 2, network);
    for number in 0..ASKS {
        let at_ns = world.random.below(2 * SECOND);
        world.at(at_ns, world::Event::Own(number));
    }
    let mut released = Vec::new();
    for turn in 0..400u64 {
        while world.step_until(turn * 10 * MS).is_some() {
            let mut hosts: Vec<u64> = (1..=HOSTS).collect();
            hosts.sort_by_key(|_| world.random.next());
            let count = 1 + world.random.below(3) as usize;
            let (home, waits) = (1 + world.random.below(HOSTS), world.random.below(2) == 1);
            world.ask(home, want(waits), &hosts[..count]);
        }
        let asks = 0..world.asks.len();
        for number in asks {
            let running = &world.asks[number];
            let Some((ended_ns, Outcome::Granted { host, .. })) = running.ended else {
                continue;
            };
            let (key, is_alive) = (running.key, running.is_alive);
            if is_alive && ended_ns + 100 * MS < world.now_ns && !released.contains(&number) {
                world.tell_manager(host, key, Body::Release);
                released.push(number);
            }
        }
        if kills && turn == 60 {
            world.managers[0] = None;
            let number = world.asks.len() / 2;
            world.asks[number].is_alive = false;
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_allocation_ends_by_its_deadline_and_every_lease_ends(
        seed in any::<u64>(),
        lost in 0u64..300,
        repeated in 0u64..200,
        kills in any::<bool>(),
    ) {
        let mut world = play(seed, lost, repeated, kills);
        prop_assert_eq!(world.asks.len() as u64, ASKS);
        for running in world.asks.iter().filter(|running| running.is_alive) {
            let (ended_ns, outcome) = running.ended.expect("it has ended");
            prop_assert!(ended_ns <= running.begun_ns + SECOND);
            if let Outcome::Granted { host, .. } = outcome {
                let hosts = world.confirmed.get(&running.key.id);
                prop_assert!(hosts.is_some_and(|hosts| hosts.contains(&host)));
            }
            prop_assert_eq!(running.ask.strays(), 0);
        }
        world.step_until(100 * SECOND);
        for leases in world.managers.iter().flatten() {
            let counts = leases.counts();
            prop_assert_eq!((counts.waiting, counts.reserved, counts.confirmed), (0, 0, 0));
            prop_assert!(counts.are_whole());
            prop_assert_eq!(leases.free(Resource::Job), 2);
        }
    }

    #[test]
    fn without_losses_one_host_confirms_and_no_lease_is_left_to_expire(
        seed in any::<u64>(),
        repeated in 0u64..200,
    ) {
        let world = play(seed, 0, repeated, false);
        let mut granted = 0;
        for running in &world.asks {
            let hosts = world.confirmed.get(&running.key.id).map_or(0, Vec::len);
            let is_granted = matches!(running.ended, Some((_, Outcome::Granted { .. })));
            prop_assert!(hosts <= 1);
            prop_assert!(!is_granted || hosts == 1);
            granted += u64::from(is_granted);
        }
        let counts: Vec<_> = world.managers.iter().flatten().map(Leases::counts).collect();
        let sum = |of: fn(&Counts) -> u64| -> u64 {
            counts.iter().map(of).sum()
        };
        prop_assert_eq!(sum(|one| one.expired) + sum(|one| one.lapsed), 0);
        prop_assert_eq!(sum(|one| one.released), granted);
        prop_assert!(granted > 0);
    }
}

fn answer(verdict: Verdict, waited_ns: u64) -> Answer {
    Answer {
        verdict,
        left_ns: SECOND,
        waited_ns,
    }
}

#[test]
fn ties_go_to_the_lower_time_stamp_then_to_the_lower_host() {
    for (stamps, winner) in [([5, 3, 4], 2), ([3, 3, 4], 1), ([9, 3, 3], 2)] {
        let (mut ask, _) = Ask::new(0, want(true), &[1, 2, 3]);
        for (host, stamp) in (1..).zip(stamps) {
            assert_eq!(ask.answer(host, &answer(Verdict::Granted, stamp)), []);
        }
        assert_eq!(ask.decide(1), [(winner, Body::Confirm)]);
        let mut sends = ask.answer(winner, &answer(Verdict::Confirmed, 0));
        sends.sort_by_key(|(host, _)| *host);
        let others = (1..=3).filter(|host| *host != winner);
        assert_eq!(
            sends,
            others.map(|host| (host, Body::Cancel)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_winner_that_is_silent_is_replaced_by_the_next_positive_answer() {
    let (mut ask, _) = Ask::new(0, want(true), &[1, 2]);
    ask.answer(1, &answer(Verdict::Granted, 0));
    assert_eq!(ask.decide(0), [(1, Body::Confirm)]);
    ask.answer(2, &answer(Verdict::Granted, 7));
    let mut sends = Vec::new();
    while sends.last() != Some(&(2, Body::Confirm)) {
        let next_ns = ask.next_ns().expect("it goes on");
        assert!(next_ns < SECOND, "{sends:?}");
        sends.extend(ask.pass(next_ns));
    }
    assert_eq!(sends[..3], [(1, Body::Confirm); 3]);
    assert_eq!(sends[3..], [(1, Body::Cancel), (2, Body::Confirm)]);
    // It was slow: what it has is given back.
    assert_eq!(
        ask.answer(1, &answer(Verdict::Confirmed, 0)),
        [(1, Body::Cancel)]
    );
    assert_eq!(ask.answer(2, &answer(Verdict::Confirmed, 0)), []);
    assert!(matches!(
        ask.outcome(),
        Some(Outcome::Granted { host: 2, .. })
    ));
    assert_eq!(ask.answer(2, &answer(Verdict::Confirmed, 0)), [], "a copy");
}

#[test]
fn answers_that_nobody_could_give_change_nothing_and_are_counted() {
    let (mut ask, _) = Ask::new(0, want(true), &[1, 2]);
    for verdict in [Verdict::Granted, Verdict::Confirmed, Verdict::Never] {
        assert_eq!(ask.answer(9, &answer(verdict, 0)), [], "it was not asked");
    }
    assert_eq!(
        ask.answer(1, &answer(Verdict::Confirmed, 0)),
        [],
        "nothing was confirmed"
    );
    assert_eq!(ask.decide(0), []);
    assert_eq!((ask.strays(), ask.outcome()), (4, None));
    ask.answer(1, &answer(Verdict::Granted, 0));
    assert_eq!(ask.decide(0), [(1, Body::Confirm)]);
    ask.answer(2, &answer(Verdict::Granted, 0));
    assert_eq!(
        ask.answer(2, &answer(Verdict::Confirmed, 0)),
        [],
        "another one was confirmed"
    );
    assert_eq!((ask.strays(), ask.outcome()), (5, None));
}

#[test]
fn when_all_refuse_it_ends_at_once_and_when_nobody_answers_at_the_deadline() {
    let (mut ask, _) = Ask::new(0, want(false), &[1, 2]);
    ask.answer(1, &answer(Verdict::Busy, 0));
    assert_eq!(ask.decide(1), []);
    ask.answer(2, &answer(Verdict::Never, 0));
    assert_eq!(ask.decide(1), []);
    assert_eq!(ask.outcome(), Some(Outcome::Refused));
    let (mut ask, _) = Ask::new(0, want(false), &[1]);
    let mut now_ns = 0;
    let mut requests = 1;
    while let Some(next_ns) = ask.next_ns() {
        assert!(next_ns > now_ns);
        now_ns = next_ns;
        let again = |(_, body): &(u64, Body)| matches!(body, Body::Request(_));
        requests += ask.pass(now_ns).iter().filter(|one| again(one)).count();
    }
    assert_eq!((now_ns, requests), (SECOND, 20));
    assert_eq!(ask.outcome(), Some(Outcome::Late));
    assert_eq!(
        ask.answer(1, &answer(Verdict::Granted, 0)),
        [(1, Body::Cancel)],
        "too late"
    );
    assert_eq!(
        Ask::new(0, want(false), &[]).0.outcome(),
        Some(Outcome::Refused)
    );
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let counts = |seed| {
        let world = play(seed, 100, 100, true);
        let managers = world.managers.iter().flatten();
        managers.map(Leases::counts).collect::<Vec<_>>()
    };
    assert_eq!(counts(5), counts(5));
    assert_ne!(counts(5), counts(6));
}
