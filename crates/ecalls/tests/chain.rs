//! Chains of actions: each result decides about the next step (ECalls-05 §3.1); several consumers
//! of one event; subscriptions for another process; limits. Needs root.

mod harness;

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use ecalls::handler::{Bound, Compare};
use ecalls::{DropReason, Error, Flow, Handler, Raise, SlotUse, downcall::Call};
use harness::{PATIENCE, QUIET, assert_all_adds_up, core, own_service, wait_until};
use limit::Running;
use rustix::process::{Pid, Signal, kill_process};

fn raise(service: &ecalls::Service, value: u64) -> i64 {
    service
        .raise(&Raise::new(&value.to_ne_bytes()))
        .expect("raised")
}

#[test]
fn user_handler_decides_whether_the_rest_of_the_chain_runs() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut memory = ecalls.channel().open().expect("a channel");
    let (sender, seen) = channel();
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .user(move |event| {
            sender.send(event.data_word()).expect("the test listens");
            if event.data_word() % 2 == 0 {
                Flow::Continue
            } else {
                Flow::Stop
            }
        })
        .memory(&memory)
        .install()
        .expect("a subscription");
    for value in 1..=6 {
        raise(&service, value);
    }
    let upcalls: Vec<u64> = (0..6)
        .map(|_| seen.recv_timeout(PATIENCE).expect("6 calls"))
        .collect();
    assert_eq!(upcalls, [1, 2, 3, 4, 5, 6]);
    let mut passed = Vec::new();
    for _ in 0..3 {
        let event = memory.recv_timeout(PATIENCE).expect("a living core");
        passed.push(event.expect("an event").data_word());
    }
    assert_eq!(passed, [2, 4, 6], "only what the handler let pass");
    assert_eq!(memory.recv_timeout(QUIET).expect("a living core"), None);
    assert_eq!(
        subscription.count().expect("its count").delivered,
        9,
        "6 upcalls, 3 stores"
    );
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn kernel_handlers_filter_by_field_attribute_and_rate() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut memory = ecalls.channel().open().expect("a channel");
    let bound = Bound::Attribute(3);
    let threshold = Handler::Threshold {
        field: "value".into(),
        compare: Compare::GreaterEqual,
        bound,
    };
    let histogram = Handler::Histogram {
        field: "value".into(),
        shift: 0,
    };
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .handler(&histogram)
        .handler(&threshold)
        .memory(&memory)
        .install()
        .expect("a subscription");
    memory
        .caller()
        .fast(Call::Set {
            attribute: 3,
            value: 5,
        })
        .expect("a call");
    for value in 0..10 {
        raise(&service, value);
    }
    let passed: Vec<_> = std::iter::from_fn(|| memory.try_recv())
        .map(|e| e.data_word())
        .collect();
    assert_eq!(passed, [5, 6, 7, 8, 9]);
    assert_eq!(
        memory.histogram().iter().sum::<u64>(),
        10,
        "all were counted before"
    );
    assert_eq!(memory.lost().filtered, 5, "shown next to the data");
    drop(subscription);
    let limit = Handler::Limit {
        per_second: 1,
        burst: 3,
    };
    let limited = ecalls
        .subscribe(&name)
        .expect("the service")
        .handler(&limit)
        .memory(&memory);
    let limited = limited.install().expect("a subscription");
    let begin = std::time::Instant::now();
    for value in 0..10 {
        raise(&service, value);
    }
    // One more each second.
    let most = 3 + begin.elapsed().as_secs();
    let delivered = limited.count().expect("its count").delivered;
    assert!((3..=most).contains(&delivered), "the burst: {delivered}");
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn handler_in_a_kernel_thread_may_sleep_and_the_chain_goes_on_there() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut memory = ecalls.channel().open().expect("a channel");
    let secret = Box::new([0x1122_3344_5566_7788u64; 8]);
    let copy = Handler::CopyUser {
        address: secret.as_ptr().addr() as u64,
        offset: 8,
        size: 16,
    };
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .thread(&copy)
        .memory(&memory)
        .install()
        .expect("a subscription");
    raise(&service, 1);
    let event = memory
        .recv_timeout(PATIENCE)
        .expect("a living core")
        .expect("an event");
    assert_eq!(event.size, 24, "extended by what was read");
    assert_eq!(event.data[..3], [1, secret[0], secret[1]]);
    let count = subscription.count().expect("its count");
    assert_eq!((count.threads, count.delivered), (1, 1));
    drop(subscription);
    let wrong = Handler::CopyUser {
        address: 8,
        offset: 0,
        size: 8,
    };
    let refused = ecalls
        .subscribe(&name)
        .expect("the service")
        .thread(&wrong)
        .memory(&memory);
    let refused = refused.install().expect("a subscription");
    raise(&service, 2);
    let gone = || {
        refused
            .count()
            .expect("its count")
            .dropped(DropReason::TargetGone)
            == 1
    };
    wait_until("memory that cannot be read is a counted drop", gone);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn wake_one_takes_turns() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut channels: Vec<_> = (0..3)
        .map(|_| ecalls.channel().open().expect("a channel"))
        .collect();
    let _subscriptions: Vec<_> = channels
        .iter()
        .map(|channel| {
            ecalls
                .subscribe(&name)
                .expect("it")
                .memory(channel)
                .install()
                .expect("one")
        })
        .collect();
    for value in 0..9u64 {
        let data = value.to_ne_bytes();
        let one = Raise::new(&data).wake_one();
        assert_eq!(service.raise(&one).expect("raised"), 1);
    }
    for (at, channel) in channels.iter_mut().enumerate() {
        let got: Vec<_> = std::iter::from_fn(|| channel.try_recv())
            .map(|e| e.data_word())
            .collect();
        let turn = at as u64;
        assert_eq!(got, [turn, turn + 3, turn + 6]);
    }
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn consumers_come_by_cpu_priority_and_then_by_registration() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let urgent = sleeper(&["chrt", "-f", "20"]);
    let nice = sleeper(&["nice", "-n", "10"]);
    let normal = sleeper(&[]);
    let mut memory = ecalls.channel().open().expect("a channel");
    let subscribe = |receiver: u32| {
        let builder = ecalls
            .subscribe(&name)
            .expect("the service")
            .receiver(receiver);
        builder.memory(&memory).install().expect("a subscription")
    };
    let subscriptions = [&nice, &normal, &urgent, &normal].map(|sleeper| subscribe(sleeper.id()));
    raise(&service, 1);
    let order: Vec<u32> = std::iter::from_fn(|| memory.try_recv())
        .map(|event| event.subscription)
        .collect();
    let expected = [2, 1, 3, 0].map(|at: usize| subscriptions[at].id().raw());
    assert_eq!(
        order, expected,
        "real time first, then equal ones as registered, then nice"
    );
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn subscription_for_another_process_sends_the_signal_there_and_ends_with_it() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut other = sleeper(&[]);
    let builder = ecalls
        .subscribe(&name)
        .expect("the service")
        .receiver(other.id());
    let subscription = builder.signal(41).install().expect("a subscription");
    raise(&service, 1);
    // A real-time signal that nobody handles ends a process.
    use std::os::unix::process::ExitStatusExt;
    let status = other.wait(PATIENCE);
    assert_eq!(status.signal(), Some(41));
    let active = |count: i64| count == 0;
    wait_until("the subscription of a dead process is dead", || {
        active(raise(&service, 2))
    });
    let count = subscription.count().expect("its count");
    assert_eq!(count.delivered, 1);
    assert_all_adds_up(&ecalls, service.index());
}

