//! The victim: an ordinary program that raises events and receives them, and knows of each one what
//! became of it.
//!
//! Two kinds of events a millisecond apart: such that are delivered at once, and such that wait in
//! the machine's queues until their release time. One thread raises, another sleeps until it is
//! woken. Asked "report", it says what was raised, what has not arrived, what is counted as lost,
//! and how long an event took, since the last report.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Raise, Service, now_ns};
use hdrhistogram::Histogram;

use crate::actor::{Actor, Roles, Stage, start};

pub(crate) const ROLES: Roles = &[("victim", play)];

/// Between two events.
const PERIOD: Duration = Duration::from_micros(500);

/// How long every second event waits for its release.
const RELEASE: Duration = Duration::from_millis(3);

/// By then an event that has not come does not come any more, however busy the machine is.
const REST: Duration = Duration::from_secs(10);

/// The victim's measurements since its last report.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "some are only told")]
pub(crate) struct Seen {
    pub(crate) raised: u64,
    pub(crate) missing: u64,
    pub(crate) lost: u64,
    /// Raises that were refused.
    pub(crate) refused: u64,
    /// us.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
    /// How long a call to raise took, us.
    pub(crate) call_p99: u64,
}

/// A victim that runs.
#[derive(Debug)]
pub(crate) struct Victim(Actor);

impl Victim {
    /// Starts one of user `uid`. It runs before others, so that what it measures is the core and
    /// not the scheduler: attackers may use processors as everybody may.
    pub(crate) fn start(uid: u32) -> Victim {
        let mut actor = start("victim", uid, &[]);
        actor.expect("ready");
        crate::raw::make_urgent(actor.pid());
        actor.say("go");
        Victim(actor)
    }

    /// Its measurements since the last request.
    pub(crate) fn report(&mut self) -> Seen {
        let line = self.0.ask("report");
        let numbers: Vec<u64> = line
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let &[raised, missing, lost, refused, p50, p99, max, call_p99] = &numbers[..] else {
            panic!("the victim says {line}");
        };
        Seen {
            raised,
            missing,
            lost,
            refused,
            p50,
            p99,
            max,
            call_p99,
        }
    }

    /// Lets it end.
    pub(crate) fn end(self) {
        self.0.end();
    }
}

/// Between the two threads.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    pause: AtomicBool,
    paused: AtomicBool,
    raised: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds")
}

fn play(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let name = format!("victim-{}", std::process::id());
    let service = ecalls
        .register_service(&name, "u64 number", "now later")
        .expect("a service");
    let channel = ecalls.channel().ring(4096).open().expect("a channel");
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .memory(&channel);
    let subscription = subscription.install().expect("a subscription");
    stage.say("ready");
    stage.hear();
    let shared = Arc::new(Shared::default());
    let took = Arc::new(Mutex::new(histogram()));
    let calls = Arc::new(Mutex::new(histogram()));
    let reader = std::thread::spawn({
        let (shared, took) = (Arc::clone(&shared), Arc::clone(&took));
        move || receive(channel, &shared, &took)
    });
    let raiser = std::thread::spawn({
        let (shared, calls) = (Arc::clone(&shared), Arc::clone(&calls));
        move || raise(&service, &shared, &calls)
    });
    let mut before = [0; 4];
    while stage.hear().is_some() {
        shared.pause.store(true, Ordering::SeqCst);
        while !shared.paused.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let counters = || {
            [
                &shared.raised,
                &shared.received,
                &shared.lost,
                &shared.refused,
            ]
            .map(|counter| counter.load(Ordering::SeqCst))
        };
        let begin = Instant::now();
        let mut now = counters();
        while now[0] != now[1] && begin.elapsed() < REST {
            std::thread::sleep(Duration::from_millis(1));
            now = counters();
        }
        let [raised, received, lost, refused] = std::array::from_fn(|i| now[i] - before[i]);
        before = now;
        let took = std::mem::replace(&mut *took.lock().expect("no panic"), histogram());
        let calls = std::mem::replace(&mut *calls.lock().expect("no panic"), histogram());
        let us = |ns: u64| ns / 1000;
        stage.say(format_args!(
            "{raised} {} {lost} {refused} {} {} {} {}",
            raised.wrapping_sub(received),
            us(took.value_at_quantile(0.5)),
            us(took.value_at_quantile(0.99)),
            us(took.max()),
            us(calls.value_at_quantile(0.99)),
        ));
        shared.pause.store(false, Ordering::SeqCst);
    }
    shared.stop.store(true, Ordering::SeqCst);
    raiser.join().expect("no panic");
    reader.join().expect("no panic");
    drop(subscription);
}

fn raise(service: &Service, shared: &Shared, calls: &Mutex<Histogram<u64>>) {
    let mut number = 0u64;
    while !shared.stop.load(Ordering::SeqCst) {
        let pause = shared.pause.load(Ordering::SeqCst);
        shared.paused.store(pause, Ordering::SeqCst);
        if !pause {
            let data = number.to_ne_bytes();
            let raise = match number % 2 {
                0 => Raise::new(&data),
                _ => Raise::new(&data).kind(1).release(RELEASE),
            };
            let start = now_ns();
            match service.raise(&raise) {
                Ok(_) => shared.raised.fetch_add(1, Ordering::SeqCst),
                Err(error) => {
                    eprintln!("  the victim's raise {number}: {error}");
                    shared.refused.fetch_add(1, Ordering::SeqCst)
                }
            };
            let took = now_ns().saturating_sub(start);
            calls
                .lock()
                .expect("no panic")
                .saturating_record(took.max(1));
            number += 1;
        }
        std::thread::sleep(PERIOD);
    }
}

fn receive(mut channel: Channel, shared: &Shared, took: &Mutex<Histogram<u64>>) {
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok(event) = channel.recv_timeout(Duration::from_millis(50)) else {
            return;
        };
        if let Some(event) = event {
            let since = event.raise_ns.max(event.release_ns);
            let ns = now_ns().saturating_sub(since);
            took.lock().expect("no panic").saturating_record(ns.max(1));
            shared.received.fetch_add(1, Ordering::SeqCst);
        }
        let lost = channel.lost();
        let lost = lost.late + lost.dropped.iter().sum::<u64>() + channel.late();
        shared.lost.store(lost, Ordering::SeqCst);
    }
}
