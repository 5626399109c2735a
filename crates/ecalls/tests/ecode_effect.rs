//! What handlers written in E-code ask for, and the kernel side does by the right of their
//! subscription: counts, signals, events of other services, and that the chain goes on later. Needs
//! root.

mod harness;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Raise, Service, Subscription};
use harness::{PATIENCE, assert_comes_to_rest, core, own_service, wait_until};
use limit::calm::measured;

const SIGNAL: i32 = 44;

fn raise(service: &Service, value: u64) -> i64 {
    let data = value.to_ne_bytes();
    service.raise(&Raise::new(&data)).expect("raised")
}

/// A subscription with one handler and a channel behind it.
fn subscribed(ecalls: &Ecalls, service: &str, text: &str) -> (Subscription, Channel) {
    let channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(service).expect("the service").ecode(text);
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (subscription, channel)
}

#[test]
fn counts_are_in_the_memory_of_the_channel() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let text = "count(0); count(40, value); if (value > 2) histogram(value); count(64); \
                return value != 1;";
    let (subscription, mut channel) = subscribed(&ecalls, &name, text);
    for value in 1..=4 {
        raise(&service, value);
    }
    let counters = channel.histogram();
    assert_eq!((counters[0], counters[40]), (4, 10));
    assert_eq!(
        (counters[3], counters[4]),
        (1, 1),
        "3 and 4 in buckets of their own"
    );
    assert_eq!(counters.iter().sum::<u64>(), 16);
    assert_eq!(std::iter::from_fn(|| channel.try_recv()).count(), 3);
    let count = subscription.count().expect("its count");
    assert_eq!(count.undone, 4, "there is no counter 64");
    assert_comes_to_rest(&ecalls, service.index());
}

/// The value of the last signal.
static VALUE: AtomicU64 = AtomicU64::new(0);

#[test]
fn signal_goes_to_the_receiver() {
    let Some(ecalls) = core() else { return };
    // Process-wide: it may come to any thread.
    ecalls::signal::install(SIGNAL, |signal| {
        VALUE.store(signal.value, Ordering::Relaxed);
    })
    .expect("a real-time signal");
    let (service, name) = own_service(&ecalls);
    let text =
        format!("if (value == 7) {{ signal({SIGNAL}, value << 40); return 0; }} signal(9, 1);");
    let (subscription, mut channel) = subscribed(&ecalls, &name, &text);
    raise(&service, 1);
    raise(&service, 7);
    wait_until("the signal", || VALUE.load(Ordering::Relaxed) == 7 << 40);
    assert_eq!(std::iter::from_fn(|| channel.try_recv()).count(), 1);
    let count = subscription.count().expect("its count");
    assert_eq!(
        (count.undone, count.filtered),
        (1, 1),
        "9 is no real-time signal"
    );
    assert_comes_to_rest(&ecalls, service.index());
}

#[test]
fn raised_event_is_one_of_the_named_service() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let (other, other_name) = own_service(&ecalls);
    let mut raised = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&other_name).expect("the service");
    let _other = builder.memory(&raised).install().expect("a subscription");
    let text = format!("if (value > 1) raise(\"{other_name}\", value, -1, event.kind);");
    let (subscription, mut channel) = subscribed(&ecalls, &name, &text);
    for value in 1..=3 {
        raise(&service, value);
    }
    assert_eq!(std::iter::from_fn(|| channel.try_recv()).count(), 3);
    let mut events = Vec::new();
    wait_until("two events", || {
        events.extend(std::iter::from_fn(|| raised.try_recv()));
        events.len() == 2
    });
    for (event, value) in events.iter().zip(2..) {
        assert_eq!(
            (event.service, event.size, event.data[0]),
            (other.index(), 24, value)
        );
        assert_eq!(event.data[1], u64::MAX);
        assert_eq!(event.pid, std::process::id());
    }
    assert_eq!(subscription.count().expect("its count").undone, 0);
    drop(other);
    raise(&service, 5);
    let undone = || subscription.count().expect("its count").undone == 1;
    wait_until("a service that is gone", undone);
    assert_comes_to_rest(&ecalls, service.index());
}

#[test]
fn service_does_not_raise_itself() {
    let Some(ecalls) = core() else { return };
    let (_service, name) = own_service(&ecalls);
    let builder = ecalls.subscribe(&name).expect("the service");
    let refused = builder.ecode(&format!("raise(\"{name}\");")).install();
    assert!(
        matches!(refused, Err(ecalls::Error::Ecode(_))),
        "{refused:?}"
    );
}

#[test]
fn deferred_chain_goes_on_later_with_what_it_had() {
    measured(Duration::from_millis(4), || {
        let Some(ecalls) = core() else { return };
        let (service, name) = own_service(&ecalls);
        let text = "struct output { u64 value; u64 at; }; output.value = value + 1; \
                output.at = now(); if (value) defer(20000);";
        let (subscription, mut channel) = subscribed(&ecalls, &name, text);
        let begin = Instant::now();
        raise(&service, 1);
        raise(&service, 0);
        let first = channel.try_recv().expect("the second event, at once");
        assert_eq!(first.data[0], 1);
        assert!(channel.try_recv().is_none(), "the first waits");
        let later = channel
            .recv_timeout(PATIENCE)
            .expect("a living core")
            .expect("the first");
        assert!(
            begin.elapsed() >= Duration::from_millis(20),
            "{:?}",
            begin.elapsed()
        );
        assert_eq!((later.data[0], later.size), (2, 16));
        assert!(ecalls::now_ns() >= later.data[1] + 20_000_000);
        let count = subscription.count().expect("its count");
        assert_eq!((count.offered, count.delivered, count.undone), (2, 2, 0));
        assert_comes_to_rest(&ecalls, service.index());
    });
}

#[test]
fn deferred_chain_of_an_ended_subscription_ends_too() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let (subscription, channel) = subscribed(&ecalls, &name, "defer(5000);");
    raise(&service, 1);
    drop(subscription);
    drop(channel);
    std::thread::sleep(Duration::from_millis(20));
    assert_comes_to_rest(&ecalls, service.index());
}

#[test]
fn deferral_behind_the_last_action_is_none() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls
        .subscribe(&name)
        .expect("the service")
        .memory(&channel);
    let subscription = builder.ecode("defer(1000000);").install().expect("one");
    raise(&service, 1);
    let count = subscription.count().expect("its count");
    assert_eq!((count.offered, count.delivered), (1, 1));
    assert_comes_to_rest(&ecalls, service.index());
}
