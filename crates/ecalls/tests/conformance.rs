//! The conformance suite: each behaviour of event delivery once, for every mechanism of delivery.
//!
//! Needs root. The tests run one at a time in a process that blocks the signal they use, before it
//! has any other thread. Mechanisms: ring, slots (next free), real-time signal, user handler,
//! kernel handler, kernel thread. A mechanism that carries values says which arrived; the kernel's
//! own ones count.

mod harness;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ecalls::signal::SignalQueue;
use ecalls::{Channel, Ecalls, Flow, Handler, Raise, SlotUse, Subscription, SubscriptionBuilder};
use harness::{PATIENCE, QUIET, assert_all_adds_up, core, own_service, wait_until};
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The real-time signal of the signal mechanism.
const SIGNAL: i32 = 40;

/// The end of a chain, where a test finds its events.
enum Destination {
    Memory(Channel),
    Signal(SignalQueue),
    User(Receiver<u64>),
    /// Only counts.
    Kernel,
}

const MECHANISMS: &[&str] = &["ring", "slots", "signal", "user", "handler", "thread"];

fn attach(
    ecalls: &Ecalls,
    mechanism: &str,
    builder: SubscriptionBuilder,
) -> (Subscription, Destination) {
    let (builder, destination) = match mechanism {
        "ring" => {
            let channel = ecalls.channel().keep_late().open().expect("a channel");
            (builder.memory(&channel), Destination::Memory(channel))
        }
        "slots" => {
            let shape = ecalls.channel().slots(64, SlotUse::Free).keep_late();
            let channel = shape.open().expect("a channel");
            (builder.memory(&channel), Destination::Memory(channel))
        }
        "signal" => {
            let queue = SignalQueue::new(&[SIGNAL]).expect("a queue of signals");
            (
                builder.signal(SIGNAL.unsigned_abs()),
                Destination::Signal(queue),
            )
        }
        "user" => {
            let (sender, receiver) = channel();
            let builder = builder.user(move |event| {
                sender.send(event.data_word()).expect("the test listens");
                Flow::Stop
            });
            (builder, Destination::User(receiver))
        }
        "handler" => (
            builder.handler(&Handler::Count { end: false }),
            Destination::Kernel,
        ),
        "thread" => (
            builder.thread(&Handler::Count { end: false }),
            Destination::Kernel,
        ),
        other => panic!("no mechanism {other}"),
    };
    (builder.install().expect("a subscription"), destination)
}

/// The values that arrive until there are `count`, or time is up. The kernel's own mechanisms give
/// their count of deliveries, as so many zeros.
fn take(
    subscription: &Subscription,
    destination: &mut Destination,
    count: usize,
    time: Duration,
) -> Vec<u64> {
    let end = Instant::now() + time;
    let mut values = Vec::new();
    while values.len() < count {
        let left = end.saturating_duration_since(Instant::now());
        let next = match destination {
            Destination::Memory(channel) => channel
                .recv_timeout(left)
                .expect("a living core")
                .map(|event| event.data_word()),
            Destination::Signal(queue) => {
                let left_ns = u64::try_from(left.as_nanos()).expect("a short time");
                queue
                    .wait(Some(left_ns))
                    .expect("a mask")
                    .map(|got| got.value)
            }
            Destination::User(receiver) => receiver.recv_timeout(left).ok(),
            Destination::Kernel => {
                let delivered = subscription.count().expect("its count").delivered;
                values = vec![0; usize::try_from(delivered).expect("a small number")];
                std::thread::sleep(Duration::from_millis(1));
                (!left.is_zero()).then_some(()).and(None)
            }
        };
        match next {
            Some(value) => values.push(value),
            None if left.is_zero() => break,
            None => {}
        }
    }
    values
}

fn carries_values(destination: &Destination) -> bool {
    !matches!(destination, Destination::Kernel)
}

