//! Many ordinary users at once: a hundred clients of as many users, ten subscriptions each, and
//! 100,000 deliveries a second in total. Nothing is lost that is not counted; how long an event
//! takes is told beside what it takes with one client, in the same run.

use std::time::{Duration, Instant};

use ecalls::timer::Timer;
use ecalls::{Ecalls, now_ns};
use hdrhistogram::Histogram;

use crate::actor::{Actor, Roles, Stage, start};
use crate::scene::{Scene, is_emulated, new_user};
use crate::tests;

tests! {
    hundred_clients_with_ten_subscriptions_lose_nothing_uncounted
}

pub(crate) const ROLES: Roles = &[("loaded", receive)];

const CLIENTS: usize = 100;
const SUBSCRIPTIONS: u64 = 10;

/// Between two events of a client; each is delivered to all of its subscriptions.
const PERIOD: Duration = Duration::from_millis(10);

/// How long it goes on.
const TIME: Duration = Duration::from_secs(1);

/// The sum of the clients' reports.
#[derive(Debug, Default)]
struct Sum {
    offered: u64,
    delivered: u64,
    dropped: u64,
    received: u64,
    /// us, of the worst client.
    p99: u64,
    /// us, of the client in the middle.
    p99_median: u64,
}

fn hundred_clients_with_ten_subscriptions_lose_nothing_uncounted() {
    let scene = Scene::begin();
    let clients = if is_emulated() { 8 } else { CLIENTS };
    let alone = run(1);
    let together = run(clients);
    eprintln!("  one client: {alone:?}\n  {clients} clients: {together:?}");
    for sum in [&alone, &together] {
        assert_eq!(sum.offered, sum.delivered + sum.dropped, "{sum:?}");
        assert_eq!(sum.received, sum.delivered, "{sum:?}");
    }
    let per_second = together.offered / TIME.as_secs();
    let wanted = clients as u64 * SUBSCRIPTIONS * 100;
    assert!(
        per_second > wanted * 8 / 10 || is_emulated(),
        "only {per_second} per second"
    );
    scene.end();
}

fn run(count: usize) -> Sum {
    let mut clients: Vec<Actor> = (0..count)
        .map(|_| start("loaded", new_user(), &[]))
        .collect();
    for client in &mut clients {
        client.expect("ready");
    }
    clients.iter_mut().for_each(|client| client.say("go"));
    let mut sum = Sum::default();
    let mut slowest = Vec::new();
    for client in &mut clients {
        let line = client.hear();
        let numbers: Vec<u64> = line
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let &[offered, delivered, dropped, received, p99] = &numbers[..] else {
            panic!("a client says {line}");
        };
        sum.offered += offered;
        sum.delivered += delivered;
        sum.dropped += dropped;
        sum.received += received;
        slowest.push(p99);
    }
    clients.into_iter().for_each(Actor::end);
    slowest.sort_unstable();
    sum.p99_median = slowest[slowest.len() / 2];
    sum.p99 = slowest[slowest.len() - 1];
    sum
}

fn receive(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let mut channel = ecalls.channel().ring(1024).open().expect("a channel");
    let subscriptions: Vec<_> = (0..SUBSCRIPTIONS)
        .map(|number| {
            let one = ecalls
                .subscribe("timer")
                .expect("it")
                .memory(&channel)
                .install();
            one.unwrap_or_else(|error| panic!("subscription {number}: {error}"))
        })
        .collect();
    stage.say("ready");
    stage.hear();
    let timer = Timer::every(channel.caller(), PERIOD).expect("a timer");
    let mut took = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("bounds");
    let (begin, mut received) = (Instant::now(), 0);
    let mut take = |channel: &mut ecalls::Channel, wait| {
        let event = channel.recv_timeout(wait).expect("the daemon")?;
        took.saturating_record(now_ns().saturating_sub(event.raise_ns).max(1));
        received += 1;
        Some(())
    };
    while begin.elapsed() < TIME {
        take(&mut channel, Duration::from_millis(50));
    }
    drop(timer);
    while take(&mut channel, Duration::from_millis(200)).is_some() {}
    let (mut offered, mut delivered, mut dropped) = (0, 0, 0);
    for subscription in &subscriptions {
        let count = subscription.count().expect("the daemon");
        offered += count.offered;
        delivered += count.delivered;
        dropped += count.dropped.iter().sum::<u64>() + count.late;
    }
    let p99 = took.value_at_quantile(0.99) / 1000;
    stage.say(format_args!(
        "{offered} {delivered} {dropped} {received} {p99}"
    ));
    stage.hear();
}