fn signal(process: &Running, signal: Signal) {
    let pid = Pid::from_raw(process.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("a child");
}

/// More than the works of one subscription take at once (bpf/event/signal_task.bpf.c).
const BURST: u64 = 300;

/// A sleeper that signal 41 does not end, stopped, with a burst of signals that wait for it: they
/// are sent in a kernel thread, where the kernel refuses to send one.
fn stopped_with_a_burst(
    ecalls: &ecalls::Ecalls,
    service: &ecalls::Service,
    name: &str,
) -> (Running, ecalls::Subscription) {
    let other = sleeper(&["env", "--block-signal=41"]);
    let builder = ecalls.subscribe(name).expect("the service");
    let subscription = builder
        .receiver(other.id())
        .thread(&Handler::Sample { one_in: 1 })
        .signal(41)
        .install()
        .expect("a subscription");
    signal(&other, Signal::STOP);
    for value in 0..BURST {
        raise(service, value);
    }
    let ran = || subscription.count().expect("its count").handlers == BURST;
    wait_until("every chain has been in a thread", ran);
    (other, subscription)
}

/// Whether no signal waits for its receiver.
fn no_signal_waits(ecalls: &ecalls::Ecalls) -> bool {
    let queues = ecalls.core().expect("hosted here").queues();
    let queues = queues.expect("the queues");
    queues.iter().all(|queue| queue.ready == 0)
}

#[test]
fn a_burst_of_signals_that_waited_arrives_whole() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let (other, subscription) = stopped_with_a_burst(&ecalls, &service, &name);
    signal(&other, Signal::CONT);
    wait_until("none is left behind", || no_signal_waits(&ecalls));
    let count = subscription.count().expect("its count");
    assert_eq!(
        (count.delivered, count.signals),
        (BURST, BURST),
        "{count:?}"
    );
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn signals_that_wait_for_a_process_that_dies_are_counted() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let (other, subscription) = stopped_with_a_burst(&ecalls, &service, &name);
    // It is not waited for: nobody comes for its signals, and nothing else happens.
    signal(&other, Signal::KILL);
    wait_until("none is left behind", || no_signal_waits(&ecalls));
    let count = subscription.count().expect("its count");
    let told = count.delivered + count.dropped.iter().sum::<u64>();
    assert_eq!(told, BURST, "{count:?}");
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn reader_that_does_not_keep_up_loses_events_with_a_count() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut memory = ecalls.channel().ring(64).open().expect("a channel");
    let subscription = ecalls
        .subscribe(&name)
        .expect("it")
        .memory(&memory)
        .install()
        .expect("one");
    for value in 0..100 {
        raise(&service, value);
    }
    let got: Vec<_> = std::iter::from_fn(|| memory.try_recv())
        .map(|e| e.data_word())
        .collect();
    let count = subscription.count().expect("its count");
    assert_eq!(
        got,
        (0..got.len() as u64).collect::<Vec<_>>(),
        "the oldest, in order"
    );
    assert_eq!(count.dropped(DropReason::RingFull), 100 - got.len() as u64);
    assert_eq!(
        memory.lost().dropped(DropReason::RingFull),
        100 - got.len() as u64
    );
    raise(&service, 1000);
    assert_eq!(
        memory.try_recv().map(|e| e.data_word()),
        Some(1000),
        "there is room again"
    );
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn slots_are_used_by_priority_and_by_type() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut by_priority = ecalls
        .channel()
        .slots(16, SlotUse::Priority)
        .open()
        .expect("a channel");
    let mut by_type = ecalls
        .channel()
        .slots(16, SlotUse::Type)
        .open()
        .expect("a channel");
    let first = ecalls
        .subscribe(&name)
        .expect("it")
        .memory(&by_priority)
        .install()
        .expect("one");
    let second = ecalls
        .subscribe(&name)
        .expect("it")
        .memory(&by_type)
        .install()
        .expect("one");
    for (value, slot) in [(1u64, 9), (2, 3), (3, 3), (4, 15), (5, 16)] {
        let data = value.to_ne_bytes();
        service
            .raise(&Raise::new(&data).priority(slot).slot_type(slot))
            .expect("raised");
    }
    let got: Vec<_> = std::iter::from_fn(|| by_priority.try_recv())
        .map(|e| e.data_word())
        .collect();
    assert_eq!(
        got,
        [2, 1, 4],
        "most urgent first; a full priority keeps the first"
    );
    let got: Vec<_> = std::iter::from_fn(|| by_type.try_recv())
        .map(|e| e.data_word())
        .collect();
    assert_eq!(got, [3, 1, 4], "the latest of a type");
    assert_eq!(first.count().expect("it").dropped(DropReason::SlotFull), 2);
    let count = second.count().expect("it");
    assert_eq!(
        count.dropped(DropReason::SlotFull),
        1,
        "there is no slot 16"
    );
    assert_eq!(count.dropped(DropReason::Replaced), 1);
    assert_eq!(by_type.lost().dropped(DropReason::Replaced), 1);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn wrong_subscriptions_are_refused_with_the_reason() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let text = |result: Result<ecalls::Subscription, Error>| {
        result
            .map(|_| ())
            .expect_err("a wrong subscription")
            .to_string()
    };
    let builder = || ecalls.subscribe(&name).expect("the service");
    assert!(text(builder().install()).contains("1 to 8 actions"));
    assert!(text(builder().signal(15).install()).contains("real-time signal"));
    assert!(text(builder().kinds(&["three"]).signal(40).install()).contains("zero, one, two"));
    let copy = Handler::CopyUser {
        address: 0,
        offset: 0,
        size: 8,
    };
    assert!(text(builder().handler(&copy).install()).contains("kernel thread"));
    let histogram = Handler::Histogram {
        field: "size".into(),
        shift: 0,
    };
    assert!(text(builder().handler(&histogram).install()).contains("there are value"));
    assert!(text(builder().receiver(0x3fff_fff0).signal(40).install()).contains("gone"));
    let unknown = ecalls
        .subscribe("no-such-service")
        .map(|_| ())
        .expect_err("unknown");
    assert!(
        unknown.to_string().contains("there are socket"),
        "{unknown}"
    );
    assert!(
        ecalls.channel().ring(100).open().is_err(),
        "not a power of two"
    );
    let taken = ecalls
        .register_service(&name, "", "")
        .map(|_| ())
        .expect_err("taken");
    assert!(taken.to_string().contains("no living service"), "{taken}");
    let many: Vec<_> = (0..64)
        .map(|_| {
            builder()
                .handler(&Handler::Count { end: true })
                .install()
                .expect("one of 64")
        })
        .collect();
    let full = text(builder().handler(&Handler::Count { end: true }).install());
    assert!(
        full.contains("limit reached: subscriptions of one service"),
        "{full}"
    );
    assert_eq!(raise(&service, 1), 64);
    for one in &many {
        assert_eq!(
            one.count().expect("its count").filtered,
            1,
            "all 64 ran, in several runs"
        );
    }
    assert_all_adds_up(&ecalls, service.index());
}