/// Runs one behaviour for every mechanism, and checks the accounts after each.
fn for_every_mechanism(behaviour: impl Fn(&Ecalls, &ecalls::Service, &str, &str)) {
    let Some(ecalls) = core() else { return };
    for mechanism in MECHANISMS {
        let (service, name) = own_service(&ecalls);
        behaviour(&ecalls, &service, &name, mechanism);
        assert_all_adds_up(&ecalls, service.index());
    }
}

fn every_event_arrives_once_and_in_order() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let builder = ecalls.subscribe(name).expect("the service");
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        let sent: Vec<u64> = (1..=50).map(|i| i << 40 | i).collect();
        for value in &sent {
            let offered = service
                .raise(&Raise::new(&value.to_ne_bytes()))
                .expect("raised");
            assert_eq!(offered, 1, "{mechanism}");
        }
        let got = take(&subscription, &mut destination, sent.len(), PATIENCE);
        if carries_values(&destination) {
            assert_eq!(got, sent, "{mechanism}");
        } else {
            assert_eq!(got.len(), sent.len(), "{mechanism}");
        }
        assert!(
            take(&subscription, &mut destination, 51, QUIET).len() <= 50,
            "{mechanism}: doubled"
        );
        assert_eq!(
            subscription.count().expect("its count").delivered,
            50,
            "{mechanism}"
        );
    });
}

fn late_event_is_discarded_and_counted() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let builder = ecalls.subscribe(name).expect("the service");
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        // A release behind the deadline: when it may be delivered, it is late.
        let now = ecalls::now_ns();
        let late = Raise::new(&[7; 8]).at(Some(now + 5_000_000), Some(now + 1_000_000));
        service.raise(&late).expect("raised");
        let counted = || subscription.count().expect("its count").late == 1;
        wait_until("the late event is counted", counted);
        assert!(
            take(&subscription, &mut destination, 1, QUIET).is_empty(),
            "{mechanism}"
        );
        let total = ecalls
            .core()
            .expect("hosted here")
            .service_stat(service.index())
            .expect("it")
            .count;
        assert_eq!(
            (total.raised, total.late, total.dispatched),
            (1, 1, 0),
            "{mechanism}"
        );
    });
}

fn event_is_held_until_its_release_time() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let builder = ecalls.subscribe(name).expect("the service");
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        let start = Instant::now();
        let held = Duration::from_millis(30);
        let offered = service.raise(&Raise::new(&9u64.to_ne_bytes()).release(held));
        assert_eq!(offered.expect("raised"), 1, "{mechanism}");
        let early = subscription.count().expect("its count").offered;
        assert!(
            early == 0 || start.elapsed() >= held,
            "{mechanism}: offered before its time"
        );
        let got = take(&subscription, &mut destination, 1, PATIENCE);
        assert_eq!(got.len(), 1, "{mechanism}");
        assert!(
            start.elapsed() >= held,
            "{mechanism}: {:?}",
            start.elapsed()
        );
    });
}

fn waiting_events_are_delivered_earliest_deadline_first() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let mut held = Duration::from_millis(40);
        loop {
            let builder = ecalls.subscribe(name).expect("the service");
            let (subscription, mut destination) = attach(ecalls, mechanism, builder);
            let all_waited = raise_by_deadlines(service, held);
            let got = take(
                &subscription,
                &mut destination,
                DEADLINES_MIN.len(),
                PATIENCE,
            );
            assert_eq!(got.len(), DEADLINES_MIN.len(), "{mechanism}");
            if !all_waited {
                // A slow machine released the first before the last was raised: no order is due.
                held *= 4;
                assert!(held < PATIENCE, "{mechanism}: raising takes {held:?}");
                continue;
            }
            if carries_values(&destination) {
                assert_eq!(got, [4, 1, 5, 3, 0, 2], "{mechanism}");
            }
            return;
        }
    });
}

/// Deadlines in no order, minutes after the release; 0: none, which is the last. No event may be
/// late: on a busy machine the first raise, which loads the fast call, takes more than ten seconds.
const DEADLINES_MIN: [u64; 6] = [50, 20, 0, 40, 10, 30];