/// A child process that sleeps, started through a wrapper command.
fn sleeper(wrapper: &[&str]) -> Running {
    let mut words = wrapper.to_vec();
    words.extend(["sleep", "60"]);
    let child = Running::start(Command::new(words[0]).args(&words[1..]));
    // The wrapper becomes `sleep` by exec: wait until it has.
    let comm = format!("/proc/{}/comm", child.id());
    wait_until("the sleeper sleeps", || {
        std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep")
    });
    std::thread::sleep(Duration::from_millis(5));
    child
}

#[test]
fn deadline_of_one_subscription_is_no_limit_for_another() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    // The first call loads the mechanism, which takes longer than an event is held here.
    let _nobody = service.raise(&Raise::new(&[5; 8]));
    let mut strict = ecalls.channel().keep_late().open().expect("a channel");
    let mut patient = ecalls.channel().keep_late().open().expect("a channel");
    let subscribe = || ecalls.subscribe(&name).expect("the service");
    let short = Duration::from_nanos(1);
    let first = subscribe()
        .deadline(short)
        .memory(&strict)
        .install()
        .expect("one");
    let second = subscribe().memory(&patient).install().expect("one");
    // Held for a moment, so that the timer's delay makes it late for the strict one.
    let held = Raise::new(&[6; 8]).release(Duration::from_millis(20));
    service.raise(&held).expect("raised");
    let event = patient
        .recv_timeout(PATIENCE)
        .expect("a living core")
        .expect("an event");
    assert_eq!(event.deadline(), None, "it has none of its own");
    assert!(strict.recv_timeout(QUIET).expect("a living core").is_none());
    assert_eq!(first.count().expect("it").late, 1);
    assert_eq!(strict.lost().late, 1, "shown next to the data");
    assert_eq!(second.count().expect("it").delivered, 1);
    let long = Duration::from_secs(100);
    let third = subscribe()
        .deadline(long)
        .memory(&patient)
        .install()
        .expect("one");
    raise(&service, 7);
    let deadlines: Vec<_> = std::iter::from_fn(|| patient.try_recv())
        .map(|e| (e.subscription, e.deadline()))
        .collect();
    assert!(
        deadlines.contains(&(second.id().raw(), None)),
        "{deadlines:?}"
    );
    let own = deadlines
        .iter()
        .find(|(id, _)| *id == third.id().raw())
        .expect("its event");
    assert!(own.1.is_some(), "each reader sees its own deadline");
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn action_that_fails_beside_one_that_delivers_is_counted_too() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let small = ecalls.channel().ring(64).open().expect("a channel");
    let large = ecalls.channel().open().expect("a channel");
    let builder = ecalls
        .subscribe(&name)
        .expect("the service")
        .memory(&small)
        .memory(&large);
    let subscription = builder.install().expect("a subscription");
    for value in 0..200 {
        raise(&service, value);
    }
    let count = subscription.count().expect("its count");
    let missed = small.lost().dropped(DropReason::RingFull);
    assert!(missed >= 200 - 64, "{missed}");
    assert_eq!((count.delivered, count.partial), (200, missed));
    assert_eq!(large.lost().dropped(DropReason::RingFull), 0);
    assert_all_adds_up(&ecalls, service.index());
}