/// Raises an event for each of the deadlines, to be released together after `held`, on one CPU and
/// so in one queue. Whether the last was raised before the release.
fn raise_by_deadlines(service: &ecalls::Service, held: Duration) -> bool {
    let release_ns = ecalls::now_ns() + u64::try_from(held.as_nanos()).expect("some ms");
    on_one_cpu(|| {
        for (value, minutes) in DEADLINES_MIN.iter().enumerate() {
            let deadline_ns = (*minutes != 0).then_some(release_ns + minutes * 60_000_000_000);
            let data = (value as u64).to_ne_bytes();
            let raise = Raise::new(&data).at(Some(release_ns), deadline_ns);
            service.raise(&raise).expect("raised");
        }
    });
    ecalls::now_ns() < release_ns
}

/// Runs `f` with this thread on one CPU.
fn on_one_cpu(f: impl FnOnce()) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let before = sched_getaffinity(None).expect("its CPUs");
    let mut one = CpuSet::new();
    let first = (0..CpuSet::MAX_CPU)
        .find(|cpu| before.is_set(*cpu))
        .expect("a CPU");
    one.set(first);
    sched_setaffinity(None, &one).expect("a CPU of ours");
    f();
    sched_setaffinity(None, &before).expect("its CPUs");
}

fn filtered_event_ends_the_chain_and_is_counted() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let sample = Handler::Sample { one_in: 5 };
        let builder = ecalls
            .subscribe(name)
            .expect("the service")
            .handler(&sample);
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        for value in 0..20u64 {
            service
                .raise(&Raise::new(&value.to_ne_bytes()))
                .expect("raised");
        }
        let got = take(&subscription, &mut destination, 4, PATIENCE);
        if carries_values(&destination) {
            assert_eq!(got, [0, 5, 10, 15], "{mechanism}");
        }
        let count = subscription.count().expect("its count");
        assert_eq!((count.delivered, count.filtered), (4, 16), "{mechanism}");
    });
}

fn event_for_another_process_does_not_arrive() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let builder = ecalls.subscribe(name).expect("the service");
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        let other = ecalls::Target::Process(1);
        service
            .raise(&Raise::new(&1u64.to_ne_bytes()).target(other))
            .expect("raised");
        let own = ecalls::Target::Process(std::process::id());
        service
            .raise(&Raise::new(&2u64.to_ne_bytes()).target(own))
            .expect("raised");
        let got = take(&subscription, &mut destination, 1, PATIENCE);
        assert_eq!(got.len(), 1, "{mechanism}");
        assert_eq!(
            subscription.count().expect("its count").offered,
            1,
            "{mechanism}"
        );
        let total = ecalls
            .core()
            .expect("hosted here")
            .service_stat(service.index())
            .expect("it")
            .count;
        let nobody = ecalls::DropReason::NoSubscriber;
        assert_eq!((total.raised, total.dropped(nobody)), (2, 1), "{mechanism}");
    });
}

fn unwanted_kind_does_not_arrive() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let builder = ecalls.subscribe(name).expect("the service").kinds(&["one"]);
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        for kind in [0, 1, 2, 1] {
            service
                .raise(&Raise::new(&u64::from(kind).to_ne_bytes()).kind(kind))
                .expect("raised");
        }
        assert_eq!(
            take(&subscription, &mut destination, 2, PATIENCE).len(),
            2,
            "{mechanism}"
        );
        assert_eq!(
            subscription.count().expect("its count").offered,
            2,
            "{mechanism}"
        );
    });
}

fn ended_subscription_gets_nothing_more() {
    for_every_mechanism(|ecalls, service, name, mechanism| {
        let builder = ecalls.subscribe(name).expect("the service");
        let (subscription, mut destination) = attach(ecalls, mechanism, builder);
        service
            .raise(&Raise::new(&1u64.to_ne_bytes()))
            .expect("raised");
        assert_eq!(
            take(&subscription, &mut destination, 1, PATIENCE).len(),
            1,
            "{mechanism}"
        );
        let before = subscription.count().expect("its count").offered;
        drop(subscription);
        assert_eq!(
            service
                .raise(&Raise::new(&2u64.to_ne_bytes()))
                .expect("raised"),
            0
        );
        assert_eq!(before, 1, "{mechanism}");
    });
}

fn chain_goes_on_behind_a_signal() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let queue = SignalQueue::new(&[SIGNAL]).expect("a queue of signals");
    let channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.signal(SIGNAL.unsigned_abs()).memory(&channel);
    let subscription = builder.install().expect("a subscription");
    let sent: Vec<u64> = (1..=20).collect();
    for value in &sent {
        let offered = service.raise(&Raise::new(&value.to_ne_bytes()));
        assert_eq!(offered.expect("raised"), 1);
    }
    for mut destination in [Destination::Signal(queue), Destination::Memory(channel)] {
        let got = take(&subscription, &mut destination, sent.len(), PATIENCE);
        assert_eq!(got, sent);
    }
    assert_all_adds_up(&ecalls, service.index());
}

/// Where the kernel side sends signals, those beyond the limit are dropped; else they wait.
fn signals_beyond_the_limit_of_their_user_wait_or_are_counted() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let builder = ecalls.subscribe(&name).expect("the service");
    let (subscription, mut destination) = attach(&ecalls, "signal", builder);
    let before = getrlimit(Resource::Sigpending);
    let few = Rlimit {
        current: Some(32),
        ..before
    };
    setrlimit(Resource::Sigpending, few).expect("fewer than before");
    for value in 1..=100u64 {
        let offered = service.raise(&Raise::new(&value.to_ne_bytes()));
        assert_eq!(offered.expect("raised"), 1);
    }
    let count = || {
        let count = subscription.count().expect("its count");
        (count.delivered, count.dropped.iter().sum::<u64>())
    };
    wait_until("each is delivered or dropped", || {
        count().0 + count().1 == 100
    });
    let delivered = usize::try_from(count().0).expect("at most 100");
    let got = take(&subscription, &mut destination, delivered, PATIENCE);
    assert!(got.len() == delivered && got.is_sorted(), "{got:?}");
    assert!(take(&subscription, &mut destination, 1, QUIET).is_empty());
    setrlimit(Resource::Sigpending, before).expect("as it was");
    assert_all_adds_up(&ecalls, service.index());
}

fn main() {
    ecalls::signal::block(&[SIGNAL]).expect("a real-time signal");
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let tests: &[(&str, fn())] = &[
        (
            "every_event_arrives_once_and_in_order",
            every_event_arrives_once_and_in_order,
        ),
        (
            "late_event_is_discarded_and_counted",
            late_event_is_discarded_and_counted,
        ),
        (
            "event_is_held_until_its_release_time",
            event_is_held_until_its_release_time,
        ),
        (
            "waiting_events_are_delivered_earliest_deadline_first",
            waiting_events_are_delivered_earliest_deadline_first,
        ),
        (
            "filtered_event_ends_the_chain_and_is_counted",
            filtered_event_ends_the_chain_and_is_counted,
        ),
        (
            "event_for_another_process_does_not_arrive",
            event_for_another_process_does_not_arrive,
        ),
        (
            "unwanted_kind_does_not_arrive",
            unwanted_kind_does_not_arrive,
        ),
        (
            "chain_goes_on_behind_a_signal",
            chain_goes_on_behind_a_signal,
        ),
        (
            "signals_beyond_the_limit_of_their_user_wait_or_are_counted",
            signals_beyond_the_limit_of_their_user_wait_or_are_counted,
        ),
        (
            "ended_subscription_gets_nothing_more",
            ended_subscription_gets_nothing_more,
        ),
    ];
    let trials = tests.iter().map(|(name, test)| {
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
